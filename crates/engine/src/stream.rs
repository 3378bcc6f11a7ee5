//! A reply in progress: what is chosen from its logits, and when it ends.

use std::sync::Arc;

use crate::bank::Bank;
use crate::engine::{Engine, Named};
use crate::error::EngineError;
use crate::job::{Event, Finish, Generate, JobId, LOGPROBS_MAX, Logprobs};
use crate::logprobs::logprobs;
use crate::prefix::Row;
use crate::sampling::{Sampling, most_likely};
use crate::scheduler::{Kind, Work};

/// A reply in progress.
pub(crate) struct Stream {
    /// Tokens before the reply.
    pub(crate) prompt: usize,
    context: usize,
    limit: usize,
    replied: usize,
    sampling: Sampling,
    logprobs: Option<usize>,
    ends: Arc<[u32]>,
}

/// What the output row of a reply gave.
pub(crate) enum Choice<'a> {
    Token(u32),
    Logits(&'a [f32]),
}

impl Engine {
    /// A reply as work, once everything about it is found to be sound.
    pub(crate) fn reply_work(&self, generate: Generate) -> Result<Work, EngineError> {
        let Generate { prompt, named, limit, sampling, logprobs, ends } = generate;
        if prompt.is_empty() {
            return Err(EngineError::Empty { what: "prompt" });
        }
        self.check_tokens(&prompt)?;
        self.check_tokens(&ends)?;
        self.check_named(named)?;
        sampling.check(self.model.hyper().vocab)?;
        if let Some(found) = logprobs.filter(|count| *count > LOGPROBS_MAX) {
            return Err(EngineError::Limit { what: "logprobs", found, limit: LOGPROBS_MAX });
        }
        let context = self.options.context;
        if prompt.len() > context {
            return Err(EngineError::Context { found: prompt.len(), limit: context });
        }
        let rows = prompt.iter().enumerate();
        let rows = rows.map(|(position, token)| row_of(&self.bank, *token, position, named)).collect();
        let stream = Stream { prompt: prompt.len(), context, limit, replied: 0, sampling, logprobs, ends };
        Ok(Work { kind: Kind::Stream(stream), tokens: prompt, rows, named })
    }
}

/// What the keys and values of a token at a position depend on besides the rows before it.
pub(crate) fn row_of(bank: &Bank, token: u32, position: usize, named: Named) -> Row {
    let content = match named {
        Named::From(first, adapter) if position >= first => bank.content(adapter),
        _ => 0,
    };
    Row { token, content }
}

impl Stream {
    /// Rows that it may come to: the last token of a reply has none.
    pub(crate) fn positions(&self) -> usize {
        self.prompt.saturating_add(self.limit.max(1) - 1).min(self.context)
    }

    /// Whether the most likely token is not enough.
    pub(crate) fn wants_logits(&self) -> bool {
        !self.sampling.is_plain_greedy() || self.logprobs.is_some()
    }

    /// What follows from the output of the last of `tokens`: events, and the next token if the reply goes on.
    pub(crate) fn next(
        &mut self,
        job: JobId,
        choice: Choice<'_>,
        tokens: &[u32],
    ) -> (Vec<Event>, Option<u32>) {
        let finished = |reason, end| Event::Finished { job, reason, end };
        if self.limit == 0 {
            return (vec![finished(Finish::Length, None)], None);
        }
        let (token, logprobs) = match self.choose(choice, tokens) {
            Ok(chosen) => chosen,
            Err(error) => return (vec![Event::Failed { job, error }], None),
        };
        if self.ends.contains(&token) {
            return (vec![finished(Finish::End, Some(token))], None);
        }
        self.replied += 1;
        let said = Event::Token { job, token, logprobs };
        if self.replied == self.limit {
            (vec![said, finished(Finish::Length, None)], None)
        } else if tokens.len() >= self.context {
            (vec![said, finished(Finish::Context, None)], None)
        } else {
            (vec![said], Some(token))
        }
    }

    fn choose(&self, choice: Choice<'_>, tokens: &[u32]) -> Result<(u32, Option<Logprobs>), EngineError> {
        let not_finite = || EngineError::Logits { row: tokens.len() - 1 };
        match choice {
            Choice::Token(token) => Ok((token, None)),
            // The same tokens fail here as where rows are few and the backend chooses.
            Choice::Logits(logits) if !self.wants_logits() => {
                Ok((most_likely(logits).ok_or_else(not_finite)?, None))
            }
            Choice::Logits(logits) => {
                if logits.iter().any(|logit| !logit.is_finite()) {
                    return Err(not_finite());
                }
                let token = self.sampling.choose(logits, tokens);
                Ok((token, self.logprobs.map(|count| logprobs(logits, token, count))))
            }
        }
    }
}
