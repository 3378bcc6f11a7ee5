//! Attention forward and backward against loops over one row, head and key at a time, and what must not matter: the cut
//! of a sequence into batches, its neighbours, the place of its pages, the instruction set.

use half::f16;

use super::*;
use crate::isa::Level;
use crate::kernels::attention_vjp::AttentionVjp;
use crate::kernels::round_q8_0::RoundQ8_0;
use crate::kernels::run_all;
use crate::kernels::suite::{self, Numbers, Wanted, check, fma, same};
use crate::kernels::write_rows::{Store, WriteRows};

/// Sizes and what is seen.
#[derive(Clone, Copy, Debug)]
struct Form {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    value_dim: usize,
    window: Option<u32>,
    segment: usize,
    scale: f32,
    /// What pages hold; K and V are rounded to it.
    cache: Cache,
}

/// Elements of pages.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Cache {
    F32,
    F16,
    Q8_0,
}

impl Cache {
    fn pages<'a>(self, wide: &'a [f32], bytes: &'a [u8]) -> Pages<'a> {
        match self {
            Cache::F32 => Pages::F32(wide),
            Cache::F16 => Pages::F16(bytes),
            Cache::Q8_0 => Pages::Q8_0(bytes),
        }
    }
}

/// One sequence as a whole: everything by absolute position.
#[derive(Clone)]
struct Whole {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    d_out: Vec<f32>,
}

impl Whole {
    fn random(form: &Form, numbers: &mut Numbers, positions: usize) -> Whole {
        let round = |mut values: Vec<f32>, dim: usize| -> Vec<f32> {
            match form.cache {
                Cache::F32 => {}
                Cache::F16 => values.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32()),
                Cache::Q8_0 => {
                    let (width, y) = (dim, Disjoint::new(&mut values));
                    run_all(Level::parse("scalar").unwrap(), &RoundQ8_0 { width, x: None, y });
                }
            }
            values
        };
        Whole {
            q: numbers.normal(positions * form.heads * form.head_dim),
            k: round(numbers.normal(positions * form.kv_heads * form.head_dim), form.head_dim),
            v: round(numbers.normal(positions * form.kv_heads * form.value_dim), form.value_dim),
            d_out: numbers.normal(positions * form.heads * form.value_dim),
        }
    }
}

