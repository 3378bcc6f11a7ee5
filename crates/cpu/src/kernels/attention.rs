//! Attention of a batch's rows over pages and over the batch's own rows, with a running maximum and sum.
//!
//! Keys come in blocks of 64 by absolute position, ascending. Of a block: `s = scale * dot16(q, k)`; `m' = m`, then
//! `if s > m'` in order; `p = exp(s - m')`; `l = l * exp(m - m') + tree16(p)`; `o = o * exp(m - m')`, then
//! `o = fma(p, v, o)` by ascending key. Keys that a row does not see take no part. A segment of blocks starts from
//! nothing, without a rescale; segments are merged ascending as `a * exp(m_a - m') + b * exp(m_b - m')`. At last
//! `out = o / l`. A row that sees no key gives +0, with maximum -infinity and sum 0.
//!
//! Source: Dao 2023, "FlashAttention-2", algorithm 1.

use std::ops::Range;

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES, dot16};
use crate::kernels::Kernel;
use crate::kernels::argmax::largest_lane;
use crate::kernels::dots::{Columns, dots};
use crate::kernels::weighted::{Values, Weights, add_weighted};
use crate::math::exp;

mod keys;
#[cfg(test)]
mod tests;

pub use keys::{BLOCK, Keys, Pages};
pub(crate) use keys::{Place, Sequence, Side, carve, padded, queries, transpose};

/// Rows of a unit.
const TILE: usize = 32;
/// Queries whose scores and weights are in the cache together.
pub(crate) const TOGETHER: usize = 4;
/// From here on it pays to turn a block of keys over, so that a lane is a key.
const MANY: usize = 8;

/// `q [rows, heads, head_dim]` over [`Keys`] -> `out [rows, heads, value_dim]`, `max` and `sum` `[rows, heads]`.
pub struct Attention<'a> {
    /// Query heads, a multiple of `keys.kv_heads`; head `h` reads kv head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Keys whose blocks are folded into one running sum: a multiple of 64.
    pub segment: usize,
    /// `[rows, heads, head_dim]`.
    pub q: &'a [f32],
    /// What the rows attend to.
    pub keys: Keys<'a>,
    /// `[rows, heads, value_dim]`.
    pub out: Disjoint<'a, f32>,
    /// `[rows, heads]`: the largest score.
    pub max: Disjoint<'a, f32>,
    /// `[rows, heads]`: the sum of `exp(s - max)`.
    pub sum: Disjoint<'a, f32>,
}

/// Heads of a unit: those of one kv head, or a part of them where there is only one.
pub(crate) fn heads_of_a_unit(heads: usize, kv_heads: usize) -> usize {
    let group = heads / kv_heads;
    if kv_heads > 1 { group } else { (1..group).rev().find(|part| group.is_multiple_of(*part)).unwrap_or(1) }
}

impl Kernel for Attention<'_> {
    fn units(&self) -> usize {
        self.rows().div_ceil(TILE) * (self.heads / self.together())
    }

    fn scratch(&self) -> usize {
        let (key, value) = (padded(self.keys.head_dim), padded(self.keys.value_dim));
        let queries = TILE * self.together();
        BLOCK * (2 * key + value) + TOGETHER * BLOCK + queries * (value + 2)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        assert!(self.segment > 0 && self.segment.is_multiple_of(BLOCK), "a segment is whole blocks");
        let (tiles, parts) = (self.rows().div_ceil(TILE), self.heads / self.together());
        // The last rows see the most keys: they go first.
        let start = (tiles - 1 - unit / parts) * TILE;
        let tile = start..(start + TILE).min(self.rows());
        let head = unit % parts * self.together();
        for row in tile.clone() {
            let (out, max, sum) = self.of_row(row, head);
            out.fill(0.0);
            max.fill(f32::NEG_INFINITY);
            sum.fill(0.0);
        }
        for index in 0..self.keys.sequence_count() {
            let sequence = self.keys.sequence(index);
            let rows = tile.start.max(sequence.rows.start)..tile.end.min(sequence.rows.end);
            if !rows.is_empty() {
                self.attend(isa, &Part { sequence, rows, head }, scratch);
            }
        }
    }
}

