//! Against chains of 256 over the decoded weight, an element at a time.

use apprentice_quant::Format;

use super::LinearVjp;
use crate::kernels::suite::{Numbers, Wanted, check, fma};
use crate::kernels::weight::Weight;
use crate::kernels::weight::tests::random_blocks;

fn check_vjp(format: Format, rows: usize, outputs: usize, width: usize, hard: bool) {
    let seed = (rows * 1_000_003 + outputs * 1009 + width) as u64;
    let mut numbers = Numbers::new(seed);
    let bytes = random_blocks(&mut numbers, format, outputs * width, hard);
    let dy = if hard { numbers.hard(rows * outputs) } else { numbers.normal(rows * outputs) };
    let mut decoded = vec![0.0; outputs * width];
    format.decode(&bytes, &mut decoded).unwrap();
    let mut expected = Vec::new();
    for row in 0..rows {
        for column in 0..width {
            let mut total = 0.0f32;
            for start in (0..outputs).step_by(256) {
                let mut sum = 0.0;
                for output in start..outputs.min(start + 256) {
                    sum = fma(dy[row * outputs + output], decoded[output * width + column], sum);
                }
                total += sum;
            }
            expected.push(total);
        }
    }
    let weight = Weight::new(format, &bytes, outputs, width).unwrap();
    check(seed, &[Wanted::new(&expected)], |outs, run| run.all(&LinearVjp::new(rows, &dy, weight, outs[0])));
}

#[test]
fn any_number_of_rows() {
    for rows in (0..14).chain([31, 70, 300]) {
        check_vjp(Format::Q8_0, rows, 20, 64, false);
    }
}

#[test]
fn segments_by_absolute_index() {
    for outputs in [1, 255, 256, 257, 512, 700] {
        check_vjp(Format::Q4_1, 7, outputs, 96, false);
    }
}

#[test]
fn widths_with_and_without_a_rest() {
    for width in [1, 15, 16, 17, 33, 64, 100, 576] {
        check_vjp(Format::F32, 7, 300, width, false);
        check_vjp(Format::F16, 2, 9, width, false);
    }
}

#[test]
fn all_formats() {
    for format in Format::ALL {
        check_vjp(*format, 5, 270, 512, false);
    }
}

#[test]
fn nan_infinity_and_denormals() {
    for format in Format::ALL {
        check_vjp(*format, 5, 40, 256, true);
    }
    check_vjp(Format::F32, 9, 300, 45, true);
}

#[test]
fn more_columns_than_need_a_cut_of_rows() {
    check_vjp(Format::Q4_0, 270, 3, 2048, false);
}

/// A chain that underflows ends in -0, and the total starts with +0.
#[test]
fn the_first_segment_is_added_to_zero() {
    let bytes: Vec<u8> = 1e-30f32.to_le_bytes().repeat(64);
    let weight = Weight::new(Format::F32, &bytes, 2, 32).unwrap();
    let dy = [-1e-30, -1e-30];
    check(0, &[Wanted::new(&[0.0; 32])], |outs, run| run.all(&LinearVjp::new(1, &dy, weight, outs[0])));
}