/// What a batch gives, row after row.
#[derive(Clone, Default, Debug)]
struct Found {
    out: Vec<f32>,
    max: Vec<f32>,
    sum: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

impl Form {
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    fn key<'a>(&self, whole: &'a Whole, position: usize, head: usize) -> &'a [f32] {
        &whole.k[(position * self.kv_heads + head / self.group()) * self.head_dim..][..self.head_dim]
    }

    fn value<'a>(&self, whole: &'a Whole, position: usize, head: usize) -> &'a [f32] {
        &whole.v[(position * self.kv_heads + head / self.group()) * self.value_dim..][..self.value_dim]
    }

    fn sees(&self, position: usize, key: usize) -> bool {
        key <= position && self.window.is_none_or(|window| position - key < window as usize)
    }

    /// One row and head of the forward.
    fn reference_row(&self, whole: &Whole, position: usize, head: usize) -> (Vec<f32>, f32, f32) {
        let q = &whole.q[(position * self.heads + head) * self.head_dim..][..self.head_dim];
        let mut merged: Option<(f32, f32, Vec<f32>)> = None;
        for segment in (0..=position).step_by(self.segment) {
            let mut running: Option<(f32, f32, Vec<f32>)> = None;
            for block in (segment..segment + self.segment).step_by(64) {
                let keys: Vec<usize> = (block..block + 64).filter(|key| self.sees(position, *key)).collect();
                if keys.is_empty() {
                    continue;
                }
                let scores: Vec<f32> = keys
                    .iter()
                    .map(|key| self.scale * suite::dot16(q, self.key(whole, *key, head)))
                    .collect();
                let old = running.as_ref().map_or(f32::NEG_INFINITY, |running| running.0);
                let mut max = old;
                for score in &scores {
                    if *score > max {
                        max = *score;
                    }
                }
                let weights: Vec<f32> = scores.iter().map(|score| suite::exp(score - max)).collect();
                let mut lanes = [0.0f32; 16];
                for (key, weight) in keys.iter().zip(&weights) {
                    lanes[key % 64 % 16] += weight;
                }
                let (mut sum, mut o) = (suite::tree(lanes), vec![0.0f32; self.value_dim]);
                if let Some((_, old_sum, old_o)) = running {
                    let rescale = suite::exp(old - max);
                    sum += old_sum * rescale;
                    o = old_o.iter().map(|o| o * rescale).collect();
                }
                for (key, weight) in keys.iter().zip(&weights) {
                    for (o, v) in o.iter_mut().zip(self.value(whole, *key, head)) {
                        *o = fma(*weight, *v, *o);
                    }
                }
                running = Some((max, sum, o));
            }
            merged = match (merged, running) {
                (None, running) => running,
                (merged, None) => merged,
                (Some((m_a, l_a, o_a)), Some((m_b, l_b, o_b))) => {
                    let max = if m_b > m_a { m_b } else { m_a };
                    let (a, b) = (suite::exp(m_a - max), suite::exp(m_b - max));
                    Some((max, l_a * a + l_b * b, o_a.iter().zip(&o_b).map(|(x, y)| x * a + y * b).collect()))
                }
            };
        }
        match merged {
            Some((max, sum, o)) => (o.iter().map(|o| o / sum).collect(), max, sum),
            None => (vec![0.0; self.value_dim], f32::NEG_INFINITY, 0.0),
        }
    }

    /// Rows from `start` on, whose own keys get gradients.
    fn reference(&self, whole: &Whole, start: usize) -> Found {
        let positions = whole.q.len() / (self.heads * self.head_dim);
        let mut found = Found {
            dq: vec![0.0; (positions - start) * self.heads * self.head_dim],
            dk: vec![0.0; (positions - start) * self.kv_heads * self.head_dim],
            dv: vec![0.0; (positions - start) * self.kv_heads * self.value_dim],
            ..Found::default()
        };
        for position in start..positions {
            for head in 0..self.heads {
                let (out, max, sum) = self.reference_row(whole, position, head);
                found.out.extend(out);
                found.max.push(max);
                found.sum.push(sum);
            }
        }
        // Weight and pull of a row, head and key.
        let pull = |position: usize, head: usize, key: usize| {
            let (lane, own) = (position * self.heads + head, (position - start) * self.heads + head);
            let q = &whole.q[lane * self.head_dim..][..self.head_dim];
            let d_out = &whole.d_out[lane * self.value_dim..][..self.value_dim];
            let score = self.scale * suite::dot16(q, self.key(whole, key, head));
            let p = suite::exp(score - found.max[own]) / found.sum[own];
            let dot = suite::dot16(d_out, &found.out[own * self.value_dim..][..self.value_dim]);
            let ds = p * (suite::dot16(d_out, self.value(whole, key, head)) - dot) * self.scale;
            (p, ds, q, d_out)
        };
        let (mut dq, mut dk, mut dv) = (found.dq.clone(), found.dk.clone(), found.dv.clone());
        for position in start..positions {
            for head in 0..self.heads {
                let dq = &mut dq[((position - start) * self.heads + head) * self.head_dim..][..self.head_dim];
                for block in (0..=position).step_by(64) {
                    let mut chain = vec![0.0f32; self.head_dim];
                    for key in (block..block + 64).filter(|key| self.sees(position, *key)) {
                        let (_, ds, _, _) = pull(position, head, key);
                        for (chain, k) in chain.iter_mut().zip(self.key(whole, key, head)) {
                            *chain = fma(ds, *k, *chain);
                        }
                    }
                    dq.iter_mut().zip(chain).for_each(|(dq, chain)| *dq += chain);
                }
            }
        }
        for key in start..positions {
            for kv_head in 0..self.kv_heads {
                let lane = (key - start) * self.kv_heads + kv_head;
                let dk = &mut dk[lane * self.head_dim..][..self.head_dim];
                let dv = &mut dv[lane * self.value_dim..][..self.value_dim];
                for block in (0..positions).step_by(64).rev() {
                    let (mut dk_chain, mut dv_chain) = (vec![0.0f32; dk.len()], vec![0.0f32; dv.len()]);
                    for head in kv_head * self.group()..(kv_head + 1) * self.group() {
                        for position in block.max(start)..(block + 64).min(positions) {
                            if self.sees(position, key) {
                                let (p, ds, q, d_out) = pull(position, head, key);
                                dk_chain
                                    .iter_mut()
                                    .zip(q)
                                    .for_each(|(chain, q)| *chain = fma(ds, *q, *chain));
                                dv_chain
                                    .iter_mut()
                                    .zip(d_out)
                                    .for_each(|(chain, d)| *chain = fma(p, *d, *chain));
                            }
                        }
                    }
                    dk.iter_mut().zip(dk_chain).for_each(|(dk, chain)| *dk += chain);
                    dv.iter_mut().zip(dv_chain).for_each(|(dv, chain)| *dv += chain);
                }
            }
        }
        Found { dq, dk, dv, ..found }
    }
}