/// Rows of one sequence in one unit, and the first of the unit's heads.
struct Part {
    sequence: Sequence,
    rows: Range<usize>,
    head: usize,
}

/// Running sums of the queries of a part, in the segment that is open.
struct Running<'a> {
    /// `[queries, padded value_dim]`.
    o: &'a mut [f32],
    m: &'a mut [f32],
    l: &'a mut [f32],
}

impl Attention<'_> {
    fn rows(&self) -> usize {
        self.max.len() / self.heads
    }

    fn together(&self) -> usize {
        heads_of_a_unit(self.heads, self.keys.kv_heads)
    }

    /// Outputs of the unit's heads in `row`.
    #[allow(clippy::mut_from_ref)] // `Disjoint` stands in for the borrow
    #[inline(always)]
    fn of_row(&self, row: usize, head: usize) -> (&mut [f32], &mut [f32], &mut [f32]) {
        let heads = row * self.heads + head..row * self.heads + head + self.together();
        let dim = self.keys.value_dim;
        // SAFETY: a row and these heads belong to one unit, which lets go of one row before it takes the next.
        let out = unsafe { self.out.range(heads.start * dim..heads.end * dim) };
        // SAFETY: as above.
        let max = unsafe { self.max.range(heads.clone()) };
        // SAFETY: as above.
        let sum = unsafe { self.sum.range(heads) };
        (out, max, sum)
    }

    /// All blocks of keys, ascending, for the queries of a part.
    #[inline(always)]
    fn attend<I: Isa>(&self, isa: I, part: &Part, mut scratch: &mut [f32]) {
        let (key, value) = (padded(self.keys.head_dim), padded(self.keys.value_dim));
        let together = self.together();
        let query_count = part.rows.len() * together;
        let q = queries(self.q, self.heads, self.keys.head_dim, part.rows.start, part.head, together);
        let kv_head = part.head / (self.heads / self.keys.kv_heads);
        let k = carve(&mut scratch, BLOCK * key);
        let k_columns = carve(&mut scratch, BLOCK * key);
        let v = carve(&mut scratch, BLOCK * value);
        let scores = carve(&mut scratch, TOGETHER * BLOCK);
        let mut running = Running {
            o: carve(&mut scratch, query_count * value),
            m: carve(&mut scratch, query_count),
            l: carve(&mut scratch, query_count),
        };
        let position = |query: usize| part.sequence.position_of(part.rows.start + query / together);
        let (first, last) = (position(0), position(query_count - 1));
        for block in self.keys.first_key(first) / BLOCK..last / BLOCK + 1 {
            let seen = self.keys.visible_from(first, last, block);
            if seen.is_empty() {
                continue;
            }
            let place = Place { sequence: &part.sequence, kv_head, block };
            self.keys.gather(isa, Side::K, place, seen.clone(), k);
            self.keys.gather(isa, Side::V, place, seen.clone(), v);
            if query_count >= MANY {
                transpose(k, key, k_columns);
            }
            for start in (0..query_count).step_by(TOGETHER) {
                let count = TOGETHER.min(query_count - start);
                let mut visible = [const { 0..0 }; TOGETHER];
                for (index, visible) in visible[..count].iter_mut().enumerate() {
                    *visible = self.keys.visible(position(start + index), block);
                }
                if query_count >= MANY {
                    let matrix = Columns { data: k_columns, stride: BLOCK, depth: self.keys.head_dim };
                    dots(isa, q, start..start + count, matrix, vectors(&seen), scores, BLOCK);
                } else {
                    for (index, visible) in visible[..count].iter().enumerate() {
                        let q = q.row(start + index, self.keys.head_dim);
                        dots_of_one(isa, q, k, key, visible.clone(), &mut scores[index * BLOCK..][..BLOCK]);
                    }
                }
                for (index, visible) in visible[..count].iter().enumerate() {
                    if !visible.is_empty() {
                        let query = start + index;
                        let first_block = self.keys.first_key(position(query)) / BLOCK;
                        if block == first_block || (block * BLOCK).is_multiple_of(self.segment) {
                            if block != first_block {
                                self.close(isa, part, query, first_block, block - 1, &running);
                            }
                            running.start(query);
                        }
                        let scores = &mut scores[index * BLOCK..][..BLOCK];
                        running.fold(isa, query, self.scale, scores, visible.clone());
                    }
                }
                let weights = Weights { data: scores, row: BLOCK, step: 1 };
                let values = Values { data: v, stride: value, width: value };
                add_weighted(isa, weights, values, &visible[..count], &mut running.o[start * value..], value);
            }
        }
        for query in 0..query_count {
            let position = position(query);
            if self.keys.first_key(position) <= position {
                let first_block = self.keys.first_key(position) / BLOCK;
                self.close(isa, part, query, first_block, position / BLOCK, &running);
                self.divide(isa, part, query);
            }
        }
    }

    /// Merges the open segment of `query`, whose last block is `block`, into what its outputs hold.
    #[inline(always)]
    fn close<I: Isa>(
        &self,
        isa: I,
        part: &Part,
        query: usize,
        first_block: usize,
        block: usize,
        open: &Running,
    ) {
        let together = self.together();
        let (out, max, sum) = self.of_row(part.rows.start + query / together, part.head);
        let (head, dim) = (query % together, self.keys.value_dim);
        let out = &mut out[head * dim..(head + 1) * dim];
        let o = &open.o[query * padded(dim)..][..dim];
        let (m, l) = (open.m[query], open.l[query]);
        if first_block * BLOCK / self.segment == block * BLOCK / self.segment {
            out.copy_from_slice(o);
            (max[head], sum[head]) = (m, l);
            return;
        }
        let merged = if m > max[head] { m } else { max[head] };
        let (a, b) = (exp_of(isa, max[head] - merged), exp_of(isa, m - merged));
        sum[head] = sum[head] * a + l * b;
        max[head] = merged;
        let (a, b) = (isa.splat(a), isa.splat(b));
        for (out, o) in out.chunks_mut(LANES).zip(o.chunks(LANES)) {
            let value = isa.add(isa.mul(isa.load_partial(out), a), isa.mul(isa.load_partial(o), b));
            isa.store_partial(out, value);
        }
    }

    /// `out = o / l`.
    #[inline(always)]
    fn divide<I: Isa>(&self, isa: I, part: &Part, query: usize) {
        let together = self.together();
        let (out, _, sum) = self.of_row(part.rows.start + query / together, part.head);
        let (head, dim) = (query % together, self.keys.value_dim);
        let sum = isa.splat(sum[head]);
        for out in out[head * dim..(head + 1) * dim].chunks_mut(LANES) {
            let value = isa.div(isa.load_partial(out), sum);
            isa.store_partial(out, value);
        }
    }
}

