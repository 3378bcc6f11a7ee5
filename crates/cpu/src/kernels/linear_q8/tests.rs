//! Against plain loops over `quant`'s integers, a product at a time, to the bit.

use std::cell::Cell;

use apprentice_quant::Format;

use super::{LinearQ8, Quantised};
use crate::disjoint::Disjoint;
use crate::isa::Level;
use crate::kernels::quantise_q8::QuantiseQ8;
use crate::kernels::suite::{Numbers, Wanted, check, fma};
use crate::kernels::weight::Weight;
use crate::kernels::weight::tests::random_blocks;
use crate::kernels::{Kernel, run_all, run_unit};

/// Formats with integers.
fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.iter().copied().filter(|format| format.grid().is_some())
}

/// Activations rounded to 8 bits.
struct Rounded {
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i32>,
}

impl Rounded {
    fn new(x: &[f32], width: usize) -> Rounded {
        let rows = x.len() / width;
        let (mut q, mut d, mut sums) =
            (vec![0; x.len()], vec![0.0; rows * width / 32], vec![0; rows * width / 16]);
        let (q_out, d_out, sums_out) =
            (Disjoint::new(&mut q), Disjoint::new(&mut d), Disjoint::new(&mut sums));
        let kernel = QuantiseQ8 { width, x, q: q_out, d: d_out, sums: sums_out };
        run_all(Level::parse("scalar").unwrap(), &kernel);
        Rounded { q, d, sums }
    }

    fn rows(&self, rows: std::ops::Range<usize>, width: usize) -> Quantised<'_> {
        Quantised {
            q: &self.q[rows.start * width..rows.end * width],
            d: &self.d[rows.start * width / 32..rows.end * width / 32],
            sums: &self.sums[rows.start * width / 16..rows.end * width / 16],
        }
    }
}

/// One result by the definition.
fn plain(format: Format, weight: &[u8], q: &[i8], d: &[f32]) -> f32 {
    let mut acc = 0.0;
    for (index, (q, d)) in q.chunks(32).zip(d).enumerate() {
        let strip = format.strip(weight, index).expect("a strip of the row");
        let (mut product, mut minimum) = (0, 0);
        for (i, q) in q.iter().enumerate() {
            product += strip.factors[i / 16] * i32::from(strip.codes[i]) * i32::from(*q);
            minimum += strip.minima[i / 16] * i32::from(*q);
        }
        acc = fma(strip.scale * d, product as f32, acc);
        if format.grid().expect("a format with integers").has_minima() {
            acc = fma(strip.minimum * d, minimum as f32, acc);
        }
    }
    acc
}

struct Case {
    format: Format,
    rows: usize,
    outputs: usize,
    width: usize,
}

impl Case {
    fn expected(&self, bytes: &[u8], x: &Rounded) -> Vec<f32> {
        let row_bytes = self.format.row_bytes(self.width).unwrap();
        let mut expected = Vec::new();
        for row in 0..self.rows {
            let (q, d) =
                (&x.q[row * self.width..][..self.width], &x.d[row * self.width / 32..][..self.width / 32]);
            for output in 0..self.outputs {
                expected.push(plain(self.format, &bytes[output * row_bytes..][..row_bytes], q, d));
            }
        }
        expected
    }

    #[track_caller]
    fn check(&self, bytes: &[u8], x: &[f32]) {
        let seed = (self.rows * 1_000_003 + self.outputs * 1009 + self.width) as u64;
        let rounded = Rounded::new(x, self.width);
        let expected = self.expected(bytes, &rounded);
        let weight = Weight::new(self.format, bytes, self.outputs, self.width).unwrap();
        check(seed, &[Wanted::new(&expected)], |outs, run| {
            run.all(&LinearQ8::new(self.rows, rounded.rows(0..self.rows, self.width), weight, outs[0]));
        });
    }

    #[track_caller]
    fn check_random(&self, hard: bool) {
        let seed = (self.rows * 31 + self.outputs * 1009 + self.width) as u64;
        let mut numbers = Numbers::new(seed);
        let bytes = random_blocks(&mut numbers, self.format, self.outputs * self.width, hard);
        let x = if hard {
            hard_rows(&mut numbers, self.rows * self.width)
        } else {
            numbers.normal(self.rows * self.width)
        };
        self.check(&bytes, &x);
    }
}

/// Rows of which some blocks are not finite, some below 2^-100, some denormal, some of the largest numbers.
fn hard_rows(numbers: &mut Numbers, count: usize) -> Vec<f32> {
    let mut x = numbers.normal(count);
    for block in x.chunks_mut(32) {
        let scale = [1.0, 1.0, 1e-31, 1e-40, 1e-20, 1e30, 3e38][numbers.below(7)];
        block.iter_mut().for_each(|x| *x *= scale);
        if numbers.below(16) == 0 {
            let at = numbers.below(block.len());
            block[at] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][numbers.below(3)];
        }
    }
    x
}

#[test]
fn all_formats_and_numbers_of_rows() {
    for format in formats() {
        for rows in [0, 1, 2, 3, 5, 8, 13] {
            Case { format, rows, outputs: 37, width: 512 }.check_random(false);
        }
    }
}

