//! The low-rank term of the rows that name an adapter: `u = dot16(A_j, x)` for each `j` of its rank, then
//! `y = y + scale * dot16(B, u)`: three roundings. Rows that name none keep their bytes.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES, dot16};
use crate::kernels::Kernel;
use crate::kernels::dots::{Columns, Rows, dots};

/// Rows of a unit.
const TILE: usize = 8;
/// Columns whose products wait for their addition.
const PART: usize = 256;

/// `y [rows, output]`, `x [rows, input]` -> `out` like `y`.
pub struct Adapt<'a> {
    /// `[rows, output]`, or `None` where it lies in `out`.
    pub y: Option<&'a [f32]>,
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
    /// Elements of a row of `x`.
    pub input: usize,
    /// Elements of a row of `y`.
    pub output: usize,
    /// `[rows, output]`.
    pub out: Disjoint<'a, f32>,
}

impl Kernel for Adapt<'_> {
    fn units(&self) -> usize {
        self.named.len().div_ceil(TILE)
    }

    fn scratch(&self) -> usize {
        TILE * (self.a.len() / self.input.max(1) + PART)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        let tile = unit * TILE..((unit + 1) * TILE).min(self.named.len());
        // SAFETY: units are ranges of rows that follow each other.
        let out = unsafe { self.out.range(tile.start * self.output..tile.end * self.output) };
        if let Some(y) = self.y {
            out.copy_from_slice(&y[tile.start * self.output..tile.end * self.output]);
        }
        let (products, u) = scratch.split_at_mut(TILE * PART);
        // Neighbours that name the same adapter share the loads of its B.
        let mut first = 0;
        for group in self.named[tile.clone()].chunk_by(|a, b| a == b) {
            if let Some((start, rank)) = ranks(self.table, group[0]) {
                let u = &mut u[..group.len() * rank];
                let x = &self.x[(tile.start + first) * self.input..];
                for (index, u) in u.iter_mut().enumerate() {
                    let (row, j) = (index / rank, index % rank);
                    *u = dot16(
                        isa,
                        &self.a[(start + j) * self.input..][..self.input],
                        &x[row * self.input..][..self.input],
                    );
                }
                let out = &mut out[first * self.output..(first + group.len()) * self.output];
                self.add(isa, start, self.scales[group[0] as usize], rank, u, products, out);
            }
            first += group.len();
        }
    }
}

impl Adapt<'_> {
    /// `out = out + scale * dot16(B, u)` for rows `u [rows, rank]`.
    #[allow(clippy::too_many_arguments)] // what the rows of a group share
    #[inline(always)]
    fn add<I: Isa>(
        &self,
        isa: I,
        start: usize,
        scale: f32,
        rank: usize,
        u: &[f32],
        products: &mut [f32],
        out: &mut [f32],
    ) {
        let (rows, scale) = (u.len() / rank, isa.splat(scale));
        for column in (0..self.output).step_by(PART) {
            let count = PART.min(self.output - column);
            let matrix =
                Columns { data: &self.b[start * self.output + column..], stride: self.output, depth: rank };
            dots(isa, Rows::flat(u, rank), 0..rows, matrix, 0..count, products, PART);
            for row in 0..rows {
                let out = &mut out[row * self.output + column..][..count];
                for (out, product) in out.chunks_mut(LANES).zip(products[row * PART..][..count].chunks(LANES))
                {
                    let term = isa.mul(scale, isa.load_partial(product));
                    let sum = isa.add(isa.load_partial(out), term);
                    isa.store_partial(out, sum);
                }
            }
        }
    }
}

/// First row and rank of the adapter that a row names; `None` where it names none, or one of rank 0.
pub(crate) fn ranks(table: &[i32], named: i32) -> Option<(usize, usize)> {
    let [start, rank] = table.as_chunks::<2>().0[usize::try_from(named).ok()?];
    (rank > 0).then_some((start as usize, rank as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{self, Numbers, Wanted, check};

    fn check_form(seed: u64, input: usize, output: usize, ranks: &[usize], named: &[i32]) {
        let mut numbers = Numbers::new(seed);
        let mut table = vec![];
        let mut total = 0;
        for rank in ranks {
            table.extend([total as i32, *rank as i32]);
            total += rank;
        }
        let (x, y) = (numbers.normal(named.len() * input), numbers.hard(named.len() * output));
        let (a, b) = (numbers.normal(total * input), numbers.hard(total * output));
        let scales = numbers.normal(ranks.len());
        let mut expected = y.clone();
        for (row, named) in named.iter().enumerate().filter(|(_, named)| **named >= 0) {
            let [first, rank] =
                [table[2 * *named as usize] as usize, table[2 * *named as usize + 1] as usize];
            if rank == 0 {
                continue; // nothing to add, not even +0
            }
            let u: Vec<f32> = (first..first + rank)
                .map(|j| suite::dot16(&a[j * input..][..input], &x[row * input..][..input]))
                .collect();
            for column in 0..output {
                let b: Vec<f32> = (first..first + rank).map(|j| b[j * output + column]).collect();
                expected[row * output + column] += scales[*named as usize] * suite::dot16(&b, &u);
            }
        }
        for (given, wanted) in
            [(Some(&y[..]), Wanted::new(&expected)), (None, Wanted::in_place(&expected, &y))]
        {
            check(seed, &[wanted], |outs, run| {
                run.all(&Adapt {
                    y: given,
                    x: &x,
                    a: &a,
                    b: &b,
                    table: &table,
                    scales: &scales,
                    named,
                    input,
                    output,
                    out: outs[0],
                });
            });
        }
    }

    #[test]
    fn only_rows_that_name_an_adapter() {
        check_form(1, 33, 50, &[8], &[-1, 0, 0, -1, 0]);
        check_form(2, 64, 300, &[2, 16, 5], &[0, 0, 2, 1, 1, 1, -1, 2, 2, 0, -1, -1, 1]);
        check_form(3, 16, 513, &[40, 1], &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        check_form(4, 5, 7, &[0, 3], &[0, 1, -1]);
        check_form(5, 5, 7, &[3], &[]);
    }
}
