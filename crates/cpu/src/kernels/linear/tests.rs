//! Against dot16 an element at a time over the decoded weight.

use std::sync::atomic::AtomicBool;

use apprentice_quant::Format;

use super::Linear;
use crate::disjoint::Disjoint;
use crate::isa::Level;
use crate::kernels::linear_vjp::LinearVjp;
use crate::kernels::suite::{Numbers, Wanted, check, dot16};
use crate::kernels::weight::Weight;
use crate::kernels::weight::tests::random_blocks;
use crate::kernels::{Kernel, run_unit};
use crate::pool::{Outcome, Pool};

fn check_linear(format: Format, rows: usize, outputs: usize, width: usize, hard: bool) {
    let seed = (rows * 1_000_003 + outputs * 1009 + width) as u64;
    let mut numbers = Numbers::new(seed);
    let bytes = random_blocks(&mut numbers, format, outputs * width, hard);
    let x = if hard { numbers.hard(rows * width) } else { numbers.normal(rows * width) };
    let mut decoded = vec![0.0; outputs * width];
    format.decode(&bytes, &mut decoded).unwrap();
    let mut expected = Vec::new();
    for row in 0..rows {
        for output in 0..outputs {
            expected.push(dot16(&x[row * width..][..width], &decoded[output * width..][..width]));
        }
    }
    let weight = Weight::new(format, &bytes, outputs, width).unwrap();
    check(seed, &[Wanted::new(&expected)], |outs, run| run.all(&Linear::new(rows, &x, weight, outs[0])));
}

#[test]
fn any_number_of_rows() {
    for rows in (0..14).chain([31, 48, 49, 70]) {
        check_linear(Format::Q8_0, rows, 20, 64, false);
    }
}

#[test]
fn any_number_of_outputs() {
    for outputs in [1, 3, 15, 16, 17, 41, 2100] {
        check_linear(Format::Q4_1, 3, outputs, 96, false);
    }
}

#[test]
fn widths_with_and_without_a_rest() {
    for width in [1, 15, 16, 17, 33, 64, 256, 576, 641, 1300] {
        check_linear(Format::F32, 7, 9, width, false);
        check_linear(Format::F16, 1, 9, width, false);
        check_linear(Format::BF16, 2, 9, width, false);
    }
}

#[test]
fn all_formats() {
    for format in Format::ALL {
        check_linear(*format, 1, 17, 512, false);
        check_linear(*format, 6, 5, 256, false);
    }
}

#[test]
fn nan_infinity_and_denormals() {
    for format in Format::ALL {
        check_linear(*format, 5, 9, 256, true);
    }
    check_linear(Format::F32, 9, 11, 45, true);
}

/// Workers take units in any order and at any time; the bytes are those of one worker.
#[test]
fn bytes_do_not_depend_on_the_number_of_workers() {
    let (rows, outputs, width, format) = (50, 300, 1536, Format::Q4_1);
    let mut numbers = Numbers::new(11);
    let bytes = random_blocks(&mut numbers, format, outputs * width, false);
    let weight = Weight::new(format, &bytes, outputs, width).unwrap();
    let (x, dy) = (numbers.normal(rows * width), numbers.normal(rows * outputs));
    let run = |level: Level, workers: usize| {
        let (mut y, mut dx) = (vec![f32::NAN; rows * outputs], vec![f32::NAN; rows * width]);
        let forward = Linear::new(rows, &x, weight, Disjoint::new(&mut y));
        let backward = LinearVjp::new(rows, &dy, weight, Disjoint::new(&mut dx));
        let execute = |step: usize, units: std::ops::Range<usize>, _: usize| {
            let mut scratch = vec![f32::NAN; forward.scratch().max(backward.scratch())];
            for unit in units {
                if step == 0 {
                    run_unit(level, &forward, unit, &mut scratch);
                } else {
                    run_unit(level, &backward, unit, &mut scratch);
                }
            }
        };
        let steps = [forward.units(), backward.units()];
        assert!(steps.iter().all(|units| *units > 8), "{steps:?}: too few units to share");
        let outcome = Pool::new(workers).unwrap().run(&steps, &execute, &AtomicBool::new(false));
        assert_eq!(outcome, Outcome::Done);
        (y, dx)
    };
    for level in Level::all() {
        let alone = run(level, 1);
        assert!(alone.0.iter().chain(&alone.1).all(|value| value.is_finite()));
        for workers in [2, 3, 8] {
            assert!(run(level, workers) == alone, "{level}, {workers} workers");
        }
    }
}
