//! Block formats of GGUF tensors: how many bytes hold how many values, and what they mean as float32.
//!
//! A tensor's rows are cut into blocks, each a fixed number of values in a fixed number of bytes. A format is one file
//! in `formats/`, with a diagram of its bytes; [`Format`] is the list of them. Decoding is exact: every product in it
//! fits float32's 24 bits, so at most one addition rounds, and no order of evaluation can change a bit.

#![forbid(unsafe_code)]

mod block;
mod error;
mod format;
mod formats;
mod integers;
mod kind;
mod unbuilt;

pub use error::QuantError;
pub use format::Format;
pub use integers::{Grid, HALF, STRIP, Strip};
pub use kind::ErrorKind;
pub use unbuilt::unbuilt_name;