/// Pools with scattered pages, poisoned where nothing was written.
struct Pool {
    k: Vec<f32>,
    v: Vec<f32>,
    k_bytes: Vec<u8>,
    v_bytes: Vec<u8>,
    /// Page tables of all sequences, sequence after sequence.
    table: Vec<i32>,
    /// First entry of each sequence.
    entries: Vec<usize>,
}

impl Pool {
    /// Room for sequences of these lengths, their pages in a shuffled order.
    fn new(form: &Form, seed: u64, lengths: &[usize]) -> Pool {
        let counts: Vec<usize> = lengths.iter().map(|length| length.div_ceil(64)).collect();
        let pages: usize = counts.iter().sum();
        let mut table: Vec<i32> = (1..=pages as i32).collect();
        let mut numbers = Numbers::new(seed);
        for end in (1..pages).rev() {
            table.swap(end, numbers.below(end + 1));
        }
        let entries = counts
            .iter()
            .scan(0, |entry, count| {
                *entry += count;
                Some(*entry - count)
            })
            .collect();
        let (k, v) = (form.kv_heads * form.head_dim, form.kv_heads * form.value_dim);
        let cells = (pages + 1) * 64;
        Pool {
            k: vec![f32::NAN; cells * k],
            v: vec![f32::NAN; cells * v],
            k_bytes: vec![0xff; 2 * cells * k],
            v_bytes: vec![0xff; 2 * cells * v],
            table,
            entries,
        }
    }

    fn write(&mut self, form: &Form, level: Level, cells: &[i32], k: &[f32], v: &[f32]) {
        let sides = [
            (k, form.head_dim, &mut self.k, &mut self.k_bytes),
            (v, form.value_dim, &mut self.v, &mut self.v_bytes),
        ];
        for (value, dim, wide, bytes) in sides {
            let store = match form.cache {
                Cache::F32 => Store::F32(Disjoint::new(wide)),
                Cache::F16 => Store::F16(Disjoint::new(bytes)),
                Cache::Q8_0 => Store::Q8_0 { bytes: Disjoint::new(bytes), vector: dim },
            };
            run_all(level, &WriteRows { width: form.kv_heads * dim, value, cells, store });
        }
    }
}

/// Rows `from..to` of one sequence.
type Span = (usize, std::ops::Range<usize>);

