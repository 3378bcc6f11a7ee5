//! Attention of a batch's rows over pages and over the batch's own rows, forward and gradient, as one op.
//!
//! A key block is 64 absolute positions: those before `start` come from the page, those of the batch from its own rows,
//! which are rounded to f16 already. Where a page ends and the own rows begin is invisible to the arithmetic.

use std::ops::Range;

use half::f16;

use super::arithmetic::{BLOCK, add, blocks, dot16, exp, multiply_add, tree};

/// Shape and order of one attention.
#[derive(Clone)]
pub struct Attention {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// A row at position `p` sees keys above `p - window`.
    pub window: Option<usize>,
    /// Keys whose blocks are folded into one running sum; such sums are merged ascending.
    pub segment: usize,
    pub scale: f32,
}

/// K and V of earlier positions in f16: `[pages][64, kv_heads * head_dim]`.
#[derive(Clone, Default)]
pub struct Pages {
    pub k: Vec<Vec<f16>>,
    pub v: Vec<Vec<f16>>,
}

/// One batch's K and V `[rows, kv_heads * head_dim]`, rounded to f16.
pub struct Own<'a> {
    pub start: usize,
    pub k: &'a [f32],
    pub v: &'a [f32],
}

/// `out [rows, heads * head_dim]`, `max` and `sum` `[rows, heads]`.
#[derive(Clone)]
pub struct Output {
    pub out: Vec<f32>,
    pub max: Vec<f32>,
    pub sum: Vec<f32>,
}

/// Sums so far of dK and dV `[positions, kv_heads * head_dim]` from position `first` on; earlier keys are constants.
#[derive(Clone)]
pub struct Sums {
    pub first: usize,
    pub dk: Vec<f32>,
    pub dv: Vec<f32>,
}

/// Running maximum, sum and weighted values of one row and head; `None` before the first key.
type Fold = Option<(f32, f32, Vec<f32>)>;

