//! Bytes of a file that keep it in memory for as long as anybody holds them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes of a file, usually of one tensor. A clone shares the memory map, which lives as long as the last of them.
#[derive(Clone)]
pub struct Bytes {
    storage: Storage,
    range: Range<usize>,
}

/// What holds a file: a memory map, or a vector.
pub(crate) type Storage = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl Bytes {
    /// `range` of `storage`, inside which it lies.
    pub(crate) fn new(storage: Storage, range: Range<usize>) -> Bytes {
        assert!(range.end <= (*storage).as_ref().len(), "the range of a tensor was checked when it was read");
        Bytes { storage, range }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.storage).as_ref()[self.range.clone()]
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} at {})", self.range.len(), self.range.start)
    }
}
