//! Products of rows: `y[r] = dot16(a[r], b[r])`.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, dot16};
use crate::kernels::{Kernel, rows_of_a_unit, unit_rows};

/// `a`, `b` `[rows, width]` -> `y [rows, 1]`.
pub struct Dot<'a> {
    /// Elements of a row.
    pub width: usize,
    /// `[rows, width]`.
    pub a: &'a [f32],
    /// `[rows, width]`.
    pub b: &'a [f32],
    /// `[rows, 1]`.
    pub y: Disjoint<'a, f32>,
}

impl Kernel for Dot<'_> {
    fn units(&self) -> usize {
        self.y.len().div_ceil(rows_of_a_unit(self.width))
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let rows = unit_rows(unit, self.width, self.y.len());
        // SAFETY: units are ranges of rows that follow each other.
        let y = unsafe { self.y.range(rows.clone()) };
        for (row, y) in rows.zip(y) {
            let range = row * self.width..(row + 1) * self.width;
            *y = dot16(isa, &self.a[range.clone()], &self.b[range]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{self, Numbers, Wanted, check};

    #[test]
    fn every_row_is_one_dot16() {
        for (seed, (rows, width)) in [(1, 1), (5, 15), (300, 64), (3, 1000)].into_iter().enumerate() {
            let mut numbers = Numbers::new(seed as u64);
            let (a, b) = (numbers.hard(rows * width), numbers.normal(rows * width));
            let b: Vec<f32> = b.into_iter().map(|b| if b < 0.0 { b * 1e-20 } else { b }).collect();
            let expected: Vec<f32> =
                a.chunks(width).zip(b.chunks(width)).map(|(a, b)| suite::dot16(a, b)).collect();
            check(seed as u64, &[Wanted::new(&expected)], |outs, run| {
                run.all(&Dot { width, a: &a, b: &b, y: outs[0] });
            });
        }
    }
}
