//! The index of a row's largest element: the lowest among equals (+0 and -0 are equal); NaN never wins; 0 where there is
//! nothing else.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::Kernel;
use crate::kernels::map::put;

/// `x [rows, width]` -> `ids [rows]`.
pub struct Argmax<'a> {
    /// Elements of a row.
    pub width: usize,
    /// `[rows, width]`.
    pub x: &'a [f32],
    /// `[rows]`.
    pub ids: Disjoint<'a, i32>,
}

impl Kernel for Argmax<'_> {
    fn units(&self) -> usize {
        self.ids.len()
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let x = &self.x[unit * self.width..][..self.width];
        let largest = largest(isa, x);
        let (whole, rest) = x.as_chunks::<LANES>();
        let mut index = x.len() - rest.len();
        for (part, x) in whole.iter().enumerate() {
            if isa.any(isa.eq(isa.load(x), isa.splat(largest))) {
                index = part * LANES;
                break;
            }
        }
        let found = x[index..].iter().position(|x| *x == largest).map_or(0, |at| index + at);
        // SAFETY: the element of this unit alone.
        unsafe { put(&self.ids, unit, found as i32) };
    }
}

/// The largest element; NaN never wins, -infinity where there is nothing else; among zeros the sign of any.
#[inline(always)]
pub(crate) fn largest<I: Isa>(isa: I, x: &[f32]) -> f32 {
    let lowest = isa.splat(f32::NEG_INFINITY);
    let mut sums = [lowest; 4];
    let (groups, rest) = x.as_chunks::<{ 4 * LANES }>();
    for group in groups {
        for (x, largest) in group.as_chunks::<LANES>().0.iter().zip(&mut sums) {
            let x = isa.load(x);
            *largest = isa.select(isa.gt(x, *largest), x, *largest);
        }
    }
    for x in rest.chunks(LANES) {
        let x = isa.load_partial_or(x, f32::NEG_INFINITY);
        sums[0] = isa.select(isa.gt(x, sums[0]), x, sums[0]);
    }
    let mut largest = sums[0];
    for other in &sums[1..] {
        largest = isa.select(isa.gt(*other, largest), *other, largest);
    }
    largest_lane(isa, largest)
}

/// The largest lane of a vector without NaN.
#[inline(always)]
pub(crate) fn largest_lane<I: Isa>(isa: I, v: I::V) -> f32 {
    let mut lanes = isa.lanes(v);
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = if lanes[lane + half] > lanes[lane] { lanes[lane + half] } else { lanes[lane] };
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Numbers, Wanted, check};

    fn check_rows(seed: u64, width: usize, x: &[f32], expected: &[i32]) {
        check(seed, &[Wanted::new(expected)], |outs, run| {
            run.all(&Argmax { width, x, ids: outs[0] });
        });
    }

    #[test]
    fn random_rows() {
        for (seed, width) in [1, 15, 64, 1000, 49_152].into_iter().enumerate() {
            let x = Numbers::new(seed as u64).hard(7 * width);
            let index = |x: &[f32]| {
                let mut best: Option<usize> = None;
                for (at, value) in x.iter().enumerate() {
                    if !value.is_nan() && best.is_none_or(|best| *value > x[best]) {
                        best = Some(at);
                    }
                }
                best.unwrap_or(0) as i32
            };
            let expected: Vec<i32> = x.chunks(width).map(index).collect();
            check_rows(seed as u64, width, &x, &expected);
        }
    }

    #[test]
    fn ties_and_nan() {
        let mut x = vec![1.0f32; 6 * 40];
        x[..40].fill(f32::NAN); // nothing else
        x[40..80].fill(f32::NAN);
        x[40 + 37] = f32::NEG_INFINITY; // NaN loses against everything
        x[80..120].fill(-0.0);
        x[80 + 5] = 0.0; // equal to what stands before
        x[120 + 20] = 2.0;
        x[120 + 33] = 2.0;
        x[160 + 39] = f32::INFINITY;
        x[160 + 2] = f32::NAN;
        check_rows(1, 40, &x, &[0, 37, 0, 20, 39, 0]);
    }
}
