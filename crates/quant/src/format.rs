//! The list of formats, and everything that is asked of a format by its name.

use std::fmt;

use crate::QuantError;
use crate::block::{Block, OutOfRange, Size, encode_blocks};
use crate::formats;
use crate::integers::{self, Grid, Strip};

/// A block format that this crate decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// IEEE float32.
    F32,
    /// IEEE float16.
    F16,
    /// The upper half of a float32.
    BF16,
    /// 4 bits and a scale for 32 values.
    Q4_0,
    /// 4 bits, a scale and a minimum for 32 values.
    Q4_1,
    /// 5 bits and a scale for 32 values.
    Q5_0,
    /// 5 bits, a scale and a minimum for 32 values.
    Q5_1,
    /// 8 bits and a scale for 32 values.
    Q8_0,
    /// 2 bits; 4-bit scales and minima for 16 values.
    Q2K,
    /// 3 bits; 6-bit scales for 16 values.
    Q3K,
    /// 4 bits; 6-bit scales and minima for 32 values.
    Q4K,
    /// 5 bits; 6-bit scales and minima for 32 values.
    Q5K,
    /// 6 bits; 8-bit scales for 16 values.
    Q6K,
}

/// Evaluates `$result` with `$block` naming the type that implements [`Block`] for `$format`: the one place where a
/// format meets its file.
macro_rules! with_block {
    ($format:expr, $block:ident => $result:expr) => {
        with_block!(@list $format, $block, $result,
            F32 f32, F16 f16, BF16 bf16, Q4_0 q4_0, Q4_1 q4_1, Q5_0 q5_0, Q5_1 q5_1, Q8_0 q8_0,
            Q2K q2_k, Q3K q3_k, Q4K q4_k, Q5K q5_k, Q6K q6_k)
    };
    (@list $format:expr, $block:ident, $result:expr, $($name:ident $file:ident),*) => {
        match $format {
            $(Format::$name => {
                type $block = formats::$file::$name;
                $result
            })*
        }
    };
}

impl Format {
    /// All formats, in the order of this list.
    pub const ALL: &'static [Format] = &[
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
    ];

    /// GGUF's own spelling: `Q4_K`.
    pub fn name(self) -> &'static str {
        with_block!(self, B => <B as Block<_, _>>::NAME)
    }

    /// The format that GGUF spells like this.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// Number of the format in a GGUF tensor table.
    pub fn gguf_id(self) -> u32 {
        with_block!(self, B => <B as Block<_, _>>::GGUF_ID)
    }

    /// The format with this number in a GGUF tensor table; see [`unbuilt_name`](crate::unbuilt_name) for the others.
    pub fn from_gguf_id(gguf_id: u32) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.gguf_id() == gguf_id)
    }

    /// Values in a block.
    pub fn block_values(self) -> usize {
        self.block_size().values
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.block_size().bytes
    }

    /// Bytes of a row of `values` values; `None` where they do not fill whole blocks, or the number overflows.
    pub fn row_bytes(self, values: usize) -> Option<usize> {
        let Size { values: block_values, bytes } = self.block_size();
        if values.is_multiple_of(block_values) { (values / block_values).checked_mul(bytes) } else { None }
    }

    /// Decodes whole blocks, as many as `out` has room for; bit for bit what ggml's `to_float` gives.
    ///
    /// # Errors
    /// [`QuantError::PartialBlock`] and [`QuantError::Length`] where `bytes` are not exactly the blocks of `out`.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
        let values = out.len();
        let expected = self.row_bytes(values).ok_or(QuantError::PartialBlock { format: self, values })?;
        if bytes.len() != expected {
            return Err(QuantError::Length { format: self, values, expected, found: bytes.len() });
        }
        with_block!(self, B => <B as Block<_, _>>::decode_blocks(bytes, out));
        Ok(())
    }

    /// Appends the blocks of `values` to `out`, with the results of ggml's reference quantiser.
    ///
    /// F32, F16 and BF16 keep NaN and infinity, and float16 overflows to infinity; the others refuse them.
    ///
    /// # Errors
    /// [`QuantError::NoEncoder`], [`QuantError::PartialBlock`], [`QuantError::OutOfRange`]; `out` is then unchanged.
    pub fn encode(self, values: &[f32], out: &mut Vec<u8>) -> Result<(), QuantError> {
        if self.row_bytes(values.len()).is_none() {
            return Err(QuantError::PartialBlock { format: self, values: values.len() });
        }
        match with_block!(self, B => encode_blocks::<B, _, _>(values, out)) {
            None => Err(QuantError::NoEncoder { format: self }),
            Some(Ok(())) => Ok(()),
            Some(Err(OutOfRange(index))) => {
                Err(QuantError::OutOfRange { format: self, index, value: values[index] })
            }
        }
    }

    /// The integers that the format's blocks hold; `None` for F32, F16 and BF16, which are single values.
    pub fn grid(self) -> Option<Grid> {
        with_block!(self, B => integers::grid::<B, _, _>())
    }

    /// Strip `index` of a row of whole blocks as integers; `None` where the format has none or the row ends before it.
    pub fn strip(self, row: &[u8], index: usize) -> Option<Strip> {
        with_block!(self, B => integers::strip::<B, _, _>(row, index))
    }

    fn block_size(self) -> Size {
        with_block!(self, B => <B as Block<_, _>>::SIZE)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
