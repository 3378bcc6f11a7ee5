//! Product: `y = a * b`, where `b` has the type of `a`, or is `[width]` (a factor a column), `[.., 1]` (a factor a vector
//! of the last axis) or `[1]` (one factor).

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `a [.., width]`, `b [.., width]`, `[width]`, `[.., 1]` or `[1]` -> `[.., width]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mul {}

/// How `b` lies under `a`.
enum Factor {
    Same,
    Column,
    Vector,
    One,
}

impl Factor {
    fn of(a: &Type, b: &Type) -> Option<Factor> {
        if b == a {
            return Some(Factor::Same);
        }
        if a.rank() >= 2 && *b == Type::f32([a.width()]) {
            return Some(Factor::Column);
        }
        if a.rank() >= 2 && *b == narrow(a) {
            return Some(Factor::Vector);
        }
        (*b == Type::f32([1])).then_some(Factor::One)
    }
}

impl Op<2, 1> for Mul {
    const NAME: &'static str = "mul";
    const INPUTS: [Input; 2] = [Input::new("a"), Input::new("b")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Exact;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [a, b]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        a.expect_f32("a")?;
        match Factor::of(a, b) {
            Some(_) => Ok([a.clone()]),
            None => {
                let expected =
                    format!("{a}, {}, {} or {}", Type::f32([a.width()]), narrow(a), Type::f32([1]));
                Err(ShapeError::new("b", expected, b))
            }
        }
    }

    /// `da = dy * b`; `db = dy * a`, summed over the axes along which `b` is repeated.
    fn vjp<'g>(&self, v: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        let ([a, b], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None, None]) };
        let da = v.wanted[0].then(|| dy * b);
        if !v.wanted[1] {
            return Ok([da, None]);
        }
        let db = match Factor::of(&a.ty(), &b.ty()) {
            Some(Factor::Same) => dy * a,
            Some(Factor::Column) => (dy * a).sum_rows(),
            Some(Factor::Vector) => dy.dot(a),
            Some(Factor::One) | None => return Err(Refusal("a scalar factor has no gradient")),
        };
        Ok([da, Some(db)])
    }

    fn cost(&self, [a, b]: [&Type; 2]) -> Cost {
        Cost::moving(a.shape.count().unwrap_or(usize::MAX), &[a, b, a])
    }

    fn oracle(&self, [a, b]: [&Array; 2]) -> [Array; 1] {
        let width = a.width().max(1);
        let vector = b.shape.len() == a.shape.len() && b.width() == 1;
        let factor = |index: usize| match b.data.len() {
            1 => 0,
            _ if vector => index / width,
            count => index % count, // its own element, or that of its column
        };
        let products = a.data.iter().enumerate().map(|(index, a)| a * b.data[factor(index)]);
        [Array::new(a.shape.clone(), products.collect())]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        let one = Given::normal(&[1]).filled(Fill::Values(vec![0.75]));
        vec![
            Case::new(Mul {}, vec![rows(&[3, 64]), rows(&[3, 64])]),
            Case::new(Mul {}, vec![rows(&[70, 33]), Given::normal(&[33])])
                .note("a factor a column, rows across a block"),
            Case::new(Mul {}, vec![rows(&[5, 2, 17]), Given::normal(&[17])])
                .note("a factor a column under two axes"),
            Case::new(Mul {}, vec![rows(&[5, 2, 17]), rows(&[5, 2, 1])]).note("a factor a vector"),
            Case::new(Mul {}, vec![rows(&[1, 5]), rows(&[1, 1])]).note("one vector with its factor"),
            Case::new(Mul {}, vec![rows(&[4, 1]), rows(&[4, 1])]).note("width 1: the same type"),
            Case::new(Mul {}, vec![rows(&[6, 19]), one.clone()]).note("one factor"),
            Case::new(Mul {}, vec![Given::normal(&[9, 4]), one]).note("one factor, no extent"),
            Case::refuse(
                Mul {},
                vec![rows(&[3, 64]), Given::normal(&[3, 1])],
                "b: expected f32[3, 64]@rows, f32[64], f32[3, 1]@rows or f32[1], found f32[3, 1]",
            ),
        ]
    }
}

/// The type with one element a vector of the last axis.
fn narrow(a: &Type) -> Type {
    let mut shape = a.shape.clone();
    if let Some(last) = shape.0.last_mut() {
        *last = 1;
    }
    a.shaped(shape)
}