impl Attention {
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    fn first_key(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// `q [rows, heads * head_dim]`; row `r` stands at position `own.start + r`.
    pub fn forward(&self, q: &[f32], pages: &Pages, own: &Own) -> Output {
        let lanes = q.len() / self.head_dim; // rows times heads
        let rows = lanes / self.heads;
        let end = own.start + rows;
        let mut merged: Vec<Fold> = vec![None; lanes];
        let mut running: Vec<Fold> = vec![None; lanes];
        for block in self.first_key(own.start) / BLOCK..end.div_ceil(BLOCK) {
            if (block * BLOCK).is_multiple_of(self.segment) {
                close(&mut merged, &mut running);
            }
            let (k, v) = self.gather(block, pages, own);
            for row in 0..rows {
                let position = own.start + row;
                let keys = self.visible(position, block);
                if keys.is_empty() {
                    continue;
                }
                for head in 0..self.heads {
                    let lane = row * self.heads + head;
                    let q = &q[lane * self.head_dim..][..self.head_dim];
                    self.fold(
                        &mut running[lane],
                        q,
                        self.kv_head(&k, head),
                        self.kv_head(&v, head),
                        keys.clone(),
                    );
                }
            }
        }
        close(&mut merged, &mut running);
        let mut output = Output { out: Vec::new(), max: Vec::new(), sum: Vec::new() };
        for fold in merged {
            let (max, sum, values) = fold.expect("a causal row sees itself");
            output.out.extend(values.iter().map(|value| value / sum));
            output.max.push(max);
            output.sum.push(sum);
        }
        output
    }

    /// Returns dQ and adds to the sums so far of dK and dV, from the last query block to the first.
    pub fn gradient(
        &self,
        q: &[f32],
        pages: &Pages,
        own: &Own,
        output: &Output,
        dout: &[f32],
        sums: &mut Sums,
    ) -> Vec<f32> {
        let mut dq = vec![0.0; q.len()];
        let rows = q.len() / (self.heads * self.head_dim);
        for queries in blocks(own.start, own.start + rows).rev() {
            for block in self.first_key(queries.start) / BLOCK..queries.end.div_ceil(BLOCK) {
                let (k, v) = self.gather(block, pages, own);
                let mut chain = Chain::new(self.kv_width());
                for head in 0..self.heads {
                    for position in queries.clone() {
                        let lane = (position - own.start) * self.heads + head;
                        let at = lane * self.head_dim..(lane + 1) * self.head_dim;
                        let row = Row {
                            q: &q[at.clone()],
                            dout: &dout[at.clone()],
                            max: output.max[lane],
                            sum: output.sum[lane],
                            dot: dot16(&dout[at.clone()], &output.out[at.clone()]),
                        };
                        let keys = self.visible(position, block);
                        if !keys.is_empty() {
                            let dq_block = self.row_gradient(&row, head, &k, &v, keys, &mut chain);
                            add(&dq_block, &mut dq[at]);
                        }
                    }
                }
                chain.finish(block, sums);
            }
        }
        dq
    }

    /// Keys of `block` that a row sees, counted from the block's start.
    fn visible(&self, position: usize, block: usize) -> Range<usize> {
        let from = self.first_key(position).max(block * BLOCK);
        let to = (position + 1).min((block + 1) * BLOCK);
        if from < to { from - block * BLOCK..to - block * BLOCK } else { 0..0 }
    }

    /// K and V of one block: its page, whatever stands in its tail, with the batch's own rows laid over it.
    fn gather(&self, block: usize, pages: &Pages, own: &Own) -> (Vec<f32>, Vec<f32>) {
        let one = |pages: &[Vec<f16>], rows: &[f32]| {
            let width = self.kv_width();
            let mut values: Vec<f32> = match pages.get(block) {
                Some(page) => page.iter().map(|value| value.to_f32()).collect(),
                None => vec![f32::NAN; BLOCK * width],
            };
            let end = own.start + rows.len() / width;
            for position in own.start.max(block * BLOCK)..end.min((block + 1) * BLOCK) {
                let row = &rows[(position - own.start) * width..][..width];
                values[position % BLOCK * width..][..width].copy_from_slice(row);
            }
            values
        };
        (one(&pages.k, own.k), one(&pages.v, own.v))
    }

    /// The columns that `head` reads, from its first: rows are `kv_width` apart.
    fn kv_head<'a>(&self, rows: &'a [f32], head: usize) -> &'a [f32] {
        &rows[head / (self.heads / self.kv_heads) * self.head_dim..]
    }

    fn score(&self, q: &[f32], k: &[f32], key: usize) -> f32 {
        self.scale * dot16(q, &k[key * self.kv_width()..][..self.head_dim])
    }

    /// One key block of the forward: new maximum, one rescale, weights, their tree, values by ascending key.
    fn fold(&self, fold: &mut Fold, q: &[f32], k: &[f32], v: &[f32], keys: Range<usize>) {
        let mut scores = [0.0f32; BLOCK];
        let mut max = fold.as_ref().map_or(f32::NEG_INFINITY, |(max, ..)| *max);
        let old = max;
        for key in keys.clone() {
            scores[key] = self.score(q, k, key);
            if scores[key] > max {
                max = scores[key];
            }
        }
        let mut lanes = [0.0f32; 16];
        for key in keys.clone() {
            scores[key] = exp(scores[key] - max);
            lanes[key % 16] += scores[key];
        }
        let (sum, mut values) = match fold.take() {
            None => (tree(lanes), vec![0.0; self.head_dim]),
            Some((_, sum, mut values)) => {
                let rescale = exp(old - max);
                values.iter_mut().for_each(|value| *value *= rescale);
                (sum * rescale + tree(lanes), values)
            }
        };
        for key in keys {
            multiply_add(scores[key], &v[key * self.kv_width()..][..self.head_dim], &mut values);
        }
        *fold = Some((max, sum, values));
    }

    /// One row, head and key block: returns the block's part of dQ, continues the chains of dK and dV.
    fn row_gradient(
        &self,
        row: &Row,
        head: usize,
        k: &[f32],
        v: &[f32],
        keys: Range<usize>,
        chain: &mut Chain,
    ) -> Vec<f32> {
        let (k, v) = (self.kv_head(k, head), self.kv_head(v, head));
        let column = head / (self.heads / self.kv_heads) * self.head_dim;
        let mut dq = vec![0.0; self.head_dim];
        for key in keys {
            let at = key * self.kv_width();
            let p = exp(self.score(row.q, k, key) - row.max) / row.sum;
            let dp = dot16(row.dout, &v[at..][..self.head_dim]);
            let ds = p * (dp - row.dot) * self.scale;
            multiply_add(ds, &k[at..][..self.head_dim], &mut dq);
            multiply_add(ds, row.q, &mut chain.dk[at + column..][..self.head_dim]);
            multiply_add(p, row.dout, &mut chain.dv[at + column..][..self.head_dim]);
            chain.seen[key] = true;
        }
        dq
    }
}

