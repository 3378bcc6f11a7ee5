//! Gradient of GELU's tanh form: with `u = c (x + 0.044715 x^3)`, `c = sqrt(2/pi)` and `t = tanh(u)`,
//! `dx = dy * ((1 + t) / 2 + x/2 * (1 - t^2) * c (1 + 3 * 0.044715 x^2))`, elementwise.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `dy`, `x` of the same type -> the same shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GeluVjp {}

impl Op<2, 1> for GeluVjp {
    const NAME: &'static str = "gelu_vjp";
    const INPUTS: [Input; 2] = [Input::new("dy"), Input::new("x")];
    const OUTPUTS: [&'static str; 1] = ["dx"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [dy, x]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        dy.expect_f32("dy")?;
        x.expect_same("x", dy)?;
        Ok([dy.clone()])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        Err(Refusal("second order through gelu_vjp"))
    }

    fn cost(&self, [dy, _]: [&Type; 2]) -> Cost {
        Cost::elementwise(dy, 32, 3)
    }

    fn oracle(&self, [dy, x]: [&Array; 2]) -> [Array; 1] {
        let c = (2.0 / std::f64::consts::PI).sqrt();
        let slope = |x: f64| {
            let t = (c * (x + 0.044715 * x * x * x)).tanh();
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3.0 * 0.044715 * x * x)
        };
        let dx = dy.data.iter().zip(&x.data).map(|(dy, x)| dy * slope(*x));
        [Array::new(dy.shape.clone(), dx.collect())]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        vec![
            Case::new(GeluVjp {}, vec![rows(&[3, 64]), rows(&[3, 64])]),
            Case::new(GeluVjp {}, vec![rows(&[5, 2, 33]), rows(&[5, 2, 33])])
                .note("a width that is no multiple of 16"),
            Case::new(GeluVjp {}, vec![rows(&[2, 40]), rows(&[2, 40]).filled(Fill::Normal(3.0))])
                .note("saturated tanh"),
            Case::refuse(
                GeluVjp {},
                vec![rows(&[3, 64]), rows(&[3, 65])],
                "x: expected f32[3, 64]@rows, found f32[3, 65]@rows",
            ),
        ]
    }
}
