//! Rotary positions: pairs of channels turned by the angles of a table. `x' = x c - y s`, `y' = x s + y c`; products
//! rounded, then their sum. The inverse turns the sign of `s`. Channels behind the pairs pass.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::map::take;
use crate::kernels::{Kernel, rows_of_a_unit, unit_rows};

/// `x [rows, heads, head_dim]`, `table [rows, pairs, 2]` -> `y` like `x`.
pub struct Rope<'a> {
    /// Pairs are the channels `2j, 2j + 1`; else `j, j + pairs`.
    pub interleaved: bool,
    /// Turns back.
    pub inverse: bool,
    /// Heads of a row.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Pairs of a head, at most half its channels.
    pub pairs: usize,
    /// `[rows, heads, head_dim]`, or `None` where it lies in `y`.
    pub x: Option<&'a [f32]>,
    /// `[rows, pairs, 2]`: cosine and sine.
    pub table: &'a [f32],
    /// `[rows, heads, head_dim]`.
    pub y: Disjoint<'a, f32>,
}

impl Kernel for Rope<'_> {
    fn units(&self) -> usize {
        let width = self.heads * self.head_dim;
        (self.y.len() / width).div_ceil(rows_of_a_unit(width))
    }

    /// A row's factors, one of each kind a channel: that of the channel itself and that of its partner.
    fn scratch(&self) -> usize {
        4 * self.pairs
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        let width = self.heads * self.head_dim;
        let turned = 2 * self.pairs;
        let (own, partner) = scratch[..2 * turned].split_at_mut(turned);
        for row in unit_rows(unit, width, self.y.len() / width) {
            for (pair, angle) in self.table[row * turned..][..turned].as_chunks::<2>().0.iter().enumerate() {
                let [cosine, sine] = *angle;
                let sine = if self.inverse { -sine } else { sine };
                let [first, second] =
                    if self.interleaved { [2 * pair, 2 * pair + 1] } else { [pair, pair + self.pairs] };
                (own[first], own[second]) = (cosine, cosine);
                // x c - y s and x c + y (-s) are the same bits.
                (partner[first], partner[second]) = (-sine, sine);
            }
            // SAFETY: each row belongs to one unit, which takes it once.
            let y = unsafe { take(&self.y, self.x, row * width..(row + 1) * width) };
            for head in y.chunks_mut(self.head_dim) {
                let head = &mut head[..turned];
                if self.interleaved {
                    neighbours(isa, head, own, partner);
                } else {
                    halves(isa, head, own, partner);
                }
            }
        }
    }
}

/// Pairs that lie side by side.
#[inline(always)]
fn neighbours<I: Isa>(isa: I, head: &mut [f32], own: &[f32], partner: &[f32]) {
    for ((head, own), partner) in head.chunks_mut(LANES).zip(own.chunks(LANES)).zip(partner.chunks(LANES)) {
        let value = isa.load_partial(head);
        let lanes = isa.lanes(value);
        let mut swapped = [0.0; LANES];
        for (lane, swapped) in swapped.iter_mut().enumerate() {
            *swapped = lanes[lane ^ 1];
        }
        let turned = turn(isa, value, isa.load(&swapped), isa.load_partial(own), isa.load_partial(partner));
        isa.store_partial(head, turned);
    }
}

/// Pairs whose channels lie half the rotated part apart.
#[inline(always)]
fn halves<I: Isa>(isa: I, head: &mut [f32], own: &[f32], partner: &[f32]) {
    let pairs = head.len() / 2;
    let (low, high) = head.split_at_mut(pairs);
    for (part, (low, high)) in low.chunks_mut(LANES).zip(high.chunks_mut(LANES)).enumerate() {
        let (at, count) = (part * LANES, low.len());
        let (x, y) = (isa.load_partial(low), isa.load_partial(high));
        let (c, s) = (isa.load_partial(&own[at..at + count]), isa.load_partial(&partner[at..at + count]));
        let first = turn(isa, x, y, c, s);
        let at = at + pairs;
        let (c, s) = (isa.load_partial(&own[at..at + count]), isa.load_partial(&partner[at..at + count]));
        let second = turn(isa, y, x, c, s);
        isa.store_partial(low, first);
        isa.store_partial(high, second);
    }
}

/// `value * own + other * partner`, three roundings.
#[inline(always)]
fn turn<I: Isa>(isa: I, value: I::V, other: I::V, own: I::V, partner: I::V) -> I::V {
    isa.add(isa.mul(value, own), isa.mul(other, partner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Numbers, Wanted, check};

    #[test]
    fn both_pairings_both_ways() {
        for (seed, (rows, heads, head_dim, pairs)) in
            [(1, 1, 2, 1), (3, 2, 64, 32), (5, 3, 80, 20), (40, 1, 37, 18), (2, 1, 8, 0)]
                .into_iter()
                .enumerate()
        {
            for (interleaved, inverse) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut numbers = Numbers::new(seed as u64);
                let x = numbers.hard(rows * heads * head_dim);
                let table = numbers.normal(rows * pairs * 2);
                let mut expected = x.clone();
                for (at, head) in expected.chunks_mut(head_dim).enumerate() {
                    for pair in 0..pairs {
                        let angle = &table[(at / heads * pairs + pair) * 2..][..2];
                        let (c, s) = (angle[0], if inverse { -angle[1] } else { angle[1] });
                        let (i, j) =
                            if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
                        (head[i], head[j]) = (head[i] * c - head[j] * s, head[i] * s + head[j] * c);
                    }
                }
                for (x, wanted) in
                    [(Some(&x[..]), Wanted::new(&expected)), (None, Wanted::in_place(&expected, &x))]
                {
                    check(seed as u64, &[wanted], |outs, run| {
                        let (table, y) = (&table, outs[0]);
                        run.all(&Rope { interleaved, inverse, heads, head_dim, pairs, x, table, y });
                    });
                }
            }
        }
    }
}
