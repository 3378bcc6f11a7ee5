//! Forward product with a weight: `y[r, o] = dot16(x[r, :], weight[o, :])`.
//!
//! Order (docs/numerics.md, dot16): sixteen accumulators, lane `l` takes elements `l, l+16, ...` in order, fused; then
//! the tree. A unit decodes its rows of the weight once and goes over all rows of `x`, a block of both at a time, so
//! that a vector that was loaded is used several times from its register.

use std::ops::Range;

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::blocks::STRIP;
use crate::kernels::weight::Weight;
use crate::kernels::{ALIGNMENT, Kernel, aligned};

/// Outputs, columns and rows of a block that is worked on for a while: its part of the weight stays in the nearest cache,
/// its part of `x` in the next one.
const OUTPUTS: usize = 16;
const COLUMNS: usize = 640;
const ROWS: usize = 48;
/// Elements of `x` from which on it is read from far away, so that a unit should have more outputs.
const FAR: usize = 1 << 18;

/// Bytes of the weight that a unit has where there is one row.
const UNIT_BYTES: usize = 32 << 10;

/// `x [rows, width]`, `weight [outputs, width]` -> `y [rows, outputs]`.
pub struct Linear<'a> {
    x: &'a [f32],
    weight: Weight<'a>,
    y: Disjoint<'a, f32>,
    rows: usize,
}

impl<'a> Linear<'a> {
    /// # Panics
    /// If `x` or `y` is not as large as its shape.
    pub fn new(rows: usize, x: &'a [f32], weight: Weight<'a>, y: Disjoint<'a, f32>) -> Self {
        assert_eq!(x.len(), rows * weight.width(), "x [{rows}, {}]", weight.width());
        assert_eq!(y.len(), rows * weight.rows(), "y [{rows}, {}]", weight.rows());
        Self { x, weight, y, rows }
    }

    /// Outputs of a unit: few for a small matrix, that there is a unit for everybody. With one row all time goes into
    /// reading the weight, and a unit is worth taking from so many bytes on.
    fn outputs_of_a_unit(&self) -> usize {
        if self.rows == 1 {
            let bytes = OUTPUTS * self.weight.row_bytes();
            return (UNIT_BYTES / bytes.max(1)).max(1) * OUTPUTS;
        }
        match (self.weight.rows() <= 2048, self.x.len() < FAR) {
            (true, true) => OUTPUTS,
            (true, false) => 2 * OUTPUTS,
            (false, _) => 4 * OUTPUTS,
        }
    }

    /// Blocks of columns, as even as whole vectors permit.
    fn column_step(&self) -> usize {
        let width = self.weight.width();
        width.div_ceil(width.div_ceil(COLUMNS).max(1)).next_multiple_of(LANES).max(LANES)
    }

    /// f32 between two decoded rows: whole vectors, and one more where the rows would fall on the same cache sets.
    fn stride(&self) -> usize {
        let width = self.weight.width().next_multiple_of(LANES);
        if width.is_multiple_of(256) { width + LANES } else { width }
    }
}

impl Kernel for Linear<'_> {
    fn units(&self) -> usize {
        if self.rows == 0 { 0 } else { self.weight.rows().div_ceil(self.outputs_of_a_unit()) }
    }

    fn scratch(&self) -> usize {
        self.outputs_of_a_unit() * self.stride() + OUTPUTS * ROWS * LANES + ALIGNMENT
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        let first = unit * self.outputs_of_a_unit();
        let outputs = self.outputs_of_a_unit().min(self.weight.rows() - first);
        if I::REGISTERS >= 8 && self.rows == 1 && self.weight.width().is_multiple_of(STRIP) {
            // SAFETY: outputs of this unit; units have outputs of their own.
            let y = unsafe { self.y.range(first..first + outputs) };
            return self.weight.dots(isa, first..first + outputs, self.x, y);
        }
        let (width, stride) = (self.weight.width(), self.stride());
        let (decoded, sums) = aligned(scratch).split_at_mut(self.outputs_of_a_unit() * stride);
        self.weight.decode(isa, first..first + outputs, 0..width, decoded, stride);
        for row in (0..self.rows).step_by(ROWS) {
            let rows = row..self.rows.min(row + ROWS);
            for output in (0..outputs).step_by(OUTPUTS) {
                let decoded = &decoded[output * stride..];
                let outputs = first + output..first + outputs.min(output + OUTPUTS);
                let mut tile = Tile { linear: self, decoded, stride, outputs, rows: rows.clone(), sums };
                if I::REGISTERS < 8 {
                    tile.columns::<I, 1, 1>(isa);
                } else if I::REGISTERS < 16 {
                    tile.columns::<I, 2, 3>(isa);
                } else {
                    tile.columns::<I, 4, 6>(isa);
                }
            }
        }
    }
}

/// Some decoded rows of the weight against some rows of `x`.
struct Tile<'a> {
    linear: &'a Linear<'a>,
    /// `[outputs, stride]`.
    decoded: &'a [f32],
    stride: usize,
    outputs: Range<usize>,
    rows: Range<usize>,
    /// Accumulators between two blocks of columns, sixteen f32 for each output and row.
    sums: &'a mut [f32],
}

