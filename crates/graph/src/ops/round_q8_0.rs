//! Rounds to blocks of eight bits and back: what a q8_0 page keeps of a row of the last axis.
//!
//! A row is cut into blocks of 32 from its first element; the last may be shorter. With `amax` the largest magnitude of a
//! block, all in float32: `d = f16(amax / 127)`, `q = round_ties_even(x * (127 / amax))` from the unrounded `amax`,
//! `y = d q`. Where `amax` is below `2^-100`, `q` and `d` are 0; where the block holds a NaN or an infinity, `q` is 0 and
//! `d` a NaN. A step beyond the range of float16 is infinite. The gradient of the rounding is 1.

use serde::{Deserialize, Serialize};

use super::round_f16::nearest;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, PAGE_BLOCK, ShapeError, Type};

/// `x [.., width]` -> the same shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RoundQ8_0 {}

impl Op<1, 1> for RoundQ8_0 {
    const NAME: &'static str = "round_q8_0";
    const INPUTS: [Input; 1] = [Input::new("x")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Exact;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [x]: [&Type; 1]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        Ok([x.clone()])
    }

    /// `dx = dy`: straight through.
    fn vjp<'g>(&self, v: Vjp<'g, 1, 1>) -> Result<[Option<Value<'g>>; 1], Refusal> {
        Ok(v.cotangents)
    }

    fn cost(&self, [x]: [&Type; 1]) -> Cost {
        Cost::elementwise(x, 4, 2)
    }

    fn oracle(&self, [x]: [&Array; 1]) -> [Array; 1] {
        [x.map_last(|row| row.chunks(PAGE_BLOCK).flat_map(nearest_block).collect())]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        let values = |shape: &[usize], values: Vec<f64>| Given::normal(shape).filled(Fill::Values(values));
        let ramp = |largest: f64| (0..32).map(move |i| largest * (f64::from(i) - 16.0) / 16.0);
        let ties = (0..32).map(|i| if i == 0 { -127.0 } else { f64::from(i) - 16.5 });
        let sizes = [2f64.powi(-100), 2f64.powi(-101), 1e-6, 127.0 * 65504.0];
        vec![
            Case::new(RoundQ8_0 {}, vec![rows(&[3, 64])]),
            Case::new(RoundQ8_0 {}, vec![rows(&[70, 2, 20])]).note("one short block a row"),
            Case::new(RoundQ8_0 {}, vec![rows(&[5, 3, 80])]).note("a short last block"),
            Case::new(RoundQ8_0 {}, vec![rows(&[2, 33])]).note("a last block of one"),
            Case::new(RoundQ8_0 {}, vec![values(&[32], ties.collect())]).note("ties go to even"),
            Case::new(RoundQ8_0 {}, vec![values(&[sizes.len(), 32], sizes.into_iter().flat_map(ramp).collect())])
                .note("the least block, one below it, a subnormal step, the largest step"),
            Case::new(RoundQ8_0 {}, vec![values(&[2, 16], vec![0.0; 32])]).note("zeros"),
            Case::refuse(RoundQ8_0 {}, vec![Given::ints(&[2], &[1, 2])], "x: expected f32, found i32[2]"),
        ]
    }
}

/// A block after rounding.
fn nearest_block(block: &[f64]) -> Vec<f64> {
    if !block.iter().all(|value| value.is_finite()) {
        return vec![f64::NAN; block.len()];
    }
    let largest = block.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    if largest < 2f64.powi(-100) {
        return vec![0.0; block.len()];
    }
    let in_f32 = |value: f64| f64::from(value as f32);
    let (step, inverse) = (nearest(in_f32(largest / 127.0)), in_f32(127.0 / largest));
    let level = |value: f64| in_f32(value * inverse).round_ties_even() as i32;
    block.iter().map(|value| step * f64::from(level(*value))).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest_block;

    fn check(block: &[f64], expected: &[f64]) {
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&nearest_block(block)), bits(expected), "{block:?}");
    }

    #[test]
    fn levels_are_those_of_the_unrounded_step() {
        check(&[127.0, -126.5, 2.5, 3.5, -0.4], &[127.0, -126.0, 2.0, 4.0, 0.0]);
        // 1/127 is 0.007874016; the nearest float16 is 0.00787353515625.
        check(&[1.0, -0.5], &[127.0 * 0.007_873_535_156_25, -64.0 * 0.007_873_535_156_25]);
    }

    #[test]
    fn a_step_that_vanishes_or_overflows() {
        check(&[1e-9, -1e-9], &[0.0, -0.0]);
        check(&[2f64.powi(-101)], &[0.0]);
        check(&[1e7, -1e7], &[f64::INFINITY, f64::NEG_INFINITY]);
    }

    #[test]
    fn one_number_that_is_none_spoils_its_block() {
        check(&[1.0, f64::NAN], &[f64::NAN, f64::NAN]);
        check(&[f64::NEG_INFINITY, 1.0], &[f64::NAN, f64::NAN]);
    }
}
