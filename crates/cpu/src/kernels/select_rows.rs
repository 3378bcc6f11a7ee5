//! Rows by index: `y[i] = x[index[i]]`.

use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::kernels::{Kernel, rows_of_a_unit, unit_rows};

/// `x [rows, width]`, `index [count]` -> `y [count, width]`.
pub struct SelectRows<'a> {
    /// Elements of a row.
    pub width: usize,
    /// `[rows, width]`.
    pub x: &'a [f32],
    /// `[count]`, each below the number of rows.
    pub index: &'a [i32],
    /// `[count, width]`.
    pub y: Disjoint<'a, f32>,
}

impl Kernel for SelectRows<'_> {
    fn units(&self) -> usize {
        self.index.len().div_ceil(rows_of_a_unit(self.width))
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, _: I, unit: usize, _: &mut [f32]) {
        let rows = unit_rows(unit, self.width, self.index.len());
        // SAFETY: units are ranges of rows that follow each other.
        let y = unsafe { self.y.range(rows.start * self.width..rows.end * self.width) };
        for (index, y) in self.index[rows].iter().zip(y.chunks_mut(self.width.max(1))) {
            y.copy_from_slice(&self.x[*index as usize * self.width..][..self.width]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Numbers, Wanted, check};

    #[test]
    fn rows_in_any_order_and_more_than_once() {
        let (rows, width) = (40, 999);
        let mut numbers = Numbers::new(3);
        let x = numbers.hard(rows * width);
        let index: Vec<i32> = (0..57).map(|_| numbers.below(rows) as i32).collect();
        let expected: Vec<f32> =
            index.iter().flat_map(|index| &x[*index as usize * width..][..width]).copied().collect();
        check(3, &[Wanted::new(&expected)], |outs, run| {
            run.all(&SelectRows { width, x: &x, index: &index, y: outs[0] });
        });
    }
}