impl Tile<'_> {
    /// A block of columns after the other; in each all rows, `HEIGHT` at a time; what is left over, fewer.
    #[inline(always)]
    fn columns<I: Isa, const WIDTH: usize, const HEIGHT: usize>(&mut self, isa: I) {
        let (width, step) = (self.linear.weight.width(), self.linear.column_step());
        for start in (0..width.max(1)).step_by(step) {
            let columns = start..width.min(start + step);
            let (mut row, end) = (self.rows.start, self.rows.end);
            while row + HEIGHT <= end {
                self.outputs::<I, WIDTH, HEIGHT>(isa, row, &columns);
                row += HEIGHT;
            }
            if HEIGHT > 4 && row + 4 <= end {
                self.outputs::<I, WIDTH, 4>(isa, row, &columns);
                row += 4;
            }
            if HEIGHT > 2 && row + 2 <= end {
                self.outputs::<I, WIDTH, 2>(isa, row, &columns);
                row += 2;
            }
            if row < end {
                self.outputs::<I, WIDTH, 1>(isa, row, &columns);
            }
        }
    }

    /// All outputs of `HEIGHT` rows, `WIDTH` at a time, then one.
    #[inline(always)]
    fn outputs<I: Isa, const WIDTH: usize, const HEIGHT: usize>(
        &mut self,
        isa: I,
        row: usize,
        columns: &Range<usize>,
    ) {
        let (mut output, end) = (self.outputs.start, self.outputs.end);
        while output + WIDTH <= end {
            self.block::<I, WIDTH, HEIGHT>(isa, row, output, columns.clone());
            output += WIDTH;
        }
        while output < end {
            self.block::<I, 1, HEIGHT>(isa, row, output, columns.clone());
            output += 1;
        }
    }

    /// `HEIGHT` rows with `WIDTH` outputs over `columns`, from where the block before left off.
    #[inline(always)]
    fn block<I: Isa, const WIDTH: usize, const HEIGHT: usize>(
        &mut self,
        isa: I,
        row: usize,
        output: usize,
        columns: Range<usize>,
    ) {
        let width = self.linear.weight.width();
        let x = Rows { values: &self.linear.x[row * width..], stride: width };
        let local = output - self.outputs.start;
        let weights = Rows { values: &self.decoded[local * self.stride..], stride: self.stride };
        // The rows before have sums for all outputs, these rows for the outputs before.
        let before = (row - self.rows.start) * OUTPUTS + local * HEIGHT;
        let kept = &mut self.sums[before * LANES..][..WIDTH * HEIGHT * LANES];
        let (kept, _) = kept.as_chunks_mut::<LANES>();
        let mut sums = [[isa.zero(); WIDTH]; HEIGHT];
        if columns.start > 0 {
            for (sum, kept) in sums.as_flattened_mut().iter_mut().zip(&*kept) {
                *sum = isa.load(kept);
            }
        }
        let sums = accumulate(isa, weights, x, columns.clone(), sums);
        if columns.end < width {
            for (kept, sum) in kept.iter_mut().zip(sums.as_flattened()) {
                isa.store(kept, *sum);
            }
            return;
        }
        for (r, sums) in sum_all(isa, sums).iter().enumerate() {
            let start = (row + r) * self.linear.weight.rows() + output;
            // SAFETY: row `row + r`, outputs of this unit; units have outputs of their own and a unit has each once.
            unsafe { self.linear.y.range(start..start + WIDTH) }.copy_from_slice(sums);
        }
    }
}

/// Rows that lie `stride` apart.
#[derive(Clone, Copy)]
struct Rows<'a> {
    values: &'a [f32],
    stride: usize,
}

/// `sums` of `HEIGHT` rows of `x` with `WIDTH` decoded rows, `columns` added, whose start is a multiple of sixteen.
#[inline(always)]
fn accumulate<I: Isa, const WIDTH: usize, const HEIGHT: usize>(
    isa: I,
    weights: Rows,
    x: Rows,
    columns: Range<usize>,
    mut sums: [[I::V; WIDTH]; HEIGHT],
) -> [[I::V; WIDTH]; HEIGHT] {
    assert!(columns.end <= weights.stride && columns.end <= x.stride);
    assert!((WIDTH - 1) * weights.stride + columns.end <= weights.values.len());
    assert!((HEIGHT - 1) * x.stride + columns.end <= x.values.len());
    let whole = columns.end - columns.len() % LANES;
    let mut at = columns.start;
    while at < whole {
        let mut loaded = [isa.zero(); WIDTH];
        for (o, weight) in loaded.iter_mut().enumerate() {
            // SAFETY: `at + 16 <= columns.end`, and row `o` reaches to `columns.end` by the assertions above.
            *weight = unsafe { isa.load_at(weights.values.as_ptr().add(o * weights.stride + at)) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: as above, for row `r`.
            let x = unsafe { isa.load_at(x.values.as_ptr().add(r * x.stride + at)) };
            for (sum, weight) in sums.iter_mut().zip(loaded) {
                *sum = isa.fma(weight, x, *sum);
            }
        }
        at += LANES;
    }
    if whole < columns.end {
        let present = isa.first_lanes(columns.end - whole);
        for (r, sums) in sums.iter_mut().enumerate() {
            let x = isa.load_partial(&x.values[r * x.stride..][whole..columns.end]);
            for (o, sum) in sums.iter_mut().enumerate() {
                let weight = isa.load_partial(&weights.values[o * weights.stride..][whole..columns.end]);
                *sum = isa.select(present, isa.fma(weight, x, *sum), *sum);
            }
        }
    }
    sums
}

/// The trees of all accumulators, eight at a time.
#[inline(always)]
fn sum_all<I: Isa, const WIDTH: usize, const HEIGHT: usize>(
    isa: I,
    sums: [[I::V; WIDTH]; HEIGHT],
) -> [[f32; WIDTH]; HEIGHT] {
    let mut results = [[0.0; WIDTH]; HEIGHT];
    for (results, sums) in results.as_flattened_mut().chunks_mut(8).zip(sums.as_flattened().chunks(8)) {
        let mut eight = [isa.zero(); 8];
        eight[..sums.len()].copy_from_slice(sums);
        results.copy_from_slice(&isa.sum_trees(eight)[..sums.len()]);
    }
    results
}

#[cfg(test)]
mod tests;
