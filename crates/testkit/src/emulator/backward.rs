//! Cotangents from the head down to the first layer, `docs/numerics.md` sections 5 to 7. The uses of a value are added
//! one at a time, the last first.

use apprentice_models::Adapter;

use super::Emulator;
use super::forward::{Layer, down};
use super::learning::Gradients;
use super::rows::Rows;
use super::scalar::{chain, dot16, gelu_slope, norm_factor, segmented, silu_slope};

/// Rows of a span and the order in which sums over them go.
pub(super) struct Blocks {
    /// Row numbers, a list a block: from the last block to the first.
    pub all: Vec<Vec<usize>>,
}

impl Blocks {
    /// Rows at these positions of one sequence, in blocks of 64 positions.
    pub fn new(positions: &[usize]) -> Blocks {
        let mut all: Vec<Vec<usize>> = Vec::new();
        for (row, position) in positions.iter().enumerate() {
            match all.last_mut() {
                Some(block) if positions[block[0]] / 64 == position / 64 => block.push(row),
                _ => all.push(vec![row]),
            }
        }
        all.reverse();
        Blocks { all }
    }
}

/// Where the gradients of a span go.
pub(super) struct Sums<'a> {
    pub adapter: &'a Adapter,
    pub gradients: &'a mut Gradients,
    pub blocks: &'a Blocks,
}

impl Emulator<'_> {
    /// From the cotangent of the residual stream after layer `index` to that before it.
    pub(super) fn layer_vjp(
        &self,
        index: usize,
        layer: &Layer,
        dx: &Rows,
        first_position: usize,
        sums: &mut Sums<'_>,
    ) -> Rows {
        let site = |name: &str| format!("blk.{index}.{name}.weight");
        // Feed-forward.
        let d_down = self.norm_if_vjp(&site("post_ffw_norm"), dx, &layer.down);
        let d_gated = add_uses(None, self.linear_vjp(&site("ffn_down"), &d_down, &layer.gated, sums));
        let slope = if self.is_gelu() { gelu_slope } else { silu_slope };
        let d_active = d_gated.times(&layer.up);
        let d_up = d_gated.times(&layer.active);
        let d_gate = d_active.zip(&layer.gate, |dy, x| dy * slope(x));
        let d_h2 = add_uses(None, self.linear_vjp(&site("ffn_up"), &d_up, &layer.h2, sums));
        let d_h2 = add_uses(Some(d_h2), self.linear_vjp(&site("ffn_gate"), &d_gate, &layer.h2, sums));
        let dx = dx.plus(&self.norm_vjp(&site("ffn_norm"), &d_h2, &layer.x2));
        // Attention.
        let d_output = self.norm_if_vjp(&site("post_attention_norm"), &dx, &layer.output);
        let d_out =
            add_uses(None, self.linear_vjp(&site("attn_output"), &d_output, &layer.attended.out, sums));
        let attention = self.attention(index);
        let [dq, dk, dv] =
            attention.vjp(&d_out, &layer.q, &layer.keys, &layer.values, first_position, &layer.attended);
        let before = |name: &str, d: &Rows, raw: &Rows| {
            let (width, dim) = (d.width, self.model.hyper().head_dim);
            let d = self.rotate(index, d, first_position, true).cut(dim);
            self.norm_if_vjp(&site(name), &d, &raw.clone().cut(dim)).cut(width)
        };
        let (dq, dk) = (before("attn_q_norm", &dq, &layer.raw[0]), before("attn_k_norm", &dk, &layer.raw[1]));
        let d_h = add_uses(None, self.linear_vjp(&site("attn_v"), &dv, &layer.h, sums));
        let d_h = add_uses(Some(d_h), self.linear_vjp(&site("attn_k"), &dk, &layer.h, sums));
        let d_h = add_uses(Some(d_h), self.linear_vjp(&site("attn_q"), &dq, &layer.h, sums));
        dx.plus(&self.norm_vjp(&site("attn_norm"), &d_h, &layer.x))
    }

    /// From the cotangent of logits to that of the rows before the final norm; `h` is the norm's output.
    pub(super) fn head_vjp(&self, d_logits: &Rows, h: &Rows, x: &Rows, sums: &mut Sums<'_>) -> Rows {
        let weight = self.model.head_weight();
        let d_h = add_uses(None, self.product_vjp(weight, "output.weight", d_logits, h, sums));
        self.norm_vjp("output_norm.weight", &d_h, x)
    }

    fn linear_vjp(&self, site: &str, dy: &Rows, x: &Rows, sums: &mut Sums<'_>) -> Vec<Rows> {
        self.product_vjp(site, site, dy, x, sums)
    }

    /// The uses of `x` in a linear: that of the adapter, if there is one, then that of the weight. Adds the gradients of
    /// the adapter's pair.
    fn product_vjp(&self, weight: &str, site: &str, dy: &Rows, x: &Rows, sums: &mut Sums<'_>) -> Vec<Rows> {
        let of_weight = self.weights.product_vjp(weight, dy);
        let Some(pair) = self.pair(sums.adapter, site) else { return vec![of_weight] };
        let outputs = dy.width;
        let g = dy.map(|dy| pair.scale * dy);
        let u = x.each(|x| down(pair, x));
        let du = g.each(|g| {
            let rank =
                |rank: usize| segmented(outputs, |output| (g[output], pair.b[rank * outputs + output]));
            (0..pair.rank).map(rank).collect()
        });
        let dx = du.each(|du| {
            let input = |i: usize| segmented(pair.rank, |rank| (du[rank], pair.a[rank * x.width + i]));
            (0..x.width).map(input).collect()
        });
        let (da, db) = sums.gradients.of(pair.site);
        for block in &sums.blocks.all {
            for rank in 0..pair.rank {
                for i in 0..x.width {
                    da[rank * x.width + i] +=
                        chain(block.iter().map(|row| (du.row(*row)[rank], x.row(*row)[i])));
                }
                for output in 0..outputs {
                    db[rank * outputs + output] +=
                        chain(block.iter().map(|row| (u.row(*row)[rank], g.row(*row)[output])));
                }
            }
        }
        vec![dx, of_weight]
    }

    fn norm_vjp(&self, name: &str, dy: &Rows, x: &Rows) -> Rows {
        let gain = self.weights.vector(name).unwrap_or_else(|| panic!("no tensor {name:?}"));
        let mut dx = x.clone();
        for row in 0..x.count() {
            let x = x.row(row);
            let r = norm_factor(x, self.model.hyper().norm_eps);
            let h: Vec<f32> = dy.row(row).iter().zip(&gain).map(|(dy, gain)| dy * gain).collect();
            let c = -((((dot16(&h, x) / x.len() as f32) * r) * r) * r);
            let values: Vec<f32> = h.iter().zip(x).map(|(h, x)| h * r + x * c).collect();
            dx.row_mut(row).copy_from_slice(&values);
        }
        dx
    }

    fn norm_if_vjp(&self, name: &str, dy: &Rows, x: &Rows) -> Rows {
        if self.weights.has(name) { self.norm_vjp(name, dy, x) } else { dy.clone() }
    }
}

/// Adds uses to what was added before; the first is taken as it is.
fn add_uses(before: Option<Rows>, uses: Vec<Rows>) -> Rows {
    let all = before.into_iter().chain(uses);
    all.reduce(|sum, next| sum.plus(&next)).expect("a linear uses its input")
}
