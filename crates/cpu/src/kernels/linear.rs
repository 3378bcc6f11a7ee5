//! Forward product with a weight: `y[r, o] = dot16(x[r, :], weight[o, :])`.
//!
//! Order (docs/numerics.md, dot16): sixteen accumulators, lane `l` takes elements `l, l+16, ...` in order, fused; then
//! the tree. A unit decodes its rows of the weight once and goes over all rows of `x`, a block of both at a time, so
//! that a vector that was loaded is used several times from its register.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::Kernel;
use crate::kernels::weight::Weight;

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

    /// Outputs of a unit: few for a small matrix, that there is a unit for everybody.
    fn outputs_of_a_unit(&self) -> usize {
        if self.weight.rows() <= 2048 { 16 } else { 64 }
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
        self.outputs_of_a_unit() * self.stride()
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        let first = unit * self.outputs_of_a_unit();
        let outputs = self.outputs_of_a_unit().min(self.weight.rows() - first);
        let (width, stride) = (self.weight.width(), self.stride());
        let decoded = &mut scratch[..outputs * stride];
        self.weight.decode(isa, first..first + outputs, 0..width, decoded, stride);
        let tile = Tile { linear: self, decoded, stride, first, outputs };
        if I::REGISTERS < 16 {
            tile.rows::<I, 2, 3>(isa);
        } else if self.rows == 1 {
            tile.rows::<I, 8, 1>(isa);
        } else {
            tile.rows::<I, 4, 6>(isa);
        }
    }
}

/// Decoded rows of the weight against all of `x`.
struct Tile<'a> {
    linear: &'a Linear<'a>,
    /// `[outputs, stride]`.
    decoded: &'a [f32],
    stride: usize,
    first: usize,
    outputs: usize,
}

impl Tile<'_> {
    /// All rows of `x`, `ROWS` at a time; what is left over, fewer.
    #[inline(always)]
    fn rows<I: Isa, const OUTPUTS: usize, const ROWS: usize>(&self, isa: I) {
        let rows = self.linear.rows;
        let mut row = 0;
        while row + ROWS <= rows {
            self.outputs::<I, OUTPUTS, ROWS>(isa, row);
            row += ROWS;
        }
        if ROWS > 4 && row + 4 <= rows {
            self.outputs::<I, OUTPUTS, 4>(isa, row);
            row += 4;
        }
        if ROWS > 2 && row + 2 <= rows {
            self.outputs::<I, OUTPUTS, 2>(isa, row);
            row += 2;
        }
        if row < rows {
            self.outputs::<I, OUTPUTS, 1>(isa, row);
        }
    }

    /// All outputs of `ROWS` rows, `OUTPUTS` at a time, then one.
    #[inline(always)]
    fn outputs<I: Isa, const OUTPUTS: usize, const ROWS: usize>(&self, isa: I, row: usize) {
        let mut output = 0;
        while output + OUTPUTS <= self.outputs {
            self.block::<I, OUTPUTS, ROWS>(isa, row, output);
            output += OUTPUTS;
        }
        while output < self.outputs {
            self.block::<I, 1, ROWS>(isa, row, output);
            output += 1;
        }
    }

    #[inline(always)]
    fn block<I: Isa, const OUTPUTS: usize, const ROWS: usize>(&self, isa: I, row: usize, output: usize) {
        let width = self.linear.weight.width();
        let weights = &self.decoded[output * self.stride..][..OUTPUTS * self.stride];
        let x = &self.linear.x[row * width..][..ROWS * width];
        let sums = accumulate::<I, OUTPUTS, ROWS>(isa, weights, self.stride, x, width);
        let all = self.linear.weight.rows();
        let sums = sum_all(isa, sums);
        for (r, sums) in sums.iter().enumerate() {
            let start = (row + r) * all + self.first + output;
            // SAFETY: row `row + r`, outputs of this unit; units have outputs of their own and a unit has each once.
            unsafe { self.linear.y.range(start..start + OUTPUTS) }.copy_from_slice(sums);
        }
    }
}

/// Accumulators of `ROWS` rows of `x` with `OUTPUTS` decoded rows.
#[inline(always)]
fn accumulate<I: Isa, const OUTPUTS: usize, const ROWS: usize>(
    isa: I,
    weights: &[f32],
    stride: usize,
    x: &[f32],
    width: usize,
) -> [[I::V; OUTPUTS]; ROWS] {
    assert!(weights.len() >= OUTPUTS * stride && x.len() >= ROWS * width && width <= stride);
    let mut sums = [[isa.zero(); OUTPUTS]; ROWS];
    let whole = width - width % LANES;
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + 16 <= width <= stride`, so rows below OUTPUTS and ROWS lie inside by the assertion above.
        let weights: [I::V; OUTPUTS] =
            std::array::from_fn(|o| unsafe { isa.load_at(weights.as_ptr().add(o * stride + at)) });
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: as above.
            let x = unsafe { isa.load_at(x.as_ptr().add(r * width + at)) };
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = isa.fma(weight, x, *sum);
            }
        }
        at += LANES;
    }
    if whole < width {
        let present = isa.first_lanes(width - whole);
        for (r, sums) in sums.iter_mut().enumerate() {
            let x = isa.load_partial(&x[r * width + whole..(r + 1) * width]);
            for (o, sum) in sums.iter_mut().enumerate() {
                let weight = isa.load_partial(&weights[o * stride + whole..o * stride + width]);
                *sum = isa.select(present, isa.fma(weight, x, *sum), *sum);
            }
        }
    }
    sums
}

/// The trees of all accumulators, eight at a time.
#[inline(always)]
fn sum_all<I: Isa, const OUTPUTS: usize, const ROWS: usize>(
    isa: I,
    sums: [[I::V; OUTPUTS]; ROWS],
) -> [[f32; OUTPUTS]; ROWS] {
    let mut results = [[0.0; OUTPUTS]; ROWS];
    let count = OUTPUTS * ROWS;
    let mut at = 0;
    while at < count {
        let eight = std::array::from_fn(|i| {
            if at + i < count { sums[(at + i) / OUTPUTS][(at + i) % OUTPUTS] } else { isa.zero() }
        });
        let eight = isa.sum_trees(eight);
        for i in 0..8.min(count - at) {
            results[(at + i) / OUTPUTS][(at + i) % OUTPUTS] = eight[i];
        }
        at += 8;
    }
    results
}

#[cfg(test)]
mod tests;
