//! The effect of a page write: row `i` of a value goes to cell `cells[i]` of a store; a negative cell is not written.
//!
//! Units are ranges of columns, or whole vectors where a cell is made of blocks, so two rows that name one cell are
//! written by one unit, the later row last.

use half::f16;

use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::kernels::Kernel;
use crate::kernels::round_q8_0::{encode, vector_bytes};

/// Columns of a unit.
const UNIT: usize = 64;

/// A store, `[cells, width]`.
#[derive(Clone, Copy)]
pub enum Store<'a> {
    /// As the value.
    F32(Disjoint<'a, f32>),
    /// Little-endian, two bytes an element: nearest, ties to even; above the range infinity.
    F16(Disjoint<'a, u8>),
    /// Vectors of a q8_0 page, one after another; see [`crate::kernels::round_q8_0`].
    Q8_0 {
        /// `[cells, width / vector]` vectors.
        bytes: Disjoint<'a, u8>,
        /// Elements of a vector.
        vector: usize,
    },
}

impl Store<'_> {
    /// Columns of a unit.
    fn columns(&self) -> usize {
        match self {
            Store::F32(_) | Store::F16(_) => UNIT,
            Store::Q8_0 { vector, .. } => *vector,
        }
    }
}

/// `value [rows, width]`, `cells [rows]` -> cells of `store`.
pub struct WriteRows<'a> {
    /// Elements of a row and of a cell.
    pub width: usize,
    /// `[rows, width]`.
    pub value: &'a [f32],
    /// `[rows]`.
    pub cells: &'a [i32],
    /// `[cells, width]`.
    pub store: Store<'a>,
}

impl Kernel for WriteRows<'_> {
    fn units(&self) -> usize {
        self.width.div_ceil(self.store.columns())
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, _: I, unit: usize, _: &mut [f32]) {
        let count = self.store.columns();
        let columns = unit * count..((unit + 1) * count).min(self.width);
        for (row, cell) in self.cells.iter().enumerate() {
            let Ok(cell) = usize::try_from(*cell) else { continue };
            let source = &self.value[row * self.width..][columns.clone()];
            let range = cell * self.width + columns.start..cell * self.width + columns.end;
            match &self.store {
                // SAFETY: these columns of every cell belong to this unit, which takes one cell at a time.
                Store::F32(store) => unsafe { store.range(range) }.copy_from_slice(source),
                Store::F16(store) => {
                    // SAFETY: as above.
                    let bytes = unsafe { store.range(2 * range.start..2 * range.end) };
                    for (bytes, value) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(source) {
                        *bytes = f16::from_f32(*value).to_le_bytes();
                    }
                }
                Store::Q8_0 { bytes, vector } => {
                    let (first, count) = (range.start / vector, vector_bytes(*vector));
                    // SAFETY: as above: the columns are this vector.
                    let bytes = unsafe { bytes.range(first * count..(first + 1) * count) };
                    encode(source, bytes);
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
    fn only_cells_that_are_named() {
        for (seed, width) in [1, 33, 192].into_iter().enumerate() {
            let mut numbers = Numbers::new(seed as u64);
            let cells = [7, -1, 0, 3, -5, 9, 3];
            let (value, before) = (numbers.hard(cells.len() * width), numbers.hard(11 * width));
            let mut expected = before.clone();
            for (row, cell) in cells.iter().enumerate().filter(|(_, cell)| **cell >= 0) {
                expected[*cell as usize * width..][..width].copy_from_slice(&value[row * width..][..width]);
            }
            check(seed as u64, &[Wanted::in_place(&expected, &before)], |outs, run| {
                run.all(&WriteRows { width, value: &value, cells: &cells, store: Store::F32(outs[0]) });
            });
            let bytes = |values: &[f32]| -> Vec<u8> {
                values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect()
            };
            check(seed as u64, &[Wanted::in_place(&bytes(&expected), &bytes(&before))], |outs, run| {
                run.all(&WriteRows { width, value: &value, cells: &cells, store: Store::F16(outs[0]) });
            });
            let vector = if width == 192 { 64 } else { width };
            let bytes = |values: &[f32]| -> Vec<u8> {
                let mut bytes = vec![0; values.len() / vector * vector_bytes(vector)];
                let vectors = values.chunks(vector).zip(bytes.chunks_mut(vector_bytes(vector)));
                vectors.for_each(|(vector, bytes)| encode(vector, bytes));
                bytes
            };
            check(seed as u64, &[Wanted::in_place(&bytes(&expected), &bytes(&before))], |outs, run| {
                let store = Store::Q8_0 { bytes: outs[0], vector };
                run.all(&WriteRows { width, value: &value, cells: &cells, store });
            });
        }
    }
}