/// Runs sequences in batches, writing pages after each; returns what each sequence got, and the gradients of the last
/// batch that it was in.
fn run(form: &Form, seed: u64, level: Level, wholes: &[Whole], batches: &[Vec<Span>]) -> Vec<Found> {
    let positions = |whole: &Whole| whole.q.len() / (form.heads * form.head_dim);
    let lengths: Vec<usize> = wholes.iter().map(positions).collect();
    let mut pool = Pool::new(form, seed, &lengths);
    let mut results = vec![Found::default(); wholes.len()];
    for batch in batches {
        let (mut q, mut k, mut v, mut d_out) = (vec![], vec![], vec![], vec![]);
        let (mut sequences, mut cells) = (vec![], vec![]);
        for (index, span) in batch {
            let take = |data: &[f32], width: usize| data[span.start * width..span.end * width].to_vec();
            let row = q.len() / (form.heads * form.head_dim);
            let entry = pool.entries[*index];
            sequences.extend([row, span.len(), span.start, entry].map(|entry| entry as i32));
            cells.extend(span.clone().map(|at| pool.table[entry + at / 64] * 64 + (at % 64) as i32));
            q.extend(take(&wholes[*index].q, form.heads * form.head_dim));
            k.extend(take(&wholes[*index].k, form.kv_heads * form.head_dim));
            v.extend(take(&wholes[*index].v, form.kv_heads * form.value_dim));
            d_out.extend(take(&wholes[*index].d_out, form.heads * form.value_dim));
        }
        let rows = cells.len();
        let lanes = rows * form.heads;
        let mut found = Found {
            out: vec![f32::NAN; lanes * form.value_dim],
            max: vec![f32::NAN; lanes],
            sum: vec![f32::NAN; lanes],
            dq: vec![f32::NAN; q.len()],
            dk: vec![f32::NAN; k.len()],
            dv: vec![f32::NAN; v.len()],
        };
        let keys = Keys {
            kv_heads: form.kv_heads,
            head_dim: form.head_dim,
            value_dim: form.value_dim,
            window: form.window,
            k: &k,
            v: &v,
            k_pages: form.cache.pages(&pool.k, &pool.k_bytes),
            v_pages: form.cache.pages(&pool.v, &pool.v_bytes),
            sequences: &sequences,
            pages: &pool.table,
        };
        run_all(
            level,
            &Attention {
                heads: form.heads,
                scale: form.scale,
                segment: form.segment,
                q: &q,
                keys,
                out: Disjoint::new(&mut found.out),
                max: Disjoint::new(&mut found.max),
                sum: Disjoint::new(&mut found.sum),
            },
        );
        run_all(
            level,
            &AttentionVjp {
                heads: form.heads,
                scale: form.scale,
                d_out: &d_out,
                q: &q,
                keys,
                out: &found.out,
                max: &found.max,
                sum: &found.sum,
                dq: Disjoint::new(&mut found.dq),
                dk: Disjoint::new(&mut found.dk),
                dv: Disjoint::new(&mut found.dv),
            },
        );
        let mut row = 0;
        for (index, span) in batch {
            let take = |data: &[f32]| {
                let width = data.len() / rows;
                data[row * width..(row + span.len()) * width].to_vec()
            };
            let result = &mut results[*index];
            result.out.extend(take(&found.out));
            result.max.extend(take(&found.max));
            result.sum.extend(take(&found.sum));
            (result.dq, result.dk, result.dv) = (take(&found.dq), take(&found.dk), take(&found.dv));
            row += span.len();
        }
        pool.write(form, level, &cells, &k, &v);
    }
    results
}

#[track_caller]
fn check_same(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: number of elements");
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| !same(*a, *b)) {
        panic!("{what}: element {at} is {:e}, expected {:e}", found[at], expected[at]);
    }
}

#[track_caller]
fn check_found(what: &str, found: &Found, expected: &Found) {
    check_same(&format!("{what}: out"), &found.out, &expected.out);
    check_same(&format!("{what}: max"), &found.max, &expected.max);
    check_same(&format!("{what}: sum"), &found.sum, &expected.sum);
    check_same(&format!("{what}: dq"), &found.dq, &expected.dq);
    check_same(&format!("{what}: dk"), &found.dk, &expected.dk);
    check_same(&format!("{what}: dv"), &found.dv, &expected.dv);
}

