//! Spans: rows to learn from, and how the spans of a step are cut into micro-batches.
//!
//! A step is one mean over all its labelled rows. Its spans may run in one graph or in several, one after another on the
//! sums so far: the additions are the same and so are the bytes, because a cut lies between spans and never in one.

use std::ops::Range;

use crate::assemble::{Arrays, Piece, assemble};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::options::{LEARN_ROWS_MAX, LOGITS_BYTES_MAX};
use crate::sequence::SequenceId;

/// Rows to learn from: consecutive positions of one sequence, all of them on the adapter in training.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The sequence whose pages hold every position before `first_position`, as served; `None` where there are none.
    pub context: Option<SequenceId>,
    /// Position of the first row. For a reply in positions `[p0, p1)` that is `p0 - 1`.
    pub first_position: usize,
    /// Token of each row.
    pub tokens: &'a [u32],
    /// The token that each row should predict, or -1.
    pub labels: &'a [i32],
    /// Weight of each row; `None`: 1.
    pub weights: Option<&'a [f32]>,
}

impl Span<'_> {
    /// Rows with a label.
    pub fn labelled(&self) -> usize {
        self.labels.iter().filter(|label| **label >= 0).count()
    }
}

/// What one graph takes at most. A span is never cut, so one that is larger has a graph of its own, up to the engine's
/// limits, which are the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MicroBatch {
    /// Rows.
    pub rows: usize,
    /// Bytes of the labelled rows' logits.
    pub logits_bytes: usize,
}

impl Default for MicroBatch {
    fn default() -> MicroBatch {
        MicroBatch { rows: LEARN_ROWS_MAX, logits_bytes: LOGITS_BYTES_MAX }
    }
}

/// Cuts a step: as many of the next pieces as fit, each `(rows, labelled)`, at least one.
pub fn cut_step(pieces: &[(usize, usize)], vocab: usize, limit: MicroBatch) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let (mut first, mut rows, mut labelled) = (0, 0usize, 0usize);
    for (index, piece) in pieces.iter().enumerate() {
        let fits = rows.saturating_add(piece.0) <= limit.rows
            && logits_bytes(labelled.saturating_add(piece.1), vocab) <= limit.logits_bytes;
        if !fits && index > first {
            cuts.push(first..index);
            (first, rows, labelled) = (index, 0, 0);
        }
        (rows, labelled) = (rows.saturating_add(piece.0), labelled.saturating_add(piece.1));
    }
    if first < pieces.len() {
        cuts.push(first..pieces.len());
    }
    cuts
}

fn logits_bytes(labelled: usize, vocab: usize) -> usize {
    labelled.saturating_mul(vocab).saturating_mul(size_of::<f32>())
}

