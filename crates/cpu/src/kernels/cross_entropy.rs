//! The loss of a row of logits, `log(sum) + (max - x_label)`, `sum = sum of exp(x - max)`, in f32.
//!
//! `max`: `if x > max`, in order, from -infinity, so a NaN passes on by its weight. `sum`: 256 elements at a time by
//! absolute index, each in sixteen lanes and dot16's tree; these added ascending.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::Kernel;
use crate::kernels::argmax::largest;
use crate::kernels::map::put;
use crate::math::{exp, log};

/// Elements of one tree of a sum over a row.
const TREE: usize = 256;

/// `logits [rows, vocab]`, `labels [rows]` -> `loss [rows]`, `max [rows]`, `sum [rows]`.
pub struct CrossEntropy<'a> {
    /// Elements of a row.
    pub vocab: usize,
    /// `[rows, vocab]`.
    pub logits: &'a [f32],
    /// `[rows]`; a label outside of the vocabulary makes the loss NaN.
    pub labels: &'a [i32],
    /// `[rows]`.
    pub loss: Disjoint<'a, f32>,
    /// `[rows]`.
    pub max: Disjoint<'a, f32>,
    /// `[rows]`.
    pub sum: Disjoint<'a, f32>,
}

impl Kernel for CrossEntropy<'_> {
    fn units(&self) -> usize {
        self.labels.len()
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let x = &self.logits[unit * self.vocab..][..self.vocab];
        let max = first_sign(largest(isa, x), x);
        let mut sum = 0.0;
        for x in x.chunks(TREE) {
            sum += sum_of_exp(isa, x, max);
        }
        let label = usize::try_from(self.labels[unit]).ok().and_then(|label| x.get(label)).copied();
        let log_sum = isa.lanes(log(isa, isa.splat(sum)))[0];
        // SAFETY: the element of this unit alone.
        unsafe { put(&self.loss, unit, log_sum + (max - label.unwrap_or(f32::NAN))) };
        // SAFETY: as above.
        unsafe { put(&self.max, unit, max) };
        // SAFETY: as above.
        unsafe { put(&self.sum, unit, sum) };
    }
}

/// `max` where it is not zero; else with the sign of the first zero of `x`, which is what a search in order keeps.
#[inline(always)]
pub(crate) fn first_sign(max: f32, x: &[f32]) -> f32 {
    if max != 0.0 {
        return max;
    }
    x.iter().copied().find(|x| *x == 0.0).unwrap_or(max)
}

/// Sixteen lanes and their tree of `exp(x - max)`.
#[inline(always)]
fn sum_of_exp<I: Isa>(isa: I, x: &[f32], max: f32) -> f32 {
    let max = isa.splat(max);
    let mut lanes = isa.zero();
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        lanes = isa.add(lanes, exp(isa, isa.sub(isa.load(x), max)));
    }
    if !rest.is_empty() {
        // A lane without an element would add exp(-infinity - max); +0 leaves its bits as they are, since no weight and
        // no sum of weights is -0.
        let mut last = isa.lanes(exp(isa, isa.sub(isa.load_partial(rest), max)));
        last[rest.len()..].fill(0.0);
        lanes = isa.add(lanes, isa.load(&last));
    }
    isa.sum_tree(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{self, Numbers, Wanted, check};

    /// Loss, maximum and sum of a row, an element at a time.
    fn reference(x: &[f32], label: i32) -> [f32; 3] {
        let mut max = f32::NEG_INFINITY;
        for x in x {
            if *x > max {
                max = *x;
            }
        }
        let mut sum = 0.0f32;
        for block in x.chunks(256) {
            let mut lanes = [0.0f32; 16];
            for (at, x) in block.iter().enumerate() {
                lanes[at % 16] += suite::exp(x - max);
            }
            sum += suite::tree(lanes);
        }
        let label = if label < 0 || label as usize >= x.len() { f32::NAN } else { x[label as usize] };
        [suite::log(sum) + (max - label), max, sum]
    }

    fn check_rows(seed: u64, vocab: usize, logits: &[f32], labels: &[i32]) {
        let rows: Vec<[f32; 3]> =
            logits.chunks(vocab).zip(labels).map(|(x, label)| reference(x, *label)).collect();
        let part = |index: usize| -> Vec<f32> { rows.iter().map(|row| row[index]).collect() };
        let (loss, max, sum) = (part(0), part(1), part(2));
        check(seed, &[Wanted::new(&loss), Wanted::new(&max), Wanted::new(&sum)], |outs, run| {
            let [loss, max, sum] = [outs[0], outs[1], outs[2]];
            run.all(&CrossEntropy { vocab, logits, labels, loss, max, sum });
        });
    }

    #[test]
    fn rows_of_many_lengths() {
        for (seed, vocab) in [1, 15, 256, 257, 1000, 49_155].into_iter().enumerate() {
            let mut numbers = Numbers::new(seed as u64);
            let logits: Vec<f32> = numbers.normal(5 * vocab).into_iter().map(|x| x * 8.0).collect();
            let mut labels: Vec<i32> = (0..5).map(|_| numbers.below(vocab) as i32).collect();
            labels[1] = -1;
            labels[2] = vocab as i32;
            check_rows(seed as u64, vocab, &logits, &labels);
        }
    }

    #[test]
    fn hard_rows() {
        let vocab = 300;
        let mut logits = Numbers::new(5).normal(6 * vocab);
        logits[17] = f32::NAN;
        logits[vocab..2 * vocab].fill(f32::NAN);
        logits[2 * vocab + 5] = f32::INFINITY;
        logits[3 * vocab..4 * vocab].fill(f32::NEG_INFINITY);
        for (at, x) in logits[4 * vocab..].iter_mut().enumerate() {
            *x = if at % vocab == 40 || at < vocab && at % 7 == 6 { 0.0 } else { -x.abs() - 1.0 };
        }
        logits[4 * vocab + 3] = -0.0; // the first zero of this row
        logits[5 * vocab + 260] = -0.0; // not the first of this one
        check_rows(6, vocab, &logits, &[1, 2, 3, 4, 5, 6]);
    }
}
