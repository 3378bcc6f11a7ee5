//! Gradient of a linear map to its input: `dx[r, i] = sum over o of dy[r, o] * W[o, i]`.
//!
//! The output index goes in segments of 256 by absolute index: a segment is a chain of fused multiply-adds from +0, and
//! segment sums are added ascending. The weight is decoded from the blocks of its file, in which it is read row by row.

use apprentice_quant::Format;
use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `dy [rows, out]`, `weight [out, in]` -> `[rows, in]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinearVjp {}

impl Op<2, 1> for LinearVjp {
    const NAME: &'static str = "linear_vjp";
    const INPUTS: [Input; 2] = [Input::new("dy"), Input::constant("weight")];
    const OUTPUTS: [&'static str; 1] = ["dx"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [dy, weight]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        dy.expect_f32("dy")?;
        dy.expect_rank("dy", 2)?;
        check::weight(weight, "weight")?;
        if weight.rows() != dy.width() {
            return Err(ShapeError::new("weight", format!("{} rows", dy.width()), weight));
        }
        Ok([dy.shaped([dy.rows(), weight.width()])])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        Err(Refusal("second order through linear_vjp"))
    }

    fn cost(&self, [dy, weight]: [&Type; 2]) -> Cost {
        let dx = dy.shaped([dy.rows(), weight.width()]);
        let products = dy.shape.count().unwrap_or(usize::MAX).saturating_mul(weight.width());
        Cost::moving(products.saturating_mul(2), &[dy, weight, &dx])
    }

    fn oracle(&self, [dy, weight]: [&Array; 2]) -> [Array; 1] {
        let mut dx = Array::zeros([dy.rows(), weight.width()]);
        for row in 0..dy.rows() {
            for (out, dy) in dy.row(row).iter().enumerate() {
                for (dx, w) in dx.row_mut(row).iter_mut().zip(weight.row(out)) {
                    *dx += dy * w;
                }
            }
        }
        [dx]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |rows, width| Given::normal(&[rows, width]).counted(Extent::Rows);
        let case = |count, format: Format, out, width| {
            Case::new(LinearVjp {}, vec![rows(count, out), Given::weight(format, &[out, width])])
        };
        vec![
            case(3, Format::Q8_0, 5, 64),
            case(70, Format::Q8_0, 9, 96).note("rows across a block of 64"),
            case(2, Format::Q8_0, 600, 32).note("three segments of 256, the last short"),
            case(4, Format::Q4K, 257, 256).note("a segment of one"),
            case(17, Format::Q6K, 3, 512),
            case(5, Format::Q4_1, 7, 160),
            case(6, Format::F16, 300, 20).note("a width that is no multiple of 16"),
            case(3, Format::F32, 4, 33),
            Case::refuse(
                LinearVjp {},
                vec![rows(3, 6), Given::weight(Format::Q8_0, &[5, 64])],
                "weight: expected 6 rows, found weight:Q8_0[5, 64]",
            ),
            Case::refuse(
                LinearVjp {},
                vec![rows(3, 5), Given::weight(Format::Q4K, &[5, 64])],
                "weight: expected rows of whole blocks, found weight:Q4_K[5, 64]",
            ),
        ]
    }
}
