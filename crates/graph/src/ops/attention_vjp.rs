//! Gradient of attention to `q`, `k` and `v` of the batch's rows; pages are constants.
//!
//! With `p = exp(s - max) / sum`, `D = d_out . out`, `dP = d_out . v`, `dS = p * (dP - D)`:
//! `dq = scale * sum over keys of dS k`, `dk = scale * sum over queries of dS q`, `dv = sum over queries of p d_out`.
//!
//! `dq` follows the forward's key blocks, ascending. `dk` and `dv` go by query blocks of 64 positions: in a block heads of
//! the group, then rows ascending; the sums of blocks are added from the last to the first, so a later chunk's share may
//! already stand there.
//!
//! Source: Dao 2023, "FlashAttention-2", algorithm 2; maximum and sum are kept apart instead of their log-sum-exp.

use serde::{Deserialize, Serialize};

use super::attend::{self, Attributes, Key, head_mut, head_of, sights, vector};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `d_out [rows, heads, value_dim]`, then the inputs of attention, then its outputs `out`, `max`, `sum` -> `dq` like `q`,
/// `dk` like `k`, `dv` like `v`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AttentionVjp {
    /// Factor on the scores.
    pub scale: f32,
    /// Number of positions that a row sees, its own included; all where absent.
    pub window: Option<u32>,
    /// Positions of a segment of the forward.
    pub segment: u32,
}

impl Op<11, 3> for AttentionVjp {
    const NAME: &'static str = "attention_vjp";
    const INPUTS: [Input; 11] = [
        Input::new("d_out"),
        Input::new("q"),
        Input::new("k"),
        Input::new("v"),
        Input::constant("k_pages"),
        Input::constant("v_pages"),
        Input::constant("sequences"),
        Input::constant("pages"),
        Input::new("out"),
        Input::new("max"),
        Input::new("sum"),
    ];
    const OUTPUTS: [&'static str; 3] = ["dq", "dk", "dv"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(
        &self,
        [d_out, q, k, v, k_pages, v_pages, sequences, pages, out, max, sum]: [&Type; 11],
    ) -> Result<[Type; 3], ShapeError> {
        let attributes = Attributes { scale: self.scale, window: self.window, segment: self.segment };
        let forward = attend::types(&attributes, [q, k, v, k_pages, v_pages, sequences, pages])?;
        d_out.expect_same("d_out", &forward[0])?;
        out.expect_same("out", &forward[0])?;
        max.expect_same("max", &forward[1])?;
        sum.expect_same("sum", &forward[2])?;
        Ok([q.clone(), k.clone(), v.clone()])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 11, 3>) -> Result<[Option<Value<'g>>; 11], Refusal> {
        Err(Refusal("second order through attention_vjp"))
    }

    fn cost(&self, [d_out, q, k, v, k_pages, v_pages, sequences, pages, out, max, sum]: [&Type; 11]) -> Cost {
        let moved = [d_out, out, max, sum, q, k, v];
        attend::cost(3, [q, k, v, k_pages, v_pages, sequences, pages], &moved)
    }

    fn oracle(
        &self,
        [d_out, q, k, v, k_pages, v_pages, sequences, pages, out, max, sum]: [&Array; 11],
    ) -> [Array; 3] {
        let heads = q.shape[1];
        let group = heads / k.shape[1];
        let scale = f64::from(self.scale);
        let [mut dq, mut dk, mut dv] = [q, k, v].map(|like| Array::zeros(like.shape.clone()));
        for sight in sights(sequences, pages, self.window) {
            for head in 0..heads {
                let kv_head = head / group;
                let (query, dy) = (head_of(q, sight.row, head), head_of(d_out, sight.row, head));
                let (largest, total) = (max.row(sight.row)[head], sum.row(sight.row)[head]);
                let d = dot(dy, head_of(out, sight.row, head));
                for key in &sight.keys {
                    let (k, v) = (vector(*key, k, k_pages, kv_head), vector(*key, v, v_pages, kv_head));
                    let p = (scale * dot(query, k) - largest).exp() / total;
                    let ds = scale * p * (dot(dy, v) - d);
                    add(head_mut(&mut dq, sight.row, head), ds, k);
                    if let Key::Row(row) = *key {
                        add(head_mut(&mut dk, row, kv_head), ds, query);
                        add(head_mut(&mut dv, row, kv_head), p, dy);
                    }
                }
            }
        }
        [dq, dk, dv]
    }

    fn cases() -> Vec<Case<Self>> {
        let op = |Attributes { scale, window, segment }| AttentionVjp { scale, window, segment };
        // Any `out`, maximum and sum will do: the formula holds for all.
        let around = |inputs: Vec<Given>| {
            let (q, v) = (&inputs[0].ty, &inputs[2].ty);
            let heads = q.shape.0[1];
            let batch = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
            let out = batch(&[q.rows(), heads, v.width()]);
            let row = batch(&[q.rows(), heads]);
            let mut all = vec![out.clone()];
            all.extend(inputs);
            all.extend([out, row.clone().filled(Fill::Constant(2.0)), row.filled(Fill::Positive(3.0))]);
            all
        };
        let good = attend::layouts()
            .into_iter()
            .map(|(a, inputs, note)| Case::new(op(a), around(inputs)).note(note));
        let bad = attend::refused().into_iter();
        let bad = bad.map(|(a, inputs, message)| Case::refuse(op(a), around(inputs), message));
        good.chain(bad).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Adds `factor * vector` to `sum`.
fn add(sum: &mut [f64], factor: f64, vector: &[f64]) {
    for (sum, v) in sum.iter_mut().zip(vector) {
        *sum += factor * v;
    }
}
