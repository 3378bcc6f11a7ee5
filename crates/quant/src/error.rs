//! Why blocks were not decoded or values not encoded.

use crate::{ErrorKind, Format};

/// Why blocks were not decoded or values not encoded. Nothing has been written where one is returned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QuantError {
    /// A number of values that does not fill whole blocks.
    #[error("{format}: expected a multiple of {} values, found {values}", format.block_values())]
    PartialBlock {
        /// The format that was asked for.
        format: Format,
        /// How many values were given.
        values: usize,
    },
    /// Bytes and values that do not belong together.
    #[error("{format}: expected {expected} bytes for {values} values, found {found}")]
    Length {
        /// The format that was asked for.
        format: Format,
        /// How many values were to be decoded.
        values: usize,
        /// Bytes that these values take.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// A format that is read but not written.
    #[error("{format}: this format is decoded only, expected one of F32, F16, BF16, Q4_0, Q8_0")]
    NoEncoder {
        /// The format that was asked for.
        format: Format,
    },
    /// A value that has no finite scale: not a number, infinite, or too large for the float16 beside its block.
    #[error("{format}: value {index} is {value}, which no finite scale can hold")]
    OutOfRange {
        /// The format that was asked for.
        format: Format,
        /// Index of the value among those given.
        index: usize,
        /// The value itself.
        value: f32,
    },
}

impl QuantError {
    /// What the error means to whoever asked.
    pub fn kind(&self) -> ErrorKind {
        match self {
            QuantError::PartialBlock { .. } | QuantError::Length { .. } | QuantError::OutOfRange { .. } => {
                ErrorKind::Input
            }
            QuantError::NoEncoder { .. } => ErrorKind::Unsupported,
        }
    }
}
