//! Reciprocal square root: `y = 1 / sqrt(x)`, elementwise, a root and a division, each rounded.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `x` -> the same shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rsqrt {}

impl Op<1, 1> for Rsqrt {
    const NAME: &'static str = "rsqrt";
    const INPUTS: [Input; 1] = [Input::new("x")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [x]: [&Type; 1]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        Ok([x.clone()])
    }

    /// `dx = -1/2 y^3 dy`.
    fn vjp<'g>(&self, v: Vjp<'g, 1, 1>) -> Result<[Option<Value<'g>>; 1], Refusal> {
        let ([y], [Some(dy)]) = (v.outputs, v.cotangents) else { return Ok([None]) };
        Ok([Some((dy * y * y * y).scale(-0.5))])
    }

    fn cost(&self, [x]: [&Type; 1]) -> Cost {
        Cost::elementwise(x, 2, 2)
    }

    fn oracle(&self, [x]: [&Array; 1]) -> [Array; 1] {
        [x.map(|x| x.sqrt().recip())]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize], floor| {
            vec![Given::normal(shape).counted(Extent::Rows).filled(Fill::Positive(floor))]
        };
        vec![
            Case::new(Rsqrt {}, rows(&[3, 64], 0.5)),
            Case::new(Rsqrt {}, rows(&[70, 1], 0.1)).note("a column, as norms have"),
            Case::new(Rsqrt {}, rows(&[5, 2, 17], 1e3)).note("a width that is no multiple of 16"),
            Case::refuse(Rsqrt {}, vec![Given::ints(&[2], &[1, 2])], "x: expected f32, found i32[2]"),
        ]
    }
}
