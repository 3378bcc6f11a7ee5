//! Squares added in f64: the sum so far, then chains of 1,024 elements from +0, row-major, added ascending.
//!
//! The square of an f32 is exact in f64. Chains do not depend on each other: eight run side by side.

use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::kernels::Kernel;
use crate::kernels::map::put;

/// Elements of a chain.
const CHAIN: usize = 1024;
/// Chains side by side.
const TOGETHER: usize = 8;

/// `x` of any shape, `so_far [1]` -> `y [1]`.
pub struct AddSquares<'a> {
    /// The elements.
    pub x: &'a [f32],
    /// `[1]`, or `None` for +0.
    pub so_far: Option<&'a [f64]>,
    /// `[1]`.
    pub y: Disjoint<'a, f64>,
}

impl Kernel for AddSquares<'_> {
    fn units(&self) -> usize {
        1
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, _: I, _: usize, _: &mut [f32]) {
        let mut sum = self.so_far.map_or(0.0, |so_far| so_far[0]);
        let (groups, rest) = self.x.as_chunks::<{ CHAIN * TOGETHER }>();
        for group in groups {
            let mut chains = [0.0f64; TOGETHER];
            for at in 0..CHAIN {
                for (part, chain) in chains.iter_mut().enumerate() {
                    let x = f64::from(group[part * CHAIN + at]);
                    *chain += x * x;
                }
            }
            for chain in chains {
                sum += chain;
            }
        }
        for part in rest.chunks(CHAIN) {
            let mut chain = 0.0f64;
            for x in part {
                chain += f64::from(*x) * f64::from(*x);
            }
            sum += chain;
        }
        // SAFETY: there is one unit.
        unsafe { put(&self.y, 0, sum) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Numbers, Wanted, check};

    #[test]
    fn chains_of_1024() {
        for (seed, count) in [0, 1, 1023, 1025, 8192, 30_001].into_iter().enumerate() {
            let x = Numbers::new(seed as u64).normal(count);
            for so_far in [None, Some([12.5])] {
                let mut expected = so_far.map_or(0.0, |[sum]| sum);
                for part in x.chunks(1024) {
                    let mut chain = 0.0f64;
                    for x in part {
                        chain += f64::from(*x) * f64::from(*x);
                    }
                    expected += chain;
                }
                check(seed as u64, &[Wanted::new(&[expected])], |outs, run| {
                    let so_far = so_far.as_ref().map(|sum| &sum[..]);
                    run.all(&AddSquares { x: &x, so_far, y: outs[0] });
                });
            }
        }
    }
}
