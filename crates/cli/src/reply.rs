//! One reply of an engine that does nothing else: submitted, stepped to its end, written as it comes.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use apprentice_engine::{
    AdapterId, Engine, Event, Finish, Generate, Job, JobId, Lesson, Logprobs, Named, Sampling,
};
use apprentice_models::AdapterRows;
use apprentice_text::{StopStrings, Text};

use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// A reply that is wanted.
pub struct Wanted<'a> {
    /// What it follows.
    pub prompt: &'a [u32],
    /// Which adapter the rows name.
    pub named: Named,
    /// Tokens, at most.
    pub limit: usize,
    /// How they are chosen.
    pub sampling: &'a Sampling,
    /// What ends it, besides the model's own ends.
    pub stop: &'a StopStrings,
    /// Log probabilities of each token and of so many most likely ones.
    pub logprobs: Option<usize>,
}

/// A reply.
pub struct Reply {
    /// Its text, without what ended it.
    pub text: String,
    /// Why it ends.
    pub end: ReplyEnd,
    /// Its tokens, with their log probabilities where these were wanted.
    pub tokens: Vec<(u32, Option<Logprobs>)>,
}

/// Why a reply ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyEnd {
    /// The engine ended it.
    Finished(Finish),
    /// A stop string came.
    StopString,
    /// Ctrl-C came.
    Interrupted,
}

/// What came of a lesson.
pub struct Learnt {
    /// Mean loss of the reply's tokens before the first step, in nats.
    pub loss_before: f64,
    /// The same after the last.
    pub loss_after: f64,
}

/// The engine, and the clock by which it shares its time.
pub struct Stepper<'a> {
    /// Runs the jobs.
    pub engine: &'a mut Engine,
    /// Whether to stop.
    pub interrupt: &'a Interrupt,
}

/// In a prompt that asks for a reply: from which row on the adapter is named; none where its invocation does not occur.
pub fn named_by_reply(rows: &AdapterRows, adapter: AdapterId, prompt: &[u32]) -> Option<Named> {
    rows.first_row(prompt).map(|first| Named::From(first, adapter))
}

impl Stepper<'_> {
    /// Writes a reply to `out`, whole characters as they come. What may become a stop string waits.
    pub fn reply(&mut self, text: &Text, wanted: &Wanted<'_>, out: &mut dyn Write) -> Result<Reply, Failure> {
        let job = self.engine.submit(Job::Generate(Generate {
            prompt: wanted.prompt.to_vec(),
            named: wanted.named,
            limit: wanted.limit,
            sampling: wanted.sampling.clone(),
            logprobs: wanted.logprobs,
            ends: Arc::from(text.end_ids()),
        }))?;
        let (mut decoder, mut stop) = (text.decoder(false), wanted.stop.clone());
        let (mut said, mut tokens) = (String::new(), Vec::new());
        let mut show = |said: &mut String, piece: &str| -> Result<(), Failure> {
            said.push_str(piece);
            out.write_all(piece.as_bytes())?;
            Ok(out.flush()?)
        };
        let end = self.run(job, |event| match event {
            Event::Token { token, logprobs, .. } => {
                tokens.push((token, logprobs));
                let (piece, stopped) = stop.push(&decoder.push(token)?);
                show(&mut said, &piece)?;
                Ok(stopped.then_some(ReplyEnd::StopString))
            }
            Event::Finished { reason, .. } => Ok(Some(ReplyEnd::Finished(reason))),
            _ => Ok(None),
        })?;
        let end = end.unwrap_or(ReplyEnd::Interrupted);
        if end != ReplyEnd::StopString {
            let (piece, _) = stop.push(&decoder.finish());
            show(&mut said, &(piece + &stop.finish()))?;
        }
        Ok(Reply { text: said, end, tokens })
    }

    /// Learns a lesson; nothing where Ctrl-C came, and then the adapter is as it was.
    pub fn learn(&mut self, lesson: Lesson) -> Result<Option<Learnt>, Failure> {
        let job = self.engine.submit(Job::Learn(lesson))?;
        self.run(job, |event| match event {
            Event::Learnt { loss_before, loss_after, .. } => Ok(Some(Learnt { loss_before, loss_after })),
            _ => Ok(None),
        })
    }

    /// Steps until `take` gives what was waited for, and ends the job there; none where Ctrl-C came first.
    fn run<T>(
        &mut self,
        job: JobId,
        mut take: impl FnMut(Event) -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        let begun = Instant::now();
        let found = loop {
            if self.interrupt.came() {
                break Ok(None);
            }
            let events = self.engine.step(begun.elapsed());
            match events.into_iter().filter(|event| event.job() == job).find_map(|event| match event {
                Event::Failed { error, .. } => Some(Err(Failure::from(error))),
                event => take(event).transpose(),
            }) {
                Some(found) => break found.map(Some),
                None if self.engine.idle() => {
                    unreachable!("a job ends with an event");
                }
                None => {}
            }
        };
        self.engine.cancel(job); // where it has ended, this is nothing
        found
    }
}
