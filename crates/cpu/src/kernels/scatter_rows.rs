//! Rows added where an index says: zeros, then `y[index[i]] += x[i]`, `i` ascending.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::{Kernel, rows_of_a_unit, unit_rows};

/// `x [count, width]`, `index [count]` -> `y [rows, width]`.
pub struct ScatterRows<'a> {
    /// Elements of a row.
    pub width: usize,
    /// `[count, width]`.
    pub x: &'a [f32],
    /// `[count]`, each below the number of rows.
    pub index: &'a [i32],
    /// `[rows, width]`.
    pub y: Disjoint<'a, f32>,
}

impl Kernel for ScatterRows<'_> {
    fn units(&self) -> usize {
        (self.y.len() / self.width.max(1)).div_ceil(rows_of_a_unit(self.width))
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let width = self.width;
        let rows = unit_rows(unit, width, self.y.len() / width);
        // SAFETY: units are ranges of rows that follow each other.
        let y = unsafe { self.y.range(rows.start * width..rows.end * width) };
        y.fill(0.0);
        for (row, index) in self.index.iter().enumerate() {
            let index = *index as usize;
            if rows.contains(&index) {
                let y = &mut y[(index - rows.start) * width..][..width];
                for (y, x) in y.chunks_mut(LANES).zip(self.x[row * width..][..width].chunks(LANES)) {
                    let sum = isa.add(isa.load_partial(y), isa.load_partial(x));
                    isa.store_partial(y, sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Numbers, Wanted, check};

    #[test]
    fn additions_ascend_by_source_row() {
        let (rows, width) = (30, 700);
        let mut numbers = Numbers::new(4);
        let index: Vec<i32> = (0..57).map(|_| numbers.below(rows - 2) as i32).collect();
        let x = numbers.hard(index.len() * width);
        let mut expected = vec![0.0f32; rows * width];
        for (at, x) in x.iter().enumerate() {
            expected[index[at / width] as usize * width + at % width] += x;
        }
        check(4, &[Wanted::new(&expected)], |outs, run| {
            run.all(&ScatterRows { width, x: &x, index: &index, y: outs[0] });
        });
    }
}
