//! The gradient of attention from its outputs and their maxima and sums: `p = exp(s - m) / l`, `D = dot16(dO, O)`,
//! `dS = (p * (dP - D)) * scale`, `dP = dot16(dO, v)`. Pages are constants.
//!
//! dQ: the forward's key blocks, a chain `fma(dS, k, .)` from +0 in each, block sums added ascending to +0.
//! dK, dV of the batch's own rows: for each block of 64 query positions a chain `fma(dS, q, .)`, `fma(p, dO, .)` from +0,
//! heads of the group ascending, rows ascending, rows that do not see the key left out; block sums are added to +0 from
//! the last query block of the sequence to the first. Units are of two kinds: those of dQ, then those of dK and dV.

use std::ops::Range;

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES, dot16};
use crate::kernels::Kernel;
use crate::kernels::attention::{
    BLOCK, Keys, Place, Sequence, Side, TOGETHER, carve, heads_of_a_unit, padded, queries, transpose, vectors,
};
use crate::kernels::dots::{Columns, Rows, dots};
use crate::kernels::weighted::{Values, Weights, add_weighted};
use crate::math::exp;

/// Rows of a unit of dQ.
const TILE: usize = 32;

/// `d_out`, `q`, [`Keys`] and the forward's results -> `dq`, `dk`, `dv` of the batch's rows.
pub struct AttentionVjp<'a> {
    /// Query heads, a multiple of `keys.kv_heads`.
    pub heads: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// `[rows, heads, value_dim]`.
    pub d_out: &'a [f32],
    /// `[rows, heads, head_dim]`.
    pub q: &'a [f32],
    /// What the rows attend to.
    pub keys: Keys<'a>,
    /// `[rows, heads, value_dim]`.
    pub out: &'a [f32],
    /// `[rows, heads]`.
    pub max: &'a [f32],
    /// `[rows, heads]`.
    pub sum: &'a [f32],
    /// `[rows, heads, head_dim]`.
    pub dq: Disjoint<'a, f32>,
    /// `[rows, kv_heads, head_dim]`.
    pub dk: Disjoint<'a, f32>,
    /// `[rows, kv_heads, value_dim]`.
    pub dv: Disjoint<'a, f32>,
}

impl Kernel for AttentionVjp<'_> {
    fn units(&self) -> usize {
        self.query_units() + self.rows().div_ceil(BLOCK) * self.keys.kv_heads
    }

    fn scratch(&self) -> usize {
        let (key, value) = (padded(self.keys.head_dim), padded(self.keys.value_dim));
        let of_queries = BLOCK * (2 * key + 2 * value) + TOGETHER * (2 * BLOCK + key) + TILE * self.heads;
        let of_keys = BLOCK * (3 * key + 3 * value) + 2 * BLOCK * BLOCK;
        of_queries.max(of_keys)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        if let Some(unit) = unit.checked_sub(self.query_units()) {
            // The first keys are seen by the most rows: they go first.
            let (start, kv_head) = (unit / self.keys.kv_heads * BLOCK, unit % self.keys.kv_heads);
            self.unit_of_keys(isa, start..(start + BLOCK).min(self.rows()), kv_head, scratch);
        } else {
            let (tiles, parts) = (self.rows().div_ceil(TILE), self.heads / self.together());
            // The last rows see the most keys: they go first.
            let start = (tiles - 1 - unit / parts) * TILE;
            self.unit_of_queries(
                isa,
                start..(start + TILE).min(self.rows()),
                unit % parts * self.together(),
                scratch,
            );
        }
    }
}

