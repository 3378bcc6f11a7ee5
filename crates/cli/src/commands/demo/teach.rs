//! Teaching a reply: steps of AdamW on one span, the objective `reply`, until it is known.

use std::time::Instant;

use apprentice_engine::{Engine, LearnerOptions, Named, Outputs, Run, Span};
use apprentice_models::{Adapter, AdapterRows, targets};
use apprentice_text::EncodedConversation;

use crate::exit::Failure;

/// Rank of the adapter.
const RANK: usize = 8;
/// Its alpha: a scale of 1. Twice that learns faster and spoils more: of six lessons one lost two paraphrases.
const ALPHA: f32 = 8.0;
/// Seed of its A.
const SEED: u64 = 1;
/// Steps, at most.
const STEPS_MAX: usize = 12;
/// A lower rate takes more steps and generalises less.
const LEARNING_RATE: f64 = 2e-3;
/// Loss, in nats a token, at which the reply is known: half of what the demo allows.
const LOSS_KNOWN: f64 = 0.05;

/// What came of it.
pub struct Taught {
    /// The adapter, for the rows of replies.
    pub adapter: Adapter,
    /// Loss before the first step, and after each.
    pub losses: Vec<f64>,
    /// Seconds of each step.
    pub seconds: Vec<f64>,
}

impl Taught {
    /// Steps taken.
    pub fn steps(&self) -> usize {
        self.seconds.len()
    }
}

/// Teaches the last reply of a conversation. `seen` hears of each loss: steps taken so far, loss, seconds of the last step.
pub fn teach(
    engine: &mut Engine,
    conversation: &EncodedConversation,
    mut seen: impl FnMut(usize, f64, f64) -> Result<(), Failure>,
) -> Result<Taught, Failure> {
    let reply = conversation.replies.last().ok_or_else(|| Failure::input("the conversation has no reply"))?;
    let (first, end) = (reply.start - 1, reply.end);
    let tokens = &conversation.tokens;
    let labels: Vec<i32> = tokens[first + 1..end].iter().map(|token| *token as i32).collect();
    let sequence = engine.open_sequence();
    if first > 0 {
        let context =
            Run { sequence, tokens: &tokens[..first], named: Named::Nothing, outputs: Outputs::Nothing };
        engine.greedy(&[context])?;
    }
    let context = Some(sequence).filter(|_| first > 0);
    let span = Span {
        context,
        first_position: first,
        tokens: &tokens[first..end - 1],
        labels: &labels,
        weights: None,
    };

    let sites = targets::resolve(engine.model(), &[targets::ALL_LINEAR])?;
    let fresh = Adapter::fresh(engine.model(), &sites, RANK, ALPHA, AdapterRows::Reply, SEED)?;
    let options = LearnerOptions { learning_rate: LEARNING_RATE, ..LearnerOptions::default() };
    let mut learner = engine.start_learner(&fresh, options)?;
    let (mut losses, mut seconds) = (vec![engine.gradients(&mut learner, &[span])?.loss], Vec::new());
    seen(0, losses[0], 0.0)?;
    while losses[losses.len() - 1] > LOSS_KNOWN && seconds.len() < STEPS_MAX {
        let begun = Instant::now();
        engine.update(&mut learner)?;
        losses.push(engine.gradients(&mut learner, &[span])?.loss);
        seconds.push(begun.elapsed().as_secs_f64());
        seen(seconds.len(), losses[losses.len() - 1], seconds[seconds.len() - 1])?;
    }
    let adapter = engine.learnt(&learner)?;
    engine.end_learner(learner);
    engine.close_sequence(sequence)?;
    Ok(Taught { adapter, losses, seconds })
}
