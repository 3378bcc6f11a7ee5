//! The same two layers in float64 with dense attention, as a loss that central differences can be taken of.
//!
//! K and V are `exact + (page - exact at the start)`, the second part a constant: the rounding counts in the value and
//! has a gradient of 1.

use super::attention::Pages;
use super::model::{ADAPTER_SCALE, Layer, SITES};

/// Rows from position `first` on, after constant pages.
pub struct Reference<'a> {
    layers: &'a [Layer],
    pages: &'a [Pages],
    first: usize,
    x: Vec<f64>,
    /// The loss is the dot product of this and the output.
    cotangent: Vec<f64>,
    /// What rounding added to K and V, a layer.
    rounding: Vec<[Vec<f64>; 2]>,
}

/// A change of one tensor, numbered as in `LayerGradient::tensors`.
pub struct Nudge<'a> {
    pub layer: usize,
    pub tensor: usize,
    pub direction: &'a [f64],
    pub step: f64,
}

impl<'a> Reference<'a> {
    /// `x` and `cotangent` `[rows, width]`; `pages` hold all positions as the forward wrote them.
    pub fn new(
        layers: &'a [Layer],
        pages: &'a [Pages],
        first: usize,
        x: &[f32],
        cotangent: &[f32],
    ) -> Reference<'a> {
        let mut reference =
            Reference { layers, pages, first, x: wide(x), cotangent: wide(cotangent), rounding: Vec::new() };
        let mut h = reference.x.clone();
        for index in 0..layers.len() {
            let [_, k, v] = reference.sites(index, &h, None);
            let from = first * layers[index].attention.kv_width();
            let rest =
                |exact: &[f64], page: Vec<f64>| exact.iter().zip(&page[from..]).map(|(e, p)| p - e).collect();
            let [page_k, page_v] = [&pages[index].k, &pages[index].v].map(|pages| values(pages));
            reference.rounding.push([rest(&k, page_k), rest(&v, page_v)]);
            h = reference.layer(index, &h, None);
        }
        reference
    }

    pub fn loss(&self, nudge: &Nudge) -> f64 {
        let mut h = self.x.clone();
        for index in 0..self.layers.len() {
            h = self.layer(index, &h, Some(nudge).filter(|nudge| nudge.layer == index));
        }
        h.iter().zip(&self.cotangent).map(|(h, c)| h * c).sum()
    }

    fn layer(&self, index: usize, h: &[f64], nudge: Option<&Nudge>) -> Vec<f64> {
        let layer = &self.layers[index];
        let [q, k, v] = self.sites(index, h, nudge);
        let context = self.first * layer.attention.kv_width();
        let [k, v] =
            [(&k, &self.pages[index].k, 0), (&v, &self.pages[index].v, 1)].map(|(exact, pages, which)| {
                let mut all = values(pages);
                all.truncate(context);
                all.extend(exact.iter().zip(&self.rounding[index][which]).map(|(exact, rest)| exact + rest));
                all
            });
        let out = self.attention(index, &q, &k, &v);
        let projected = product(&wide(&layer.output.data), layer.output.columns, &out);
        h.iter().zip(projected).map(|(h, o)| h + o).collect()
    }

    fn sites(&self, index: usize, h: &[f64], nudge: Option<&Nudge>) -> [Vec<f64>; SITES] {
        let layer = &self.layers[index];
        let nudged = |tensor: usize, mut data: Vec<f64>| {
            if let Some(nudge) = nudge.filter(|nudge| nudge.tensor == tensor) {
                data.iter_mut().zip(nudge.direction).for_each(|(value, d)| *value += nudge.step * d);
            }
            data
        };
        std::array::from_fn(|site| {
            let (weight, adapter) = (&layer.weights[site], &layer.adapters[site]);
            let a = nudged(SITES + 2 * site, wide(&adapter.a.data));
            let b = nudged(SITES + 2 * site + 1, wide(&adapter.b.data));
            let mut y = product(&wide(&weight.data), weight.columns, h);
            let inner = product(&a, adapter.a.columns, h);
            for (y, bu) in y.iter_mut().zip(product(&b, adapter.b.columns, &inner)) {
                *y += f64::from(ADAPTER_SCALE) * bu;
            }
            nudged(site, y)
        })
    }

    fn attention(&self, index: usize, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
        let attention = &self.layers[index].attention;
        let (dim, width) = (attention.head_dim, attention.kv_width());
        let mut out = vec![0.0; q.len()];
        for (lane, (q, out)) in q.chunks_exact(dim).zip(out.chunks_exact_mut(dim)).enumerate() {
            let (position, head) = (self.first + lane / attention.heads, lane % attention.heads);
            let column = head / (attention.heads / attention.kv_heads) * dim;
            let from = attention.window.map_or(0, |window| (position + 1).saturating_sub(window));
            let score = |key: usize| f64::from(attention.scale) * dot(q, &k[key * width + column..][..dim]);
            let scores: Vec<f64> = (from..=position).map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            for (key, score) in (from..=position).zip(&scores) {
                let p = (score - max).exp() / sum;
                out.iter_mut().zip(&v[key * width + column..]).for_each(|(out, v)| *out += p * v);
            }
        }
        out
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn values(pages: &[Vec<half::f16>]) -> Vec<f64> {
    pages.iter().flatten().map(|value| value.to_f64()).collect()
}

/// Rows of `x` times the transposed matrix.
fn product(matrix: &[f64], columns: usize, x: &[f64]) -> Vec<f64> {
    x.chunks_exact(columns).flat_map(|x| matrix.chunks_exact(columns).map(move |row| dot(row, x))).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
