//! Sums over all axes but the last, by a block table: a chain from +0 for each block, rows ascending; the sums of blocks
//! are added to the sum so far in the order of the table.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::Kernel;

/// Columns of a unit; no column depends on another.
const UNIT: usize = 64;

/// `x [rows, inner, width]` -> `y [width]`.
pub struct SumRows<'a> {
    /// Product of the axes between the first and the last.
    pub inner: usize,
    /// `[rows, inner, width]`.
    pub x: &'a [f32],
    /// `[blocks, 2]`: first row and rows, in the order of addition.
    pub blocks: &'a [i32],
    /// `[width]`.
    pub y: Disjoint<'a, f32>,
}

impl Kernel for SumRows<'_> {
    fn units(&self) -> usize {
        self.y.len().div_ceil(UNIT)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let width = self.y.len();
        let first = unit * UNIT;
        // SAFETY: units are ranges of columns that follow each other.
        let y = unsafe { self.y.range(first..(first + UNIT).min(width)) };
        for (part, y) in y.chunks_mut(LANES).enumerate() {
            let column = first + part * LANES;
            let mut sum = isa.zero();
            for block in self.blocks.as_chunks::<2>().0 {
                let [start, rows] = block.map(|entry| entry as usize * self.inner);
                let mut chain = isa.zero();
                for row in start..start + rows {
                    let x = &self.x[row * width + column..][..y.len()];
                    chain = isa.add(chain, isa.load_partial(x));
                }
                sum = isa.add(sum, chain);
            }
            isa.store_partial(y, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Numbers, Wanted, check};

    #[test]
    fn blocks_in_the_order_of_the_table() {
        for (seed, (inner, width)) in [(1, 1), (1, 64), (3, 17), (2, 150)].into_iter().enumerate() {
            let x = Numbers::new(seed as u64).normal(150 * inner * width);
            // Two sequences, their last blocks first; rows 40 and 41 belong to none.
            let blocks = [27, 13, 0, 27, 106, 44, 42, 64];
            let mut expected = vec![0.0f32; width];
            for block in blocks.chunks(2) {
                for (column, expected) in expected.iter_mut().enumerate() {
                    let mut chain = 0.0f32;
                    for row in block[0] * inner..(block[0] + block[1]) * inner {
                        chain += x[row * width + column];
                    }
                    *expected += chain;
                }
            }
            let table: Vec<i32> = blocks.iter().map(|entry| *entry as i32).collect();
            check(seed as u64, &[Wanted::new(&expected)], |outs, run| {
                run.all(&SumRows { inner, x: &x, blocks: &table, y: outs[0] });
            });
        }
    }

    #[test]
    fn a_table_without_blocks_gives_zeros() {
        check(1, &[Wanted::new(&[0.0; 20])], |outs, run| {
            run.all(&SumRows { inner: 1, x: &[f32::NAN; 40], blocks: &[], y: outs[0] });
        });
    }
}