fn forms() -> Vec<Form> {
    let plain = Form {
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        value_dim: 16,
        window: None,
        segment: 128,
        scale: 0.25,
        cache: Cache::F16,
    };
    vec![
        plain,
        Form { window: Some(96), cache: Cache::F32, ..plain },
        Form { heads: 3, kv_heads: 1, head_dim: 37, value_dim: 21, segment: 64, cache: Cache::F32, ..plain },
        Form { heads: 6, kv_heads: 2, head_dim: 64, value_dim: 64, segment: 1024, scale: 3.0, ..plain },
        Form { heads: 2, kv_heads: 2, head_dim: 5, value_dim: 80, window: Some(1), ..plain },
        Form { heads: 1, kv_heads: 1, head_dim: 33, value_dim: 16, window: Some(0), ..plain },
        Form { heads: 4, kv_heads: 1, head_dim: 16, value_dim: 17, window: Some(70), segment: 64, ..plain },
        Form { head_dim: 80, value_dim: 20, cache: Cache::Q8_0, ..plain },
        Form { head_dim: 64, value_dim: 64, window: Some(100), cache: Cache::Q8_0, ..plain },
    ]
}

#[test]
fn any_cut_gives_the_bits_of_the_loops() {
    for (seed, form) in forms().into_iter().enumerate() {
        let seed = seed as u64 + 1;
        let whole = Whole::random(&form, &mut Numbers::new(seed), 333);
        let all = form.reference(&whole, 0);
        for cuts in [vec![333], vec![64, 192, 333], vec![1, 2, 70, 71, 200, 333]] {
            let mut start = 0;
            let batches: Vec<Vec<Span>> =
                cuts.iter().map(|end| vec![(0, std::mem::replace(&mut start, *end)..*end)]).collect();
            let last = batches[batches.len() - 1][0].1.start;
            let mut expected = if last == 0 { all.clone() } else { form.reference(&whole, last) };
            (expected.out, expected.max, expected.sum) = (all.out.clone(), all.max.clone(), all.sum.clone());
            for level in Level::all() {
                let found = run(&form, seed, level, std::slice::from_ref(&whole), &batches);
                check_found(&format!("{form:?}, seed {seed}, {level}, cuts {cuts:?}"), &found[0], &expected);
            }
        }
    }
}

#[test]
fn neighbours_do_not_matter() {
    for (seed, form) in forms().into_iter().enumerate() {
        let seed = seed as u64 + 50;
        let mut numbers = Numbers::new(seed);
        let wholes: Vec<Whole> =
            [150, 7, 90].into_iter().map(|length| Whole::random(&form, &mut numbers, length)).collect();
        let level = Level::detect().unwrap();
        let together = [vec![(2, 0..30), (0, 0..100)], vec![(0, 100..150), (1, 0..7), (2, 30..90)]];
        let alone = |index: usize| -> Vec<Vec<Span>> {
            together
                .iter()
                .map(|batch| batch.iter().filter(|span| span.0 == index).cloned().collect())
                .collect()
        };
        let found = run(&form, seed, level, &wholes, &together);
        for index in 0..3 {
            let batches: Vec<Vec<Span>> =
                alone(index).into_iter().filter(|batch| !batch.is_empty()).collect();
            let expected = run(&form, seed + 1, level, &wholes, &batches);
            check_found(&format!("{form:?}, seed {seed}, sequence {index}"), &found[index], &expected[index]);
        }
    }
}

