//! What is asked of the engine and what it answers: jobs go in by [`crate::Engine::submit`], events come out of
//! [`crate::Engine::step`].

use std::ops::Range;
use std::sync::Arc;

use crate::bank::AdapterId;
use crate::engine::Named;
use crate::error::EngineError;
use crate::sampling::Sampling;

/// Handle of a submitted job, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u64);

/// Handle of an adapter in training.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LiveId(pub u32);

/// A reply that is wanted.
#[derive(Clone, Debug)]
pub struct Generate {
    /// The tokens before the reply, at least one.
    pub prompt: Vec<u32>,
    /// The adapter that positions name, those of the reply included.
    pub named: Named,
    /// Tokens of the reply, at most; with 0 the prompt is read and nothing more.
    pub limit: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Log probabilities of each chosen token and of so many most likely ones; up to [`LOGPROBS_MAX`].
    pub logprobs: Option<usize>,
    /// Tokens that end the reply. Such a token is no [`Event::Token`].
    pub ends: Arc<[u32]>,
}

/// Most likely tokens whose log probabilities a job may ask for.
pub const LOGPROBS_MAX: usize = 20;

/// What is to be learnt, and in how many optimiser steps.
#[derive(Clone, Debug)]
pub struct Lesson {
    /// The adapter in training.
    pub adapter: LiveId,
    /// The whole conversation, from its first token to the end of its last reply.
    pub tokens: Vec<u32>,
    /// Positions `[p0, p1)` of the replies to learn from, ascending and apart.
    pub replies: Vec<Range<usize>>,
    /// Which gradient is taken.
    pub objective: Objective,
    /// Optimiser steps, at least one.
    pub steps: usize,
    /// Learning rate of these steps; `None`: the learner's.
    pub learning_rate: Option<f64>,
}

/// Which gradient is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Objective {
    /// One causal graph, the adapter on every row, loss on the labelled rows.
    #[default]
    All,
    /// Each reply given everything before it as served, the adapter on the reply's rows only.
    Reply,
}

/// Something to do.
#[derive(Clone, Debug)]
pub enum Job {
    /// A reply.
    Generate(Generate),
    /// Learning.
    Learn(Lesson),
}

/// What happened to a job. The last event of a job is `Finished`, `Learnt` or `Failed`; a job that is cancelled has none.
#[derive(Debug)]
pub enum Event {
    /// Its first rows are about to be read.
    Started {
        /// The job.
        job: JobId,
        /// Positions of its prompt, or of a lesson's context, that were found in pages.
        cached: usize,
    },
    /// A token of the reply.
    Token {
        /// The job.
        job: JobId,
        /// The token.
        token: u32,
        /// Its log probability and those of the most likely ones, if asked for.
        logprobs: Option<Logprobs>,
    },
    /// The reply is complete.
    Finished {
        /// The job.
        job: JobId,
        /// Why it ends here.
        reason: Finish,
        /// The token that ended it, for [`Finish::End`].
        end: Option<u32>,
    },
    /// An optimiser step of a lesson.
    Stepped {
        /// The job.
        job: JobId,
        /// Which step, from 0.
        step: usize,
        /// Mean loss of the labelled rows before this step, in nats.
        loss: f64,
    },
    /// A lesson is complete, and its adapter's new generation is loaded.
    Learnt {
        /// The job.
        job: JobId,
        /// Mean loss before the first step, in nats.
        loss_before: f64,
        /// Mean loss after the last.
        loss_after: f64,
        /// Labelled rows.
        labelled: usize,
        /// The new generation.
        adapter: AdapterId,
        /// Its number.
        generation: u64,
    },
    /// It cannot go on. Neighbours do; an adapter in training is as it was before the lesson.
    Failed {
        /// The job.
        job: JobId,
        /// Why.
        error: EngineError,
    },
}

/// Why a reply ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// One of its ends was chosen.
    End,
    /// It has as many tokens as it may.
    Length,
    /// The context is full.
    Context,
}

/// Natural logarithms of the soft-max of a row's plain logits, before penalties, bias and temperature.
#[derive(Clone, PartialEq, Debug)]
pub struct Logprobs {
    /// Of the chosen token.
    pub chosen: f32,
    /// Of the most likely ones, descending, ties by the lower id.
    pub top: Vec<(u32, f32)>,
}

impl Event {
    /// The job that it speaks of.
    pub fn job(&self) -> JobId {
        match self {
            Event::Started { job, .. }
            | Event::Token { job, .. }
            | Event::Finished { job, .. }
            | Event::Stepped { job, .. }
            | Event::Learnt { job, .. }
            | Event::Failed { job, .. } => *job,
        }
    }
}
