//! The memory map of a file: the one place of this crate that is not safe Rust.

#![allow(unsafe_code)]

use std::fs::File;

use memmap2::Mmap;

/// Maps the whole of `file` for reading.
pub(crate) fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is read-only and private, and leaves this crate only as shared `&[u8]`, in which every pattern of
    // bits is valid; no code of this process can write through it. That no other process changes the file meanwhile is
    // the documented duty of whoever calls `Gguf::open`. No bound of a memory access rests on that duty: lengths and
    // offsets are copied out of the map before they are checked, and a slice's bounds are checked against the length of
    // the map, which does not change. A file that is cut short ends the process with SIGBUS; it reads no other memory.
    unsafe { Mmap::map(file) }
}
