//! Attention of rows over the keys of their sequence, `docs/numerics.md` sections 3 and 7.

use super::rows::Rows;
use super::scalar::{chain, dot16, exp, fma, larger, tree16};

/// Sizes of a layer's attention.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Query heads of a key head.
    pub group: usize,
    /// Key heads.
    pub kv_heads: usize,
    /// Factor on scores.
    pub scale: f32,
    /// Keys that a row sees, itself included; `None`: all.
    pub window: Option<usize>,
    /// Keys of a segment.
    pub segment: usize,
}

/// What a pass keeps for its gradient.
#[derive(Clone, Debug)]
pub struct Attended {
    /// `[rows, heads * value_dim]`.
    pub out: Rows,
    /// Largest score, `[rows, heads]`.
    pub max: Rows,
    /// Sum of weights, `[rows, heads]`.
    pub sum: Rows,
}

/// A running soft-max.
struct State {
    max: f32,
    sum: f32,
    out: Vec<f32>,
}

impl Attention {
    /// Positions that the row at `position` sees.
    fn visible(&self, position: usize) -> std::ops::Range<usize> {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))..position + 1
    }

    /// Head `head` of `row`.
    fn head<'a>(&self, rows: &'a Rows, heads: usize, row: usize, head: usize) -> &'a [f32] {
        let width = rows.width / heads;
        &rows.row(row)[head * width..(head + 1) * width]
    }

    /// `q` of rows at `first_position` and after, over keys and values `[positions, kv_heads * dim]` of the sequence.
    pub fn run(&self, q: &Rows, keys: &Rows, values: &Rows, first_position: usize) -> Attended {
        let heads = self.group * self.kv_heads;
        let mut attended = Attended {
            out: Rows::zeros(q.count(), values.width * self.group),
            max: Rows::zeros(q.count(), heads),
            sum: Rows::zeros(q.count(), heads),
        };
        for row in 0..q.count() {
            for head in 0..heads {
                let state = self.row(q, keys, values, row, first_position + row, head);
                let width = state.out.len();
                let out = &mut attended.out.row_mut(row)[head * width..(head + 1) * width];
                out.copy_from_slice(&state.out.iter().map(|o| o / state.sum).collect::<Vec<_>>());
                attended.max.row_mut(row)[head] = state.max;
                attended.sum.row_mut(row)[head] = state.sum;
            }
        }
        attended
    }

    /// All segments of one row and head, merged.
    fn row(&self, q: &Rows, keys: &Rows, values: &Rows, row: usize, position: usize, head: usize) -> State {
        let visible = self.visible(position);
        let mut merged: Option<State> = None;
        for start in (0..=position).step_by(self.segment) {
            let mut state: Option<State> = None;
            for block in (start..start + self.segment).step_by(64) {
                let seen: Vec<usize> = (block..block + 64).filter(|j| visible.contains(j)).collect();
                if !seen.is_empty() {
                    state = Some(self.block(q, keys, values, row, head, &seen, state));
                }
            }
            merged = match (merged, state) {
                (Some(a), Some(b)) => Some(merge(&a, &b)),
                (a, b) => a.or(b),
            };
        }
        merged.expect("a row sees itself")
    }

    /// A block of keys, `state` being what the blocks before it in the segment gave.
    #[allow(
        clippy::too_many_arguments,
        reason = "a row of a head over keys and values is named by all of these"
    )]
    fn block(
        &self,
        q: &Rows,
        keys: &Rows,
        values: &Rows,
        row: usize,
        head: usize,
        seen: &[usize],
        state: Option<State>,
    ) -> State {
        let (kv_head, heads) = (head / self.group, self.group * self.kv_heads);
        let query = self.head(q, heads, row, head);
        let score = |j: &usize| self.scale * dot16(query, self.head(keys, self.kv_heads, *j, kv_head));
        let scores: Vec<f32> = seen.iter().map(score).collect();
        let before = state.as_ref().map_or(f32::NEG_INFINITY, |state| state.max);
        let max = scores.iter().fold(before, |max, score| larger(max, *score));
        let weights: Vec<f32> = scores.iter().map(|score| exp(score - max)).collect();
        let mut lanes = [0.0; 16];
        for (j, weight) in seen.iter().zip(&weights) {
            lanes[j % 16] += weight;
        }
        let (mut sum, width) = (tree16(lanes), values.width / self.kv_heads);
        let mut out = vec![0.0; width];
        if let Some(state) = state {
            let rescale = exp(before - max);
            sum += state.sum * rescale;
            out = state.out.iter().map(|o| o * rescale).collect();
        }
        for (j, weight) in seen.iter().zip(&weights) {
            for (o, v) in out.iter_mut().zip(self.head(values, self.kv_heads, *j, kv_head)) {
                *o = fma(*weight, *v, *o);
            }
        }
        State { max, sum, out }
    }

    /// Cotangents of `q`, and of the keys and values of the rows themselves, from that of `out`.
    pub fn vjp(
        &self,
        d_out: &Rows,
        q: &Rows,
        keys: &Rows,
        values: &Rows,
        first_position: usize,
        attended: &Attended,
    ) -> [Rows; 3] {
        let heads = self.group * self.kv_heads;
        let rows = q.count();
        let dim = q.width / heads;
        // For each row and head the weight p and the score's cotangent of each key that it sees.
        let mut pairs: Vec<Vec<(f32, f32)>> = Vec::new();
        for row in 0..rows {
            for head in 0..heads {
                let d_out = self.head(d_out, heads, row, head);
                let d = dot16(d_out, self.head(&attended.out, heads, row, head));
                let pair = |j: usize| {
                    let key = self.head(keys, self.kv_heads, j, head / self.group);
                    let score = self.scale * dot16(self.head(q, heads, row, head), key);
                    let p = exp(score - attended.max.row(row)[head]) / attended.sum.row(row)[head];
                    let d_p = dot16(d_out, self.head(values, self.kv_heads, j, head / self.group));
                    (p, (p * (d_p - d)) * self.scale)
                };
                pairs.push(self.visible(first_position + row).map(pair).collect());
            }
        }
        let pair = |row: usize, head: usize, j: usize| {
            pairs[row * heads + head][j - self.visible(first_position + row).start]
        };
        let mut dq = Rows::zeros(rows, q.width);
        for row in 0..rows {
            let visible = self.visible(first_position + row);
            for head in 0..heads {
                for block in (0..visible.end).step_by(64) {
                    let seen: Vec<usize> = (block..block + 64).filter(|j| visible.contains(j)).collect();
                    let cotangents: Vec<f32> = seen.iter().map(|j| pair(row, head, *j).1).collect();
                    for channel in 0..dim {
                        let key = |j: &usize| self.head(keys, self.kv_heads, *j, head / self.group)[channel];
                        let sum = chain(cotangents.iter().copied().zip(seen.iter().map(key)));
                        if !seen.is_empty() {
                            dq.row_mut(row)[head * dim + channel] += sum;
                        }
                    }
                }
            }
        }
        let mut dk = Rows::zeros(rows, keys.width);
        let mut dv = Rows::zeros(rows, values.width);
        let value_dim = values.width / self.kv_heads;
        let last_block = (first_position + rows - 1) / 64;
        for own in 0..rows {
            let j = first_position + own;
            for kv_head in 0..self.kv_heads {
                for block in (0..=last_block).rev() {
                    let of_block = |row: &usize| (first_position + row) / 64 == block;
                    let sees = |row: &usize| self.visible(first_position + row).contains(&j);
                    let seeing: Vec<usize> = (0..rows).filter(of_block).filter(sees).collect();
                    if seeing.is_empty() {
                        continue;
                    }
                    let group = kv_head * self.group..(kv_head + 1) * self.group;
                    let all: Vec<(usize, usize)> =
                        group.flat_map(|head| seeing.iter().map(move |row| (*row, head))).collect();
                    let of_key: Vec<(f32, f32)> =
                        all.iter().map(|(row, head)| pair(*row, *head, j)).collect();
                    for channel in 0..dim {
                        let query = |(row, head): &(usize, usize)| self.head(q, heads, *row, *head)[channel];
                        let sum = chain(of_key.iter().map(|(_, d)| *d).zip(all.iter().map(query)));
                        dk.row_mut(own)[kv_head * dim + channel] += sum;
                    }
                    for channel in 0..value_dim {
                        let d = |(row, head): &(usize, usize)| self.head(d_out, heads, *row, *head)[channel];
                        let sum = chain(of_key.iter().map(|(p, _)| *p).zip(all.iter().map(d)));
                        dv.row_mut(own)[kv_head * value_dim + channel] += sum;
                    }
                }
            }
        }
        [dq, dk, dv]
    }
}

/// Two segments as one.
fn merge(a: &State, b: &State) -> State {
    let max = larger(a.max, b.max);
    let (of_a, of_b) = (exp(a.max - max), exp(b.max - max));
    let both = |x: f32, y: f32| x * of_a + y * of_b;
    let out = a.out.iter().zip(&b.out).map(|(x, y)| both(*x, *y)).collect();
    State { max, sum: both(a.sum, b.sum), out }
}
