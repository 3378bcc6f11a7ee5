//! A GGUF file as its users see it: metadata, tensors, bytes, fingerprint.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::part::{Metadata, Part};
use crate::{Bytes, GgufError, Tensor, Value, split};

/// A GGUF file, of one part or several, with everything in it checked.
pub struct Gguf {
    version: u32,
    alignment: u64,
    pub(crate) metadata: Metadata,
    tensors: Vec<Tensor>,
    by_name: HashMap<String, usize>,
    parts: Vec<Stored>,
}

impl Gguf {
    /// Maps the file at `path` and, where it is the first of several parts, the others beside it.
    ///
    /// The files must stay as they are while the value lives: one that is cut short meanwhile ends the process.
    ///
    /// # Errors
    /// [`GgufError::File`], which names the file and holds the reason.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let first = Part::open(path, 0)?;
        let parts = split::open_others(path, first)?;
        Gguf::join(parts).map_err(|error| error.in_file(path))
    }

    /// Reads a file that is in memory and is not split.
    ///
    /// # Errors
    /// Why it was refused; [`GgufError::PartName`] for a part of a split file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        let part = Part::read(Arc::new(bytes), 0)?;
        match split::part_count(&part)? {
            1 => Gguf::join(vec![part]),
            count => Err(GgufError::PartName { count }),
        }
    }

    /// Version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in the (first) file, in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Keys and values in the order of the (first) file.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.metadata.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value under `key`; see the typed getters too.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// All tensors, in the order of the files.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.by_name.get(name).map(|&index| &self.tensors[index])
    }

    /// The bytes of a tensor of this file.
    pub fn bytes(&self, tensor: &Tensor) -> &[u8] {
        &self.parts[tensor.part].bytes()[tensor.range.clone()]
    }

    /// The bytes of a tensor of this file, which outlive it.
    pub fn shared_bytes(&self, tensor: &Tensor) -> Bytes {
        Bytes::new(self.parts[tensor.part].storage.clone(), tensor.range.clone())
    }

    /// What an adapter remembers of its base: SHA-256, in lower-case hexadecimal, over, for each part, its header with
    /// metadata and tensor table, then the first 4 KiB of each of its tensors in the order of the table.
    pub fn fingerprint(&self) -> String {
        const HEAD_BYTES: usize = 4096;
        let mut hash = Sha256::new();
        for (index, part) in self.parts.iter().enumerate() {
            hash.update(&part.bytes()[..part.header_bytes]);
            for tensor in self.tensors.iter().filter(|tensor| tensor.part == index) {
                let bytes = self.bytes(tensor);
                hash.update(&bytes[..bytes.len().min(HEAD_BYTES)]);
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// One file from its parts, of which there is at least one.
    fn join(parts: Vec<Part>) -> Result<Gguf, GgufError> {
        let (version, alignment) = (parts[0].version, parts[0].alignment);
        let mut metadata = None;
        let mut tensors = Vec::new();
        let mut stored = Vec::new();
        for part in parts {
            metadata.get_or_insert(part.metadata);
            tensors.extend(part.tensors);
            stored.push(Stored { storage: part.storage, header_bytes: part.header_bytes });
        }
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            if by_name.insert(tensor.name.clone(), index).is_some() {
                return Err(GgufError::DuplicateTensor { name: tensor.name.clone() });
            }
        }
        let metadata = metadata.unwrap_or_default();
        Ok(Gguf { version, alignment, metadata, tensors, by_name, parts: stored })
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version)
            .field("keys", &self.metadata.entries.len())
            .field("tensors", &self.tensors.len())
            .field("parts", &self.parts.len())
            .finish()
    }
}

/// What remains of a part once its metadata and tensors are joined.
struct Stored {
    storage: crate::bytes::Storage,
    header_bytes: usize,
}

impl Stored {
    fn bytes(&self) -> &[u8] {
        (*self.storage).as_ref()
    }
}
