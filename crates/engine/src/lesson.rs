//! A lesson in progress: its context is read as prompts are, then it takes its steps one slice at a time, and its last act is
//! to load the next generation. Until then nothing that anybody can see has changed.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::{Engine, Named};
use crate::error::EngineError;
use crate::job::{Event, JobId, Lesson, Objective};
use crate::learn::{Gradients, Learner, Span};
use crate::prefix::{Holding, Row};
use crate::scheduler::{Kind, Running, Work};
use crate::sequence::SequenceId;

/// A lesson whose context is in pages.
pub(crate) struct Learning {
    pub(crate) id: JobId,
    pub(crate) lesson: Lesson,
    holding: Holding,
    rows: Vec<Row>,
    /// The context as a sequence; its pages are those of `holding`.
    context: SequenceId,
    learner: Learner,
    labels: Vec<i32>,
    stage: Stage,
    steps: usize,
    loss_before: f64,
    labelled: usize,
}

/// What the next slice does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Gradient,
    Update,
    /// The loss after the last step.
    After,
}

impl Lesson {
    /// Positions of the rows of each span.
    fn spans(&self) -> Vec<Range<usize>> {
        match self.objective {
            Objective::All => std::iter::once(0..self.tokens.len()).collect(),
            Objective::Reply => self.replies.iter().map(|reply| reply.start - 1..reply.end - 1).collect(),
        }
    }

    /// The first row that is learnt from: what it sees must stay in pages.
    pub(crate) fn first_row(&self) -> usize {
        self.spans().first().map_or(0, |rows| rows.start)
    }

    /// The token that each position should predict, or -1.
    fn labels(&self) -> Vec<i32> {
        let mut labels = vec![-1; self.tokens.len()];
        for reply in &self.replies {
            for position in reply.start.max(1)..reply.end {
                labels[position - 1] = self.tokens[position] as i32;
            }
        }
        labels
    }
}

impl Engine {
    /// A lesson as work, once everything about it is found to be sound.
    pub(crate) fn lesson_work(&self, lesson: Lesson) -> Result<Work, EngineError> {
        self.live_at(lesson.adapter)?;
        self.check_tokens(&lesson.tokens)?;
        let (found, limit) = (lesson.tokens.len(), self.options.context);
        if found > limit {
            return Err(EngineError::Context { found, limit });
        }
        if lesson.steps == 0 {
            return Err(EngineError::Empty { what: "steps" });
        }
        if let Some(rate) = lesson.learning_rate.filter(|rate| !rate.is_finite() || *rate < 0.0) {
            let (expected, found) = ("a finite number from 0 on", rate.to_string());
            return Err(EngineError::Setting { setting: "learning rate", expected, found });
        }
        check_replies(&lesson)?;
        let labelled = lesson.labels().into_iter().filter(|label| *label >= 0).count();
        let spans = lesson.spans();
        self.check_step(spans.iter().map(Range::len).sum(), labelled)?;
        let context = spans.last().map_or(0, |rows| rows.start);
        let tokens = lesson.tokens[..context].to_vec();
        let rows = tokens.iter().map(|token| Row { token: *token, content: 0 }).collect();
        Ok(Work { kind: Kind::Lesson(Box::new(lesson)), tokens, rows, named: Named::Nothing })
    }

    /// The context of a lesson is read: it learns from now on.
    pub(crate) fn start_lesson(&mut self, job: Running, events: &mut Vec<Event>) {
        let Running { id, work, holding, computed } = job;
        let Kind::Lesson(lesson) = work.kind else { return };
        let live = self.lives.entries.get_mut(&lesson.adapter);
        let taken = live.and_then(|live| Some((live.learner.take()?, live.options.learning_rate)));
        let Some((mut learner, rate)) = taken else {
            self.cache.release(holding, &work.rows, computed);
            events.push(Event::Failed { job: id, error: EngineError::Live(lesson.adapter.0) });
            return;
        };
        learner.set_learning_rate(lesson.learning_rate.unwrap_or(rate));
        let context = self.lend_sequence(work.tokens, holding.tables.clone());
        let labels = lesson.labels();
        self.jobs.learning = Some(Learning {
            id,
            lesson: *lesson,
            holding,
            rows: work.rows,
            context,
            learner,
            labels,
            stage: Stage::Gradient,
            steps: 0,
            loss_before: 0.0,
            labelled: 0,
        });
    }