/// `scores[j] = dot16(q, k[j * stride..])` for `j` in `keys`: eight keys at a time, whose sums are added up together.
#[inline(always)]
fn dots_of_one<I: Isa>(isa: I, q: &[f32], k: &[f32], stride: usize, keys: Range<usize>, scores: &mut [f32]) {
    const EIGHT: usize = 8;
    let mut at = keys.start;
    let (whole, rest) = q.as_chunks::<LANES>();
    while rest.is_empty() && at + EIGHT <= keys.end {
        let keys: [&[f32]; EIGHT] = std::array::from_fn(|index| &k[(at + index) * stride..][..q.len()]);
        let mut sums = [isa.zero(); EIGHT];
        for (part, q) in whole.iter().enumerate() {
            let q = isa.load(q);
            for (sum, key) in sums.iter_mut().zip(&keys) {
                *sum = isa.fma(q, isa.load(&key.as_chunks::<LANES>().0[part]), *sum);
            }
        }
        scores[at..at + EIGHT].copy_from_slice(&isa.sum_trees(sums));
        at += EIGHT;
    }
    for at in at..keys.end {
        scores[at] = dot16(isa, q, &k[at * stride..][..q.len()]);
    }
}

impl Running<'_> {
    fn start(&mut self, query: usize) {
        let value = self.o.len() / self.m.len();
        self.o[query * value..(query + 1) * value].fill(0.0);
        self.m[query] = f32::NEG_INFINITY;
        self.l[query] = 0.0;
    }

    /// Turns the scores of a block into weights, and rescales what came before to the new maximum.
    #[inline(always)]
    fn fold<I: Isa>(&mut self, isa: I, query: usize, scale: f32, scores: &mut [f32], keys: Range<usize>) {
        let old = self.m[query];
        let (max, sum) = weigh(isa, scale, scores, keys, old);
        self.m[query] = max;
        // A segment's first block: nothing to rescale, and l is +0.
        if old == f32::NEG_INFINITY && self.l[query] == 0.0 {
            self.l[query] = sum;
            return;
        }
        // exp(+0) is 1, which changes no bit.
        if old == max && max.is_finite() {
            self.l[query] += sum;
            return;
        }
        let rescale = exp_of(isa, old - max);
        self.l[query] = self.l[query] * rescale + sum;
        let value = self.o.len() / self.m.len();
        let rescale = isa.splat(rescale);
        for o in self.o[query * value..(query + 1) * value].as_chunks_mut::<LANES>().0 {
            let rescaled = isa.mul(isa.load(o), rescale);
            isa.store(o, rescaled);
        }
    }
}

