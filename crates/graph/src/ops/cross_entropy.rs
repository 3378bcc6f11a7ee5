//! Cross entropy of a row's label: `loss = log(sum) + (max - x[label])`, `max` the row's largest logit,
//! `sum = sum over the vocabulary of exp(x - max)`.
//!
//! Maximum and sum are kept for the gradient: their log-sum-exp alone would lose digits of the probabilities.

use serde::{Deserialize, Serialize};

use super::{check, table::at};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::ops::CrossEntropyVjp;
use crate::types::{Extent, ShapeError, Type};

/// `logits [count, vocab]`, `labels i32 [count]` -> `loss [count]`, `max [count]`, `sum [count]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CrossEntropy {}

impl Op<2, 3> for CrossEntropy {
    const NAME: &'static str = "cross_entropy";
    const INPUTS: [Input; 2] = [Input::new("logits"), Input::constant("labels")];
    const OUTPUTS: [&'static str; 3] = ["loss", "max", "sum"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [logits, labels]: [&Type; 2]) -> Result<[Type; 3], ShapeError> {
        logits.expect_f32("logits")?;
        logits.expect_rank("logits", 2)?;
        check::index(labels, "labels")?;
        labels.expect_rows_of("labels", logits)?;
        let row = logits.shaped([logits.rows()]);
        Ok([row.clone(), row.clone(), row])
    }

    /// `cross_entropy_vjp`, from the cotangent of `loss` alone.
    fn vjp<'g>(&self, v: Vjp<'g, 2, 3>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        let ([logits, labels], [_, max, sum]) = (v.inputs, v.outputs);
        match v.cotangents {
            [Some(d_loss), None, None] => {
                let [dx] = logits.builder().push(CrossEntropyVjp {}, [d_loss, logits, labels, max, sum]);
                Ok([Some(dx), None])
            }
            [None, None, None] => Ok([None, None]),
            _ => Err(Refusal("maximum and sum of a soft-max have no gradient")),
        }
    }

    fn cost(&self, [logits, _]: [&Type; 2]) -> Cost {
        Cost::elementwise(logits, 20, 1)
    }

    fn oracle(&self, [logits, labels]: [&Array; 2]) -> [Array; 3] {
        let count = logits.rows();
        let [mut loss, mut max, mut sum] = [(); 3].map(|()| Array::zeros([count]));
        for row in 0..count {
            let x = logits.row(row);
            let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = x.iter().map(|x| (x - largest).exp()).sum();
            loss.data[row] = total.ln() + (largest - x[at(labels, row)]);
            max.data[row] = largest;
            sum.data[row] = total;
        }
        [loss, max, sum]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |vocab: usize, labels: &[i32], scale: f64| {
            let logits =
                Given::normal(&[labels.len(), vocab]).counted(Extent::Labelled).filled(Fill::Normal(scale));
            let labels = Given::ints(&[labels.len()], labels).counted(Extent::Labelled);
            Case::new(CrossEntropy {}, vec![logits, labels])
        };
        let many: Vec<i32> = (0..70).map(|row| row * 7 % 40).collect();
        vec![
            case(64, &[3, 0, 63], 1.0).note("the first and the last label"),
            case(1000, &[999, 256, 255], 3.0).note("four blocks of 256, the last short"),
            case(40, &many, 1.0).note("rows across a block of 64"),
            case(300, &[5, 17], 30.0).note("probabilities near 0 and 1"),
            case(1, &[0], 1.0).note("one token"),
            Case::refuse(
                CrossEntropy {},
                vec![
                    Given::normal(&[3, 64]).counted(Extent::Labelled),
                    Given::ints(&[2], &[0, 1]).counted(Extent::Labelled),
                ],
                "labels: expected the rows of f32[3, 64]@labelled, found i32[2]@labelled",
            ),
        ]
    }
}
