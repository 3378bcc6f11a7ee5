//! One step of AdamW, in float32, nothing fused:
//! `p = p - (lr * wd) * p`, `m = b1 * m + (1 - b1) * g`, `v = b2 * v + ((1 - b2) * g) * g`,
//! `p = p - (lr / (1 - b1^t)) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)`.
//!
//! The eight scalars are computed in float64 and rounded once, outside the graph: a step number is data, not a program.
//!
//! Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization", algorithm 2.

use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{ShapeError, Type};

/// Parameters `p`, gradient `g`, moments `m` and `v` of one type, `scalars [8]` = `lr * wd`, `b1`, `1 - b1`, `b2`,
/// `1 - b2`, `lr / (1 - b1^t)`, `sqrt(1 - b2^t)`, `eps` -> the next `p`, `m`, `v`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AdamW {}

impl Op<5, 3> for AdamW {
    const NAME: &'static str = "adamw";
    const INPUTS: [Input; 5] =
        [Input::new("p"), Input::new("g"), Input::new("m"), Input::new("v"), Input::constant("scalars")];
    const OUTPUTS: [&'static str; 3] = ["p", "m", "v"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [p, g, m, v, scalars]: [&Type; 5]) -> Result<[Type; 3], ShapeError> {
        p.expect_f32("p")?;
        g.expect_same("g", p)?;
        m.expect_same("m", p)?;
        v.expect_same("v", p)?;
        check::plain(scalars, "scalars", &[8])?;
        Ok([p.clone(), m.clone(), v.clone()])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 5, 3>) -> Result<[Option<Value<'g>>; 5], Refusal> {
        Err(Refusal("the optimiser step has no gradient"))
    }

    fn cost(&self, [p, ..]: [&Type; 5]) -> Cost {
        Cost::elementwise(p, 14, 7)
    }

    fn oracle(&self, [p, g, m, v, scalars]: [&Array; 5]) -> [Array; 3] {
        let [mut p, mut m, mut v] = [p, m, v].map(Array::clone);
        let s = &scalars.data;
        let (decay, b1, rest1, b2, rest2, rate, correction, eps) =
            (s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
        for (index, g) in g.data.iter().enumerate() {
            let (p, m, v) = (&mut p.data[index], &mut m.data[index], &mut v.data[index]);
            *p -= decay * *p;
            *m = b1 * *m + rest1 * g;
            *v = b2 * *v + (rest2 * g) * g;
            *p -= rate * *m / (v.sqrt() / correction + eps);
        }
        [p, m, v]
    }

    fn cases() -> Vec<Case<Self>> {
        /// The scalars of step `step`.
        fn scalars(step: i32, rate: f64, decay: f64) -> Given {
            let (b1, b2) = (0.9f64, 0.999f64);
            let rate_now = rate / (1.0 - b1.powi(step));
            let correction = (1.0 - b2.powi(step)).sqrt();
            let values = [rate * decay, b1, 1.0 - b1, b2, 1.0 - b2, rate_now, correction, 1e-8];
            let values = values.iter().map(|value| f64::from(*value as f32)).collect();
            Given::normal(&[8]).filled(Fill::Values(values))
        }
        let case = |shape: &[usize], moments: bool, scalars: Given| {
            let (m, v) = match moments {
                true => (Fill::Normal(0.1), Fill::Positive(1e-3)),
                false => (Fill::Constant(0.0), Fill::Constant(0.0)),
            };
            let of = |fill| Given::normal(shape).filled(fill);
            Case::new(AdamW {}, vec![of(Fill::Normal(1.0)), of(Fill::Normal(0.1)), of(m), of(v), scalars])
        };
        let mut wrong = case(&[3, 4], true, scalars(1, 1e-3, 0.0)).inputs;
        wrong[2] = Given::normal(&[4, 3]);
        vec![
            case(&[8, 64], false, scalars(1, 2e-3, 0.0)).note("the first step"),
            case(&[8, 33], true, scalars(7, 1e-3, 0.01)).note("a later step with decay"),
            case(&[5], true, scalars(1000, 0.1, 0.1)).note("fewer elements than lanes"),
            Case::new(
                AdamW {},
                [0, 1, 2, 3].map(|_| Given::zeros(&[7])).into_iter().chain([scalars(3, 1e-3, 0.0)]).collect(),
            )
            .note("zero gradient and moments: eps keeps the quotient finite"),
            Case::refuse(AdamW {}, wrong, "m: expected f32[3, 4], found f32[4, 3]"),
        ]
    }
}