/// Dot products of a block to weights: `p = exp(scale * dot - m')`, +0 outside of `keys`; returns `m'` and `tree16(p)`.
#[inline(always)]
fn weigh<I: Isa>(isa: I, scale: f32, scores: &mut [f32], keys: Range<usize>, max: f32) -> (f32, f32) {
    let lowest = isa.splat(f32::NEG_INFINITY);
    let (from, to) = (isa.splat(keys.start as f32), isa.splat(keys.end as f32));
    let mut largest = isa.splat(max);
    let (parts, _) = scores.as_chunks_mut::<LANES>();
    for (scores, index) in parts.iter_mut().zip(&INDEX) {
        let index = isa.load(index);
        let seen = isa.and_mask(isa.le(from, index), isa.lt(index, to));
        let score = isa.select(seen, isa.mul(isa.splat(scale), isa.load(scores)), lowest);
        largest = isa.select(isa.gt(score, largest), score, largest);
        isa.store(scores, score);
    }
    let new = largest_lane(isa, largest);
    // A search in order keeps the first of equal zeros.
    let new = if new != 0.0 {
        new
    } else if max == 0.0 {
        max
    } else {
        parts.as_flattened().iter().copied().find(|score| *score == 0.0).unwrap_or(new)
    };
    let mut lanes = isa.zero();
    for (scores, index) in parts.iter_mut().zip(&INDEX) {
        let index = isa.load(index);
        let seen = isa.and_mask(isa.le(from, index), isa.lt(index, to));
        let weight = exp(isa, isa.sub(isa.load(scores), isa.splat(new)));
        // +0 in a lane's sum leaves its bits as they are: no weight is -0.
        let weight = isa.select(seen, weight, isa.zero());
        lanes = isa.add(lanes, weight);
        isa.store(scores, weight);
    }
    (new, isa.sum_tree(lanes))
}

/// The number of each key of a block.
const INDEX: [[f32; LANES]; BLOCK / LANES] = {
    let mut index = [[0.0; LANES]; BLOCK / LANES];
    let mut at = 0;
    while at < BLOCK {
        index[at / LANES][at % LANES] = at as f32;
        at += 1;
    }
    index
};

/// The whole vectors that hold `keys`.
pub(crate) fn vectors(keys: &Range<usize>) -> Range<usize> {
    keys.start / LANES * LANES..keys.end.next_multiple_of(LANES)
}

/// `e^x` of one number.
#[inline(always)]
pub(crate) fn exp_of<I: Isa>(isa: I, x: f32) -> f32 {
    isa.lanes(exp(isa, isa.splat(x)))[0]
}
