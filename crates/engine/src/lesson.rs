//! A lesson in progress: its context is read as prompts are, then it takes its steps one slice at a time, and its last act is
//! to load the next generation. Until then nothing that anybody can see has changed.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::{Engine, Named};
use crate::error::EngineError;
use crate::job::{Event, JobId, Lesson, Objective};
use crate::learn::Prepared;
use crate::learner::Learner;
use crate::learner_state::LearnerState;
use crate::live::Before;
use crate::prefix::{Holding, Row};
use crate::scheduler::{Kind, Running, Work};
use crate::sequence::SequenceId;
use crate::spans::{MicroBatch, Span};

/// A lesson whose context is in pages.
pub(crate) struct Learning {
    pub(crate) id: JobId,
    pub(crate) lesson: Lesson,
    holding: Holding,
    rows: Vec<Row>,
    /// The context as a sequence; its pages are those of `holding`.
    context: SequenceId,
    learner: Learner,
    /// The learner as the lesson found it.
    before: LearnerState,
    labels: Vec<i32>,
    labelled: usize,
    stage: Stage,
    steps: usize,
    loss_before: f64,
}

/// What the next slice does.
enum Stage {
    /// Begins the sums of a step.
    Begin,
    /// Adds the gradients of a cut of the step's spans.
    Gradient(Part),
    /// Takes the optimiser step.
    Update,
    /// Adds the losses of a cut after the last step.
    Judge(Part, f64),
    /// Loads the next generation.
    Load(f64),
}

