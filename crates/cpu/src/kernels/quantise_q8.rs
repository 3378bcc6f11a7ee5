//! Rounds activations to 8 bits: blocks of 32 columns, `d = amax / 127`, `q = round_ties_even(x * (127 / amax))`, and the sums
//! of `q` over 16 columns.
//!
//! Rounding (docs/numerics.md, q8): the quotients and the product are float32 operations of their own. A block with a NaN or
//! an infinity has `q = 0`, `d = NaN`; one below 2^-100 is all zero. A unit is a number of rows.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::{Kernel, unit_rows};

/// Columns that share a scale.
pub(crate) const BLOCK: usize = 2 * LANES;
/// 2^-100.
const AMAX_MIN: f32 = f32::from_bits((127 - 100) << 23);

/// `x [rows, width]` -> `q [rows, width]`, `d [rows, ceil(width / 32)]`, `sums [rows, ceil(width / 16)]`.
pub struct QuantiseQ8<'a> {
    /// Columns.
    pub width: usize,
    /// The activations.
    pub x: &'a [f32],
    /// What they are in units of `d`.
    pub q: Disjoint<'a, i8>,
    /// Scale of each block.
    pub d: Disjoint<'a, f32>,
    /// Sums of `q`.
    pub sums: Disjoint<'a, i32>,
}

impl QuantiseQ8<'_> {
    fn rows(&self) -> usize {
        self.x.len().checked_div(self.width).unwrap_or(0)
    }
}

impl Kernel for QuantiseQ8<'_> {
    fn units(&self) -> usize {
        self.rows().div_ceil(crate::kernels::rows_of_a_unit(self.width))
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let (blocks, halves) = (self.width.div_ceil(BLOCK), self.width.div_ceil(LANES));
        for row in unit_rows(unit, self.width, self.rows()) {
            let x = &self.x[row * self.width..][..self.width];
            // SAFETY: a row of this unit; units have rows of their own.
            let (q, d, sums) = unsafe {
                (
                    self.q.range(row * self.width..(row + 1) * self.width),
                    self.d.range(row * blocks..(row + 1) * blocks),
                    self.sums.range(row * halves..(row + 1) * halves),
                )
            };
            let parts = x.chunks(BLOCK).zip(q.chunks_mut(BLOCK)).zip(d).zip(sums.chunks_mut(2));
            for (((x, q), d), sums) in parts {
                *d = block(isa, x, q, sums);
            }
        }
    }
}

/// One block, at most 32 columns; its scale.
#[inline(always)]
fn block<I: Isa>(isa: I, x: &[f32], q: &mut [i8], sums: &mut [i32]) -> f32 {
    let values = match x.as_chunks::<LANES>().0 {
        [low, high] => [isa.load(low), isa.load(high)],
        _ => {
            let (low, high) = x.split_at(x.len().min(LANES));
            [isa.load_partial(low), isa.load_partial(high)]
        }
    };
    let magnitudes = values.map(|v| isa.abs(v));
    let finite = magnitudes.map(|v| isa.le(v, isa.splat(f32::MAX)));
    if isa.any(isa.not_mask(isa.and_mask(finite[0], finite[1]))) {
        q.fill(0);
        sums.fill(0);
        return f32::NAN;
    }
    let [a, b] = magnitudes;
    let amax = largest(isa.lanes(isa.select(isa.gt(a, b), a, b)));
    let zero = amax < AMAX_MIN;
    let inverse = if zero { 0.0 } else { 127.0 / amax };
    // Below 2^-100 the product is +0 or -0, and so is the integer.
    for (part, (q, sum)) in q.chunks_mut(LANES).zip(sums).enumerate() {
        let rounded = isa.to_int(isa.mul(values[part], isa.splat(inverse)));
        if let Ok(q) = <&mut [i8; LANES]>::try_from(&mut *q) {
            isa.store_i8(q, rounded);
        } else {
            let mut all = [0; LANES];
            isa.store_i8(&mut all, rounded);
            q.copy_from_slice(&all[..q.len()]);
        }
        // Sixteen integers below 2^7: exact in any order.
        *sum = isa.sum_tree(isa.from_int(rounded)) as i32;
    }
    if zero { 0.0 } else { amax / 127.0 }
}

