//! The adapters that requests may name: read at the start, made by teaching, kept as files, a generation at a time.
//!
//! A loaded adapter is data of the engine under an id. Teaching one takes it into training; every lesson then loads a new
//! generation under a new id, and the old one is the engine's to forget once no reply uses it. An adapter that was loaded
//! from a file is forgotten here, when no reply uses it any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apprentice_engine::{AdapterId, Engine, LearnerOptions, LiveId, Named, Objective, teaching_adapter};
use apprentice_models::adapter_file::{self, ReadOptions};
use apprentice_models::{Adapter, AdapterRows};
use axum::http::StatusCode;

use crate::error::ServerError;
use crate::reject::Reject;

/// The adapter that teaching makes where there is none.
pub const DEFAULT: &str = "default";
/// Bytes of the name of an adapter.
const NAME_BYTES_MAX: usize = 64;
/// All adapters.
pub struct Shelf {
    entries: BTreeMap<String, Entry>,
    folder: Option<PathBuf>,
    /// Replies that use an adapter loaded here.
    uses: HashMap<AdapterId, usize>,
    /// Adapters loaded here that are to be forgotten.
    retired: BTreeSet<AdapterId>,
}

/// An adapter.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it holds.
    pub adapter: Arc<Adapter>,
    /// What rows name.
    pub id: AdapterId,
    /// Lessons since the start.
    pub generation: u64,
    /// Its file, once there is one.
    pub path: Option<PathBuf>,
    live: Option<LiveId>,
}

/// An adapter taken into training.
#[derive(Clone, Copy, Debug)]
pub struct Pupil {
    /// Its handle.
    pub live: LiveId,
    /// Which gradient it learns by.
    pub objective: Objective,
    /// Whether it was made for this lesson.
    pub fresh: bool,
}

impl Shelf {
    /// Loads every adapter of a folder, which is made if it does not exist: GGUF files and PEFT folders, by their names
    /// without `.gguf`.
    ///
    /// # Errors
    /// A folder that cannot be read; a file that is not called as an adapter may be, is of another base, or is broken.
    pub fn open(engine: &mut Engine, folder: Option<PathBuf>, force: bool) -> Result<Shelf, ServerError> {
        let mut shelf =
            Shelf { entries: BTreeMap::new(), folder, uses: HashMap::new(), retired: BTreeSet::new() };
        let Some(folder) = shelf.folder.clone() else { return Ok(shelf) };
        let failed = |error| ServerError::Adapters { path: folder.clone(), error };
        fs::create_dir_all(&folder).map_err(failed)?;
        let mut paths = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        for path in paths {
            let Some(name) = adapter_name(&path) else { continue };
            if !is_name(&name) {
                return Err(ServerError::AdapterName { path });
            }
            if shelf.entries.contains_key(&name) {
                return Err(ServerError::AdapterTwice { path, name });
            }
            let options = ReadOptions { alpha: None, force };
            let adapter = Arc::new(adapter_file::read(engine.model(), &path, &options)?.0);
            let id = engine.load_adapter(adapter.clone())?;
            shelf.entries.insert(name, Entry { adapter, id, generation: 0, path: Some(path), live: None });
        }
        Ok(shelf)
    }