#[test]
fn nan_infinity_and_zeros_pass_by_the_written_rules() {
    let form = Form { cache: Cache::F32, segment: 64, ..forms()[0] };
    let mut whole = Whole::random(&form, &mut Numbers::new(9), 140);
    let (key, value) = (form.kv_heads * form.head_dim, form.kv_heads * form.value_dim);
    whole.k[3 * key] = f32::NAN; // seen by all rows from 3 on, by one kv head
    whole.k[70 * key + form.head_dim] = f32::INFINITY;
    whole.v[80 * value + 3] = f32::NEG_INFINITY;
    whole.q[100 * form.heads * form.head_dim..][..form.heads * form.head_dim].fill(-0.0);
    let expected = form.reference(&whole, 0);
    assert!(expected.out.iter().any(|out| out.is_nan()) && expected.out.iter().any(|out| out.is_finite()));
    for level in Level::all() {
        let found = run(&form, 9, level, std::slice::from_ref(&whole), &[vec![(0, 0..140)]]);
        check_found(&format!("{level}"), &found[0], &expected);
    }
}

#[test]
fn zero_scores_keep_the_sign_of_the_first() {
    // The window makes the first key of a row lie in any lane of its block.
    let form = Form { heads: 1, kv_heads: 1, cache: Cache::F32, window: Some(20), ..forms()[0] };
    let mut whole = Whole::random(&form, &mut Numbers::new(10), 80);
    // Products that vanish below the denormals: a score of -0 or +0 by the signs.
    whole.q.fill(1e-30);
    for (position, k) in whole.k.chunks_mut(form.head_dim).enumerate() {
        k.fill(if position % 3 == 0 { -1e-30 } else { 1e-30 });
    }
    let expected = form.reference(&whole, 0);
    for zero in [0.0f32, -0.0] {
        assert!(
            expected.max.iter().any(|max| max.to_bits() == zero.to_bits()),
            "no row has a maximum of {zero}"
        );
    }
    for level in Level::all() {
        let found = run(&form, 10, level, std::slice::from_ref(&whole), &[vec![(0, 0..80)]]);
        check_found(&format!("{level}"), &found[0], &expected);
    }
}

#[test]
fn units_in_any_order_write_rows_of_no_sequence_as_rows_without_a_key() {
    let form = forms()[0];
    let whole = Whole::random(&form, &mut Numbers::new(11), 100);
    let found = form.reference(&whole, 0);
    // Rows 0..5 and 105..110 of the batch belong to no sequence.
    let spread = |data: &[f32], absent: f32| -> Vec<f32> {
        let width = data.len() / 100;
        let mut rows = vec![absent; 110 * width];
        rows[5 * width..105 * width].copy_from_slice(data);
        rows
    };
    let (q, d_out) = (spread(&whole.q, f32::NAN), spread(&whole.d_out, f32::NAN));
    let (k, v) = (spread(&whole.k, f32::NAN), spread(&whole.v, f32::NAN));
    let (out, max, sum) =
        (spread(&found.out, 0.0), spread(&found.max, f32::NEG_INFINITY), spread(&found.sum, 0.0));
    let keys = Keys {
        kv_heads: form.kv_heads,
        head_dim: form.head_dim,
        value_dim: form.value_dim,
        window: None,
        k: &k,
        v: &v,
        k_pages: Pages::F16(&[]),
        v_pages: Pages::F16(&[]),
        sequences: &[5, 100, 0, 0],
        pages: &[],
    };
    let (heads, scale, segment, q) = (form.heads, form.scale, form.segment, &q);
    check(11, &[Wanted::new(&out), Wanted::new(&max), Wanted::new(&sum)], |outs, run| {
        run.all(&Attention { heads, scale, segment, q, keys, out: outs[0], max: outs[1], sum: outs[2] });
    });
    let (dq, dk, dv) = (spread(&found.dq, 0.0), spread(&found.dk, 0.0), spread(&found.dv, 0.0));
    check(11, &[Wanted::new(&dq), Wanted::new(&dk), Wanted::new(&dv)], |outs, run| {
        let (d_out, out, max, sum) = (&d_out, &out, &max, &sum);
        let [dq, dk, dv] = [outs[0], outs[1], outs[2]];
        run.all(&AttentionVjp { heads, scale, d_out, q, keys, out, max, sum, dq, dk, dv });
    });
}
