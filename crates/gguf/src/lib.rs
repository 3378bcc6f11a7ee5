//! GGUF files, versions 2 and 3, little-endian: read by memory map, and written.
//!
//! ```text
//! "GGUF"  version u32  tensors u64  keys u64
//! keys    times: key string, type u32, value
//! tensors times: name string, dimensions u32, extents u64 (innermost first), block type u32, offset u64
//! zeros up to the next multiple of `general.alignment` (32 without that key)
//! tensor data; offsets count from here
//! ```
//! A string is its length as u64 and UTF-8; an array is its element type as u32, its count as u64 and the elements.
//!
//! Files are hostile: every count, length, offset, product and sum is checked before it is used, and memory grows only
//! with bytes that were read. A file in several parts is one [`Gguf`].
//!
//! Source: the GGUF specification in ggml's documents.

#![deny(unsafe_code)]

mod array;
mod bytes;
mod error;
mod file;
mod getters;
mod map;
mod part;
mod reader;
mod split;
mod tensor;
mod value;
mod writer;

pub use apprentice_quant::{ErrorKind, Format};
pub use array::{Array, Strings};
pub use bytes::Bytes;
pub use error::GgufError;
pub use file::Gguf;
pub use tensor::Tensor;
pub use value::{Value, ValueType};
pub use writer::Writer;
