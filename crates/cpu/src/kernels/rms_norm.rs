//! RMS norm: `y = (x * r) * gain`, `r = 1 / sqrt(dot16(x, x) / width + eps)`, each step rounded.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES, dot16};
use crate::kernels::map::take;
use crate::kernels::{Kernel, rows_of_a_unit, unit_rows};

/// `x [rows, width]`, `gain [width]` -> `y [rows, width]`.
pub struct RmsNorm<'a> {
    /// Added to the mean square.
    pub eps: f32,
    /// `[rows, width]`, or `None` where it lies in `y`.
    pub x: Option<&'a [f32]>,
    /// `[width]`.
    pub gain: &'a [f32],
    /// `[rows, width]`.
    pub y: Disjoint<'a, f32>,
}

impl Kernel for RmsNorm<'_> {
    fn units(&self) -> usize {
        (self.y.len() / self.gain.len()).div_ceil(rows_of_a_unit(self.gain.len()))
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let width = self.gain.len();
        for row in unit_rows(unit, width, self.y.len() / width) {
            // SAFETY: each row belongs to one unit, which takes it once.
            let y = unsafe { take(&self.y, self.x, row * width..(row + 1) * width) };
            let mean_square = dot16(isa, y, y) / width as f32;
            let r = isa.splat(1.0 / (mean_square + self.eps).sqrt());
            let ((y, y_rest), (gain, gain_rest)) =
                (y.as_chunks_mut::<LANES>(), self.gain.as_chunks::<LANES>());
            for (y, gain) in y.iter_mut().zip(gain) {
                let value = isa.mul(isa.mul(isa.load(y), r), isa.load(gain));
                isa.store(y, value);
            }
            if !y_rest.is_empty() {
                let value = isa.mul(isa.mul(isa.load_partial(y_rest), r), isa.load_partial(gain_rest));
                isa.store_partial(y_rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{self, Numbers, Wanted, check};

    #[test]
    fn a_row_at_a_time() {
        for (seed, (rows, width)) in
            [(1, 1), (3, 33), (200, 64), (17, 576), (2, 9001)].into_iter().enumerate()
        {
            let mut numbers = Numbers::new(seed as u64);
            let (mut x, gain) = (numbers.normal(rows * width), numbers.hard(width));
            if rows > 2 {
                x[..width].fill(0.0);
                x[2 * width - 1] = f32::INFINITY;
            }
            let expected: Vec<f32> = x
                .chunks(width)
                .flat_map(|x| {
                    let r = 1.0 / (suite::dot16(x, x) / width as f32 + 1e-5).sqrt();
                    x.iter().zip(&gain).map(move |(x, gain)| x * r * gain)
                })
                .collect();
            for (x, wanted) in
                [(Some(&x[..]), Wanted::new(&expected)), (None, Wanted::in_place(&expected, &x))]
            {
                check(seed as u64, &[wanted], |outs, run| {
                    run.all(&RmsNorm { eps: 1e-5, x, gain: &gain, y: outs[0] });
                });
            }
        }
    }
}
