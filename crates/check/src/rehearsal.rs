//! An example on an engine: its context as served, and the spans to learn from.
//!
//! `all`: one span, the whole example. `reply`: the conversation is read plainly into a sequence, then each reply `[p0, p1)`
//! is a span of the rows `p0-1` to `p1-2` over that sequence's pages.

use std::ops::Range;

use apprentice_engine::{Engine, Named, Objective, Outputs, Run, SequenceId, Span};

use crate::error::CheckError;
use crate::example::Example;

/// An example that an engine is ready to learn from.
#[derive(Clone, Debug)]
pub struct Rehearsal<'a> {
    example: &'a Example,
    sequence: Option<SequenceId>,
    rows: Vec<Range<usize>>,
}

impl<'a> Rehearsal<'a> {
    /// Reads what comes before the replies, where there is an objective that needs it.
    ///
    /// # Errors
    /// As [`Engine::greedy`].
    pub fn new(engine: &mut Engine, example: &'a Example) -> Result<Rehearsal<'a>, CheckError> {
        let rows: Vec<Range<usize>> = match example.objective {
            Objective::All => std::iter::once(0..example.tokens.len()).collect(),
            Objective::Reply => example.replies.iter().map(|run| run.start - 1..run.end - 1).collect(),
        };
        let context = rows.iter().map(|rows| rows.start).max().unwrap_or(0);
        let sequence = match context {
            0 => None,
            _ => {
                let sequence = engine.open_sequence();
                let tokens = &example.tokens[..context];
                engine.greedy(&[Run {
                    sequence,
                    tokens,
                    named: Named::Nothing,
                    outputs: Outputs::Nothing,
                }])?;
                Some(sequence)
            }
        };
        Ok(Rehearsal { example, sequence, rows })
    }

    /// The spans of one step.
    pub fn spans(&self) -> Vec<Span<'a>> {
        let span = |rows: &Range<usize>| Span {
            context: self.sequence.filter(|_| rows.start > 0),
            first_position: rows.start,
            tokens: &self.example.tokens[rows.clone()],
            labels: &self.example.labels[rows.clone()],
            weights: None,
        };
        self.rows.iter().map(span).collect()
    }

    /// Gives the context's sequence back.
    pub fn end(self, engine: &mut Engine) -> Result<(), CheckError> {
        if let Some(sequence) = self.sequence {
            engine.close_sequence(sequence)?;
        }
        Ok(())
    }
}
