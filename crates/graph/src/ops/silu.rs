//! SiLU: `y = x * s(x)`, `s(x) = 1 / (1 + exp(-x))`, elementwise.
//!
//! Source: Elfwing, Uchibe and Doya 2017, "Sigmoid-weighted linear units", eq. 5.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::ops::SiluVjp;
use crate::types::{Extent, ShapeError, Type};

/// `x` -> the same shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Silu {}

impl Op<1, 1> for Silu {
    const NAME: &'static str = "silu";
    const INPUTS: [Input; 1] = [Input::new("x")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [x]: [&Type; 1]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        Ok([x.clone()])
    }

    /// `dx = silu_vjp(dy, x)`.
    fn vjp<'g>(&self, v: Vjp<'g, 1, 1>) -> Result<[Option<Value<'g>>; 1], Refusal> {
        let ([x], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None]) };
        let [dx] = x.builder().push(SiluVjp {}, [dy, x]);
        Ok([Some(dx)])
    }

    fn cost(&self, [x]: [&Type; 1]) -> Cost {
        Cost::elementwise(x, 20, 2)
    }

    fn oracle(&self, [x]: [&Array; 1]) -> [Array; 1] {
        [x.map(|x| x / (1.0 + (-x).exp()))]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        vec![
            Case::new(Silu {}, vec![rows(&[3, 64])]),
            Case::new(Silu {}, vec![rows(&[5, 2, 33])]).note("a width that is no multiple of 16"),
            Case::new(Silu {}, vec![rows(&[2, 40]).filled(Fill::Normal(20.0))])
                .note("large values of both signs"),
            Case::new(Silu {}, vec![Given::zeros(&[3])]).note("zero"),
            Case::refuse(Silu {}, vec![Given::ints(&[2], &[1, 2])], "x: expected f32, found i32[2]"),
        ]
    }
}
