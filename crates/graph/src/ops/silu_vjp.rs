//! Gradient of SiLU: `dx = dy * s * (1 + x * (1 - s))`, `s = 1 / (1 + exp(-x))`, elementwise.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `dy`, `x` of the same type -> the same shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SiluVjp {}

impl Op<2, 1> for SiluVjp {
    const NAME: &'static str = "silu_vjp";
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
        Err(Refusal("second order through silu_vjp"))
    }

    fn cost(&self, [dy, _]: [&Type; 2]) -> Cost {
        Cost::elementwise(dy, 24, 3)
    }

    fn oracle(&self, [dy, x]: [&Array; 2]) -> [Array; 1] {
        let slope = |x: f64| {
            let s = (1.0 + (-x).exp()).recip();
            s * (1.0 + x * (1.0 - s))
        };
        let dx = dy.data.iter().zip(&x.data).map(|(dy, x)| dy * slope(*x));
        [Array::new(dy.shape.clone(), dx.collect())]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        vec![
            Case::new(SiluVjp {}, vec![rows(&[3, 64]), rows(&[3, 64])]),
            Case::new(SiluVjp {}, vec![rows(&[5, 2, 33]), rows(&[5, 2, 33])])
                .note("a width that is no multiple of 16"),
            Case::new(SiluVjp {}, vec![rows(&[2, 40]), rows(&[2, 40]).filled(Fill::Normal(20.0))])
                .note("large values"),
            Case::refuse(
                SiluVjp {},
                vec![rows(&[3, 64]), rows(&[3, 65])],
                "x: expected f32[3, 64]@rows, found f32[3, 65]@rows",
            ),
        ]
    }
}
