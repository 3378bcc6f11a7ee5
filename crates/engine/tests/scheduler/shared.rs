//! Running jobs to their end, and what came of them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apprentice_cpu::{Cpu, CpuOptions};
use apprentice_engine::{
    Engine, Event, Finish, Generate, Job, JobId, Lesson, LiveId, Logprobs, Named, Objective, Options,
    Sampling,
};
use apprentice_graph::Format;
use apprentice_models::Model;

use crate::common::{self, Setup, bits};

/// A reply as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<u32>,
    pub finish: Option<Finish>,
    pub error: Option<String>,
}

/// What the jobs of a run answered.
#[derive(Default)]
pub struct Answers {
    pub replies: BTreeMap<JobId, Reply>,
    /// Positions that were found.
    pub cached: BTreeMap<JobId, usize>,
    /// Losses of steps, then the loss after the last.
    pub lessons: BTreeMap<JobId, Vec<u64>>,
    pub steps: usize,
}

impl Answers {
    /// One step of the engine, a second after the one before.
    pub fn step(&mut self, engine: &mut Engine) {
        self.steps += 1;
        assert!(self.steps < 20_000, "the engine does not come to an end");
        for event in engine.step(a_second_later()) {
            let job = event.job();
            let reply = self.replies.entry(job).or_default();
            match event {
                Event::Started { cached, .. } => drop(self.cached.insert(job, cached)),
                Event::Token { token, logprobs, .. } => {
                    reply.tokens.push(token);
                    reply.logprobs.extend(logprobs.iter().flat_map(flat));
                }
                Event::Finished { reason, .. } => reply.finish = Some(reason),
                Event::Failed { error, .. } => reply.error = Some(error.to_string()),
                Event::Stepped { loss, .. } => self.lessons.entry(job).or_default().push(loss.to_bits()),
                Event::Learnt { loss_after, .. } => {
                    self.lessons.entry(job).or_default().push(loss_after.to_bits());
                }
            }
        }
    }

    /// Steps until nothing is left.
    pub fn finish(&mut self, engine: &mut Engine) {
        while !engine.idle() {
            self.step(engine);
        }
    }
}

thread_local! {
    /// The clock of a test.
    static SECONDS: Cell<u64> = const { Cell::new(0) };
}

fn a_second_later() -> Duration {
    Duration::from_secs(SECONDS.replace(SECONDS.get() + 1))
}

fn flat(logprobs: &Logprobs) -> Vec<u32> {
    let mut all = bits(&[logprobs.chosen]);
    all.extend(logprobs.top.iter().flat_map(|(token, logprob)| [*token, logprob.to_bits()]));
    all
}

/// A greedy reply with log probabilities: every one of its rows' logits has a part in them.
pub fn greedy(prompt: Vec<u32>, named: Named, limit: usize) -> Generate {
    let sampling = Sampling::greedy();
    Generate { prompt, named, limit, sampling, logprobs: Some(3), ends: Arc::default() }
}

/// A sampled one.
pub fn sampled(prompt: Vec<u32>, named: Named, limit: usize, seed: u64) -> Generate {
    let sampling = Sampling { temperature: 1.0, seed, ..Sampling::greedy() };
    Generate { sampling, ..greedy(prompt, named, limit) }
}

pub fn lesson(adapter: LiveId, tokens: Vec<u32>, reply: std::ops::Range<usize>, steps: usize) -> Lesson {
    let objective = Objective::Reply;
    Lesson { adapter, tokens, replies: vec![reply], objective, steps, learning_rate: None }
}

pub fn submit(engine: &mut Engine, generate: &Generate) -> JobId {
    engine.submit(Job::Generate(generate.clone())).unwrap()
}

/// The reply of a job with nothing else to do and nothing in pages.
pub fn alone(engine: &mut Engine, generate: &Generate) -> Reply {
    engine.forget_cached();
    warm(engine, generate).0
}

/// The reply of a job with nothing else to do, and how much of its prompt was found.
pub fn warm(engine: &mut Engine, generate: &Generate) -> (Reply, usize) {
    let job = submit(engine, generate);
    let mut answers = Answers::default();
    answers.finish(engine);
    (answers.replies.remove(&job).unwrap(), answers.cached[&job])
}

/// An engine with room for `sequences` times `context` positions.
pub fn sized(model: Model, setup: Setup, context: usize, sequences: usize) -> Engine {
    let options = CpuOptions { threads: Some(setup.threads), level: Some(setup.level), poison: setup.poison };
    let backend = Box::new(Cpu::new(options).unwrap());
    let options = Options { cache: setup.cache, context, sequences, segment: 128, numerics: setup.numerics };
    Engine::new(model, backend, options).unwrap()
}

/// Nothing holds a page, and nothing is kept once it is given up.
pub fn assert_no_leak(engine: &mut Engine) {
    assert!(engine.idle());
    assert_eq!(engine.stats().pages_used, 0, "pages are held");
    engine.forget_cached();
    assert_eq!(engine.stats().pages_cached, 0, "pages are kept");
}

/// A golden model, or `q4_k` and `q8_0`: models whose products are rounded.
pub fn model(name: &str) -> Model {
    match name {
        "q4_k" => common::tiny_in(Format::Q4K),
        "q8_0" => common::tiny_in(Format::Q8_0),
        golden => common::tiny(golden),
    }
}
