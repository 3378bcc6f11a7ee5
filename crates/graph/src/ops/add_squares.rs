//! Sum of squares in float64, added to the sum so far: the norm of a gradient, tensor after tensor.
//!
//! Chains of 1,024 elements, row-major, their sums added ascending. Squares of float32 are exact in float64.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `x`, `sum f64 [1]` (0 where absent) -> `f64 [1]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AddSquares {}

impl Op<2, 1> for AddSquares {
    const NAME: &'static str = "add_squares";
    const INPUTS: [Input; 2] = [Input::new("x"), Input::new("sum").optional()];
    const OUTPUTS: [&'static str; 1] = ["total"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [x, sum]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        if sum.is_present() {
            sum.expect_same("sum", &Type::f64([1]))?;
        }
        Ok([Type::f64([1])])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        Err(Refusal("the norm of a gradient has no gradient"))
    }

    fn cost(&self, [x, _]: [&Type; 2]) -> Cost {
        Cost::elementwise(x, 2, 1)
    }

    fn oracle(&self, [x, sum]: [&Array; 2]) -> [Array; 1] {
        let before = sum.present().map_or(0.0, |sum| sum.data[0]);
        [Array::new([1], vec![before + x.data.iter().map(|x| x * x).sum::<f64>()])]
    }

    fn cases() -> Vec<Case<Self>> {
        let sum = || Given::of(Type::f64([1])).filled(Fill::Values(vec![12.5]));
        vec![
            Case::new(AddSquares {}, vec![Given::normal(&[8, 64]), Given::absent()]).note("the first tensor"),
            Case::new(AddSquares {}, vec![Given::normal(&[70, 33]), sum()])
                .note("three chains, the last short"),
            Case::new(AddSquares {}, vec![Given::normal(&[1024]), sum()]).note("one whole chain"),
            Case::new(AddSquares {}, vec![Given::normal(&[3, 5]).counted(Extent::Rows), sum()])
                .note("rows of a run"),
            Case::new(AddSquares {}, vec![Given::normal(&[9]).filled(Fill::Normal(1e25)), sum()])
                .note("squares that no float32 holds"),
            Case::refuse(
                AddSquares {},
                vec![Given::normal(&[3]), Given::normal(&[1])],
                "sum: expected f64[1], found f32[1]",
            ),
        ]
    }
}