    /// Does one slice of the lesson in progress.
    pub(crate) fn learn_slice(&mut self, events: &mut Vec<Event>) {
        let Some(mut learning) = self.jobs.learning.take() else { return };
        let result = match learning.stage {
            Stage::Gradient => self.lesson_gradient(&mut learning, events).map(|()| None),
            Stage::Update => self.lesson_update(&mut learning).map(|()| None),
            Stage::After => self.finish_lesson(&mut learning).map(Some),
        };
        match result {
            Ok(None) => self.jobs.learning = Some(learning),
            Ok(Some(learnt)) => {
                events.push(learnt);
                self.end_lesson(learning);
            }
            Err(error) => {
                events.push(Event::Failed { job: learning.id, error });
                self.jobs.learning = Some(learning);
                self.abandon_lesson();
            }
        }
    }

    /// Drops the lesson in progress: its adapter is as it was before.
    pub(crate) fn abandon_lesson(&mut self) {
        let Some(mut learning) = self.jobs.learning.take() else { return };
        if learning.steps > 0 {
            self.restore(&mut learning);
        }
        self.end_lesson(learning);
    }

    fn lesson_gradient(
        &mut self,
        learning: &mut Learning,
        events: &mut Vec<Event>,
    ) -> Result<(), EngineError> {
        let gradients = self.lesson_gradients(learning)?;
        if learning.steps == 0 {
            (learning.loss_before, learning.labelled) = (gradients.loss, gradients.labelled);
        }
        events.push(Event::Stepped { job: learning.id, step: learning.steps, loss: gradients.loss });
        learning.stage = Stage::Update;
        Ok(())
    }

    fn lesson_update(&mut self, learning: &mut Learning) -> Result<(), EngineError> {
        self.update(&mut learning.learner)?;
        learning.steps += 1;
        learning.stage = if learning.steps == learning.lesson.steps { Stage::After } else { Stage::Gradient };
        Ok(())
    }

    /// The loss after the last step, and the next generation.
    fn finish_lesson(&mut self, learning: &mut Learning) -> Result<Event, EngineError> {
        let after = self.lesson_gradients(learning)?;
        let content = Arc::new(self.learnt(&learning.learner)?);
        let adapter = self.load_adapter(content.clone())?;
        let id = learning.lesson.adapter;
        let Some(live) = self.lives.entries.get_mut(&id) else { return Err(EngineError::Live(id.0)) };
        let old = std::mem::replace(&mut live.adapter, adapter);
        live.before = Some(std::mem::replace(&mut live.content, content));
        live.generation += 1;
        let generation = live.generation;
        self.retire(old);
        Ok(Event::Learnt {
            job: learning.id,
            loss_before: learning.loss_before,
            loss_after: after.loss,
            labelled: learning.labelled,
            adapter,
            generation,
        })
    }
}

impl Engine {
    fn lesson_gradients(&mut self, learning: &mut Learning) -> Result<Gradients, EngineError> {
        let lesson = &learning.lesson;
        let span = |rows: Range<usize>| Span {
            context: Some(learning.context).filter(|_| rows.start > 0),
            first_position: rows.start,
            tokens: &lesson.tokens[rows.clone()],
            labels: &learning.labels[rows.clone()],
            weights: None,
        };
        let spans: Vec<Span<'_>> = lesson.spans().into_iter().map(span).collect();
        self.gradients(&mut learning.learner, &spans)
    }

    /// Puts the learner back to where the lesson found it.
    fn restore(&mut self, learning: &mut Learning) {
        let Some(live) = self.lives.entries.get(&learning.lesson.adapter) else { return };
        let (content, options) = (live.content.clone(), live.options);
        if let Ok(fresh) = self.start_learner(&content, options) {
            self.end_learner(std::mem::replace(&mut learning.learner, fresh));
        }
    }

    /// Gives back what a lesson holds.
    fn end_lesson(&mut self, learning: Learning) {
        self.sequences.remove(&learning.context.0);
        let computed = learning.rows.len();
        self.cache.release(learning.holding, &learning.rows, computed);
        match self.lives.entries.get_mut(&learning.lesson.adapter) {
            Some(live) => {
                let mut learner = learning.learner;
                learner.set_learning_rate(live.options.learning_rate);
                live.learner = Some(learner);
            }
            None => self.end_learner(learning.learner),
        }
    }
}

fn check_replies(lesson: &Lesson) -> Result<(), EngineError> {
    if lesson.replies.is_empty() {
        return Err(EngineError::Empty { what: "replies" });
    }
    let mut free = usize::from(lesson.objective == Objective::Reply);
    for reply in &lesson.replies {
        let wrong = |reason| Err(EngineError::Span { position: reply.start, reason });
        if reply.start >= reply.end {
            return wrong("the reply has no tokens");
        }
        if reply.end > lesson.tokens.len() {
            return wrong("the reply ends after the conversation");
        }
        if reply.start == 0 && lesson.objective == Objective::Reply {
            return wrong("nothing comes before the reply");
        }
        if reply.start < free {
            return wrong("the reply begins before the one before it has ended");
        }
        free = reply.end;
    }
    Ok(())
}
