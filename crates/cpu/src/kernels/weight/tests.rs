//! Decoding of rows and parts of rows at every level, against `quant`.

use std::ops::Range;

use apprentice_quant::Format;

use super::Weight;
use crate::CpuError;
use crate::isa::{Isa, Level, Task};
use crate::kernels::suite::Numbers;

/// Blocks of `values` values: any codes; scales below one, or `hard` with any bits, so NaN and infinities too.
pub(crate) fn random_blocks(numbers: &mut Numbers, format: Format, values: usize, hard: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..format.row_bytes(values).unwrap()).map(|_| numbers.bits() as u8).collect();
    if hard {
        return bytes;
    }
    let scales: &[usize] = match format {
        Format::F32 | Format::F16 | Format::BF16 => {
            // The top bits of the exponent: nothing above 2.
            let size = format.block_bytes();
            bytes.iter_mut().skip(size - 1).step_by(size).for_each(|byte| *byte &= 0xbf);
            &[]
        }
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q2K => &[80, 82],
        Format::Q3K => &[108],
        Format::Q6K => &[208],
    };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        scales.iter().for_each(|scale| block[scale + 1] &= 0xbf);
    }
    bytes
}

struct Part<'a> {
    weight: Weight<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
    stride: usize,
}

impl Task for Part<'_> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.rows.len() * self.stride];
        self.weight.decode(isa, self.rows, self.columns, &mut out, self.stride);
        out
    }
}

fn check_rows(format: Format, width: usize, hard: bool) {
    let seed = width as u64;
    let mut numbers = Numbers::new(seed);
    let height = 40;
    let bytes = random_blocks(&mut numbers, format, height * width, hard);
    let mut expected = vec![0.0; height * width];
    format.decode(&bytes, &mut expected).unwrap();
    let weight = Weight::new(format, &bytes, height, width).unwrap();
    for level in Level::all() {
        for row in 0..height {
            let from = numbers.below(width) / 32 * 32;
            let to = (from + 32 * (1 + numbers.below(4))).min(width);
            let rows = row..height.min(row + 1 + numbers.below(3));
            for columns in [0..width, from..to] {
                let stride = columns.len() + numbers.below(3);
                let found = level.run(Part { weight, rows: rows.clone(), columns: columns.clone(), stride });
                for (row, found) in rows.clone().zip(found.chunks(stride)) {
                    let expected = &expected[row * width..][columns.clone()];
                    let wrong = (0..expected.len()).find(|at| {
                        let (found, expected) = (found[*at], expected[*at]);
                        found.to_bits() != expected.to_bits() && !(found.is_nan() && expected.is_nan())
                    });
                    let wrong = wrong.map(|at| (columns.start + at, found[at], expected[at]));
                    assert_eq!(
                        wrong, None,
                        "{format} at {level}, seed {seed}: row {row} (column, found, expected)"
                    );
                }
            }
        }
    }
}

#[test]
fn all_formats_decode_as_quant_does() {
    for format in Format::ALL {
        check_rows(*format, 768, false);
        check_rows(*format, 512, true);
    }
}

#[test]
fn single_values_may_end_inside_a_strip() {
    for format in [Format::F32, Format::F16, Format::BF16] {
        for width in [1, 31, 32, 33, 70] {
            check_rows(format, width, true);
        }
    }
}

#[test]
fn bytes_that_are_not_the_weight_are_refused() {
    let check = |rows, width, count: usize, expected| {
        let bytes = vec![0; count];
        let found = Weight::new(Format::Q8_0, &bytes, rows, width).map(|weight| weight.rows());
        assert_eq!(
            found,
            Err(CpuError::Weight { format: Format::Q8_0, rows, width, expected, found: count })
        );
    };
    check(2, 64, 135, Some(136));
    check(2, 64, 0, Some(136));
    check(2, 33, 136, None);
    check(usize::MAX, 64, 0, None);
}