/// A place in the runs of a step: which cut of its spans, and where in its run.
#[derive(Default)]
struct Part {
    cut: usize,
    run: Option<Prepared>,
    from: usize,
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
        let (labels, spans) = (lesson.labels(), lesson.spans());
        for rows in &spans {
            let labelled = labels[rows.clone()].iter().filter(|label| **label >= 0).count();
            self.check_step(rows.len(), labelled)?;
        }
        let context = spans.last().map_or(0, |rows| rows.start);
        let tokens = lesson.tokens[..context].to_vec();
        let rows = tokens.iter().map(|token| Row { token: *token, content: 0 }).collect();
        Ok(Work { kind: Kind::Lesson(Box::new(lesson)), tokens, rows, named: Named::Nothing })
    }

    /// The context of a lesson is read: it learns from now on.
    pub(crate) fn start_lesson(&mut self, job: Running, events: &mut Vec<Event>) {
        let Running { id, work, holding, computed } = job;
        let Kind::Lesson(lesson) = work.kind else { return };
        let (learner, before) = match self.take_learner(&lesson) {
            Ok(taken) => taken,
            Err(error) => {
                self.cache.release(holding, &work.rows, computed);
                events.push(Event::Failed { job: id, error });
                return;
            }
        };
        let context = self.lend_sequence(work.tokens, holding.tables.clone());
        let labels = lesson.labels();
        self.jobs.learning = Some(Learning {
            id,
            holding,
            rows: work.rows,
            context,
            learner,
            before,
            labelled: labels.iter().filter(|label| **label >= 0).count(),
            labels,
            stage: Stage::Begin,
            steps: 0,
            loss_before: 0.0,
            lesson: *lesson,
        });
    }

    /// Does one slice of the lesson in progress: about `limit` FLOPs. Whether it took them all.
    pub(crate) fn learn_slice(&mut self, limit: u64, events: &mut Vec<Event>) -> bool {
        let Some(mut learning) = self.jobs.learning.take() else { return false };
        match self.learn_part(&mut learning, limit, events) {
            Ok(Slice::More { full }) => {
                self.jobs.learning = Some(learning);
                full
            }
            Ok(Slice::Done) => {
                self.end_lesson(learning);
                false
            }
            Err(error) => {
                events.push(Event::Failed { job: learning.id, error });
                self.jobs.learning = Some(learning);
                self.abandon_lesson();
                false
            }
        }
    }

    /// Drops the lesson in progress: its adapter is as it was before.
    pub(crate) fn abandon_lesson(&mut self) {
        let Some(mut learning) = self.jobs.learning.take() else { return };
        // The state is of this learner and fits; a backend that cannot be written to has failed the learner as well.
        let restored = self.restore_learner(&mut learning.learner, &learning.before);
        debug_assert!(restored.is_ok(), "a learner takes its own state: {restored:?}");
        self.end_lesson(learning);
    }

    fn take_learner(&mut self, lesson: &Lesson) -> Result<(Learner, LearnerState), EngineError> {
        let id = lesson.adapter;
        let live = self.live_at(id)?;
        let state = self.learner_state(live.learner.as_ref().ok_or(EngineError::Busy { adapter: id.0 })?)?;
        let live = self.lives.entries.get_mut(&id).ok_or(EngineError::Live(id.0))?;
        let learner = live.learner.take().ok_or(EngineError::Busy { adapter: id.0 })?;
        Ok((learner, state))
    }

    fn learn_part(
        &mut self,
        learning: &mut Learning,
        limit: u64,
        events: &mut Vec<Event>,
    ) -> Result<Slice, EngineError> {
        let stage = std::mem::replace(&mut learning.stage, Stage::Begin);
        let (next, full) = match stage {
            Stage::Begin => {
                self.begin(&mut learning.learner, learning.labelled)?;
                (Stage::Gradient(Part::default()), false)
            }
            Stage::Gradient(part) => self.gradient_part(learning, part, limit, events)?,
            Stage::Update => {
                let own = learning.learner.options().learning_rate;
                let rate = learning.lesson.learning_rate.unwrap_or(own);
                self.update_at(&mut learning.learner, rate)?;
                learning.steps += 1;
                let is_last = learning.steps == learning.lesson.steps;
                (if is_last { Stage::Judge(Part::default(), 0.0) } else { Stage::Begin }, false)
            }
            Stage::Judge(part, sum) => self.judge_part(learning, part, sum, limit)?,
            Stage::Load(loss_after) => {
                events.push(self.load_generation(learning, loss_after)?);
                return Ok(Slice::Done);
            }
        };
        learning.stage = next;
        Ok(Slice::More { full })
    }

    fn gradient_part(
        &mut self,
        learning: &mut Learning,
        mut part: Part,
        limit: u64,
        events: &mut Vec<Event>,
    ) -> Result<(Stage, bool), EngineError> {
        let Learning { lesson, learner, labels, context, .. } = learning;
        let spans = spans_of(lesson, labels, *context);
        let cuts = self.micro_batches(&spans, MicroBatch::default());
        let ready = match part.run.take() {
            Some(ready) => ready,
            None => self.prepare(learner, &spans[cuts[part.cut].clone()])?,
        };
        if let Some(from) = self.run_prepared(learner, &ready, part.from, limit)? {
            return Ok((Stage::Gradient(Part { run: Some(ready), from, ..part }), true));
        }
        let gradients = self.take_sums(learner, &ready)?;
        if part.cut + 1 < cuts.len() {
            return Ok((Stage::Gradient(Part { cut: part.cut + 1, ..Part::default() }), false));
        }
        if learning.steps == 0 {
            learning.loss_before = gradients.loss;
        }
        events.push(Event::Stepped { job: learning.id, step: learning.steps, loss: gradients.loss });
        Ok((Stage::Update, false))
    }

    fn judge_part(
        &mut self,
        learning: &mut Learning,
        mut part: Part,
        sum: f64,
        limit: u64,
    ) -> Result<(Stage, bool), EngineError> {
        let Learning { lesson, learner, labels, context, labelled, .. } = learning;
        let spans = spans_of(lesson, labels, *context);
        let cuts = self.micro_batches(&spans, MicroBatch::default());
        let ready = match part.run.take() {
            Some(ready) => ready,
            None => self.prepare_judge(learner, &spans[cuts[part.cut].clone()], *labelled)?,
        };
        if let Some(from) = self.run_judge(learner, &ready, part.from, limit)? {
            return Ok((Stage::Judge(Part { run: Some(ready), from, ..part }, sum), true));
        }
        let sum = self.take_losses(learner, &ready, sum)?;
        let next = match part.cut + 1 < cuts.len() {
            true => Stage::Judge(Part { cut: part.cut + 1, ..Part::default() }, sum),
            false => Stage::Load(sum / *labelled as f64),
        };
        Ok((next, false))
    }

    /// Loads what was learnt: the lesson's commit.
    fn load_generation(&mut self, learning: &mut Learning, loss_after: f64) -> Result<Event, EngineError> {
        let content = Arc::new(self.learnt(&learning.learner)?);
        let adapter = self.load_adapter(content.clone())?;
        let id = learning.lesson.adapter;
        let Some(live) = self.lives.entries.get_mut(&id) else { return Err(EngineError::Live(id.0)) };
        let state = std::mem::replace(
            &mut learning.before,
            LearnerState { matrices: Vec::new(), steps: 0, powers: (1.0, 1.0) },
        );
        let old = std::mem::replace(&mut live.adapter, adapter);
        live.before = Some(Before { state, content: std::mem::replace(&mut live.content, content) });
        live.generation += 1;
        let generation = live.generation;
        self.retire(old);
        Ok(Event::Learnt {
            job: learning.id,
            loss_before: learning.loss_before,
            loss_after,
            labelled: learning.labelled,
            adapter,
            generation,
        })
    }

    /// Gives back what a lesson holds.
    fn end_lesson(&mut self, learning: Learning) {
        self.sequences.remove(&learning.context.0);
        let computed = learning.rows.len();
        self.cache.release(learning.holding, &learning.rows, computed);
        match self.lives.entries.get_mut(&learning.lesson.adapter) {
            Some(live) => live.learner = Some(learning.learner),
            None => self.end_learner(learning.learner),
        }
    }
}

/// What a slice left.
enum Slice {
    /// There is more to do; whether the slice ended because its FLOPs were spent.
    More {
        full: bool,
    },
    Done,
}

/// The spans of a lesson over the pages of its context.
fn spans_of<'a>(lesson: &'a Lesson, labels: &'a [i32], context: SequenceId) -> Vec<Span<'a>> {
    let span = |rows: Range<usize>| Span {
        context: Some(context).filter(|_| rows.start > 0),
        first_position: rows.start,
        tokens: &lesson.tokens[rows.clone()],
        labels: &labels[rows],
        weights: None,
    };
    lesson.spans().into_iter().map(span).collect()
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
