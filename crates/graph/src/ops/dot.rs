//! Dot product over the last axis: `y = sum of a * b`, one number a vector, by the tree of sixteen lanes.

use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `a [.., width]`, `b` of the same type -> `[.., 1]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Dot {}

impl Op<2, 1> for Dot {
    const NAME: &'static str = "dot";
    const INPUTS: [Input; 2] = [Input::new("a"), Input::new("b")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [a, b]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        a.expect_f32("a")?;
        check::axes(a, "a", 2)?; // the last axis is summed; the rows of a run are another
        b.expect_same("b", a)?;
        let mut shape = a.shape.clone();
        if let Some(last) = shape.0.last_mut() {
            *last = 1;
        }
        Ok([a.shaped(shape)])
    }

    /// `da = b * dy`, `db = a * dy`.
    fn vjp<'g>(&self, v: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        let ([a, b], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None, None]) };
        Ok([v.wanted[0].then(|| b * dy), v.wanted[1].then(|| a * dy)])
    }

    fn cost(&self, [a, b]: [&Type; 2]) -> Cost {
        Cost::moving(a.shape.count().unwrap_or(usize::MAX).saturating_mul(2), &[a, b])
    }

    fn oracle(&self, [a, b]: [&Array; 2]) -> [Array; 1] {
        let width = a.width().max(1);
        let mut shape = a.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = 1;
        }
        let vectors = a.data.chunks(width).zip(b.data.chunks(width));
        [Array::new(shape, vectors.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a * b).sum()).collect())]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        let twice = |shape: &[usize]| vec![rows(shape), rows(shape)];
        vec![
            Case::new(Dot {}, twice(&[3, 64])),
            Case::new(Dot {}, twice(&[70, 33])).note("a width that is no multiple of 16"),
            Case::new(Dot {}, twice(&[5, 2, 7])).note("fewer elements than lanes"),
            Case::new(Dot {}, twice(&[2, 1])).note("one element"),
            Case::new(Dot {}, twice(&[3, 576])).note("the width of a small model"),
            Case::refuse(
                Dot {},
                vec![rows(&[3, 64]), rows(&[3, 63])],
                "b: expected f32[3, 64]@rows, found f32[3, 63]@rows",
            ),
            Case::refuse(Dot {}, twice(&[3]), "a: expected at least 2 axes, found [3]"),
        ]
    }
}
