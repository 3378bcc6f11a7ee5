//! Loss, gradients, norm and the optimiser's step, `docs/numerics.md` sections 4, 5 and 8.

use apprentice_models::{Adapter, Model};

use super::backward::{Blocks, Sums};
use super::rows::Rows;
use super::scalar::{exp, larger, log, tree16};
use super::{Emulator, Sequence};

/// Rows to learn from, all on the adapter in training.
pub struct Span<'a> {
    /// The sequence that holds every position before `first_position`, as served.
    pub context: &'a Sequence,
    /// Position of the first row.
    pub first_position: usize,
    /// Token of each row.
    pub tokens: &'a [u32],
    /// The token that each row should predict, or -1.
    pub labels: &'a [i32],
    /// Weight of each row; `None`: 1.
    pub weights: Option<&'a [f32]>,
}

/// What one gradient gives.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Mean loss.
    pub loss: f64,
    /// Norm over all matrices.
    pub norm: f64,
    /// For each pair of the adapter its site and the gradients of A and B.
    pub pairs: Vec<(usize, Vec<f32>, Vec<f32>)>,
}

impl Gradients {
    /// The gradients at a site.
    pub(super) fn of(&mut self, site: usize) -> (&mut [f32], &mut [f32]) {
        let (_, a, b) = self.pairs.iter_mut().find(|pair| pair.0 == site).expect("a site of the adapter");
        (a, b)
    }
}

impl Emulator<'_> {
    /// Loss and gradients of the spans. How a caller packs spans into batches, or gives them one after another, has no
    /// say in it.
    pub fn gradients(&self, adapter: &Adapter, spans: &[Span<'_>]) -> Gradients {
        let zeros =
            adapter.pairs.iter().map(|pair| (pair.site, vec![0.0; pair.a.len()], vec![0.0; pair.b.len()]));
        let mut gradients = Gradients { loss: 0.0, norm: 0.0, pairs: zeros.collect() };
        let labelled = spans.iter().flat_map(|span| span.labels).filter(|label| **label >= 0).count();
        let mut total = 0.0;
        for span in spans {
            self.span(adapter, span, labelled as f64, &mut total, &mut gradients);
        }
        gradients.loss = total / labelled as f64;
        gradients.norm = norm(self.model, &gradients);
        gradients
    }

    fn span(
        &self,
        adapter: &Adapter,
        span: &Span<'_>,
        denominator: f64,
        total: &mut f64,
        gradients: &mut Gradients,
    ) {
        let mut sequence = span.context.clone();
        sequence.truncate(span.first_position);
        let named = vec![Some(adapter); span.tokens.len()];
        let (x, layers) = self.blocks(&mut sequence, span.tokens, &named);
        let labelled: Vec<usize> = (0..span.labels.len()).filter(|row| span.labels[*row] >= 0).collect();
        if labelled.is_empty() {
            return;
        }
        let position = |row: &usize| span.first_position + row;
        let blocks = Blocks::new(&labelled.iter().map(position).collect::<Vec<_>>());
        let selected = x.select(&labelled);
        let (h, logits) = self.head(&selected, &named[..labelled.len()]);
        let weight = |row: usize| span.weights.map_or(1.0, |weights| f64::from(weights[labelled[row]]));
        let mut d_logits = logits.clone();
        let mut losses = Vec::new();
        for (row, source) in labelled.iter().enumerate() {
            let factor = (weight(row) / denominator) as f32;
            let label = span.labels[*source] as usize;
            losses.push(row_loss(logits.row(row), label, factor, d_logits.row_mut(row)));
        }
        for block in &blocks.all {
            *total += block.iter().fold(0.0, |sum, row| sum + weight(*row) * f64::from(losses[*row]));
        }
        let mut sums = Sums { adapter, gradients: &mut *gradients, blocks: &blocks };
        let d_selected = self.head_vjp(&d_logits, &h, &selected, &mut sums);
        let mut dx = Rows::zeros(x.count(), x.width);
        for (row, source) in labelled.iter().enumerate() {
            for (sum, d) in dx.row_mut(*source).iter_mut().zip(d_selected.row(row)) {
                *sum += d;
            }
        }
        let blocks = Blocks::new(&(0..span.tokens.len()).map(|row| position(&row)).collect::<Vec<_>>());
        let mut sums = Sums { adapter, gradients, blocks: &blocks };
        for (index, layer) in layers.iter().enumerate().rev() {
            dx = self.layer_vjp(index, layer, &dx, span.first_position, &mut sums);
        }
    }
}

