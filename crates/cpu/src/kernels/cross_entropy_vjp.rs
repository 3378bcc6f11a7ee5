//! The gradient of the loss of a row: `d_loss * (p - onehot)`, `p = exp(x - max) / sum`, each step rounded.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::Kernel;
use crate::kernels::map::take;
use crate::math::exp;

/// Columns of a unit.
const UNIT: usize = 8192;

/// `d_loss`, `labels`, `max`, `sum` `[rows]`, `logits [rows, vocab]` -> `d_logits [rows, vocab]`.
pub struct CrossEntropyVjp<'a> {
    /// Elements of a row.
    pub vocab: usize,
    /// `[rows]`.
    pub d_loss: &'a [f32],
    /// `[rows, vocab]`, or `None` where they lie in `d_logits`.
    pub logits: Option<&'a [f32]>,
    /// `[rows]`; a label outside of the vocabulary makes the row NaN.
    pub labels: &'a [i32],
    /// `[rows]`.
    pub max: &'a [f32],
    /// `[rows]`.
    pub sum: &'a [f32],
    /// `[rows, vocab]`.
    pub d_logits: Disjoint<'a, f32>,
}

impl Kernel for CrossEntropyVjp<'_> {
    fn units(&self) -> usize {
        self.labels.len() * self.vocab.div_ceil(UNIT)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let parts = self.vocab.div_ceil(UNIT);
        let (row, start) = (unit / parts, unit % parts * UNIT);
        let columns = start..(start + UNIT).min(self.vocab);
        let range = row * self.vocab + columns.start..row * self.vocab + columns.end;
        // SAFETY: units are parts of rows that follow each other.
        let y = unsafe { take(&self.d_logits, self.logits, range) };
        let Some(label) = usize::try_from(self.labels[row]).ok().filter(|label| *label < self.vocab) else {
            y.fill(f32::NAN);
            return;
        };
        let at_label = columns.contains(&label).then(|| {
            let x = isa.splat(y[label - start]);
            let p = isa.lanes(self.weight(isa, row, x))[0];
            (label - start, self.d_loss[row] * (p - 1.0))
        });
        let d_loss = isa.splat(self.d_loss[row]);
        let (whole, rest) = y.as_chunks_mut::<LANES>();
        for y in whole {
            let value = isa.mul(d_loss, self.weight(isa, row, isa.load(y)));
            isa.store(y, value);
        }
        if !rest.is_empty() {
            let value = isa.mul(d_loss, self.weight(isa, row, isa.load_partial(rest)));
            isa.store_partial(rest, value);
        }
        if let Some((at, value)) = at_label {
            y[at] = value;
        }
    }
}

impl CrossEntropyVjp<'_> {
    /// `exp(x - max) / sum`.
    #[inline(always)]
    fn weight<I: Isa>(&self, isa: I, row: usize, x: I::V) -> I::V {
        isa.div(exp(isa, isa.sub(x, isa.splat(self.max[row]))), isa.splat(self.sum[row]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{self, Numbers, Wanted, check};

    #[test]
    fn an_element_at_a_time() {
        for (seed, vocab) in [1, 15, 300, 8192, 20_001].into_iter().enumerate() {
            let mut numbers = Numbers::new(seed as u64);
            let (mut logits, d_loss) = (numbers.normal(4 * vocab), numbers.normal(4));
            logits[vocab / 2] = f32::NAN;
            let labels = [vocab as i32 - 1, 0, -1, numbers.below(vocab) as i32];
            let (max, sum) = ([1.5, 2.0, 0.1, -0.5], [3.0, 7.5, 1.0, vocab as f32]);
            let expected: Vec<f32> = (0..4 * vocab)
                .map(|at| {
                    let (row, column) = (at / vocab, (at % vocab) as i32);
                    let p = suite::exp(logits[at] - max[row]) / sum[row];
                    match labels[row] {
                        -1 => f32::NAN,
                        label => d_loss[row] * (p - if column == label { 1.0 } else { 0.0 }),
                    }
                })
                .collect();
            for (given, wanted) in
                [(Some(&logits[..]), Wanted::new(&expected)), (None, Wanted::in_place(&expected, &logits))]
            {
                check(seed as u64, &[wanted], |outs, run| {
                    run.all(&CrossEntropyVjp {
                        vocab,
                        d_loss: &d_loss,
                        logits: given,
                        labels: &labels,
                        max: &max,
                        sum: &sum,
                        d_logits: outs[0],
                    });
                });
            }
        }
    }
}
