//! Gradient of cross entropy: `dx = d_loss * (p - onehot(label))`, `p = exp(x - max) / sum` with the forward's maximum and
//! sum.

use serde::{Deserialize, Serialize};

use super::{check, table::at};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `d_loss [count]`, `logits [count, vocab]`, `labels i32 [count]`, `max [count]`, `sum [count]` -> type of `logits`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CrossEntropyVjp {}

impl Op<5, 1> for CrossEntropyVjp {
    const NAME: &'static str = "cross_entropy_vjp";
    const INPUTS: [Input; 5] = [
        Input::new("d_loss"),
        Input::new("logits"),
        Input::constant("labels"),
        Input::new("max"),
        Input::new("sum"),
    ];
    const OUTPUTS: [&'static str; 1] = ["d_logits"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(1);

    fn shape(&self, [d_loss, logits, labels, max, sum]: [&Type; 5]) -> Result<[Type; 1], ShapeError> {
        logits.expect_f32("logits")?;
        logits.expect_rank("logits", 2)?;
        let row = logits.shaped([logits.rows()]);
        d_loss.expect_same("d_loss", &row)?;
        check::index(labels, "labels")?;
        labels.expect_rows_of("labels", logits)?;
        max.expect_same("max", &row)?;
        sum.expect_same("sum", &row)?;
        Ok([logits.clone()])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 5, 1>) -> Result<[Option<Value<'g>>; 5], Refusal> {
        Err(Refusal("second order through cross_entropy_vjp"))
    }

    fn cost(&self, [_, logits, ..]: [&Type; 5]) -> Cost {
        Cost::elementwise(logits, 20, 2)
    }

    fn oracle(&self, [d_loss, logits, labels, max, sum]: [&Array; 5]) -> [Array; 1] {
        let mut dx = Array::zeros(logits.shape.clone());
        for row in 0..logits.rows() {
            let label = at(labels, row);
            assert!(label < logits.width(), "labels are checked before a run: each is a token");
            for (token, (dx, x)) in dx.row_mut(row).iter_mut().zip(logits.row(row)).enumerate() {
                let p = (x - max.data[row]).exp() / sum.data[row];
                *dx = d_loss.data[row] * if token == label { p - 1.0 } else { p };
            }
        }
        [dx]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |vocab: usize, labels: &[i32], scale: f64| {
            let row = || Given::normal(&[labels.len()]).counted(Extent::Labelled);
            let inputs = vec![
                row(),
                Given::normal(&[labels.len(), vocab]).counted(Extent::Labelled).filled(Fill::Normal(scale)),
                Given::ints(&[labels.len()], labels).counted(Extent::Labelled),
                row().filled(Fill::Constant(3.0 * scale)), // about the largest of so many deviates
                row().filled(Fill::Positive(1.5)),
            ];
            Case::new(CrossEntropyVjp {}, inputs)
        };
        let many: Vec<i32> = (0..70).map(|row| row * 7 % 40).collect();
        let mut wrong = case(64, &[0, 1], 1.0).inputs;
        wrong[4] = Given::normal(&[3]).counted(Extent::Labelled);
        vec![
            case(64, &[3, 0, 63], 1.0).note("the first and the last label"),
            case(1000, &[999, 256, 255], 3.0),
            case(40, &many, 1.0).note("rows across a block of 64"),
            case(300, &[5, 17], 10.0).note("probabilities near 0"),
            case(1, &[0], 1.0).note("one token"),
            Case::refuse(CrossEntropyVjp {}, wrong, "sum: expected f32[2]@labelled, found f32[3]@labelled"),
        ]
    }
}