    /// All adapters, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Number of adapters.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// An adapter.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn entry(&self, name: &str) -> Result<&Entry, Reject> {
        self.entries.get(name).ok_or_else(|| unknown(name, self.entries.keys()))
    }

    /// Which rows of a prompt, and of the reply to it, name the adapter.
    ///
    /// # Errors
    /// There is none of this name; no row would name it.
    pub fn named(&self, name: &str, prompt: &[u32]) -> Result<Named, Reject> {
        let entry = self.entry(name)?;
        match entry.adapter.rows.first_row(prompt) {
            Some(first) => Ok(Named::From(first, entry.id)),
            None => {
                let message =
                    format!("adapter {name:?}: the tokens that invoke it do not occur in the prompt");
                Err(Reject::field("adapter", message))
            }
        }
    }

    /// A reply begins to use an adapter.
    pub fn hold(&mut self, id: AdapterId) {
        *self.uses.entry(id).or_default() += 1;
    }

    /// A reply uses it no longer.
    pub fn release(&mut self, engine: &mut Engine, id: AdapterId) {
        if let Some(count) = self.uses.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.uses.remove(&id);
            }
        }
        self.forget(engine);
    }

    /// Refuses a lesson for an adapter that cannot be taught.
    ///
    /// # Errors
    /// There is none of this name, but for [`DEFAULT`]; it is one that some tokens invoke.
    pub fn check_pupil(&self, name: &str) -> Result<(), Reject> {
        match self.entries.get(name) {
            None if name == DEFAULT => Ok(()),
            None => Err(unknown(name, self.entries.keys())),
            Some(entry) => objective(name, &entry.adapter.rows).map(|_| ()),
        }
    }

    /// Takes an adapter into training, and makes [`DEFAULT`] if it is not there.
    ///
    /// # Errors
    /// As [`Shelf::check_pupil`]; what the engine answers.
    pub fn pupil(&mut self, engine: &mut Engine, name: &str) -> Result<Pupil, Reject> {
        self.check_pupil(name)?;
        if let Some(Entry { live: Some(live), adapter, .. }) = self.entries.get(name) {
            return Ok(Pupil { live: *live, objective: objective(name, &adapter.rows)?, fresh: false });
        }
        let known = self.entries.get(name).cloned();
        let adapter = match &known {
            Some(entry) => entry.adapter.clone(),
            None => Arc::new(teaching_adapter(engine.model())?),
        };
        let objective = objective(name, &adapter.rows)?;
        let live = engine.live(adapter, LearnerOptions::teaching())?;
        let (id, adapter, generation) = engine.live_adapter(live)?;
        let path = known.as_ref().and_then(|entry| entry.path.clone());
        let fresh = known.is_none();
        self.entries.insert(name.to_owned(), Entry { adapter, id, generation, path, live: Some(live) });
        if let Some(entry) = known {
            self.retired.insert(entry.id);
            self.forget(engine);
        }
        Ok(Pupil { live, objective, fresh })
    }

    /// Forgets an adapter that was made for a lesson which then was not carried out.
    pub fn unmake(&mut self, engine: &mut Engine, name: &str) {
        if let Some(Entry { live: Some(live), .. }) = self.entries.remove(name) {
            // A handle of our own; nothing depends on whether the engine still knew it.
            let _ = engine.end_live(live);
        }
    }

    /// Takes the new generation of an adapter, and writes its file if there is a folder.
    ///
    /// # Errors
    /// The file cannot be written: the adapter is as it was before the lesson.
    pub fn learnt(&mut self, engine: &mut Engine, name: &str) -> Result<(), Reject> {
        let Some(entry) = self.entries.get_mut(name) else { return Ok(()) };
        let Some(live) = entry.live else { return Ok(()) };
        let (id, adapter, generation) = engine.live_adapter(live)?;
        if let Some(folder) = &self.folder {
            let path = entry.path.clone().unwrap_or_else(|| file(folder, name));
            if let Err(error) = adapter_file::write(engine.model(), &adapter, &path) {
                engine.revert(live)?;
                let (id, adapter, generation) = engine.live_adapter(live)?;
                (entry.id, entry.adapter, entry.generation) = (id, adapter, generation);
                return Err(error.into());
            }
            entry.path = Some(path);
        }
        (entry.id, entry.adapter, entry.generation) = (id, adapter, generation);
        Ok(())
    }

    /// Writes an adapter as it stands under a name, as GGUF or as a PEFT folder, and keeps it under that name too.
    ///
    /// # Errors
    /// There is none of this name; there is no folder; the new name is none, or is another adapter's; the file cannot be
    /// written.
    pub fn save(
        &mut self,
        engine: &mut Engine,
        name: &str,
        wanted: Option<&str>,
        peft: bool,
    ) -> Result<PathBuf, Reject> {
        let entry = self.entry(name)?.clone();
        let folder = self.folder.as_ref().ok_or_else(|| {
            Reject::conflict("no_folder", "the server was started without --adapters: it keeps no files")
        })?;
        let target = wanted.unwrap_or(name);
        if !is_name(target) {
            let message = format!(
                "name: expected 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-', not beginning with '.', found {target:?}"
            );
            return Err(Reject::field("name", message));
        }
        let own = target == name;
        if !own && self.entries.contains_key(target) {
            let message = format!("name: there is an adapter {target:?} already");
            return Err(Reject::conflict("adapter_exists", message).at("name"));
        }
        let path = if peft { folder.join(target) } else { file(folder, target) };
        if own && entry.path.as_ref().is_some_and(|known| *known != path) {
            let message = format!("adapter {name:?} is kept in the other format; save it under another name");
            return Err(Reject::conflict("adapter_exists", message).at("format"));
        }
        let copy = match own {
            true => None,
            false => Some(engine.load_adapter(entry.adapter.clone())?),
        };
        if let Err(error) = adapter_file::write(engine.model(), &entry.adapter, &path) {
            if let Some(id) = copy {
                self.retired.insert(id);
                self.forget(engine);
            }
            return Err(error.into());
        }
        match (copy, self.entries.get_mut(name)) {
            (Some(id), _) => {
                let entry = Entry { id, generation: 0, path: Some(path.clone()), live: None, ..entry };
                self.entries.insert(target.to_owned(), entry);
            }
            (None, Some(entry)) => entry.path = Some(path.clone()),
            (None, None) => {}
        }
        Ok(path)
    }

    /// Forgets an adapter, and removes its file.
    ///
    /// # Errors
    /// There is none of this name; its file cannot be removed, and then nothing has changed.
    pub fn delete(&mut self, engine: &mut Engine, name: &str) -> Result<(), Reject> {
        let entry = self.entry(name)?;
        if let Some(path) = &entry.path {
            remove(path).map_err(|error| {
                let message = format!("{}: {error}", path.display());
                Reject::new(StatusCode::INTERNAL_SERVER_ERROR, "io", message)
            })?;
        }
        match self.entries.remove(name) {
            Some(Entry { live: Some(live), .. }) => engine.end_live(live)?,
            Some(entry) => {
                self.retired.insert(entry.id);
            }
            None => {}
        }
        self.forget(engine);
        Ok(())
    }

    /// Unloads what is retired and not in use.
    fn forget(&mut self, engine: &mut Engine) {
        let uses = &self.uses;
        self.retired.retain(|id| {
            let used = uses.contains_key(id);
            if !used {
                // An id of our own; nothing depends on whether the engine still knew it.
                let _ = engine.unload_adapter(*id);
            }
            used
        });
    }
}

