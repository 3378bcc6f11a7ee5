//! The index of a row's largest element: the lowest on ties; NaN never wins, and a row of NaN gives 0.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Element, Extent, ShapeError, Type};

/// `logits [count, vocab]` -> `ids i32 [count]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Argmax {}

impl Op<1, 1> for Argmax {
    const NAME: &'static str = "argmax";
    const INPUTS: [Input; 1] = [Input::new("logits")];
    const OUTPUTS: [&'static str; 1] = ["ids"];
    const TOLERANCE: Tolerance = Tolerance::Exact;

    fn shape(&self, [logits]: [&Type; 1]) -> Result<[Type; 1], ShapeError> {
        logits.expect_f32("logits")?;
        logits.expect_rank("logits", 2)?;
        if i32::try_from(logits.width()).is_err() {
            return Err(ShapeError::new("logits", "a width that an i32 can count", logits));
        }
        Ok([logits.of(Element::I32).shaped([logits.rows()])])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 1, 1>) -> Result<[Option<Value<'g>>; 1], Refusal> {
        Err(Refusal("an index has no gradient"))
    }

    fn cost(&self, [logits]: [&Type; 1]) -> Cost {
        Cost::elementwise(logits, 1, 1)
    }

    fn oracle(&self, [logits]: [&Array; 1]) -> [Array; 1] {
        let best = |row: &[f64]| {
            let mut best: Option<usize> = None;
            for (index, value) in row.iter().enumerate() {
                if !value.is_nan() && best.is_none_or(|best| *value > row[best]) {
                    best = Some(index);
                }
            }
            best.unwrap_or(0) as f64
        };
        [Array::new([logits.rows()], (0..logits.rows()).map(|row| best(logits.row(row))).collect())]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Outputs);
        let (nan, low) = (f64::NAN, f64::NEG_INFINITY);
        let hard = vec![
            1.0, 2.0, 2.0, 0.0, 2.0, // ties
            nan, -1.0, nan, -3.0, -1.0, // NaN before the largest
            nan, nan, nan, nan, nan, // only NaN
            nan, nan, low, low, nan, // nothing larger than -infinity
            -0.0, 0.0, -1.0, -0.0, 0.0, // zeros are equal
        ];
        vec![
            Case::new(Argmax {}, vec![rows(&[3, 64])]),
            Case::new(Argmax {}, vec![rows(&[5, 1003])]).note("a width that is no multiple of 16"),
            Case::new(Argmax {}, vec![rows(&[70, 7])]).note("rows across a block of 64"),
            Case::new(Argmax {}, vec![rows(&[5, 5]).filled(Fill::Values(hard))])
                .note("ties, NaN, infinities"),
            Case::new(Argmax {}, vec![rows(&[2, 50]).filled(Fill::Constant(-4.0))]).note("all equal"),
            Case::refuse(Argmax {}, vec![Given::normal(&[3])], "logits: expected 2 axes, found [3]"),
        ]
    }
}
