//! The same bytes under other inner axes: `[rows, ..]` becomes `[rows, inner..]`. A view; nothing is executed.

use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `x [rows, ..]` -> `[rows, inner..]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reshape {
    /// Sizes of the axes after the rows.
    pub inner: Vec<usize>,
}

impl Op<1, 1> for Reshape {
    const NAME: &'static str = "reshape";
    const INPUTS: [Input; 1] = [Input::new("x")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Exact;
    const STORAGE: Storage = Storage::View;

    fn shape(&self, [x]: [&Type; 1]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        check::axes(x, "x", 1)?;
        let count = self.inner.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        if count != Some(x.row_count()) {
            let expected = format!("{} elements a row", x.row_count());
            return Err(ShapeError::new("inner", expected, format!("{:?}", self.inner)));
        }
        let mut shape = vec![x.rows()];
        shape.extend(&self.inner);
        Ok([x.shaped(shape.as_slice())])
    }

    /// `dx` is `dy` under the axes of `x`.
    fn vjp<'g>(&self, v: Vjp<'g, 1, 1>) -> Result<[Option<Value<'g>>; 1], Refusal> {
        let ([x], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None]) };
        Ok([Some(dy.reshape(&x.ty().shape.0[1..]))])
    }

    fn cost(&self, _: [&Type; 1]) -> Cost {
        Cost::default()
    }

    fn oracle(&self, [x]: [&Array; 1]) -> [Array; 1] {
        let mut shape = vec![x.rows()];
        shape.extend(&self.inner);
        [x.reshaped(shape)]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| vec![Given::normal(shape).counted(Extent::Rows)];
        let op = |inner: &[usize]| Reshape { inner: inner.to_vec() };
        vec![
            Case::new(op(&[3, 20]), rows(&[5, 60])).note("heads"),
            Case::new(op(&[60]), rows(&[70, 3, 20])).note("heads joined"),
            Case::new(op(&[]), rows(&[4, 1])).note("a column to one axis"),
            Case::refuse(op(&[3, 21]), rows(&[5, 60]), "inner: expected 60 elements a row, found [3, 21]"),
            Case::refuse(
                op(&[usize::MAX, 2]),
                rows(&[5, 60]),
                "inner: expected 60 elements a row, found [18446744073709551615, 2]",
            ),
        ]
    }
}
