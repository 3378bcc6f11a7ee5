//! Selects rows: `y[i] = x[index[i]]`.

use serde::{Deserialize, Serialize};

use super::{check, table::at};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::ops::ScatterRows;
use crate::types::{Extent, ShapeError, Type};

/// `x [rows, ..]`, `index i32 [count]` -> `[count, ..]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SelectRows {}

impl Op<2, 1> for SelectRows {
    const NAME: &'static str = "select_rows";
    const INPUTS: [Input; 2] = [Input::new("x"), Input::constant("index")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Exact;

    fn shape(&self, [x, index]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        check::axes(x, "x", 1)?;
        check::index(index, "index")?;
        let mut y = x.clone();
        y.shape.0[0] = index.rows();
        y.extent = index.extent;
        Ok([y])
    }

    /// `dx` is `dy` scattered to the rows that it came from.
    fn vjp<'g>(&self, v: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        let ([x, index], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None, None]) };
        let [dx] = dy.builder().push(ScatterRows {}, [dy, index, x]);
        Ok([Some(dx), None])
    }

    fn cost(&self, [x, index]: [&Type; 2]) -> Cost {
        Cost::new(0, index.rows().saturating_mul(x.row_count()).saturating_mul(8))
    }

    fn oracle(&self, [x, index]: [&Array; 2]) -> [Array; 1] {
        let mut shape = x.shape.clone();
        shape[0] = index.rows();
        let mut y = Array::zeros(shape);
        for row in 0..index.rows() {
            y.row_mut(row).copy_from_slice(x.row(at(index, row)));
        }
        [y]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |shape: &[usize], index: &[i32], extent| {
            let index = Given::ints(&[index.len()], index).counted(extent);
            Case::new(SelectRows {}, vec![Given::normal(shape).counted(Extent::Rows), index])
        };
        vec![
            case(&[7, 64], &[6, 0, 3], Extent::Outputs),
            case(&[70, 33], &[69, 2, 2, 64], Extent::Labelled).note("a row twice, rows across a block"),
            case(&[5, 2, 3], &[4, 4, 4, 0, 1, 2, 3, 0], Extent::Labelled).note("more rows than there were"),
            case(&[4], &[1], Extent::Outputs).note("rows of one element"),
            Case::refuse(
                SelectRows {},
                vec![Given::normal(&[3, 4]).counted(Extent::Rows), Given::ints(&[1, 2], &[0, 1])],
                "index: expected 1 axes, found [1, 2]",
            ),
        ]
    }
}
