//! Causal attention of the batch's rows over earlier pages and the batch itself:
//! `out = sum over keys of softmax(scale * q k) v`.
//!
//! A row sees the keys of its own sequence at positions up to its own, with a window only the last `window` of them.
//! Positions before the batch come from pages, later ones from the batch's rows `k`, `v`, already rounded to the pages'
//! element: any cut of a prompt into batches gives the same bytes. Query head `h` uses key head
//! `h / (heads / kv_heads)`. `max` and `sum` of each row's soft-max are kept for the gradient.
//!
//! Keys go in blocks of 64 by absolute position, blocks in segments of `segment` positions that are merged ascending.
//!
//! Sources: Vaswani et al. 2017, "Attention is all you need", eq. 1; Ainslie et al. 2023, "GQA"; Dao 2023,
//! "FlashAttention-2", algorithm 1 for the running maximum and sum.

use serde::{Deserialize, Serialize};

use super::attend::{self, Attributes, head_mut, head_of, sights, vector};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Input, Op, Refusal, Tolerance, Vjp};
use crate::ops::AttentionVjp;
use crate::types::{ShapeError, Type};

/// `q [rows, heads, head_dim]`, `k [rows, kv_heads, head_dim]`, `v [rows, kv_heads, value_dim]`,
/// `k_pages [cells, kv_heads, head_dim]`, `v_pages [cells, kv_heads, value_dim]`, `sequences i32 [sequences, 4]` (first
/// row, rows, first position, first entry of `pages`), `pages i32 [entries]` -> `out [rows, heads, value_dim]`,
/// `max [rows, heads]`, `sum [rows, heads]`. A row without a key has out 0, maximum -infinity and sum 0.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Attention {
    /// Factor on the scores, usually `head_dim^(-1/2)`.
    pub scale: f32,
    /// Number of positions that a row sees, its own included; all where absent.
    pub window: Option<u32>,
    /// Positions of a segment: 1,024, or 128 in tests.
    pub segment: u32,
}

impl Op<7, 3> for Attention {
    const NAME: &'static str = "attention";
    const INPUTS: [Input; 7] = [
        Input::new("q"),
        Input::new("k"),
        Input::new("v"),
        Input::constant("k_pages"),
        Input::constant("v_pages"),
        Input::constant("sequences"),
        Input::constant("pages"),
    ];
    const OUTPUTS: [&'static str; 3] = ["out", "max", "sum"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, inputs: [&Type; 7]) -> Result<[Type; 3], ShapeError> {
        attend::types(&self.attributes(), inputs)
    }

    /// `attention_vjp`, from the cotangent of `out` alone.
    fn vjp<'g>(&self, v: Vjp<'g, 7, 3>) -> Result<[Option<Value<'g>>; 7], Refusal> {
        let mut gradients = [None; 7];
        match v.cotangents {
            [Some(d_out), None, None] => {
                let Attention { scale, window, segment } = *self;
                let [q, k, values, k_pages, v_pages, sequences, pages] = v.inputs;
                let [out, max, sum] = v.outputs;
                let op = AttentionVjp { scale, window, segment };
                let inputs = [d_out, q, k, values, k_pages, v_pages, sequences, pages, out, max, sum];
                let made = d_out.builder().push(op, inputs);
                for (slot, gradient) in made.into_iter().enumerate() {
                    gradients[slot] = Some(gradient);
                }
                Ok(gradients)
            }
            [None, None, None] => Ok(gradients),
            _ => Err(Refusal("maximum and sum of a soft-max have no gradient")),
        }
    }

    fn cost(&self, inputs: [&Type; 7]) -> Cost {
        let [q, _, v, ..] = inputs;
        let out = q.shaped([q.row_count() / q.width().max(1), q.rows(), v.width()]);
        attend::cost(1, inputs, &[&out])
    }

    fn oracle(&self, [q, k, v, k_pages, v_pages, sequences, pages]: [&Array; 7]) -> [Array; 3] {
        let (rows, heads) = (q.rows(), q.shape[1]);
        let group = heads / k.shape[1];
        let mut out = Array::zeros([rows, heads, v.width()]);
        let mut max = Array::zeros([rows, heads]).map(|_| f64::NEG_INFINITY);
        let mut sum = Array::zeros([rows, heads]);
        for sight in sights(sequences, pages, self.window) {
            for head in 0..heads {
                let query = head_of(q, sight.row, head);
                let score = |key| {
                    let key = vector(key, k, k_pages, head / group);
                    f64::from(self.scale) * query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>()
                };
                let scores: Vec<f64> = sight.keys.iter().map(|key| score(*key)).collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
                for (key, s) in sight.keys.iter().zip(&scores) {
                    let p = (s - largest).exp() / total;
                    let value = vector(*key, v, v_pages, head / group);
                    for (out, v) in head_mut(&mut out, sight.row, head).iter_mut().zip(value) {
                        *out += p * v;
                    }
                }
                max.row_mut(sight.row)[head] = largest;
                sum.row_mut(sight.row)[head] = total;
            }
        }
        [out, max, sum]
    }

    fn cases() -> Vec<Case<Self>> {
        let op = |Attributes { scale, window, segment }| Attention { scale, window, segment };
        let good = attend::layouts().into_iter().map(|(a, inputs, note)| Case::new(op(a), inputs).note(note));
        let bad =
            attend::refused().into_iter().map(|(a, inputs, message)| Case::refuse(op(a), inputs, message));
        good.chain(bad).collect()
    }
}

impl Attention {
    fn attributes(&self) -> Attributes {
        Attributes { scale: self.scale, window: self.window, segment: self.segment }
    }
}
