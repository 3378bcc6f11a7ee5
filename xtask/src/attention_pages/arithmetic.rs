//! Scalar arithmetic in the orders of `docs/numerics.md`: dot16, tree16, gradients of linear maps, rounding to f16.

use std::ops::Range;

use half::f16;

/// Rows that share one block sum, and positions in a page.
pub const BLOCK: usize = 64;

/// A row-major matrix.
#[derive(Clone)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub data: Vec<f32>,
}

impl Matrix {
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Matrix { rows, columns, data: vec![0.0; rows * columns] }
    }

    pub fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.columns..][..self.columns]
    }

    /// `y[o] = dot16(row o, x)`.
    pub fn apply(&self, x: &[f32]) -> Vec<f32> {
        (0..self.rows).map(|row| dot16(self.row(row), x)).collect()
    }

    /// `dx = dy W`: segments of 256 output indices, each a chain from +0, added ascending.
    pub fn input_gradient(&self, dy: &[f32]) -> Vec<f32> {
        let mut dx = vec![0.0; self.columns];
        for (segment, dy) in dy.chunks(256).enumerate() {
            let mut chain = vec![0.0f32; self.columns];
            for (row, dy) in dy.iter().enumerate() {
                multiply_add(*dy, self.row(segment * 256 + row), &mut chain);
            }
            add(&chain, &mut dx);
        }
        dx
    }
}

/// Sixteen lanes over the elements in order, then the tree.
pub fn dot16(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (a_whole, a_rest) = a.as_chunks::<16>();
    let (b_whole, b_rest) = b.as_chunks::<16>();
    for (a, b) in a_whole.iter().zip(b_whole) {
        for lane in 0..16 {
            lanes[lane] = a[lane].mul_add(b[lane], lanes[lane]);
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] = a.mul_add(*b, lanes[lane]);
    }
    tree(lanes)
}

/// Lanes `i` and `i+8` are added, then `i+4`, `i+2`, `i+1`.
pub fn tree(mut lanes: [f32; 16]) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    lanes[0]
}

/// `y = fma(factor, x, y)` an element.
pub fn multiply_add(factor: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = factor.mul_add(*x, *y);
    }
}

/// `y = y + x` an element.
pub fn add(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

pub fn rounded(values: &[f32]) -> Vec<f32> {
    values.iter().map(|value| f16::from_f32(*value).to_f32()).collect()
}

/// Adds `sum over rows of left^T right` to `sum`, from the last block of rows to the first.
///
/// `left [rows, sum.rows]`, `right [rows, sum.columns]`; row 0 stands at position `start` of its sequence, and blocks are
/// cut at multiples of 64 of that position.
pub fn add_weight_gradient(left: &[f32], right: &[f32], start: usize, sum: &mut Matrix) {
    let rows = left.len() / sum.rows;
    for block in blocks(start, start + rows).rev() {
        let mut chain = Matrix::zeros(sum.rows, sum.columns);
        for row in block.start - start..block.end - start {
            let right = &right[row * sum.columns..][..sum.columns];
            for (left, into) in left[row * sum.rows..].iter().zip(chain.data.chunks_exact_mut(sum.columns)) {
                multiply_add(*left, right, into);
            }
        }
        add(&chain.data, &mut sum.data);
    }
}

/// The parts of `start..end` that lie in one block of 64 positions each, ascending.
pub fn blocks(start: usize, end: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    parts(start, end, BLOCK)
}

/// `start..end` cut at the multiples of `length`, ascending.
pub fn parts(start: usize, end: usize, length: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    (start / length..end.div_ceil(length))
        .map(move |part| (part * length).max(start)..((part + 1) * length).min(end))
}

/// The exponential as a polynomial, within two units in the last place; +0 below -87.33, infinity above 88.72.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    // ln 2 in two parts: n times the first is exact.
    let r = n.mul_add(-0.693_145_75, x);
    let r = n.mul_add(-1.428_606_8e-6, r);
    let mut y = 1.388_888_9e-3f32;
    for coefficient in [8.333_334e-3, 4.166_666_8e-2, 1.666_666_7e-1, 0.5, 1.0, 1.0] {
        y = y.mul_add(r, coefficient);
    }
    // In two factors, so that each has an exponent of its own.
    let half = (n as i32).clamp(-252, 252) / 2;
    let rest = (n as i32).clamp(-252, 252) - half;
    let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    let y = y * power(half) * power(rest);
    if x < -87.33 {
        0.0
    } else if x > 88.72 {
        f32::INFINITY
    } else {
        y
    }
}
