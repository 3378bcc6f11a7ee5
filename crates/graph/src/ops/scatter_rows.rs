//! Adds rows into zeros: `y[index[i]] += dy[i]`, `i` ascending.

use serde::{Deserialize, Serialize};

use super::{check, table::at};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::ops::SelectRows;
use crate::types::{Extent, ShapeError, Type};

/// `dy [count, ..]`, `index i32 [count]`, `like [rows, ..]` (only its rows count) -> type of `like`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScatterRows {}

impl Op<3, 1> for ScatterRows {
    const NAME: &'static str = "scatter_rows";
    const INPUTS: [Input; 3] = [Input::new("dy"), Input::constant("index"), Input::constant("like")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [dy, index, like]: [&Type; 3]) -> Result<[Type; 1], ShapeError> {
        like.expect_f32("like")?;
        check::axes(like, "like", 1)?;
        check::index(index, "index")?;
        let mut expected = like.clone();
        expected.shape.0[0] = index.rows();
        expected.extent = index.extent;
        dy.expect_same("dy", &expected)?;
        Ok([like.clone()])
    }

    /// The gradient to `dy` is a selection of the same rows.
    fn vjp<'g>(&self, v: Vjp<'g, 3, 1>) -> Result<[Option<Value<'g>>; 3], Refusal> {
        let ([_, index, _], [Some(cotangent)]) = (v.inputs, v.cotangents) else {
            return Ok([None, None, None]);
        };
        let [gradient] = cotangent.builder().push(SelectRows {}, [cotangent, index]);
        Ok([Some(gradient), None, None])
    }

    fn cost(&self, [dy, index, like]: [&Type; 3]) -> Cost {
        Cost::moving(dy.shape.count().unwrap_or(usize::MAX), &[dy, index, like])
    }

    fn oracle(&self, [dy, index, like]: [&Array; 3]) -> [Array; 1] {
        let mut y = Array::zeros(like.shape.clone());
        for row in 0..index.rows() {
            for (y, dy) in y.row_mut(at(index, row)).iter_mut().zip(dy.row(row)) {
                *y += dy;
            }
        }
        [y]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |shape: &[usize], index: &[i32], extent| {
            let mut source = shape.to_vec();
            source[0] = index.len();
            let inputs = vec![
                Given::normal(&source).counted(extent),
                Given::ints(&[index.len()], index).counted(extent),
                Given::normal(shape).counted(Extent::Rows),
            ];
            Case::new(ScatterRows {}, inputs)
        };
        let mut wrong = case(&[7, 64], &[1, 2], Extent::Labelled).inputs;
        wrong[0] = Given::normal(&[2, 63]).counted(Extent::Labelled);
        vec![
            case(&[7, 64], &[6, 0, 3], Extent::Outputs),
            case(&[70, 33], &[69, 2, 2, 64, 2], Extent::Labelled).note("rows that meet, rows across a block"),
            case(&[5, 2, 3], &[4, 4, 4, 0, 1, 2, 3, 0], Extent::Labelled).note("more rows than it has"),
            Case::refuse(
                ScatterRows {},
                wrong,
                "dy: expected f32[2, 64]@labelled, found f32[2, 63]@labelled",
            ),
        ]
    }
}
