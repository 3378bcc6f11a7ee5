//! A weight as it lies in its file: rows of blocks, decoded where they are used and never as a whole.

use std::ops::Range;

use apprentice_quant::Format;

use crate::error::CpuError;
use crate::isa::{Isa, LANES, Task};
use crate::kernels::blocks::{Block, STRIP, Visit, visit};

/// A matrix `[rows, width]` in a block format.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    format: Format,
    bytes: &'a [u8],
    rows: usize,
    width: usize,
    row_bytes: usize,
}

impl<'a> Weight<'a> {
    /// `rows` rows of `width` values in `format`.
    ///
    /// # Errors
    /// [`CpuError::Weight`] unless `bytes` are exactly that many whole blocks.
    pub fn new(format: Format, bytes: &'a [u8], rows: usize, width: usize) -> Result<Self, CpuError> {
        let row_bytes = format.row_bytes(width);
        let expected = row_bytes.and_then(|row_bytes| row_bytes.checked_mul(rows));
        match row_bytes {
            Some(row_bytes) if expected == Some(bytes.len()) => {
                Ok(Self { format, bytes, rows, width, row_bytes })
            }
            _ => Err(CpuError::Weight { format, rows, width, expected, found: bytes.len() }),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Values `columns` of each of `rows`, each decoded row `stride` behind the one before. Both borders of `columns` are
    /// multiples of 32, or the end of a row.
    ///
    /// # Panics
    /// If they are not, or a range reaches past the weight, or `out` is too short.
    #[inline(always)]
    pub(crate) fn decode<I: Isa>(
        &self,
        isa: I,
        rows: Range<usize>,
        columns: Range<usize>,
        out: &mut [f32],
        stride: usize,
    ) {
        isa.run(Decode { weight: *self, rows, columns, out, stride });
    }

    fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes..][..self.row_bytes]
    }
}

/// A task of its own, so that its code for each format exists once a level and not in every kernel.
struct Decode<'a, 'b> {
    weight: Weight<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
    out: &'b mut [f32],
    stride: usize,
}

impl Task for Decode<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (columns, width) = (self.columns.clone(), self.weight.width);
        assert!(columns.start.is_multiple_of(STRIP) && columns.end <= width && columns.len() <= self.stride);
        assert!(columns.end.is_multiple_of(STRIP) || columns.end == width, "columns {columns:?} of {width}");
        visit(self.weight.format, DecodeRows { isa, task: self });
    }
}

struct DecodeRows<'a, 'b, I> {
    isa: I,
    task: Decode<'a, 'b>,
}

impl<I: Isa> Visit for DecodeRows<'_, '_, I> {
    type Output = ();
    #[inline(always)]
    fn visit<B: Block>(self) {
        let Decode { weight, rows, columns, out, stride } = self.task;
        for (row, out) in rows.zip(out.chunks_mut(stride)) {
            let bytes = weight.row(row);
            let (strips, rest) = out[..columns.len()].as_chunks_mut::<STRIP>();
            decode_strips::<I, B>(self.isa, bytes, columns.start / STRIP, strips);
            if !rest.is_empty() {
                // Only a format of single values ends between strips.
                let size = weight.format.block_bytes();
                let bytes = &bytes[(columns.end - rest.len()) * size..columns.end * size];
                weight.format.decode(bytes, rest).expect("the bytes are those of the values");
            }
        }
    }
}

/// Strips from `first` on of a row.
#[inline(always)]
fn decode_strips<I: Isa, B: Block>(isa: I, bytes: &[u8], first: usize, strips: &mut [[f32; STRIP]]) {
    let (mut at, end) = (first, first + strips.len());
    while at < end {
        let block = &bytes[at / B::STRIPS * B::BYTES..][..B::BYTES];
        let stop = end.min((at / B::STRIPS + 1) * B::STRIPS);
        for strip in at..stop {
            let [low, high] = B::strip(isa, block, strip % B::STRIPS);
            let (out, _) = strips[strip - first].as_chunks_mut::<LANES>();
            isa.store(&mut out[0], low);
            isa.store(&mut out[1], high);
        }
        at = stop;
    }
}

#[cfg(test)]
pub(crate) mod tests;
