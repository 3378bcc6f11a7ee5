//! Rows of a weight by index: `y[r, :] = weight[ids[r], :]`, decoded.

use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::kernels::Kernel;
use crate::kernels::weight::Weight;

/// Rows of a unit.
const ROWS: usize = 16;

/// `ids [rows]`, `weight [vocab, width]` -> `y [rows, width]`.
pub struct Embed<'a> {
    ids: &'a [u32],
    weight: Weight<'a>,
    y: Disjoint<'a, f32>,
}

impl<'a> Embed<'a> {
    /// # Panics
    /// If `y` is not `[rows, width]`. An index past the weight panics when its unit runs: whoever takes ids from outside
    /// checks them first.
    pub fn new(ids: &'a [u32], weight: Weight<'a>, y: Disjoint<'a, f32>) -> Self {
        assert_eq!(y.len(), ids.len() * weight.width(), "y [{}, {}]", ids.len(), weight.width());
        Self { ids, weight, y }
    }
}

impl Kernel for Embed<'_> {
    fn units(&self) -> usize {
        self.ids.len().div_ceil(ROWS)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let width = self.weight.width();
        for row in (unit * ROWS..self.ids.len()).take(ROWS) {
            let id = self.ids[row] as usize;
            assert!(id < self.weight.rows(), "id {id} of {}", self.weight.rows());
            // SAFETY: a row of this unit, once.
            let y = unsafe { self.y.range(row * width..(row + 1) * width) };
            self.weight.decode(isa, id..id + 1, 0..width, y, width.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use apprentice_quant::Format;

    use super::Embed;
    use crate::kernels::suite::{Numbers, Wanted, check};
    use crate::kernels::weight::Weight;
    use crate::kernels::weight::tests::random_blocks;

    fn check_rows(format: Format, width: usize, rows: usize) {
        let seed = (width * 100 + rows) as u64;
        let mut numbers = Numbers::new(seed);
        let vocab = 30;
        let bytes = random_blocks(&mut numbers, format, vocab * width, false);
        let mut decoded = vec![0.0; vocab * width];
        format.decode(&bytes, &mut decoded).unwrap();
        let ids: Vec<u32> = (0..rows).map(|_| numbers.below(vocab) as u32).collect();
        let expected: Vec<f32> =
            ids.iter().flat_map(|id| decoded[*id as usize * width..][..width].to_vec()).collect();
        let weight = Weight::new(format, &bytes, vocab, width).unwrap();
        check(seed, &[Wanted::new(&expected)], |outs, run| run.all(&Embed::new(&ids, weight, outs[0])));
    }

    #[test]
    fn rows_in_any_format() {
        for format in Format::ALL {
            check_rows(*format, 256, 37);
        }
    }

    #[test]
    fn no_row_and_odd_widths() {
        check_rows(Format::Q8_0, 64, 0);
        check_rows(Format::F32, 33, 16);
        check_rows(Format::F16, 1, 17);
    }
}
