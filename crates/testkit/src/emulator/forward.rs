//! The forward pass, `docs/numerics.md` sections 2 and 5, keeping what a gradient needs.

use apprentice_models::{Adapter, Pair};

use super::attention::{Attended, Attention};
use super::rows::Rows;
use super::scalar::{dot16, gelu, norm_factor, round_half, silu};
use super::{Emulator, Pages, Sequence, q8, wide};

/// What a layer computed.
pub(super) struct Layer {
    /// Its input.
    pub x: Rows,
    /// Norm of it.
    pub h: Rows,
    /// Queries and keys before their norms, `[rows, heads * dim]`.
    pub raw: [Rows; 2],
    /// Queries after norm and rotation.
    pub q: Rows,
    /// Keys and values of the whole sequence.
    pub keys: Rows,
    /// See `keys`.
    pub values: Rows,
    /// What attention gave.
    pub attended: Attended,
    /// Output product, before the norm after it.
    pub output: Rows,
    /// After the first residual.
    pub x2: Rows,
    /// Norm of it.
    pub h2: Rows,
    /// Products of the feed-forward.
    pub gate: Rows,
    /// See `gate`.
    pub up: Rows,
    /// The gate's function of `gate`.
    pub active: Rows,
    /// `active * up`.
    pub gated: Rows,
    /// Last product, before the norm after it.
    pub down: Rows,
}

