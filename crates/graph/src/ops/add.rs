//! Sum: `y = a + b`, where `b` has the type of `a` or is a bias `[width]` that every row gets.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `a [.., width]`, `b [.., width]` or `[width]` -> `[.., width]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Add {}

impl Op<2, 1> for Add {
    const NAME: &'static str = "add";
    const INPUTS: [Input; 2] = [Input::new("a"), Input::new("b")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Exact;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [a, b]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        a.expect_f32("a")?;
        let bias = Type::f32([a.width()]);
        if b != a && (a.rank() < 2 || *b != bias) {
            return Err(ShapeError::new("b", format!("{a} or {bias}"), b));
        }
        Ok([a.clone()])
    }

    /// `da = dy`; `db = dy`, summed over all axes but the last where `b` is a bias.
    fn vjp<'g>(&self, v: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        let ([a, b], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None, None]) };
        let db = v.wanted[1].then(|| if b.ty() == a.ty() { dy } else { dy.sum_rows() });
        Ok([Some(dy), db])
    }

    fn cost(&self, [a, b]: [&Type; 2]) -> Cost {
        Cost::moving(a.shape.count().unwrap_or(usize::MAX), &[a, b, a])
    }

    fn oracle(&self, [a, b]: [&Array; 2]) -> [Array; 1] {
        let sums = a.data.iter().zip(b.data.iter().cycle()).map(|(a, b)| a + b); // a bias begins anew with each row
        [Array::new(a.shape.clone(), sums.collect())]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        vec![
            Case::new(Add {}, vec![rows(&[3, 64]), rows(&[3, 64])]),
            Case::new(Add {}, vec![Given::normal(&[7]), Given::normal(&[7])]).note("no rows, one short axis"),
            Case::new(Add {}, vec![rows(&[70, 33]), Given::normal(&[33])])
                .note("a bias, rows across a block of 64"),
            Case::new(Add {}, vec![rows(&[5, 2, 17]), Given::normal(&[17])]).note("a bias under two axes"),
            Case::refuse(
                Add {},
                vec![rows(&[3, 64]), Given::normal(&[63])],
                "b: expected f32[3, 64]@rows or f32[64], found f32[63]",
            ),
            Case::refuse(
                Add {},
                vec![rows(&[3, 64]), Given::normal(&[3, 64])],
                "b: expected f32[3, 64]@rows or f32[64], found f32[3, 64]",
            ),
        ]
    }
}
