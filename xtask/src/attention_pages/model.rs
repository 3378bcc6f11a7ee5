//! Two layers of attention with adapters on q, k and v: one chunk's forward and one chunk's gradient.
//!
//! A layer: `h = h + Wo attention(q, k, v)`; q, k, v = `W h + scale * B A h`; K and V are rounded to f16.

use super::arithmetic::{Matrix, add, add_weight_gradient, rounded};
use super::attention::{Attention, Output, Own, Pages, Sums};

/// Factor of the adapters; not a power of two, so that its rounding counts.
pub const ADAPTER_SCALE: f32 = 1.7;

/// q, k and v in the order of their nodes.
pub const SITES: usize = 3;

#[derive(Clone)]
pub struct Layer {
    pub attention: Attention,
    /// Of q, k, v.
    pub weights: [Matrix; SITES],
    pub adapters: [Adapter; SITES],
    pub output: Matrix,
}

/// `a [rank, width]`, `b [out, rank]`.
#[derive(Clone)]
pub struct Adapter {
    pub a: Matrix,
    pub b: Matrix,
}

/// Everything that the gradient of a chunk reads.
pub struct Trace {
    pub layers: Vec<LayerTrace>,
    /// `[rows, width]`.
    pub output: Vec<f32>,
}

pub struct LayerTrace {
    input: Vec<f32>,
    /// `A h` a site.
    inner: [Vec<f32>; SITES],
    q: Vec<f32>,
    /// What attention reads of the chunk's own rows, and what pages receive.
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    attention: Output,
}

/// Gradients of rows from position `first` on.
#[derive(Clone)]
pub struct LayerGradient {
    pub dq: Vec<f32>,
    pub sums: Sums,
    pub adapters: [Adapter; SITES],
}

/// Where the walk adds what comes from later chunks. All but the first are wrong on purpose.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    /// Sums so far, one block at a time.
    Contract,
    /// A chunk forms its own dK and dV, to which the future's are added.
    KeysOfChunkFirst,
    /// A chunk forms its own dA and dB, to which the future's are added.
    WeightsOfChunkFirst,
}

/// Whether the own rows are rounded before attention reads them.
#[derive(Clone, Copy, PartialEq)]
pub enum OwnRows {
    Rounded,
    /// Wrong on purpose: exact inside a batch, rounded once they are in a page.
    Exact,
}

/// Rows `x [rows, width]` at positions from `start`, after the positions in `pages` (one a layer).
pub fn forward(
    layers: &[Layer],
    pages: &[Pages],
    start: usize,
    x: &[f32],
    adapted: bool,
    own_rows: OwnRows,
) -> Trace {
    let mut h = x.to_vec();
    let mut traces = Vec::new();
    for (layer, pages) in layers.iter().zip(pages) {
        let mut inner: [Vec<f32>; SITES] = Default::default();
        let [q, k, v] = std::array::from_fn(|site| layer.site(site, &h, adapted, &mut inner[site]));
        let (k, v) = match own_rows {
            OwnRows::Rounded => (rounded(&k), rounded(&v)),
            OwnRows::Exact => (k, v),
        };
        let attention = layer.attention.forward(&q, pages, &Own { start, k: &k, v: &v });
        let width = layer.output.rows;
        let mut next = h.clone();
        for (h, out) in next.chunks_exact_mut(width).zip(attention.out.chunks_exact(layer.output.columns)) {
            add(&layer.output.apply(out), h);
        }
        traces.push(LayerTrace { input: std::mem::replace(&mut h, next), inner, q, k, v, attention });
    }
    Trace { layers: traces, output: h }
}

/// Gradient of a chunk whose output has cotangent `dy`; `gradients` hold the sums so far of all later chunks.
pub fn backward(
    layers: &[Layer],
    pages: &[Pages],
    start: usize,
    trace: &Trace,
    dy: &[f32],
    gradients: &mut [LayerGradient],
    order: Order,
) {
    let mut dh = dy.to_vec();
    for (index, layer) in layers.iter().enumerate().rev() {
        dh = layer.backward(&pages[index], start, &trace.layers[index], dh, &mut gradients[index], order);
    }
}

impl Layer {
    fn site(&self, site: usize, h: &[f32], adapted: bool, inner: &mut Vec<f32>) -> Vec<f32> {
        let (weight, adapter) = (&self.weights[site], &self.adapters[site]);
        let mut y = Vec::new();
        for h in h.chunks_exact(weight.columns) {
            let mut row = weight.apply(h);
            if adapted {
                let u = adapter.a.apply(h);
                for (y, bu) in row.iter_mut().zip(adapter.b.apply(&u)) {
                    *y += ADAPTER_SCALE * bu;
                }
                inner.extend(u);
            }
            y.extend(row);
        }
        y
    }

