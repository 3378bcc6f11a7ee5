//! GELU, tanh form: `y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`, elementwise.
//!
//! Source: Hendrycks and Gimpel 2016, "Gaussian error linear units", section 2.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::ops::GeluVjp;
use crate::types::{Extent, ShapeError, Type};

/// `x` -> the same shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Gelu {}

impl Op<1, 1> for Gelu {
    const NAME: &'static str = "gelu";
    const INPUTS: [Input; 1] = [Input::new("x")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [x]: [&Type; 1]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        Ok([x.clone()])
    }

    /// `dx = gelu_vjp(dy, x)`.
    fn vjp<'g>(&self, v: Vjp<'g, 1, 1>) -> Result<[Option<Value<'g>>; 1], Refusal> {
        let ([x], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None]) };
        let [dx] = x.builder().push(GeluVjp {}, [dy, x]);
        Ok([Some(dx)])
    }

    fn cost(&self, [x]: [&Type; 1]) -> Cost {
        Cost::elementwise(x, 24, 2)
    }

    fn oracle(&self, [x]: [&Array; 1]) -> [Array; 1] {
        let slope = (2.0 / std::f64::consts::PI).sqrt();
        [x.map(|x| 0.5 * x * (1.0 + (slope * (x + 0.044715 * x * x * x)).tanh()))]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        vec![
            Case::new(Gelu {}, vec![rows(&[3, 64])]),
            Case::new(Gelu {}, vec![rows(&[5, 2, 33])]).note("a width that is no multiple of 16"),
            Case::new(Gelu {}, vec![rows(&[2, 40]).filled(Fill::Normal(3.0))])
                .note("where the tanh saturates"),
            Case::new(Gelu {}, vec![Given::zeros(&[3])]).note("zero"),
            Case::refuse(Gelu {}, vec![Given::ints(&[2], &[1, 2])], "x: expected f32, found i32[2]"),
        ]
    }
}
