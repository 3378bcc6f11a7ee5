//! One file: header, metadata and tensor table, read and checked in full before anybody sees them.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::bytes::Storage;
use crate::reader::Reader;
use crate::tensor::{ENTRY_BYTES, Entry};
use crate::{GgufError, Tensor, Value, map};

/// Alignment of a file that does not give one.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// A file that was read.
pub(crate) struct Part {
    pub storage: Storage,
    pub version: u32,
    pub metadata: Metadata,
    pub alignment: u64,
    pub tensors: Vec<Tensor>,
    /// Bytes of header, metadata and tensor table.
    pub header_bytes: usize,
}

impl Part {
    /// Maps and reads the file at `path`, which is part `part` of several.
    pub(crate) fn open(path: &Path, part: usize) -> Result<Part, GgufError> {
        let read = || {
            // Asked before it is opened, because to open a pipe is to wait for its writer.
            if !std::fs::metadata(path)?.is_file() {
                return Err(GgufError::NotAFile);
            }
            let file = File::open(path)?;
            if file.metadata()?.len() == 0 {
                return Err(GgufError::Empty);
            }
            Part::read(Arc::new(map::map(&file)?), part)
        };
        read().map_err(|error| error.in_file(path))
    }

    /// Reads a file that is in memory.
    pub(crate) fn read(storage: Storage, part: usize) -> Result<Part, GgufError> {
        let bytes = (*storage).as_ref();
        if bytes.is_empty() {
            return Err(GgufError::Empty);
        }
        let mut reader = Reader::new(bytes);
        let version = read_version(&mut reader)?;
        let tensor_count = reader.count("tensors", ENTRY_BYTES)?;
        let key_count = reader.count("keys", KEY_BYTES)?;
        let metadata = Metadata::read(&mut reader, key_count)?;
        let alignment = alignment(&metadata)?;
        let entries = (0..tensor_count).map(|_| Entry::read(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        let header_bytes = reader.offset();
        let data_start = header_bytes.checked_next_multiple_of(alignment as usize).unwrap_or(usize::MAX);
        let place = |entry: Entry| entry.place(part, alignment, data_start, bytes.len());
        let tensors = entries.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        check_names(&tensors)?;
        check_overlap(&tensors)?;
        Ok(Part { storage, version, metadata, alignment, tensors, header_bytes })
    }
}

/// Metadata in the order of the file, with an index by key.
#[derive(Default)]
pub(crate) struct Metadata {
    pub entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    fn read(reader: &mut Reader<'_>, count: usize) -> Result<Metadata, GgufError> {
        let mut metadata = Metadata::default();
        for _ in 0..count {
            let key = reader.name("a key")?.to_string();
            let value = reader.value()?;
            metadata.insert(key, value)?;
        }
        Ok(metadata)
    }

    /// Appends a value under a key that is not there yet.
    pub(crate) fn insert(&mut self, key: String, value: Value) -> Result<(), GgufError> {
        if self.index.contains_key(&key) {
            return Err(GgufError::DuplicateKey { key });
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        Ok(())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&index| &self.entries[index].1)
    }

    /// The integer under `key`, of any width.
    pub(crate) fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let Some(found) = value.as_integer() else {
            return Err(GgufError::WrongType {
                key: key.to_string(),
                expected: "an integer",
                found: value.type_name(),
            });
        };
        match u64::try_from(found) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(GgufError::IntegerRange { key: key.to_string(), expected: "u64", found }),
        }
    }
}

/// The fewest bytes of a key and its value: the length of an empty key, a type, a byte.
const KEY_BYTES: usize = 8 + 4 + 1;

fn read_version(reader: &mut Reader<'_>) -> Result<u32, GgufError> {
    let found = reader.array("magic")?;
    if &found != b"GGUF" {
        return Err(GgufError::Magic { found });
    }
    match reader.u32("a version")? {
        version @ (2 | 3) => Ok(version),
        // A small number with its bytes in the other order.
        swapped if swapped & 0xffff == 0 && swapped != 0 => {
            Err(GgufError::BigEndian { version: swapped.swap_bytes() })
        }
        found => Err(GgufError::Version { found }),
    }
}

/// The alignment that `metadata` gives to tensor data.
pub(crate) fn alignment(metadata: &Metadata) -> Result<u64, GgufError> {
    let found = metadata.u64(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if found.is_power_of_two() && found <= u64::from(u32::MAX) {
        Ok(found)
    } else {
        Err(GgufError::Alignment { found })
    }
}

fn check_names(tensors: &[Tensor]) -> Result<(), GgufError> {
    let mut names = HashSet::new();
    match tensors.iter().find(|tensor| !names.insert(&tensor.name)) {
        Some(tensor) => Err(GgufError::DuplicateTensor { name: tensor.name.clone() }),
        None => Ok(()),
    }
}

/// Refuses tensors that share bytes: a small file would otherwise pass as one of any size.
fn check_overlap(tensors: &[Tensor]) -> Result<(), GgufError> {
    let mut by_start: Vec<&Tensor> = tensors.iter().filter(|tensor| !tensor.range.is_empty()).collect();
    by_start.sort_by_key(|tensor| tensor.range.start);
    match by_start.windows(2).find(|pair| pair[1].range.start < pair[0].range.end) {
        Some(pair) => Err(GgufError::Overlap { name: pair[1].name.clone(), other: pair[0].name.clone() }),
        None => Ok(()),
    }
}