/// What an adapter is called: the name of its file without `.gguf`, or that of its PEFT folder. `None` for what is no
/// adapter, and for what begins with a dot.
fn adapter_name(path: &Path) -> Option<String> {
    let hidden = path.file_name()?.to_str().is_some_and(|name| name.starts_with('.'));
    let is_adapter = match path.is_dir() {
        true => path.join("adapter_config.json").exists(),
        false => path.extension().is_some_and(|end| end == "gguf"),
    };
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    (is_adapter && !hidden).then(|| name.map(|name| name.to_string_lossy().into_owned())).flatten()
}

/// Whether an adapter may be called so: it becomes the name of a file, and a part of a model's.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with('.')
        && ![".gguf", ".json", ".bin", ".safetensors"].iter().any(|end| name.ends_with(end))
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.gguf"))
}

/// A file, or the files that a PEFT folder is made of and the folder if nothing else is in it. What is gone already is
/// as good as removed.
fn remove(path: &Path) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    if !path.is_dir() {
        return gone(fs::remove_file(path));
    }
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        gone(fs::remove_file(path.join(name)))?;
    }
    let _ = fs::remove_dir(path); // other files in it are not ours
    Ok(())
}

fn objective(name: &str, rows: &AdapterRows) -> Result<Objective, Reject> {
    match rows {
        AdapterRows::All => Ok(Objective::All),
        AdapterRows::Reply => Ok(Objective::Reply),
        AdapterRows::Invocation(_) => {
            let message =
                format!("adapter {name:?}: teaching an adapter that some tokens invoke is not supported");
            Err(Reject::unsupported("adapter", message))
        }
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Reject {
    let known: Vec<_> = known.map(String::as_str).collect();
    let known = if known.is_empty() {
        "there is none yet".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    };
    Reject::missing("adapter_not_found", format!("adapter: {name:?} is not here; {known}")).at("adapter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        let check = |name: &str, ok| assert_eq!(is_name(name), ok, "{name:?}");
        check("default", true);
        check("a.b_c-1", true);
        check(&"x".repeat(64), true);
        for name in ["", ".", "..", ".hidden", "a/b", "a b", "ä", "a\0", "x.gguf", &"x".repeat(65)] {
            check(name, false);
        }
    }
}
