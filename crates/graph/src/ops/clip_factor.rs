//! What a gradient is multiplied by so that its norm is at most a limit: `f32(limit / (norm + 1e-6))` where that is below
//! 1, else 1; `norm = sqrt(squares)`.
//!
//! Source: Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks", algorithm 1; the
//! 1e-6 keeps a norm of zero apart from a division by zero.

use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{ShapeError, Type};

/// `squares f64 [1]`, `limit [1]` -> `factor [1]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClipFactor {}

impl Op<2, 1> for ClipFactor {
    const NAME: &'static str = "clip_factor";
    const INPUTS: [Input; 2] = [Input::new("squares"), Input::constant("limit")];
    const OUTPUTS: [&'static str; 1] = ["factor"];
    const TOLERANCE: Tolerance = Tolerance::Exact;

    fn shape(&self, [squares, limit]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        squares.expect_same("squares", &Type::f64([1]))?;
        check::plain(limit, "limit", &[1])?;
        Ok([Type::f32([1])])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        Err(Refusal("the clip factor has no gradient"))
    }

    fn cost(&self, _: [&Type; 2]) -> Cost {
        Cost::new(3, 16)
    }

    fn oracle(&self, [squares, limit]: [&Array; 2]) -> [Array; 1] {
        let factor = limit.data[0] / (squares.data[0].sqrt() + 1e-6);
        [Array::new([1], vec![if factor < 1.0 { factor } else { 1.0 }])]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |squares: f64, limit: f64| {
            let squares = Given::of(Type::f64([1])).filled(Fill::Values(vec![squares]));
            let limit = Given::normal(&[1]).filled(Fill::Values(vec![limit]));
            Case::new(ClipFactor {}, vec![squares, limit])
        };
        vec![
            case(7.3, 1.0).note("above the limit"),
            case(0.3, 1.0).note("below it"),
            case(1.0, 1.0).note("at it: the 1e-6 puts the factor below 1"),
            case(0.0, 1.0).note("no gradient"),
            case(1e300, 0.5).note("a norm that no float32 holds"),
            Case::refuse(
                ClipFactor {},
                vec![Given::normal(&[1]), Given::normal(&[1])],
                "squares: expected f64[1], found f32[1]",
            ),
        ]
    }
}
