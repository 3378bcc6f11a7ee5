//! The gradient of `adapt`. With `g = scale * dy`, rounded once, `u` as in the forward and `du_j = sum over o of g B_j`:
//! `dx = sum over j of du_j A_j`, `dA_j = sum over rows of du_j x`, `dB_j = sum over rows of u_j g`.
//!
//! `du` and `dx`: fused chains from +0 over 256 indices at a time, added ascending to +0. `dA` and `dB`: a fused chain
//! from +0 for each block of the block table, rows ascending, added to the sum so far (+0 where there is none) in the order
//! of the table; rows that name another adapter, or none, take no part. A row that names none has `dx = 0`.
//!
//! Units are of three kinds: rows of dx, then ranks of dA, then ranks of dB, sixteen of each together.

use std::ops::Range;

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES, dot16};
use crate::kernels::Kernel;
use crate::kernels::adapt::ranks;
use crate::kernels::attention::carve;
use crate::kernels::weighted::{Values, Weights, add_weighted};

/// Rows of a unit of dx.
const TILE: usize = 32;
/// Indices of one chain of a gradient to an input.
const SEGMENT: usize = 256;
/// Rows whose chains run side by side.
const TOGETHER: usize = 8;
/// Columns of the chains that are in the cache together.
const PART: usize = 256;
/// Rows of a block that are scaled at a time.
const ROWS: usize = 64;

/// `dy [rows, output]` and what `adapt` read -> `dx [rows, input]`, `da` and `db` like `a` and `b`.
pub struct AdaptVjp<'a> {
    /// `[rows, output]`.
    pub dy: &'a [f32],
    /// `[rows, input]`.
    pub x: &'a [f32],
    /// `[ranks, input]`, adapter after adapter.
    pub a: &'a [f32],
    /// `[ranks, output]`: B transposed.
    pub b: &'a [f32],
    /// `[adapters, 2]`: first row in `a` and `b`, and rank.
    pub table: &'a [i32],
    /// `[adapters]`.
    pub scales: &'a [f32],
    /// `[rows]`: an index into `table`, negative for none.
    pub named: &'a [i32],
    /// `[blocks, 2]`: first row and rows, in the order of addition.
    pub blocks: &'a [i32],
    /// Sum so far of `da`.
    pub da_sum: Option<&'a [f32]>,
    /// Sum so far of `db`.
    pub db_sum: Option<&'a [f32]>,
    /// `[rows, input]`.
    pub dx: Disjoint<'a, f32>,
    /// `[ranks, input]`.
    pub da: Disjoint<'a, f32>,
    /// `[ranks, output]`.
    pub db: Disjoint<'a, f32>,
}

impl Kernel for AdaptVjp<'_> {
    fn units(&self) -> usize {
        if self.named.is_empty() { 1 } else { self.tiles() + 2 * self.groups() }
    }

    fn scratch(&self) -> usize {
        let chain = SEGMENT * LANES + TOGETHER * SEGMENT;
        let of_rows = chain + TILE * LANES + TILE * SEGMENT + TILE * PART;
        let of_ranks = chain + self.named.len() * LANES + LANES * PART + ROWS * PART;
        of_rows.max(of_ranks)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        if self.named.is_empty() {
            // SAFETY: the only unit.
            begin(unsafe { self.da.range(0..self.da.len()) }, self.da_sum, 0);
            // SAFETY: as above.
            begin(unsafe { self.db.range(0..self.db.len()) }, self.db_sum, 0);
        } else if unit < self.tiles() {
            let tile = unit * TILE..((unit + 1) * TILE).min(self.named.len());
            self.unit_of_rows(isa, tile, scratch);
        } else {
            let unit = unit - self.tiles();
            let group = unit % self.groups() * LANES;
            let group = group..(group + LANES).min(self.rank_count());
            self.unit_of_ranks(isa, group, unit < self.groups(), scratch);
        }
    }
}