#[test]
fn any_number_of_outputs() {
    for outputs in [1, 3, 15, 16, 17, 31, 32, 33, 48, 49, 100] {
        Case { format: Format::Q8_0, rows: 7, outputs, width: 64 }.check_random(false);
        Case { format: Format::Q6K, rows: 1, outputs, width: 256 }.check_random(false);
    }
}

#[test]
fn widths_of_one_chunk_and_more() {
    for width in [32, 64, 96, 480, 512, 544, 576, 1056] {
        for format in [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0] {
            Case { format, rows: 9, outputs: 18, width }.check_random(false);
        }
    }
    for width in [256, 512, 768, 1280] {
        for format in [Format::Q2K, Format::Q3K, Format::Q4K, Format::Q5K, Format::Q6K] {
            Case { format, rows: 6, outputs: 18, width }.check_random(false);
        }
    }
}

#[test]
fn hard_rows_and_hard_scales() {
    for format in formats() {
        for rows in [1, 6, 11] {
            Case { format, rows, outputs: 35, width: 512 }.check_random(true);
            let mut numbers = Numbers::new(rows as u64);
            let case = Case { format, rows, outputs: 20, width: 768 };
            let bytes = random_blocks(&mut numbers, format, case.outputs * case.width, false);
            case.check(&bytes, &hard_rows(&mut numbers, rows * case.width));
        }
    }
}

/// Blocks whose integers are all the largest or smallest that there are, with a scale of 1.
fn extreme(format: Format, values: usize, fill: u8) -> Vec<u8> {
    let mut bytes = vec![fill; format.row_bytes(values).unwrap()];
    let floats: &[usize] = match format {
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q2K => &[80, 82],
        Format::Q3K => &[108],
        Format::Q6K => &[208],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        floats.iter().for_each(|at| block[*at..at + 2].copy_from_slice(&[0, 0x3c]));
    }
    bytes
}

#[test]
fn the_largest_sums_neither_saturate_nor_round() {
    let x: Vec<f32> =
        (0..4 * 256).map(|i| if i < 256 || i >= 512 && i % 2 == 0 { 127.0 } else { -127.0 }).collect();
    for format in formats() {
        // 0x80 is -128 for a signed byte.
        for fill in [0, 0x7f, 0x80, 0xff, 0x0f, 0xf0] {
            Case { format, rows: 4, outputs: 17, width: 256 }.check(&extreme(format, 17 * 256, fill), &x);
        }
    }
    let case = Case { format: Format::Q8_0, rows: 1, outputs: 1, width: 256 };
    let expected = case.expected(&extreme(Format::Q8_0, 256, 0x80), &Rounded::new(&x[..256], 256));
    assert_eq!(expected, [-128.0 * 127.0 * 256.0]);
}

#[test]
fn a_row_has_the_same_bytes_in_any_batch() {
    let (format, outputs, width) = (Format::Q4K, 50, 768);
    let mut numbers = Numbers::new(257);
    let bytes = random_blocks(&mut numbers, format, outputs * width, false);
    let x = numbers.normal(257 * width);
    let rounded = Rounded::new(&x, width);
    let weight = Weight::new(format, &bytes, outputs, width).unwrap();
    let run = |level: Level, rows: std::ops::Range<usize>| {
        let mut y = vec![f32::NAN; rows.len() * outputs];
        run_all(level, &LinearQ8::new(rows.len(), rounded.rows(rows, width), weight, Disjoint::new(&mut y)));
        y.iter().map(|y| y.to_bits()).collect::<Vec<_>>()
    };
    let all = run(Level::parse("scalar").unwrap(), 0..257);
    for level in Level::all().into_iter().skip(1) {
        for rows in [0..257, 0..256, 1..256, 0..255, 41..42, 250..257] {
            let part = &all[rows.start * outputs..rows.end * outputs];
            assert!(run(level, rows.clone()) == part, "{level}: rows {rows:?}");
        }
    }
}

#[test]
fn units_are_borders_of_outputs_and_write_nothing_else() {
    let (format, outputs, width) = (Format::Q8_0, 200, 576);
    let mut numbers = Numbers::new(9);
    let bytes = random_blocks(&mut numbers, format, outputs * width, false);
    let rounded = Rounded::new(&numbers.normal(3 * width), width);
    let weight = Weight::new(format, &bytes, outputs, width).unwrap();
    for level in Level::all() {
        let mut y = vec![f32::NAN; 3 * outputs];
        let written = Cell::new(0);
        {
            let kernel = LinearQ8::new(3, rounded.rows(0..3, width), weight, Disjoint::new(&mut y));
            assert!(kernel.units() > 2);
            run_unit(level, &kernel, 1, &mut vec![f32::NAN; kernel.scratch()]);
            written.set(kernel.outputs_of_a_unit());
        }
        for (at, y) in y.iter().enumerate() {
            let inside = (written.get()..2 * written.get()).contains(&(at % outputs));
            assert_eq!(y.is_nan(), !inside, "{level}: {at}");
        }
    }
}