impl AttentionVjp<'_> {
    fn rows(&self) -> usize {
        self.max.len() / self.heads
    }

    fn together(&self) -> usize {
        heads_of_a_unit(self.heads, self.keys.kv_heads)
    }

    fn query_units(&self) -> usize {
        self.rows().div_ceil(TILE) * (self.heads / self.together())
    }

    /// dQ of the rows of a tile, for the heads from `head` on.
    #[inline(always)]
    fn unit_of_queries<I: Isa>(&self, isa: I, tile: Range<usize>, head: usize, scratch: &mut [f32]) {
        for query in 0..tile.len() * self.together() {
            self.dq_of(tile.start, head, query).fill(0.0);
        }
        for index in 0..self.keys.sequence_count() {
            let sequence = self.keys.sequence(index);
            let rows = tile.start.max(sequence.rows.start)..tile.end.min(sequence.rows.end);
            if !rows.is_empty() {
                self.pull_queries(isa, &sequence, rows, head, scratch);
            }
        }
    }

    /// The outputs of a query, counted from `row` and `head`.
    #[allow(clippy::mut_from_ref)] // `Disjoint` stands in for the borrow
    #[inline(always)]
    fn dq_of(&self, row: usize, head: usize, query: usize) -> &mut [f32] {
        let lane = self.lane(row, head, self.together(), query);
        let dim = self.keys.head_dim;
        // SAFETY: a row and head belong to one unit, which lets go of one before it takes the next.
        unsafe { self.dq.range(lane * dim..(lane + 1) * dim) }
    }

    /// Row and head of a query as one index.
    fn lane(&self, row: usize, head: usize, together: usize, query: usize) -> usize {
        (row + query / together) * self.heads + head + query % together
    }

    #[inline(always)]
    fn pull_queries<I: Isa>(
        &self,
        isa: I,
        sequence: &Sequence,
        rows: Range<usize>,
        head: usize,
        mut scratch: &mut [f32],
    ) {
        let (key, value) = (padded(self.keys.head_dim), padded(self.keys.value_dim));
        let together = self.together();
        let query_count = rows.len() * together;
        let kv_head = head / (self.heads / self.keys.kv_heads);
        let k = carve(&mut scratch, BLOCK * key);
        let k_columns = carve(&mut scratch, BLOCK * key);
        let v = carve(&mut scratch, BLOCK * value);
        let v_columns = carve(&mut scratch, BLOCK * value);
        let scores = carve(&mut scratch, TOGETHER * BLOCK);
        let pulls = carve(&mut scratch, TOGETHER * BLOCK);
        let chains = carve(&mut scratch, TOGETHER * key);
        let out_dots = carve(&mut scratch, query_count);
        let (q, d_out) = self.queries(rows.start, head, together);
        for (query, dot) in out_dots.iter_mut().enumerate() {
            *dot = self.out_dot(isa, self.lane(rows.start, head, together, query));
        }
        let position = |query: usize| sequence.position_of(rows.start + query / together);
        let (first, last) = (position(0), position(query_count - 1));
        for block in self.keys.first_key(first) / BLOCK..last / BLOCK + 1 {
            let seen = self.keys.visible_from(first, last, block);
            if seen.is_empty() {
                continue;
            }
            let place = Place { sequence, kv_head, block };
            self.keys.gather(isa, Side::K, place, seen.clone(), k);
            self.keys.gather(isa, Side::V, place, seen.clone(), v);
            transpose(k, key, k_columns);
            transpose(v, value, v_columns);
            for start in (0..query_count).step_by(TOGETHER) {
                let count = TOGETHER.min(query_count - start);
                let mut visible = [const { 0..0 }; TOGETHER];
                for (index, visible) in visible[..count].iter_mut().enumerate() {
                    *visible = self.keys.visible(position(start + index), block);
                }
                let k_matrix = Columns { data: k_columns, stride: BLOCK, depth: self.keys.head_dim };
                dots(isa, q, start..start + count, k_matrix, vectors(&seen), scores, BLOCK);
                let v_matrix = Columns { data: v_columns, stride: BLOCK, depth: self.keys.value_dim };
                dots(isa, d_out, start..start + count, v_matrix, vectors(&seen), pulls, BLOCK);
                for index in 0..count {
                    let lane = self.lane(rows.start, head, together, start + index);
                    let range = index * BLOCK..(index + 1) * BLOCK;
                    let (scores, pulls) = (&mut scores[range.clone()], &mut pulls[range]);
                    self.weights(isa, lane, out_dots[start + index], scores, pulls);
                }
                chains.fill(0.0);
                let weights = Weights { data: pulls, row: BLOCK, step: 1 };
                let values = Values { data: k, stride: key, width: key };
                add_weighted(isa, weights, values, &visible[..count], chains, key);
                for (index, visible) in visible[..count].iter().enumerate() {
                    if !visible.is_empty() {
                        add(isa, &chains[index * key..][..key], self.dq_of(rows.start, head, start + index));
                    }
                }
            }
        }
    }

    /// dK and dV of the rows of a tile, for one kv head.
    #[inline(always)]
    fn unit_of_keys<I: Isa>(&self, isa: I, tile: Range<usize>, kv_head: usize, scratch: &mut [f32]) {
        for row in tile.clone() {
            let (dk, dv) = self.dk_dv_of(row, kv_head);
            dk.fill(0.0);
            dv.fill(0.0);
        }
        for index in 0..self.keys.sequence_count() {
            let sequence = self.keys.sequence(index);
            let rows = tile.start.max(sequence.rows.start)..tile.end.min(sequence.rows.end);
            if !rows.is_empty() {
                self.pull_keys(isa, &sequence, rows, kv_head, scratch);
            }
        }
    }

    /// The outputs of a row and kv head.
    #[allow(clippy::mut_from_ref)] // `Disjoint` stands in for the borrow
    #[inline(always)]
    fn dk_dv_of(&self, row: usize, kv_head: usize) -> (&mut [f32], &mut [f32]) {
        let lane = row * self.keys.kv_heads + kv_head;
        let (key, value) = (self.keys.head_dim, self.keys.value_dim);
        // SAFETY: a row and kv head belong to one unit, which lets go of one before it takes the next.
        let dk = unsafe { self.dk.range(lane * key..(lane + 1) * key) };
        // SAFETY: as above.
        let dv = unsafe { self.dv.range(lane * value..(lane + 1) * value) };
        (dk, dv)
    }

    #[inline(always)]
    fn pull_keys<I: Isa>(
        &self,
        isa: I,
        sequence: &Sequence,
        rows: Range<usize>,
        kv_head: usize,
        mut scratch: &mut [f32],
    ) {
        let (key, value) = (padded(self.keys.head_dim), padded(self.keys.value_dim));
        let group = self.heads / self.keys.kv_heads;
        let k_columns = carve(&mut scratch, BLOCK * key);
        let v_columns = carve(&mut scratch, BLOCK * value);
        let scores = carve(&mut scratch, BLOCK * BLOCK);
        let pulls = carve(&mut scratch, BLOCK * BLOCK);
        let dk = carve(&mut scratch, BLOCK * key);
        let dv = carve(&mut scratch, BLOCK * value);
        // The chains' room holds the keys until they are turned over.
        let (k, v) = (&mut dk[..], &mut dv[..]);
        k.fill(0.0);
        v.fill(0.0);
        for (index, row) in rows.clone().enumerate() {
            k[index * key..][..self.keys.head_dim].copy_from_slice(self.keys.own(Side::K, row, kv_head));
            v[index * value..][..self.keys.value_dim].copy_from_slice(self.keys.own(Side::V, row, kv_head));
        }
        transpose(k, key, k_columns);
        transpose(v, value, v_columns);

        let first_key = sequence.position_of(rows.start);
        let last_row = sequence.rows.end - 1;
        for block in (first_key / BLOCK..sequence.position_of(last_row) / BLOCK + 1).rev() {
            let from = (block * BLOCK).max(first_key);
            let to = ((block + 1) * BLOCK).min(sequence.position_of(last_row) + 1);
            let (first, count) = (sequence.row_at(from), to - from);
            let mut seen_by = [const { 0..0 }; BLOCK];
            for (index, seen_by) in seen_by[..rows.len()].iter_mut().enumerate() {
                *seen_by = self.seen_by(first_key + index, from..to);
            }
            let seen_by = &seen_by[..rows.len()];
            if seen_by.iter().all(Range::is_empty) {
                continue;
            }
            dk.fill(0.0);
            dv.fill(0.0);
            for head in kv_head * group..(kv_head + 1) * group {
                let (q, d_out) = self.queries(first, head, 1);
                let keys = vectors(&(0..rows.len()));
                let k_matrix = Columns { data: k_columns, stride: BLOCK, depth: self.keys.head_dim };
                dots(isa, q, 0..count, k_matrix, keys.clone(), scores, BLOCK);
                let v_matrix = Columns { data: v_columns, stride: BLOCK, depth: self.keys.value_dim };
                dots(isa, d_out, 0..count, v_matrix, keys, pulls, BLOCK);
                for query in 0..count {
                    let lane = (first + query) * self.heads + head;
                    let range = query * BLOCK..(query + 1) * BLOCK;
                    let (scores, pulls) = (&mut scores[range.clone()], &mut pulls[range]);
                    self.weights(isa, lane, self.out_dot(isa, lane), scores, pulls);
                }
                let weights = Weights { data: pulls, row: 1, step: BLOCK };
                let values = Values { data: q.data, stride: q.outer, width: self.keys.head_dim };
                add_weighted(isa, weights, values, seen_by, dk, key);
                let weights = Weights { data: scores, row: 1, step: BLOCK };
                let values = Values { data: d_out.data, stride: d_out.outer, width: self.keys.value_dim };
                add_weighted(isa, weights, values, seen_by, dv, value);
            }
            for (index, row) in rows.clone().enumerate() {
                if !seen_by[index].is_empty() {
                    let (dk_row, dv_row) = self.dk_dv_of(row, kv_head);
                    add(isa, &dk[index * key..][..key], dk_row);
                    add(isa, &dv[index * value..][..value], dv_row);
                }
            }
        }
    }

    /// The positions of `queries` that see the key at `position`, counted from the first of them.
    fn seen_by(&self, position: usize, queries: Range<usize>) -> Range<usize> {
        let from = position.max(queries.start);
        let to = self.keys.window.map_or(queries.end, |window| queries.end.min(position + window as usize));
        if from < to { from - queries.start..to - queries.start } else { 0..0 }
    }

    /// Queries and cotangents from `row` and `head` on.
    fn queries(&self, row: usize, head: usize, together: usize) -> (Rows<'_>, Rows<'_>) {
        let q = queries(self.q, self.heads, self.keys.head_dim, row, head, together);
        (q, queries(self.d_out, self.heads, self.keys.value_dim, row, head, together))
    }

    /// `D` of a row and head.
    #[inline(always)]
    fn out_dot<I: Isa>(&self, isa: I, lane: usize) -> f32 {
        let range = lane * self.keys.value_dim..(lane + 1) * self.keys.value_dim;
        dot16(isa, &self.d_out[range.clone()], &self.out[range])
    }

    /// Dot products of a row and head with a block to weights: `dots` becomes p, `pulls` (dP before) becomes dS.
    #[inline(always)]
    fn weights<I: Isa>(&self, isa: I, lane: usize, out_dot: f32, dots: &mut [f32], pulls: &mut [f32]) {
        let (scale, out_dot) = (isa.splat(self.scale), isa.splat(out_dot));
        let (max, sum) = (isa.splat(self.max[lane]), isa.splat(self.sum[lane]));
        let (dots, pulls) = (dots.as_chunks_mut::<LANES>().0, pulls.as_chunks_mut::<LANES>().0);
        for (dots, pulls) in dots.iter_mut().zip(pulls) {
            let score = isa.mul(scale, isa.load(dots));
            let p = isa.div(exp(isa, isa.sub(score, max)), sum);
            let pull = isa.mul(isa.mul(p, isa.sub(isa.load(pulls), out_dot)), scale);
            isa.store(dots, p);
            isa.store(pulls, pull);
        }
    }
}

/// `y = y + x`; `x` is at least as long.
#[inline(always)]
fn add<I: Isa>(isa: I, x: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        let sum = isa.add(isa.load_partial(y), isa.load_partial(&x[..y.len()]));
        isa.store_partial(y, sum);
    }
}
