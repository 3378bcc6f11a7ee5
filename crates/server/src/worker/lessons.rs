//! Lessons: they wait for their turn, are learnt one at a time between the steps of replies, and are kept before they are
//! answered.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use apprentice_engine::{Event, Job, JobId, Lesson};

use super::{Running, Worker};
use crate::command::{Answer, Taught, Teaching};
use crate::metrics::Metrics;
use crate::reject::Reject;
use crate::slots::Held;

/// A lesson that waits, with the slot that it came from and what that held.
pub(super) struct Waiting {
    pub(super) teaching: Box<Teaching>,
    pub(super) slot: Option<(usize, Vec<u32>)>,
    pub(super) answer: Answer<Taught>,
}

/// The lesson that is being learnt.
pub(super) struct Current {
    pub(super) lesson: Waiting,
    pub(super) job: JobId,
    pub(super) begun: Instant,
    pub(super) fresh: bool,
}

impl Running {
    pub(super) fn enqueue_lesson(&mut self, teaching: Box<Teaching>, answer: Answer<Taught>) {
        match self.check_lesson(&teaching) {
            Ok(slot) => self.lessons.push_back(Waiting { teaching, slot, answer }),
            Err(reject) => {
                self.worker.metrics.lessons_failed.fetch_add(1, Relaxed);
                let _ = answer.send(Err(reject));
            }
        }
    }

    /// Refuses a lesson that cannot be; gives the slot that it is about, and what that holds.
    fn check_lesson(&self, teaching: &Teaching) -> Result<Option<(usize, Vec<u32>)>, Reject> {
        let Worker { shelf, slots, engine, queue, .. } = &self.worker;
        if self.lessons.len() >= *queue {
            return Err(Reject::busy());
        }
        shelf.check_pupil(&teaching.adapter)?;
        let (found, limit) = (teaching.tokens.len(), engine.options().context);
        if found > limit {
            return Err(Reject::context(found, limit).at("messages"));
        }
        if teaching.place.is_anywhere() {
            return Ok(None);
        }
        let (slot, held) = slots.held(&teaching.place)?;
        held.check(&teaching.tokens[..teaching.reply_start])
            .map_err(|reject| reject.or_at(teaching.place.param()))?;
        Ok(Some((slot, held.tokens.clone())))
    }

    /// Begins the next lesson, if none is being learnt.
    pub(super) fn begin_lesson(&mut self) {
        while self.lesson.is_none() {
            let Some(waiting) = self.lessons.pop_front() else { return };
            match self.submit_lesson(&waiting.teaching) {
                Ok((job, fresh)) => {
                    self.lesson = Some(Current { lesson: waiting, job, begun: Instant::now(), fresh });
                }
                Err(reject) => self.refuse_lesson(waiting, reject),
            }
        }
    }

    fn submit_lesson(&mut self, teaching: &Teaching) -> Result<(JobId, bool), Reject> {
        let Worker { shelf, engine, .. } = &mut self.worker;
        let pupil = shelf.pupil(engine, &teaching.adapter)?;
        let lesson = Lesson {
            adapter: pupil.live,
            tokens: teaching.tokens.clone(),
            replies: std::iter::once(teaching.reply_start..teaching.tokens.len()).collect(),
            objective: pupil.objective,
            steps: teaching.steps,
            learning_rate: teaching.learning_rate,
        };
        match engine.submit(Job::Learn(lesson)) {
            Ok(job) => Ok((job, pupil.fresh)),
            Err(error) => {
                if pupil.fresh {
                    shelf.unmake(engine, &teaching.adapter);
                }
                Err(error.into())
            }
        }
    }

    pub(super) fn refuse_lesson(&self, waiting: Waiting, reject: Reject) {
        self.worker.metrics.lessons_failed.fetch_add(1, Relaxed);
        let _ = waiting.answer.send(Err(reject));
    }

    pub(super) fn route_lesson(&mut self, event: Event) {
        match event {
            Event::Learnt { loss_before, loss_after, labelled, .. } => {
                let Some(current) = self.lesson.take() else { return };
                self.learnt(current, loss_before, loss_after, labelled);
            }
            Event::Failed { error, .. } => {
                let Some(current) = self.lesson.take() else { return };
                self.give_up(current, error.into());
            }
            Event::Started { .. } | Event::Stepped { .. } | Event::Token { .. } | Event::Finished { .. } => {}
        }
    }

    fn learnt(&mut self, current: Current, loss_before: f64, loss_after: f64, labelled: usize) {
        let name = &current.lesson.teaching.adapter;
        let Worker { shelf, engine, .. } = &mut self.worker;
        let kept = shelf.learnt(engine, name).and_then(|()| shelf.entry(name).map(|entry| entry.generation));
        let generation = match kept {
            Ok(generation) => generation,
            Err(reject) => return self.give_up(current, reject),
        };
        let Current { lesson: Waiting { teaching, slot, answer }, begun, .. } = current;
        let taught = Taught {
            adapter: teaching.adapter,
            loss_before,
            loss_after,
            tokens: labelled,
            duration: begun.elapsed(),
            generation,
            steps: teaching.steps,
            slot: slot.as_ref().map(|(index, _)| *index),
        };
        let Metrics { lessons, lesson_ms, .. } = &*self.worker.metrics;
        lessons.fetch_add(1, Relaxed);
        lesson_ms.fetch_add(taught.duration.as_millis() as u64, Relaxed);
        if let Some((index, before)) = slot {
            let held = Held {
                tokens: teaching.tokens,
                reply_start: teaching.reply_start,
                messages: teaching.messages,
                adapter: Some(taught.adapter.clone()),
            };
            self.worker.slots.replace(index, &before, held);
        }
        let _ = answer.send(Ok(taught));
    }

    /// A lesson was not carried out: an adapter that was made for it is not there.
    pub(super) fn give_up(&mut self, current: Current, reject: Reject) {
        if current.fresh {
            let Worker { shelf, engine, .. } = &mut self.worker;
            shelf.unmake(engine, &current.lesson.teaching.adapter);
        }
        self.refuse_lesson(current.lesson, reject);
    }
}
