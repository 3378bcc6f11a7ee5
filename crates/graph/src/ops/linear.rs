//! Linear map: `y[r, o] = sum over i of x[r, i] * W[o, i]`, the weight read from the blocks of its file.
//!
//! The product over the last axis is never cut: one tree of sixteen lanes a result.

use apprentice_quant::Format;
use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::ops::LinearVjp;
use crate::types::{Extent, ShapeError, Type};

/// `x [rows, in]`, `weight [out, in]` -> `[rows, out]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Linear {}

impl Op<2, 1> for Linear {
    const NAME: &'static str = "linear";
    const INPUTS: [Input; 2] = [Input::new("x"), Input::constant("weight")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [x, weight]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        x.expect_rank("x", 2)?;
        check::weight(weight, "weight")?;
        if weight.width() != x.width() {
            return Err(ShapeError::new("weight", format!("width {}", x.width()), weight));
        }
        Ok([x.shaped([x.rows(), weight.rows()])])
    }

    /// `dx = dy W`; the weight is a constant of the file.
    fn vjp<'g>(&self, v: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        let ([x, weight], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None, None]) };
        let [dx] = x.builder().push(LinearVjp {}, [dy, weight]);
        Ok([Some(dx), None])
    }

    fn cost(&self, [x, weight]: [&Type; 2]) -> Cost {
        let y = x.shaped([x.rows(), weight.rows()]);
        let products = x.shape.count().unwrap_or(usize::MAX).saturating_mul(weight.rows());
        Cost::moving(products.saturating_mul(2), &[x, weight, &y])
    }

    fn oracle(&self, [x, weight]: [&Array; 2]) -> [Array; 1] {
        let mut y = Array::zeros([x.rows(), weight.rows()]);
        for row in 0..x.rows() {
            for out in 0..weight.rows() {
                y.row_mut(row)[out] = x.row(row).iter().zip(weight.row(out)).map(|(x, w)| x * w).sum();
            }
        }
        [y]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |rows, width| Given::normal(&[rows, width]).counted(Extent::Rows);
        let case = |count, format: Format, out, width| {
            Case::new(Linear {}, vec![rows(count, width), Given::weight(format, &[out, width])])
        };
        vec![
            case(3, Format::Q8_0, 5, 64),
            case(70, Format::Q8_0, 9, 96).note("rows across a block of 64"),
            case(1, Format::Q8_0, 300, 32).note("one row, more than 256 results"),
            case(4, Format::Q4K, 6, 256),
            case(17, Format::Q6K, 3, 512).note("two blocks a row of the weight"),
            case(5, Format::Q4_1, 7, 160),
            case(6, Format::F16, 5, 20).note("a width that is no multiple of 16"),
            case(3, Format::F32, 4, 33),
            case(2, Format::F32, 3, 7).note("fewer elements than lanes"),
            Case::refuse(
                Linear {},
                vec![rows(3, 96), Given::weight(Format::Q8_0, &[5, 64])],
                "weight: expected width 96, found weight:Q8_0[5, 64]",
            ),
            Case::refuse(
                Linear {},
                vec![rows(3, 64), Given::normal(&[5, 64])],
                "weight: expected a weight, found f32[5, 64]",
            ),
        ]
    }
}