impl Sequence {
    /// Forgets positions from here on.
    fn truncate(&mut self, positions: usize) {
        assert!(positions <= self.positions, "a context holds the positions before its span");
        for rows in self.keys.iter_mut().chain(&mut self.values) {
            rows.values.truncate(positions * rows.width);
        }
        self.positions = positions;
    }
}

/// The loss of a row of logits, and their cotangents.
fn row_loss(x: &[f32], label: usize, factor: f32, dx: &mut [f32]) -> f32 {
    let max = x.iter().fold(f32::NEG_INFINITY, |max, x| larger(max, *x));
    let mut sum = 0.0;
    for part in x.chunks(256) {
        let mut lanes = [0.0; 16];
        for (index, x) in part.iter().enumerate() {
            lanes[index % 16] += exp(x - max);
        }
        sum += tree16(lanes);
    }
    for (index, dx) in dx.iter_mut().enumerate() {
        let p = exp(x[index] - max) / sum;
        *dx = factor * (if index == label { p - 1.0 } else { p });
    }
    log(sum) + (max - x[label])
}

/// The norm over matrices in the order of their names. Rows of +0 behind a pair of lower rank add nothing, so they are
/// left out.
fn norm(model: &Model, gradients: &Gradients) -> f64 {
    let mut matrices: Vec<(String, &[f32])> = Vec::new();
    for (site, a, b) in &gradients.pairs {
        let site = &model.sites()[*site].name;
        matrices.extend([(format!("{site}.lora_a"), a.as_slice()), (format!("{site}.lora_b"), b.as_slice())]);
    }
    matrices.sort_by(|a, b| a.0.cmp(&b.0));
    let square = |value: &f32| f64::from(*value) * f64::from(*value);
    let part = |part: &[f32]| part.iter().fold(0.0, |sum, value| sum + square(value));
    matrices
        .iter()
        .flat_map(|(_, matrix)| matrix.chunks(1024))
        .fold(0.0, |sum, chunk| sum + part(chunk))
        .sqrt()
}

/// Settings of the optimiser, and its state for one adapter.
pub struct Trainer {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rates of the moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Norm that gradients are clipped to; `None`: not clipped.
    pub clip_norm: Option<f64>,
    powers: (f64, f64),
    moments: Vec<[Vec<f32>; 4]>,
}

impl Trainer {
    /// Nothing learnt yet.
    pub fn new(
        learning_rate: f64,
        betas: (f64, f64),
        eps: f64,
        weight_decay: f64,
        clip_norm: Option<f64>,
    ) -> Trainer {
        let powers = (1.0, 1.0);
        Trainer { learning_rate, betas, eps, weight_decay, clip_norm, powers, moments: Vec::new() }
    }

    /// One step of AdamW on the adapter.
    pub fn step(&mut self, adapter: &mut Adapter, gradients: &Gradients) {
        let (b1, b2) = self.betas;
        self.powers = (self.powers.0 * b1, self.powers.1 * b2);
        let limit = self.clip_norm.map_or(f32::INFINITY, |norm| norm as f32);
        let clip = (f64::from(limit) / (gradients.norm + 1e-6)) as f32;
        let clip = if clip < 1.0 { clip } else { 1.0 };
        let decay = (self.learning_rate * self.weight_decay) as f32;
        let step = (self.learning_rate / (1.0 - self.powers.0)) as f32;
        let root = (1.0 - self.powers.1).sqrt() as f32;
        let (c1, c2, eps) = ((1.0 - b1) as f32, (1.0 - b2) as f32, self.eps as f32);
        let (b1, b2) = (b1 as f32, b2 as f32);
        let update = |p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]| {
            for index in 0..p.len() {
                let g = g[index] * clip;
                p[index] -= decay * p[index];
                m[index] = b1 * m[index] + c1 * g;
                v[index] = b2 * v[index] + (c2 * g) * g;
                p[index] -= (step * m[index]) / (v[index].sqrt() / root + eps);
            }
        };
        if self.moments.is_empty() {
            let zeros = |values: &[f32]| vec![0.0; values.len()];
            let of_pair = |pair: &apprentice_models::Pair| {
                [zeros(&pair.a), zeros(&pair.a), zeros(&pair.b), zeros(&pair.b)]
            };
            self.moments = adapter.pairs.iter().map(of_pair).collect();
        }
        for ((pair, moments), (_, a, b)) in
            adapter.pairs.iter_mut().zip(&mut self.moments).zip(&gradients.pairs)
        {
            let [ma, va, mb, vb] = moments;
            update(&mut pair.a, a, ma, va);
            update(&mut pair.b, b, mb, vb);
        }
    }
}
