//! A weight as it lies in its file: rows of blocks, decoded where they are used and never as a whole.

use std::ops::Range;

use apprentice_quant::Format;

use crate::error::CpuError;
use crate::isa::{Isa, LANES, Task};
use crate::kernels::blocks::{Block, STRIP, Visit, visit};
use crate::kernels::prefetch::prefetch;

/// Rows between the one that is decoded and the one that is fetched.
const AHEAD: usize = 12;

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

    /// The format of its blocks.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// All rows.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
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

    /// `dot16` of `x` with each of `rows`, which are decoded in registers.
    ///
    /// # Panics
    /// If `x` is not a row long, or that is no multiple of 32; if `rows` reaches past the weight or `out` differs from
    /// it in length.
    #[inline(always)]
    pub(crate) fn dots<I: Isa>(&self, isa: I, rows: Range<usize>, x: &[f32], out: &mut [f32]) {
        isa.run(Dots { weight: *self, rows, x, out });
    }

    /// The blocks of one row.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> &'a [u8] {
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
        assert!(
            rows.len() <= out.len().div_ceil(stride),
            "{} rows into {} of {stride}",
            rows.len(),
            out.len()
        );
        for (row, out) in rows.zip(out.chunks_mut(stride)) {
            let bytes = weight.row(row);
            if columns.len() < weight.width {
                // Parts of rows are too far apart for the machine to guess the next one.
                let block = STRIP * B::STRIPS;
                let part = columns.start / block * B::BYTES..columns.end.div_ceil(block) * B::BYTES;
                prefetch(weight.bytes, (row + AHEAD) * weight.row_bytes, part);
            }
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

/// [`Weight::dots`].
struct Dots<'a, 'b> {
    weight: Weight<'a>,
    rows: Range<usize>,
    x: &'b [f32],
    out: &'b mut [f32],
}

impl Task for Dots<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        assert!(self.x.len() == self.weight.width && self.x.len().is_multiple_of(STRIP));
        assert!(self.rows.end <= self.weight.rows && self.rows.len() == self.out.len());
        visit(self.weight.format, DotRows { isa, task: self });
    }
}

struct DotRows<'a, 'b, I> {
    isa: I,
    task: Dots<'a, 'b>,
}

impl<I: Isa> Visit for DotRows<'_, '_, I> {
    type Output = ();
    #[inline(always)]
    fn visit<B: Block>(self) {
        let Dots { weight, rows, x, out } = self.task;
        let (x, _) = x.as_chunks::<STRIP>();
        // Two rows at a time: the chain of one hides in the other's.
        let (pairs, last) = out.as_chunks_mut::<2>();
        for (pair, row) in pairs.iter_mut().zip(rows.clone().step_by(2)) {
            *pair = dot_rows::<I, B, 2>(self.isa, [weight.row(row), weight.row(row + 1)], x);
        }
        if let [last] = last {
            [*last] = dot_rows::<I, B, 1>(self.isa, [weight.row(rows.end - 1)], x);
        }
    }
}

#[inline(always)]
fn dot_rows<I: Isa, B: Block, const ROWS: usize>(
    isa: I,
    rows: [&[u8]; ROWS],
    x: &[[f32; STRIP]],
) -> [f32; ROWS] {
    let mut sums = [isa.zero(); ROWS];
    let blocks = rows[0].len() / B::BYTES;
    for block in 0..blocks {
        for strip in 0..B::STRIPS {
            let x = x[block * B::STRIPS + strip].as_chunks::<LANES>().0;
            let (lower, upper) = (isa.load(&x[0]), isa.load(&x[1]));
            for (sum, row) in sums.iter_mut().zip(rows) {
                let weights = B::strip(isa, &row[block * B::BYTES..][..B::BYTES], strip);
                *sum = isa.fma(weights[1], upper, isa.fma(weights[0], lower, *sum));
            }
        }
    }
    let mut results = [0.0; ROWS];
    for (result, sum) in results.iter_mut().zip(sums) {
        *result = isa.sum_tree(sum);
    }
    results
}

#[cfg(test)]
pub(crate) mod tests;