    /// Takes the cotangent of the layer's output and returns that of its input.
    fn backward(
        &self,
        pages: &Pages,
        start: usize,
        trace: &LayerTrace,
        dy: Vec<f32>,
        gradient: &mut LayerGradient,
        order: Order,
    ) -> Vec<f32> {
        let dout: Vec<f32> =
            dy.chunks_exact(self.output.rows).flat_map(|dy| self.output.input_gradient(dy)).collect();
        let own = Own { start, k: &trace.k, v: &trace.v };
        let sums = &mut gradient.sums;
        let attention = &self.attention;
        let dq = if order == Order::KeysOfChunkFirst {
            let zeros = vec![0.0; sums.dk.len()];
            let mut chunk = Sums { first: sums.first, dk: zeros.clone(), dv: zeros };
            let dq = attention.gradient(&trace.q, pages, &own, &trace.attention, &dout, &mut chunk);
            add(&chunk.dk, &mut sums.dk);
            add(&chunk.dv, &mut sums.dv);
            dq
        } else {
            attention.gradient(&trace.q, pages, &own, &trace.attention, &dout, sums)
        };
        // All rows that see the chunk's keys have been walked, so their sums are whole.
        let from = start - sums.first;
        let own = from * attention.kv_width()..from * attention.kv_width() + trace.k.len();
        let cotangents = [&dq[..], &sums.dk[own.clone()], &sums.dv[own]];
        // Fan-out of the input, last use first: residual, then the adapter and the linear of v, of k, of q.
        let mut dh = dy;
        for site in (0..SITES).rev() {
            let Adapter { a, b } = &self.adapters[site];
            let g: Vec<f32> = cotangents[site].iter().map(|dy| ADAPTER_SCALE * dy).collect();
            let du: Vec<f32> = g.chunks_exact(b.rows).flat_map(|g| b.input_gradient(g)).collect();
            let into = &mut gradient.adapters[site];
            accumulate(&g, &trace.inner[site], start, &mut into.b, order);
            accumulate(&du, &trace.input, start, &mut into.a, order);
            let width = a.columns;
            for (row, dh) in dh.chunks_exact_mut(width).enumerate() {
                add(&a.input_gradient(&du[row * a.rows..][..a.rows]), dh);
                let out = self.weights[site].rows;
                add(&self.weights[site].input_gradient(&cotangents[site][row * out..][..out]), dh);
            }
        }
        gradient.dq[from * self.output.columns..][..dq.len()].copy_from_slice(&dq);
        dh
    }
}

fn accumulate(left: &[f32], right: &[f32], start: usize, sum: &mut Matrix, order: Order) {
    if order == Order::WeightsOfChunkFirst {
        let mut chunk = Matrix::zeros(sum.rows, sum.columns);
        add_weight_gradient(left, right, start, &mut chunk);
        add(&chunk.data, &mut sum.data);
    } else {
        add_weight_gradient(left, right, start, sum);
    }
}

impl LayerGradient {
    /// Zero sums for positions `first..end`.
    pub fn zeros(layer: &Layer, first: usize, end: usize) -> Self {
        let attention = &layer.attention;
        let kv = vec![0.0; (end - first) * attention.kv_width()];
        LayerGradient {
            dq: vec![0.0; (end - first) * layer.output.columns],
            sums: Sums { first, dk: kv.clone(), dv: kv },
            adapters: layer.adapters.each_ref().map(|adapter| Adapter {
                a: Matrix::zeros(adapter.a.rows, adapter.a.columns),
                b: Matrix::zeros(adapter.b.rows, adapter.b.columns),
            }),
        }
    }

    /// Every tensor with its name.
    pub fn tensors(&self) -> Vec<(String, &[f32])> {
        let mut tensors: Vec<(String, &[f32])> =
            vec![("dQ".into(), &self.dq), ("dK".into(), &self.sums.dk), ("dV".into(), &self.sums.dv)];
        for (site, adapter) in ["q", "k", "v"].iter().zip(&self.adapters) {
            tensors.push((format!("dA of {site}"), &adapter.a.data));
            tensors.push((format!("dB of {site}"), &adapter.b.data));
        }
        tensors
    }
}
