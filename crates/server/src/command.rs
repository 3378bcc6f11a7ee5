//! What requests ask of the engine's thread, and what it answers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use apprentice_engine::Sampling;
use apprentice_text::Message;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::reject::Reject;
use crate::reply::Scored;
use crate::slots::Held;
use crate::wanted::Place;

/// An answer that comes once.
pub type Answer<T> = oneshot::Sender<Result<T, Reject>>;

/// Something asked of the engine's thread.
pub enum Command {
    /// Replies.
    Generate(Box<Generation>, mpsc::Sender<Part>),
    /// A lesson.
    Learn(Box<Teaching>, Answer<Taught>),
    /// What a slot remembers.
    Held(Place, Answer<Held>),
    /// All slots, as JSON.
    Slots(Answer<Value>),
    /// All adapters, as JSON.
    Adapters(Answer<Value>),
    /// An adapter as a file: its name, the name of the file, whether it is a PEFT folder.
    Save(String, Option<String>, bool, Answer<PathBuf>),
    /// An adapter to be forgotten.
    Delete(String, Answer<()>),
}

/// Replies that are wanted: a request with its prompt as tokens.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The tokens that the replies follow, at least one.
    pub prompt: Vec<u32>,
    /// What they were made from, if it was a conversation.
    pub messages: Option<Vec<Message>>,
    /// The adapter that replies, if one was named; `""`: none.
    pub adapter: Option<String>,
    /// Where it is remembered.
    pub place: Place,
    /// Replies.
    pub choices: u32,
    /// Tokens of a reply, at most; at least 1.
    pub limit: usize,
    /// How tokens are chosen, seed included.
    pub sampling: Sampling,
    /// Texts that end a reply.
    pub stops: Vec<String>,
    /// Of how many most likely tokens log probabilities are wanted, if at all.
    pub logprobs: Option<usize>,
    /// When it is given up.
    pub deadline: Instant,
}

impl Generation {
    /// Parts that an answer has at most: so deep is the channel, so that the engine never waits for a client.
    pub fn parts_max(&self) -> usize {
        // The tokens, what was held back, and the end of each reply; the beginning.
        (self.limit.saturating_add(2)).saturating_mul(self.choices as usize).saturating_add(1)
    }
}

/// A part of an answer. The first is `Begun` or `Failed`; after `Failed` there is none.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    /// It is being served.
    Begun {
        /// The slot.
        slot: usize,
        /// The adapter that replies.
        adapter: Option<String>,
    },
    /// More of a reply.
    Piece {
        /// Which reply.
        choice: u32,
        /// Its text.
        text: String,
        /// Tokens that belong to it, where log probabilities are wanted.
        scored: Vec<Scored>,
    },
    /// A reply is complete.
    Finished {
        /// Which reply.
        choice: u32,
        /// Why.
        reason: Reason,
        /// Its tokens.
        tokens: usize,
        /// Tokens of its prompt that were found in pages.
        cached: usize,
    },
    /// It cannot go on.
    Failed(Reject),
}

/// Why a reply ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// By itself, or by a stop string.
    Stop,
    /// It has as many tokens as it may.
    Length,
}

impl Reason {
    /// As OpenAI calls it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Stop => "stop",
            Reason::Length => "length",
        }
    }
}

/// A lesson, as tokens.
#[derive(Clone, Debug)]
pub struct Teaching {
    /// The adapter that learns.
    pub adapter: String,
    /// The prompt, then the reply.
    pub tokens: Vec<u32>,
    /// Where the reply begins.
    pub reply_start: usize,
    /// What the prompt was made from, if it was a conversation.
    pub messages: Option<Vec<Message>>,
    /// The slot that must hold the prompt.
    pub place: Place,
    /// Learning rate; `None`: the usual one.
    pub learning_rate: Option<f64>,
    /// Optimiser steps.
    pub steps: usize,
}

/// What came of a lesson.
#[derive(Clone, PartialEq, Debug)]
pub struct Taught {
    /// The adapter.
    pub adapter: String,
    /// Mean loss of the reply's tokens before the first step, in nats.
    pub loss_before: f64,
    /// The same after the last.
    pub loss_after: f64,
    /// Tokens learnt from.
    pub tokens: usize,
    /// From its turn to its file.
    pub duration: Duration,
    /// Lessons of this adapter since the start.
    pub generation: u64,
    /// Optimiser steps.
    pub steps: usize,
    /// The slot that now holds the taught reply.
    pub slot: Option<usize>,
}
