//! The other parts of a split file: `NAME-00001-of-00003.gguf`, `NAME-00002-of-00003.gguf`, ...
//!
//! Each part is a file of its own with tensors; `split.no` counts from 0, the names from 1. The first holds the metadata
//! of the whole and, under `split.tensors.count`, the number of all tensors.

use std::path::{Path, PathBuf};

use crate::GgufError;
use crate::part::Part;

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// How many parts a file says that it has; 1 where it does not speak of parts.
pub(crate) fn part_count(first: &Part) -> Result<u64, GgufError> {
    Ok(first.metadata.u64(COUNT)?.unwrap_or(1).max(1))
}

/// All parts of the file whose first, at `path`, is `first`.
pub(crate) fn open_others(path: &Path, first: Part) -> Result<Vec<Part>, GgufError> {
    let checked = || {
        let count = part_count(&first)?;
        let number = first.metadata.u64(NUMBER)?.unwrap_or(0);
        if count == 1 {
            return Ok(None);
        }
        let name = Name::of(path, number, count)?;
        if number > 0 {
            let first = name.path(0).file_name().map(|name| name.to_string_lossy().into_owned());
            return Err(GgufError::NotFirstPart {
                part: number.saturating_add(1),
                count,
                first: first.unwrap_or_default(),
            });
        }
        Ok(Some(name))
    };
    let Some(name) = checked().map_err(|error| error.in_file(path))? else { return Ok(vec![first]) };
    let expected = first.metadata.u64(TENSORS).map_err(|error| error.in_file(path))?;
    let mut parts = vec![first];
    for number in 1..name.count {
        let path = name.path(number);
        let part = Part::open(&path, parts.len())?;
        check_part(&part, number, name.count).map_err(|error| error.in_file(&path))?;
        parts.push(part);
    }
    let found = parts.iter().map(|part| part.tensors.len()).sum::<usize>();
    match expected {
        Some(expected) if expected != found as u64 => {
            Err(GgufError::TensorTotal { expected, found }.in_file(path))
        }
        _ => Ok(parts),
    }
}

fn check_part(part: &Part, number: u64, count: u64) -> Result<(), GgufError> {
    for (key, expected) in [(NUMBER, number), (COUNT, count)] {
        let found = part.metadata.u64(key)?;
        if found != Some(expected) {
            return Err(GgufError::PartKey { key, part: number + 1, count, expected, found });
        }
    }
    Ok(())
}

/// The names of all parts.
struct Name {
    folder: PathBuf,
    stem: String,
    count: u64,
}

impl Name {
    /// Reads the name of part `number` of `count`.
    fn of(path: &Path, number: u64, count: u64) -> Result<Name, GgufError> {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let end = ending(number, count);
        match file.strip_suffix(&end) {
            Some(stem) => {
                let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
                Ok(Name { folder, stem: stem.to_string(), count })
            }
            None => Err(GgufError::PartName { count }),
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}{}", self.stem, ending(number, self.count)))
    }
}

fn ending(number: u64, count: u64) -> String {
    format!("-{:05}-of-{count:05}.gguf", number.saturating_add(1))
}