impl Emulator<'_> {
    /// All layers over more tokens of a sequence, which gets their keys and values: the residual stream, and what each
    /// layer computed.
    pub(super) fn blocks(
        &self,
        sequence: &mut Sequence,
        tokens: &[u32],
        named: &[Option<&Adapter>],
    ) -> (Rows, Vec<Layer>) {
        let hyper = self.model.hyper();
        let first = sequence.positions;
        let mut x = self.weights.rows("token_embd.weight", tokens);
        if hyper.embedding_scale != 1.0 {
            x = x.map(|value| value * hyper.embedding_scale);
        }
        let mut layers = Vec::new();
        for index in 0..hyper.layers {
            let layer = self.layer(index, sequence, &x, first, named);
            x = layer.x2.plus(&self.norm_if(index, "post_ffw_norm", &layer.down));
            layers.push(layer);
        }
        sequence.positions += tokens.len();
        (x, layers)
    }

    /// Final norm and head: the norm's output and the logits.
    pub(super) fn head(&self, x: &Rows, named: &[Option<&Adapter>]) -> (Rows, Rows) {
        let h = self.norm("output_norm.weight", x);
        let logits = self.linear(self.model.head_weight(), "output.weight", "output.bias", &h, named);
        (h, logits)
    }

    fn layer(
        &self,
        index: usize,
        sequence: &mut Sequence,
        x: &Rows,
        first: usize,
        named: &[Option<&Adapter>],
    ) -> Layer {
        let linear = |name: &str, x: &Rows| {
            let tensor = format!("blk.{index}.{name}.weight");
            self.linear(&tensor, &tensor, &format!("blk.{index}.{name}.bias"), x, named)
        };
        let h = self.norm(&format!("blk.{index}.attn_norm.weight"), x);
        let raw = [linear("attn_q", &h), linear("attn_k", &h)];
        let q = self.rotate(index, &self.head_norm(index, "attn_q_norm", &raw[0]), first, false);
        let k = self.rotate(index, &self.head_norm(index, "attn_k_norm", &raw[1]), first, false);
        sequence.keys[index].values.extend(self.kept(&k).values);
        sequence.values[index].values.extend(self.kept(&linear("attn_v", &h)).values);
        let (keys, values) = (sequence.keys[index].clone(), sequence.values[index].clone());
        let attended = self.attention(index).run(&q, &keys, &values, first);
        let output = linear("attn_output", &attended.out);
        let x2 = x.plus(&self.norm_if(index, "post_attention_norm", &output));
        let h2 = self.norm(&format!("blk.{index}.ffn_norm.weight"), &x2);
        let (gate, up) = (linear("ffn_gate", &h2), linear("ffn_up", &h2));
        let active = gate.map(if self.is_gelu() { gelu } else { silu });
        let gated = active.times(&up);
        let down = linear("ffn_down", &gated);
        Layer {
            x: x.clone(),
            h,
            raw,
            q,
            keys,
            values,
            attended,
            output,
            x2,
            h2,
            gate,
            up,
            active,
            gated,
            down,
        }
    }

    /// Sizes of a layer's attention.
    pub(super) fn attention(&self, layer: usize) -> Attention {
        let hyper = self.model.hyper();
        Attention {
            group: hyper.heads / hyper.kv_heads,
            kv_heads: hyper.kv_heads,
            scale: hyper.attention_scale,
            window: hyper.attention[layer].window,
            segment: self.segment,
        }
    }

    /// Whether the gate is GELU.
    pub(super) fn is_gelu(&self) -> bool {
        self.weights.has("blk.0.post_ffw_norm.weight")
    }

    /// Product, bias, adapter.
    fn linear(&self, weight: &str, site: &str, bias: &str, x: &Rows, named: &[Option<&Adapter>]) -> Rows {
        let mut y = self.weights.product(weight, x);
        if let Some(bias) = self.weights.vector(bias) {
            y = y.each(|y| y.iter().zip(&bias).map(|(y, bias)| y + bias).collect());
        }
        for (row, adapter) in named.iter().enumerate() {
            if let Some(pair) = adapter.and_then(|adapter| self.pair(adapter, site)) {
                let u = down(pair, x.row(row));
                for (output, y) in y.row_mut(row).iter_mut().enumerate() {
                    *y += pair.scale * dot16(&column(pair, output), &u);
                }
            }
        }
        y
    }

    /// The adapter's pair at a site.
    pub(super) fn pair<'a>(&self, adapter: &'a Adapter, site: &str) -> Option<&'a Pair> {
        adapter.pairs.iter().find(|pair| self.model.sites()[pair.site].name == site)
    }

    /// RMS norm of rows.
    pub(super) fn norm(&self, name: &str, x: &Rows) -> Rows {
        let gain = self.weights.vector(name).unwrap_or_else(|| panic!("no tensor {name:?}"));
        x.each(|x| {
            let r = norm_factor(x, self.model.hyper().norm_eps);
            x.iter().zip(&gain).map(|(x, gain)| (x * r) * gain).collect()
        })
    }

    /// The norm where the file has it.
    fn norm_if(&self, layer: usize, name: &str, x: &Rows) -> Rows {
        let name = format!("blk.{layer}.{name}.weight");
        if self.weights.has(&name) { self.norm(&name, x) } else { x.clone() }
    }

    /// The norm of each head, where the file has it.
    fn head_norm(&self, layer: usize, name: &str, x: &Rows) -> Rows {
        let width = x.width;
        self.norm_if(layer, name, &x.clone().cut(self.model.hyper().head_dim)).cut(width)
    }

    /// Queries or keys turned by their positions, or turned back.
    pub(super) fn rotate(&self, layer: usize, x: &Rows, first: usize, back: bool) -> Rows {
        let hyper = self.model.hyper();
        let pairs = hyper.rope_dims / 2;
        let frequencies = &self.frequencies[hyper.attention[layer].rope];
        let mut turned = x.clone();
        for row in 0..x.count() {
            for head in turned.row_mut(row).chunks_exact_mut(hyper.head_dim) {
                for (pair, frequency) in frequencies.iter().enumerate() {
                    let (sine, cosine) = wide::sin_cos((first + row) as f64 * frequency);
                    let (s, c) = (if back { -(sine as f32) } else { sine as f32 }, cosine as f32);
                    let (i, j) = self.model.family().pairing.channels(pair, pairs);
                    let (x, y) = (head[i], head[j]);
                    head[i] = x * c - y * s;
                    head[j] = x * s + y * c;
                }
            }
        }
        turned
    }

    /// What pages keep of keys or values.
    fn kept(&self, x: &Rows) -> Rows {
        let width = x.width;
        match self.pages {
            Pages::F32 => x.clone(),
            Pages::F16 => x.map(round_half),
            Pages::Q8_0 => x.clone().cut(width / self.model.hyper().kv_heads).each(q8::kept).cut(width),
        }
    }
}

/// `A x`.
pub(super) fn down(pair: &Pair, x: &[f32]) -> Vec<f32> {
    pair.a.chunks_exact(x.len()).map(|a| dot16(a, x)).collect()
}

/// What an output takes of each rank.
fn column(pair: &Pair, output: usize) -> Vec<f32> {
    let outputs = pair.b.len() / pair.rank;
    (0..pair.rank).map(|rank| pair.b[rank * outputs + output]).collect()
}
