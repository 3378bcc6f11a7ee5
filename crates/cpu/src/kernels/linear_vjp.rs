//! Gradient of a product with a weight to its input: `dx[r, i] = sum over o of dy[r, o] * weight[o, i]`.
//!
//! Order (docs/numerics.md, gradient to an input): outputs in segments of 256 by absolute index; a segment is a chain of
//! fused multiply-adds from +0, ascending; segment sums are added ascending, the first to +0. Vectors run over the
//! input index, so no order is inside of them. A unit has some columns of the weight and decodes a segment of them at a
//! time for all its rows.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::prefetch::prefetch;
use crate::kernels::weight::Weight;
use crate::kernels::{ALIGNMENT, Kernel, aligned};

/// Outputs of a segment.
const SEGMENT: usize = 256;
/// Outputs from which on the segments of two rows lie so far apart that the machine does not guess the next one.
const FAR: usize = 4096;
/// Columns of a unit.
const COLUMNS: usize = 4 * LANES;
/// Rows of a unit, where there are too few columns for everybody.
const ROWS: usize = 256;

/// `dy [rows, outputs]`, `weight [outputs, width]` -> `dx [rows, width]`.
pub struct LinearVjp<'a> {
    dy: &'a [f32],
    weight: Weight<'a>,
    dx: Disjoint<'a, f32>,
    rows: usize,
}

impl<'a> LinearVjp<'a> {
    /// # Panics
    /// If `dy` or `dx` is not as large as its shape.
    pub fn new(rows: usize, dy: &'a [f32], weight: Weight<'a>, dx: Disjoint<'a, f32>) -> Self {
        assert_eq!(dy.len(), rows * weight.rows(), "dy [{rows}, {}]", weight.rows());
        assert_eq!(dx.len(), rows * weight.width(), "dx [{rows}, {}]", weight.width());
        Self { dy, weight, dx, rows }
    }

    fn tiles(&self) -> usize {
        self.weight.width().div_ceil(COLUMNS)
    }

    fn rows_of_a_unit(&self) -> usize {
        if self.tiles() < 32 { ROWS } else { self.rows }
    }
}

impl Kernel for LinearVjp<'_> {
    fn units(&self) -> usize {
        if self.rows == 0 { 0 } else { self.tiles() * self.rows.div_ceil(self.rows_of_a_unit()) }
    }

    fn scratch(&self) -> usize {
        SEGMENT * COLUMNS + ALIGNMENT
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        let scratch = aligned(scratch);
        let first = unit % self.tiles() * COLUMNS;
        let columns = COLUMNS.min(self.weight.width() - first);
        let start = unit / self.tiles() * self.rows_of_a_unit();
        let rows = start..self.rows.min(start + self.rows_of_a_unit());
        if columns < COLUMNS {
            scratch[..SEGMENT * COLUMNS].fill(0.0); // what is behind the last column takes part and is not kept
        }
        for output in (0..self.weight.rows().max(1)).step_by(SEGMENT) {
            let outputs = SEGMENT.min(self.weight.rows() - output);
            self.weight.decode(isa, output..output + outputs, first..first + columns, scratch, COLUMNS);
            let segment =
                Segment { of: self, decoded: &scratch[..outputs * COLUMNS], output, first, columns };
            if I::REGISTERS < 8 {
                segment.rows::<I, 1, 1>(isa, rows.clone());
            } else if I::REGISTERS < 16 {
                segment.rows::<I, 2, 2>(isa, rows.clone());
            } else {
                segment.rows::<I, 6, 4>(isa, rows.clone());
            }
        }
    }
}

/// One segment of outputs for the columns of a unit.
struct Segment<'a> {
    of: &'a LinearVjp<'a>,
    /// `[outputs, COLUMNS]`, finite behind the last column.
    decoded: &'a [f32],
    /// The first output; zero is the first segment.
    output: usize,
    /// The first column.
    first: usize,
    columns: usize,
}

impl Segment<'_> {
    /// All rows, `HEIGHT` at a time; what is left over, fewer.
    #[inline(always)]
    fn rows<I: Isa, const HEIGHT: usize, const VECTORS: usize>(&self, isa: I, rows: std::ops::Range<usize>) {
        let mut row = rows.start;
        while row + HEIGHT <= rows.end {
            self.columns::<I, HEIGHT, VECTORS>(isa, row);
            row += HEIGHT;
        }
        if HEIGHT > 4 && row + 4 <= rows.end {
            self.columns::<I, 4, VECTORS>(isa, row);
            row += 4;
        }
        if HEIGHT > 2 && row + 2 <= rows.end {
            self.columns::<I, 2, VECTORS>(isa, row);
            row += 2;
        }
        if row < rows.end {
            self.columns::<I, 1, VECTORS>(isa, row);
        }
    }

    /// All columns of `HEIGHT` rows, `VECTORS` vectors at a time.
    #[inline(always)]
    fn columns<I: Isa, const HEIGHT: usize, const VECTORS: usize>(&self, isa: I, row: usize) {
        let (all, outputs) = (self.of.weight.rows(), self.decoded.len() / COLUMNS);
        if all >= FAR {
            for next in row + HEIGHT..row + 2 * HEIGHT {
                prefetch(self.of.dy, next * all + self.output, 0..outputs);
            }
        }
        for column in (0..self.columns).step_by(VECTORS * LANES) {
            let sums = self.chains::<I, HEIGHT, VECTORS>(isa, row, column);
            for (r, sums) in sums.iter().enumerate() {
                self.add(isa, row + r, column, sums);
            }
        }
    }

    /// The chains of `HEIGHT` rows and `VECTORS` vectors of columns from `column`.
    #[inline(always)]
    fn chains<I: Isa, const HEIGHT: usize, const VECTORS: usize>(
        &self,
        isa: I,
        row: usize,
        column: usize,
    ) -> [[I::V; VECTORS]; HEIGHT] {
        let all = self.of.weight.rows();
        let outputs = self.decoded.len() / COLUMNS;
        let dy = &self.of.dy[row * all..][..HEIGHT * all];
        assert!(column + VECTORS * LANES <= COLUMNS && self.output + outputs <= all);
        let mut sums = [[isa.zero(); VECTORS]; HEIGHT];
        for output in 0..outputs {
            // SAFETY: row `output` of `decoded` has COLUMNS values, and the vectors end there by the assertion above.
            let weights: [I::V; VECTORS] = std::array::from_fn(|v| unsafe {
                isa.load_at(self.decoded.as_ptr().add(output * COLUMNS + column + v * LANES))
            });
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: HEIGHT rows of `all` values, of which this one is below `self.output + outputs`.
                let dy = isa.splat(unsafe { *dy.get_unchecked(r * all + self.output + output) });
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = isa.fma(dy, weight, *sum);
                }
            }
        }
        sums
    }

    /// Adds the sums of a segment to what earlier segments left.
    #[inline(always)]
    fn add<I: Isa, const VECTORS: usize>(&self, isa: I, row: usize, column: usize, sums: &[I::V; VECTORS]) {
        let start = row * self.of.weight.width() + self.first + column;
        let count = (VECTORS * LANES).min(self.columns - column);
        // SAFETY: columns of this unit in a row of this unit; units differ in one of them, and a unit takes one range
        // at a time.
        let total = unsafe { self.of.dx.range(start..start + count) };
        for (total, sum) in total.chunks_mut(LANES).zip(sums) {
            let before = if self.output == 0 { isa.zero() } else { isa.load_partial(total) };
            isa.store_partial(total, isa.add(before, *sum));
        }
    }
}

#[cfg(test)]
mod tests;