/// What the gradient of one row and head starts from.
struct Row<'a> {
    q: &'a [f32],
    dout: &'a [f32],
    max: f32,
    sum: f32,
    /// `dot16(dO, O)`.
    dot: f32,
}

/// Chains from +0 of one query block over one key block.
struct Chain {
    dk: Vec<f32>,
    dv: Vec<f32>,
    seen: [bool; BLOCK],
}

impl Chain {
    fn new(width: usize) -> Self {
        Chain { dk: vec![0.0; BLOCK * width], dv: vec![0.0; BLOCK * width], seen: [false; BLOCK] }
    }

    /// Adds to the sums so far of keys that some row saw; other keys keep their bytes.
    fn finish(&self, block: usize, sums: &mut Sums) {
        let width = self.dk.len() / BLOCK;
        for key in (0..BLOCK).filter(|key| self.seen[*key]) {
            let Some(index) = (block * BLOCK + key).checked_sub(sums.first) else { continue };
            add(&self.dk[key * width..][..width], &mut sums.dk[index * width..][..width]);
            add(&self.dv[key * width..][..width], &mut sums.dv[index * width..][..width]);
        }
    }
}

/// Merges each running segment into what is merged already.
fn close(merged: &mut [Fold], running: &mut [Fold]) {
    for (merged, running) in merged.iter_mut().zip(running) {
        let Some((max_b, sum_b, values_b)) = running.take() else { continue };
        *merged = Some(match merged.take() {
            None => (max_b, sum_b, values_b),
            Some((max_a, sum_a, mut values)) => {
                let max = if max_b > max_a { max_b } else { max_a };
                let (a, b) = (exp(max_a - max), exp(max_b - max));
                for (value, value_b) in values.iter_mut().zip(values_b) {
                    *value = *value * a + value_b * b;
                }
                (max, sum_a * a + sum_b * b, values)
            }
        });
    }
}

impl Pages {
    /// Writes rows `[rows, width]` at positions from `start`; new pages begin as NaN.
    pub fn write(&mut self, own: &Own, width: usize) {
        for (pages, rows) in [(&mut self.k, own.k), (&mut self.v, own.v)] {
            for (row, values) in rows.chunks_exact(width).enumerate() {
                let position = own.start + row;
                while pages.len() <= position / BLOCK {
                    pages.push(vec![f16::NAN; BLOCK * width]);
                }
                for (into, value) in
                    pages[position / BLOCK][position % BLOCK * width..].iter_mut().zip(values)
                {
                    *into = f16::from_f32(*value);
                }
            }
        }
    }

    /// A copy in which only `keep` is not NaN.
    pub fn poisoned(&self, keep: Range<usize>) -> Pages {
        let poison = |pages: &[Vec<f16>]| {
            let page = |(index, page): (usize, &Vec<f16>)| {
                let width = page.len() / BLOCK;
                let row = |at: usize| index * BLOCK + at / width;
                let kept =
                    |(at, value): (usize, &f16)| if keep.contains(&row(at)) { *value } else { f16::NAN };
                page.iter().enumerate().map(kept).collect()
            };
            pages.iter().enumerate().map(page).collect()
        };
        Pages { k: poison(&self.k), v: poison(&self.v) }
    }
}
