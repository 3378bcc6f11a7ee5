//! Rounds to float16 and back, elementwise: what a float16 page keeps of a value. To the nearest, ties to even; beyond
//! 65,504 and a half step, infinity. The gradient of the rounding is 1.
//!
//! Source: IEEE 754-2019, binary16.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `x` -> the same shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RoundF16 {}

impl Op<1, 1> for RoundF16 {
    const NAME: &'static str = "round_f16";
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
        Cost::elementwise(x, 2, 2)
    }

    fn oracle(&self, [x]: [&Array; 1]) -> [Array; 1] {
        [x.map(nearest)]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        let step = 2f64.powi(-10); // of float16 between 1 and 2
        let subnormal = 2f64.powi(-24);
        let ties = vec![
            1.0 + step / 2.0,
            1.0 + step * 1.5,
            1.0 + step / 2.0 + 2f64.powi(-23),
            -1.0 - step / 2.0,
            subnormal / 2.0,
            subnormal * 1.5,
            subnormal / 2.0 + 2f64.powi(-40),
            -subnormal / 2.0,
            2f64.powi(-14) - subnormal / 2.0,
            0.0,
            -0.0,
            65504.0,
            65519.0,
            -65519.0,
        ];
        vec![
            Case::new(RoundF16 {}, vec![rows(&[3, 64])]),
            Case::new(RoundF16 {}, vec![rows(&[70, 2, 33])])
                .note("a width that is no multiple of 16, rows across a block"),
            Case::new(RoundF16 {}, vec![rows(&[4, 40]).filled(Fill::Normal(3e-6))]).note("subnormal results"),
            Case::new(RoundF16 {}, vec![Given::normal(&[ties.len()]).filled(Fill::Values(ties))])
                .note("ties and ends"),
            Case::refuse(RoundF16 {}, vec![Given::ints(&[2], &[1, 2])], "x: expected f32, found i32[2]"),
        ]
    }
}

/// The nearest float16. Steps are powers of two, so the quotient and the product are exact.
pub(super) fn nearest(value: f64) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).max(-14);
    let step = 2f64.powi(exponent - 10);
    let rounded = (value / step).round_ties_even() * step;
    if rounded.abs() > 65504.0 { f64::INFINITY.copysign(value) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn agrees_with_every_float16_and_its_neighbours() {
        for bits in 0..=u16::MAX {
            let value = half::f16::from_bits(bits).to_f32();
            if !value.is_finite() {
                continue;
            }
            for near in [value, f32::from_bits(value.to_bits() ^ 1), value * 1.000_488_2, value * 1.000_244_1]
            {
                let expected = half::f16::from_f32(near).to_f64();
                assert_eq!(nearest(f64::from(near)).to_bits(), expected.to_bits(), "{near:e}");
            }
        }
    }
}
