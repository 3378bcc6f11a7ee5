//! `y = x + term`, elementwise.

use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `x` -> the same shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Offset {
    /// What is added to every element.
    pub term: f32,
}

impl Op<1, 1> for Offset {
    const NAME: &'static str = "offset";
    const INPUTS: [Input; 1] = [Input::new("x")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Exact;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [x]: [&Type; 1]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        check::finite("term", self.term)?;
        Ok([x.clone()])
    }

    /// `dx = dy`.
    fn vjp<'g>(&self, v: Vjp<'g, 1, 1>) -> Result<[Option<Value<'g>>; 1], Refusal> {
        Ok([v.cotangents[0]])
    }

    fn cost(&self, [x]: [&Type; 1]) -> Cost {
        Cost::elementwise(x, 1, 2)
    }

    fn oracle(&self, [x]: [&Array; 1]) -> [Array; 1] {
        [x.map(|x| x + f64::from(self.term))]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| vec![Given::normal(shape).counted(Extent::Rows)];
        vec![
            Case::new(Offset { term: 0.3 }, rows(&[3, 64])),
            Case::new(Offset { term: -7.0 }, rows(&[5, 2, 33])).note("a width that is no multiple of 16"),
            Case::new(Offset { term: 1e-3 }, vec![Given::normal(&[1])]).note("one element"),
            Case::refuse(
                Offset { term: f32::NAN },
                rows(&[3, 64]),
                "term: expected a finite number, found NaN",
            ),
            Case::refuse(
                Offset { term: 1.0 },
                vec![Given::ints(&[2], &[1, 2])],
                "x: expected f32, found i32[2]",
            ),
        ]
    }
}