/// The largest of numbers that are neither NaN nor negative.
#[inline(always)]
fn largest(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            if lanes[lane + half] > lanes[lane] {
                lanes[lane] = lanes[lane + half];
            }
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;
    use crate::kernels::run_unit;
    use crate::kernels::suite::{Element, Numbers};

    /// A value at a time, as the definition reads: `q` and `d` of a block.
    fn plain(x: &[f32]) -> (Vec<i8>, f32) {
        let mut amax = 0.0;
        for x in x {
            if x.abs() > amax {
                amax = x.abs();
            }
        }
        if x.iter().any(|x| !x.is_finite()) {
            return (vec![0; x.len()], f32::NAN);
        }
        if amax < 2f32.powi(-100) {
            return (vec![0; x.len()], 0.0);
        }
        let inverse = 127.0 / amax;
        (x.iter().map(|x| (x * inverse).round_ties_even() as i8).collect(), amax / 127.0)
    }

    #[track_caller]
    fn same(x: &[f32], width: usize) {
        let (rows, blocks, halves) = (x.len() / width, width.div_ceil(BLOCK), width.div_ceil(LANES));
        let (mut q_wanted, mut d_wanted, mut sums_wanted) = (Vec::new(), Vec::new(), Vec::new());
        for row in x.chunks(width) {
            let first = q_wanted.len();
            for block in row.chunks(BLOCK) {
                let (q, d) = plain(block);
                q_wanted.extend(q);
                d_wanted.push(d);
            }
            sums_wanted.extend(
                q_wanted[first..].chunks(LANES).map(|half| half.iter().map(|q| i32::from(*q)).sum::<i32>()),
            );
        }
        for level in Level::all() {
            let (mut q, mut d, mut sums) =
                (vec![-128; x.len()], vec![7.0; rows * blocks], vec![-1; rows * halves]);
            {
                let kernel = QuantiseQ8 {
                    width,
                    x,
                    q: Disjoint::new(&mut q),
                    d: Disjoint::new(&mut d),
                    sums: Disjoint::new(&mut sums),
                };
                (0..kernel.units()).rev().for_each(|unit| run_unit(level, &kernel, unit, &mut []));
            }
            assert_eq!(q, q_wanted, "{level}");
            assert_eq!(sums, sums_wanted, "{level}");
            for (found, wanted) in d.iter().zip(&d_wanted) {
                assert_eq!(found.canonical(), wanted.canonical(), "{level}: {found:e}, expected {wanted:e}");
            }
        }
    }

    #[test]
    fn every_width() {
        for width in [1, 15, 16, 17, 31, 32, 33, 48, 64, 77, 576] {
            let mut numbers = Numbers::new(width as u64);
            same(&numbers.normal(width * 19), width);
            same(&numbers.hard(width * 19), width);
        }
    }

    #[test]
    fn blocks_that_are_not_finite_or_small() {
        let least = f32::from_bits(AMAX_MIN.to_bits() - 1);
        for (value, q, d) in [
            (f32::NAN, 0, f32::NAN),
            (f32::INFINITY, 0, f32::NAN),
            (f32::NEG_INFINITY, 0, f32::NAN),
            (least, 0, 0.0),
            (-least, 0, 0.0),
            (1e-45, 0, 0.0),
            (AMAX_MIN, 127, AMAX_MIN / 127.0),
            (-f32::MAX, -127, f32::MAX / 127.0),
        ] {
            let mut x = vec![0.0; 64];
            x[33] = value;
            let (found, scale) = plain(&x[32..]);
            assert_eq!((found[1], scale.to_bits()), (q, d.to_bits()), "{value:e}");
            same(&x, 64);
        }
    }

    #[test]
    fn ties_go_to_the_even_integer() {
        let mut x: Vec<f32> = (0..32).map(|i| i as f32 - 15.5).collect();
        x[5] = -127.0;
        let (q, _) = plain(&x);
        assert_eq!((q[0], q[1], q[16], q[17]), (-16, -14, 0, 2));
        same(&x, 32);
    }
}