impl Engine {
    /// The spans of each graph of a step.
    pub fn micro_batches(&self, spans: &[Span<'_>], limit: MicroBatch) -> Vec<Range<usize>> {
        let pieces: Vec<(usize, usize)> =
            spans.iter().map(|span| (span.tokens.len(), span.labelled())).collect();
        cut_step(&pieces, self.model.hyper().vocab, limit)
    }

    /// Refuses spans that do not fit their sequences, or that hold no label; else gives the number of labelled rows.
    pub(crate) fn check_spans(&self, spans: &[Span<'_>]) -> Result<usize, EngineError> {
        if spans.is_empty() {
            return Err(EngineError::Empty { what: "spans" });
        }
        let mut labelled = 0;
        for span in spans {
            self.check_span(span)?;
            labelled += span.labelled();
        }
        if labelled == 0 { Err(EngineError::Empty { what: "labels" }) } else { Ok(labelled) }
    }

    /// Refuses more than fits one graph, or nothing.
    pub(crate) fn check_step(&self, rows: usize, labelled: usize) -> Result<(), EngineError> {
        if labelled == 0 {
            return Err(EngineError::Empty { what: "labels" });
        }
        self.check_size(rows, labelled)
    }

    fn check_size(&self, rows: usize, labelled: usize) -> Result<(), EngineError> {
        let found = logits_bytes(labelled, self.model.hyper().vocab);
        if found > LOGITS_BYTES_MAX {
            return Err(EngineError::Limit { what: "bytes of logits", found, limit: LOGITS_BYTES_MAX });
        }
        if rows > LEARN_ROWS_MAX {
            let what = "rows of a learning step";
            return Err(EngineError::Limit { what, found: rows, limit: LEARN_ROWS_MAX });
        }
        Ok(())
    }

    fn check_span(&self, span: &Span<'_>) -> Result<(), EngineError> {
        let (position, vocab) = (span.first_position, self.model.hyper().vocab);
        let lengths = [("labels", Some(span.labels.len())), ("weights", span.weights.map(<[f32]>::len))];
        for (what, found) in lengths {
            if let Some(found) = found.filter(|found| *found != span.tokens.len()) {
                let expected = span.tokens.len();
                return Err(EngineError::Length { what, expected, of: "tokens", found });
            }
        }
        if span.tokens.is_empty() {
            return Err(EngineError::Span { position, reason: "it has no rows" });
        }
        self.check_tokens(span.tokens)?;
        let held =
            span.context.map_or(Ok(0), |id| self.sequence(id).map(|sequence| sequence.tokens.len()))?;
        if position > held {
            let reason = "its context is not in the sequence's pages";
            return Err(EngineError::Span { position, reason });
        }
        let (found, limit) = (position.saturating_add(span.tokens.len()), self.options.context);
        if found > limit {
            return Err(EngineError::Context { found, limit });
        }
        for (index, label) in span.labels.iter().enumerate() {
            if *label < -1 || usize::try_from(*label).is_ok_and(|label| label >= vocab) {
                return Err(EngineError::Token { token: i64::from(*label), index, vocab });
            }
        }
        if let Some(index) = span.weights.and_then(|weights| weights.iter().position(|w| !w.is_finite())) {
            return Err(EngineError::NotFinite { tensor: format!("weight of row {index}") });
        }
        self.check_size(span.tokens.len(), span.labelled())
    }

    /// The arrays of some of a step's spans, and the weight of each labelled row. `denominator` is the step's.
    pub(crate) fn learning_arrays(
        &self,
        spans: &[Span<'_>],
        denominator: f64,
    ) -> Result<(Arrays, Vec<f64>), EngineError> {
        let mut pieces = Vec::with_capacity(spans.len());
        let (mut labels, mut weights) = (Vec::new(), Vec::new());
        for span in spans {
            let head: Vec<usize> = (0..span.labels.len()).filter(|row| span.labels[*row] >= 0).collect();
            labels.extend(head.iter().map(|row| span.labels[*row]));
            weights
                .extend(head.iter().map(|row| span.weights.map_or(1.0, |weights| f64::from(weights[*row]))));
            let tables = match span.context {
                Some(id) => self.sequence(id)?.tables.as_slice(),
                None => &[],
            };
            let named = vec![0; span.tokens.len()];
            let first_position = span.first_position;
            pieces.push(Piece { tokens: span.tokens, first_position, tables, named, head });
        }
        let mut arrays = assemble(&pieces, self.model.groups().len());
        arrays.labels = labels;
        arrays.factors = weights.iter().map(|weight| (weight / denominator) as f32).collect();
        Ok((arrays, weights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[(usize, usize)], rows: usize, labelled: usize, expected: &[Range<usize>]) {
        let limit = MicroBatch { rows, logits_bytes: labelled * 10 * 4 };
        assert_eq!(cut_step(pieces, 10, limit), expected, "{pieces:?}");
    }

    #[test]
    fn a_cut_comes_where_the_next_span_does_not_fit() {
        check(&[(4, 1), (4, 1), (4, 1)], 8, 9, &[0..2, 2..3]);
        check(&[(4, 3), (4, 3), (4, 3)], 80, 6, &[0..2, 2..3]);
        check(&[(4, 1), (4, 1)], 8, 2, std::slice::from_ref(&(0..2)));
        check(&[], 8, 2, &[]);
    }

    #[test]
    fn a_span_that_is_too_large_stands_alone() {
        check(&[(1, 1), (9, 1), (1, 1)], 8, 9, &[0..1, 1..2, 2..3]);
        check(&[(9, 1), (9, 1)], 8, 9, &[0..1, 1..2]);
        check(&[(usize::MAX, usize::MAX), (2, 1)], 8, 9, &[0..1, 1..2]);
    }
}