impl AdaptVjp<'_> {
    fn tiles(&self) -> usize {
        self.named.len().div_ceil(TILE)
    }

    /// Rows of A and of B.
    fn rank_count(&self) -> usize {
        self.da.len() / self.input()
    }

    fn groups(&self) -> usize {
        self.rank_count().div_ceil(LANES)
    }

    fn input(&self) -> usize {
        self.x.len() / self.named.len()
    }

    fn output(&self) -> usize {
        self.dy.len() / self.named.len()
    }

    /// dx of the rows of a tile.
    #[inline(always)]
    fn unit_of_rows<I: Isa>(&self, isa: I, tile: Range<usize>, mut scratch: &mut [f32]) {
        let input = self.input();
        // SAFETY: units are ranges of rows that follow each other.
        let dx = unsafe { self.dx.range(tile.start * input..tile.end * input) };
        dx.fill(0.0);
        let du = carve(&mut scratch, TILE * LANES);
        let segment = carve(&mut scratch, TILE * SEGMENT);
        let chains = carve(&mut scratch, TILE * PART);
        for adapter in 0..self.scales.len() {
            let named = &self.named[tile.clone()];
            let Some((start, rank)) = ranks(self.table, adapter as i32) else { continue };
            if !named.contains(&(adapter as i32)) {
                continue;
            }
            for first in (0..rank).step_by(SEGMENT) {
                let count = SEGMENT.min(rank - first);
                for group in (0..count).step_by(LANES) {
                    let lanes = LANES.min(count - group);
                    let from = start + first + group;
                    self.pull(isa, adapter, tile.clone(), from..from + lanes, du, scratch);
                    for row in 0..tile.len() {
                        segment[row * SEGMENT + group..][..lanes]
                            .copy_from_slice(&du[row * LANES..][..lanes]);
                    }
                }
                let mut steps = [const { 0..0 }; TILE];
                for (steps, named) in steps.iter_mut().zip(named) {
                    *steps = if *named == adapter as i32 { 0..count } else { 0..0 };
                }
                for column in (0..input).step_by(PART) {
                    let width = PART.min(input - column);
                    chains.fill(0.0);
                    let weights = Weights { data: segment, row: SEGMENT, step: 1 };
                    let values =
                        Values { data: &self.a[(start + first) * input + column..], stride: input, width };
                    add_weighted(isa, weights, values, &steps[..tile.len()], chains, PART);
                    for (row, steps) in steps[..tile.len()].iter().enumerate() {
                        if !steps.is_empty() {
                            add(
                                isa,
                                &chains[row * PART..][..width],
                                &mut dx[row * input + column..][..width],
                            );
                        }
                    }
                }
            }
        }
    }

    /// dA (or dB) of a group of ranks.
    #[inline(always)]
    fn unit_of_ranks<I: Isa>(&self, isa: I, group: Range<usize>, of_a: bool, mut scratch: &mut [f32]) {
        let width = if of_a { self.input() } else { self.output() };
        let (sums, so_far) = if of_a { (&self.da, self.da_sum) } else { (&self.db, self.db_sum) };
        // SAFETY: a group of dA and of dB belongs to one unit.
        let sums = unsafe { sums.range(group.start * width..group.end * width) };
        begin(sums, so_far, group.start * width);
        let factors = carve(&mut scratch, self.named.len() * LANES);
        let chains = carve(&mut scratch, LANES * PART);
        let scaled = carve(&mut scratch, ROWS * PART);
        for adapter in 0..self.scales.len() {
            let Some((start, rank)) = ranks(self.table, adapter as i32) else { continue };
            let own = group.start.max(start)..group.end.min(start + rank);
            if own.is_empty() {
                continue;
            }
            if of_a {
                self.pull(isa, adapter, 0..self.named.len(), own.clone(), factors, scratch);
            } else {
                self.push(isa, adapter, own.clone(), factors);
            }
            let sums = &mut sums[(own.start - group.start) * width..(own.end - group.start) * width];
            for column in (0..width).step_by(PART) {
                let count = PART.min(width - column);
                for block in self.blocks.as_chunks::<2>().0 {
                    chains.fill(0.0);
                    let mut row = block[0] as usize;
                    let end = row + block[1] as usize;
                    while row < end {
                        let rows = self.run(adapter, row, end);
                        row = rows.end.max(row + 1);
                        if rows.is_empty() {
                            continue;
                        }
                        let weights = Weights { data: &factors[rows.start * LANES..], row: 1, step: LANES };
                        let values = if of_a {
                            Values {
                                data: &self.x[rows.start * width + column..],
                                stride: width,
                                width: count,
                            }
                        } else {
                            for (row, scaled) in rows.clone().zip(scaled.chunks_mut(PART)) {
                                let dy = &self.dy[row * width + column..][..count];
                                scale(isa, self.scales[adapter], dy, &mut scaled[..count]);
                            }
                            Values { data: scaled, stride: PART, width: count }
                        };
                        let mut steps = [const { 0..0 }; LANES];
                        steps.fill(0..rows.len());
                        add_weighted(isa, weights, values, &steps[..own.len()], chains, PART);
                    }
                    for (j, chain) in chains.chunks(PART).take(own.len()).enumerate() {
                        add(isa, &chain[..count], &mut sums[j * width + column..][..count]);
                    }
                }
            }
        }
    }

    /// The rows from `row` on, below `end` and at most [`ROWS`], that name `adapter` one after another.
    fn run(&self, adapter: usize, row: usize, end: usize) -> Range<usize> {
        let end = end.min(row + ROWS);
        let count = self.named[row..end].iter().take_while(|named| **named == adapter as i32).count();
        row..row + count
    }

    /// `u` of all rows that name `adapter`, for some of its ranks: `[rows, 16]`.
    #[inline(always)]
    fn push<I: Isa>(&self, isa: I, adapter: usize, own: Range<usize>, u: &mut [f32]) {
        let input = self.input();
        for (row, u) in u.chunks_mut(LANES).enumerate() {
            if self.named[row] == adapter as i32 {
                for (u, j) in u.iter_mut().zip(own.clone()) {
                    *u = dot16(isa, &self.a[j * input..][..input], &self.x[row * input..][..input]);
                }
            }
        }
    }

    /// `du` of the rows of a tile that name `adapter`, for at most sixteen of its ranks: `[rows, 16]`, a lane a rank.
    #[inline(always)]
    fn pull<I: Isa>(
        &self,
        isa: I,
        adapter: usize,
        tile: Range<usize>,
        own: Range<usize>,
        du: &mut [f32],
        mut scratch: &mut [f32],
    ) {
        let output = self.output();
        let columns = carve(&mut scratch, SEGMENT * LANES);
        let g = carve(&mut scratch, TOGETHER * SEGMENT);
        columns.fill(0.0);
        du[..tile.len() * LANES].fill(0.0);
        for start in (0..output).step_by(SEGMENT) {
            let count = SEGMENT.min(output - start);
            for (lane, j) in own.clone().enumerate() {
                for (index, b) in self.b[j * output + start..][..count].iter().enumerate() {
                    columns[index * LANES + lane] = *b;
                }
            }
            let mut row = tile.start;
            while row < tile.end {
                // The next rows that name the adapter.
                let (mut rows, mut found) = ([0; TOGETHER], 0);
                while row < tile.end && found < TOGETHER {
                    if self.named[row] == adapter as i32 {
                        let dy = &self.dy[row * output + start..][..count];
                        scale(isa, self.scales[adapter], dy, &mut g[found * SEGMENT..][..count]);
                        (rows[found], found) = (row - tile.start, found + 1);
                    }
                    row += 1;
                }
                let mut chains = [isa.zero(); TOGETHER];
                for (index, column) in columns.as_chunks::<LANES>().0[..count].iter().enumerate() {
                    let column = isa.load(column);
                    for (together, chain) in chains.iter_mut().enumerate() {
                        *chain = isa.fma(isa.splat(g[together * SEGMENT + index]), column, *chain);
                    }
                }
                for (row, chain) in rows[..found].iter().zip(chains) {
                    let du = &mut du[row * LANES..][..LANES];
                    let sum = isa.add(isa.load_partial(du), chain);
                    isa.store_partial(du, sum);
                }
            }
        }
    }
}

