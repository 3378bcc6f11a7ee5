//! Folders of a real model: `logits.json`, `example.json` with its steps, `example_reply.json`. A row a part:
//!
//! | part | files |
//! |---|---|
//! | logits | `logits.json` |
//! | gradient | `example.json`, `adapter_init/`, `grads.safetensors` |
//! | losses | `example.json`, `adapter_init/` |
//! | final | `example.json`, `adapter_init/`, `final.safetensors` |
//! | reply | `example_reply.json`, `adapter_init/`, `grads_reply.safetensors` |
//!
//! A part without its files is listed as not run. Where products round their activations (q8), logits are held to a divergence
//! of distributions, and the other parts are not run.

use std::path::{Path, PathBuf};

use apprentice_engine::{Engine, Numerics};
use apprentice_models::{AdapterNaming, Model};

use crate::bench::Bench;
use crate::compare::Half;
use crate::error::CheckError;
use crate::example::Example;
use crate::files;
use crate::report::{Report, Row, Verdict};
use logits::TopLogits;
use training::{reply_row, training_rows};

mod divergence;
mod logits;
mod training;

const LOGITS: &str = "logits.json";
const EXAMPLE: &str = "example.json";
const EXAMPLE_REPLY: &str = "example_reply.json";
const ADAPTER: &str = "adapter_init";
const GRADIENT: &str = "grads.safetensors";
const GRADIENT_REPLY: &str = "grads_reply.safetensors";
const FINAL: &str = "final.safetensors";

/// Runs every part of `folder` that has files with the model at `model_path`.
///
/// # Errors
/// A model with another SHA-256 than the files were made with; a folder without parts; files that are not what they
/// should be; texts longer than the model's context.
pub fn golden(bench: &dyn Bench, folder: &Path, model_path: &Path) -> Result<Report, CheckError> {
    let golden = Folder::read(folder)?;
    let model = bench.open(model_path)?;
    let sha256 = files::sha256(model_path)?;
    let made_with = golden.made_with();
    for (path, made_with, tokens) in &made_with {
        if let Some(expected) = made_with.clone().filter(|made_with| *made_with != sha256) {
            return Err(CheckError::OtherModel { path: path.clone(), expected, found: sha256 });
        }
        check_context(path, &model, *tokens)?;
    }
    let positions = made_with.iter().map(|(_, _, tokens)| *tokens).max().unwrap_or(0);
    let mut engine = bench.engine(model, positions)?;
    let rows = golden.run(&mut engine, &sha256)?;
    if rows.iter().all(|row| row.verdict == Verdict::NotRun) {
        return Err(nothing(folder));
    }
    Ok(Report { rows })
}

/// What a folder holds.
struct Folder {
    path: PathBuf,
    logits: Option<TopLogits>,
    example: Option<Example>,
    reply: Option<Example>,
}

impl Folder {
    fn read(path: &Path) -> Result<Folder, CheckError> {
        let present = |name: &str| Some(path.join(name)).filter(|path| path.exists());
        let folder = Folder {
            path: path.to_owned(),
            logits: present(LOGITS).map(|path| TopLogits::read(&path)).transpose()?,
            example: present(EXAMPLE).map(|path| Example::read(&path)).transpose()?,
            reply: present(EXAMPLE_REPLY).map(|path| Example::read(&path)).transpose()?,
        };
        match &folder {
            Folder { logits: None, example: None, reply: None, .. } => Err(nothing(path)),
            _ => Ok(folder),
        }
    }

    /// Of each file that is there: its path, the model that it was made with, its number of tokens.
    fn made_with(&self) -> Vec<(PathBuf, Option<String>, usize)> {
        let logits =
            self.logits.as_ref().map(|logits| (LOGITS, Some(&logits.model_sha256), logits.tokens.len()));
        let example = |name, example: &Example| (name, example.model_sha256.clone(), example.tokens.len());
        let logits = logits.map(|(name, sha256, tokens)| (name, sha256.cloned(), tokens));
        let examples = [
            self.example.as_ref().map(|found| example(EXAMPLE, found)),
            self.reply.as_ref().map(|found| example(EXAMPLE_REPLY, found)),
        ];
        let all = [logits].into_iter().chain(examples).flatten();
        all.map(|(name, sha256, tokens)| (self.path.join(name), sha256, tokens)).collect()
    }

    fn run(&self, engine: &mut Engine, sha256: &str) -> Result<Vec<Row>, CheckError> {
        let mut rows = Vec::new();
        rows.push(match &self.logits {
            Some(logits) => logits.row(engine, &self.path.join(LOGITS), sha256)?,
            None => not_run("logits", LOGITS),
        });
        if engine.options().numerics == Numerics::Q8 {
            // Their numbers are those of products that were not rounded.
            let note = "its bounds are for --numerics f32";
            let parts = ["gradient", "losses", "final", "reply"];
            rows.extend(parts.map(|part| Row::without(part, Verdict::NotRun, note)));
            return Ok(rows);
        }
        match &self.example {
            Some(example) => rows.extend(training_rows(engine, &self.path, example)?),
            None => rows.extend(["gradient", "losses", "final"].map(|part| not_run(part, EXAMPLE))),
        }
        rows.push(match &self.reply {
            Some(example) => reply_row(engine, &self.path, example)?,
            None => not_run("reply", EXAMPLE_REPLY),
        });
        Ok(rows)
    }
}

/// Refuses a text that is longer than the model's context.
pub(crate) fn check_context(path: &Path, model: &Model, found: usize) -> Result<(), CheckError> {
    let limit = model.hyper().context;
    match found > limit {
        true => Err(CheckError::Context { path: path.to_owned(), found, limit }),
        false => Ok(()),
    }
}

/// What a file calls a matrix.
pub(crate) fn tensor_name(naming: &AdapterNaming, site: usize, half: Half) -> String {
    let names = naming.pairs.iter().find(|names| names.site == site);
    let name = names.map(|names| match half {
        Half::A => &names.a,
        Half::B => &names.b,
    });
    name.cloned().unwrap_or_default()
}

fn not_run(part: &str, missing: &str) -> Row {
    Row::without(part, Verdict::NotRun, format!("{missing} is not there"))
}

fn nothing(folder: &Path) -> CheckError {
    let expected = "logits.json, example.json or example_reply.json with their tensors";
    CheckError::Nothing { path: folder.to_owned(), expected }
}
