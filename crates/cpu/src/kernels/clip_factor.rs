//! The factor that clips a norm: `f32(limit / (sqrt(squares) + 1e-6))`, computed in f64, where that is below 1, else 1.

use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::kernels::Kernel;
use crate::kernels::map::put;

/// `squares [1]`, `limit [1]` -> `factor [1]`.
pub struct ClipFactor<'a> {
    /// `[1]`.
    pub squares: &'a [f64],
    /// `[1]`.
    pub limit: &'a [f32],
    /// `[1]`.
    pub factor: Disjoint<'a, f32>,
}

impl Kernel for ClipFactor<'_> {
    fn units(&self) -> usize {
        1
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, _: I, _: usize, _: &mut [f32]) {
        let factor = (f64::from(self.limit[0]) / (self.squares[0].sqrt() + 1e-6)) as f32;
        // SAFETY: there is one unit.
        unsafe { put(&self.factor, 0, if factor < 1.0 { factor } else { 1.0 }) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Wanted, check};

    #[test]
    fn only_where_the_norm_is_above_the_limit() {
        let cases = [
            (4.0, 1.0, (1.0 / (2.0 + 1e-6)) as f32),
            (0.25, 1.0, 1.0),
            (0.0, 1.0, 1.0),
            (f64::NAN, 1.0, 1.0),
        ];
        for (squares, limit, expected) in cases {
            check(0, &[Wanted::new(&[expected])], |outs, run| {
                run.all(&ClipFactor { squares: &[squares], limit: &[limit], factor: outs[0] });
            });
        }
    }
}