/// Sums before the first block: those so far from `first` on, or +0.
fn begin(sums: &mut [f32], so_far: Option<&[f32]>, first: usize) {
    match so_far {
        Some(so_far) => sums.copy_from_slice(&so_far[first..][..sums.len()]),
        None => sums.fill(0.0),
    }
}

/// `y = y + x`.
#[inline(always)]
fn add<I: Isa>(isa: I, x: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        let sum = isa.add(isa.load_partial(y), isa.load_partial(x));
        isa.store_partial(y, sum);
    }
}

/// `y = factor * x`.
#[inline(always)]
fn scale<I: Isa>(isa: I, factor: f32, x: &[f32], y: &mut [f32]) {
    let factor = isa.splat(factor);
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        isa.store_partial(y, isa.mul(factor, isa.load_partial(x)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{self, Numbers, Wanted, check, fma};

    struct Form<'a> {
        input: usize,
        output: usize,
        ranks: &'a [usize],
        named: &'a [i32],
        blocks: &'a [i32],
    }

    fn check_form(seed: u64, Form { input, output, ranks, named, blocks }: Form) {
        let mut numbers = Numbers::new(seed);
        let mut table = vec![];
        let mut total = 0;
        for rank in ranks {
            table.extend([total as i32, *rank as i32]);
            total += rank;
        }
        let (dy, x) = (numbers.normal(named.len() * output), numbers.normal(named.len() * input));
        let (a, b) = (numbers.normal(total * input), numbers.normal(total * output));
        let scales = numbers.normal(ranks.len());
        // u, du and g of every row, then the sums, an element at a time.
        let mut dx = vec![0.0f32; named.len() * input];
        let (mut u, mut du, mut g) =
            (vec![0.0f32; named.len() * total], vec![0.0f32; named.len() * total], dy.clone());
        for row in (0..named.len()).filter(|row| named[*row] >= 0) {
            let adapter = named[row] as usize;
            let [first, rank] = [table[2 * adapter] as usize, table[2 * adapter + 1] as usize];
            g[row * output..][..output].iter_mut().for_each(|g| *g *= scales[adapter]);
            for j in first..first + rank {
                u[row * total + j] = suite::dot16(&a[j * input..][..input], &x[row * input..][..input]);
                for segment in (0..output).step_by(256) {
                    let mut chain = 0.0f32;
                    for o in segment..(segment + 256).min(output) {
                        chain = fma(g[row * output + o], b[j * output + o], chain);
                    }
                    du[row * total + j] += chain;
                }
            }
            for i in 0..input {
                for segment in (0..rank).step_by(256) {
                    let mut chain = 0.0f32;
                    for j in first + segment..first + (segment + 256).min(rank) {
                        chain = fma(du[row * total + j], a[j * input + i], chain);
                    }
                    dx[row * input + i] += chain;
                }
            }
        }
        let so_far = (numbers.normal(a.len()), numbers.normal(b.len()));
        for (da_sum, db_sum) in [(None, None), (Some(&so_far.0[..]), Some(&so_far.1[..]))] {
            let start = |sum: Option<&[f32]>, count| sum.map_or_else(|| vec![0.0f32; count], <[f32]>::to_vec);
            let (mut da, mut db) = (start(da_sum, a.len()), start(db_sum, b.len()));
            for (adapter, entry) in table.chunks(2).enumerate() {
                for j in entry[0] as usize..(entry[0] + entry[1]) as usize {
                    for (sums, width, factor, values) in
                        [(&mut da, input, &du, &x), (&mut db, output, &u, &g)]
                    {
                        for column in 0..width {
                            for block in blocks.chunks(2) {
                                let mut chain = 0.0f32;
                                for row in block[0] as usize..(block[0] + block[1]) as usize {
                                    if named[row] == adapter as i32 {
                                        chain =
                                            fma(factor[row * total + j], values[row * width + column], chain);
                                    }
                                }
                                sums[j * width + column] += chain;
                            }
                        }
                    }
                }
            }
            check(seed, &[Wanted::new(&dx), Wanted::new(&da), Wanted::new(&db)], |outs, run| {
                run.all(&AdaptVjp {
                    dy: &dy,
                    x: &x,
                    a: &a,
                    b: &b,
                    table: &table,
                    scales: &scales,
                    named,
                    blocks,
                    da_sum,
                    db_sum,
                    dx: outs[0],
                    da: outs[1],
                    db: outs[2],
                });
            });
        }
    }

    #[test]
    fn one_adapter_on_some_rows() {
        let named: Vec<i32> = (0..150).map(|row| if row % 7 == 3 || row < 20 { -1 } else { 0 }).collect();
        let blocks = [100, 50, 36, 64, 0, 36];
        check_form(1, Form { input: 64, output: 300, ranks: &[8], named: &named, blocks: &blocks });
        check_form(2, Form { input: 33, output: 17, ranks: &[3], named: &named, blocks: &blocks });
        check_form(3, Form { input: 300, output: 520, ranks: &[16], named: &named, blocks: &blocks });
    }

    #[test]
    fn several_adapters_in_one_batch() {
        let mut numbers = Numbers::new(77);
        let named: Vec<i32> = (0..90).map(|_| numbers.below(5) as i32 - 1).collect();
        let blocks = [26, 64, 0, 26];
        check_form(4, Form { input: 20, output: 70, ranks: &[5, 0, 30, 2], named: &named, blocks: &blocks });
    }

    #[test]
    fn ranks_beyond_a_segment_and_rows_of_no_block() {
        let named = [0, 0, -1, 1, 0, 1, 1];
        check_form(
            5,
            Form { input: 40, output: 30, ranks: &[300, 20], named: &named, blocks: &[4, 3, 0, 2] },
        );
        check_form(6, Form { input: 40, output: 30, ranks: &[4], named: &[-1; 3], blocks: &[0, 3] });
        check_form(7, Form { input: 4, output: 3, ranks: &[4], named: &[], blocks: &[] });
        check_form(8, Form { input: 4, output: 3, ranks: &[4], named: &[0; 130], blocks: &[0, 130] });
    }
}
