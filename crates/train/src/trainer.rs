//! A run: the learner, where it stands in the data, and what it has seen.
//!
//! A step takes its samples by number, so where a run stands is one number. Under `reply` the context of a sample is read
//! plainly into pages, as it would be served by the base model, and its replies are spans over them.

use apprentice_engine::{
    Engine, EngineError, Gradients, Learner, LearnerShape, Losses, Named, Objective, Outputs, PAGE_POSITIONS,
    Run, SequenceId, Span, StepShape,
};
use apprentice_models::Adapter;
use serde::{Deserialize, Serialize};

use crate::checkpoint::Checkpoint;
use crate::data::Dataset;
use crate::error::TrainError;
use crate::sample::Sample;
use crate::settings::{MICRO_BATCH, Settings, Steps, micro_batches};

/// A run over a data set.
pub struct Trainer<'a> {
    data: &'a Dataset,
    settings: Settings,
    steps: Steps,
    learner: Learner,
    history: History,
}

/// What a run has seen. All the rest of where it stands follows from it and the learner's state.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// Mean loss of each step before it was taken, in nats.
    pub losses: Vec<f64>,
    /// Steps before each evaluation, and its mean loss.
    pub evaluations: Vec<(u64, f64)>,
}

/// A step that was taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// Its number, from 1.
    pub step: u64,
    /// Its epoch, from 1.
    pub epoch: u32,
    /// Mean loss of its labelled rows before it, in nats.
    pub loss: f64,
    /// Norm of its gradients, before clipping.
    pub norm: f64,
    /// Its learning rate.
    pub rate: f64,
    /// Rows that were learnt from.
    pub rows: usize,
    /// Those with a label.
    pub labelled: usize,
}

/// Losses on data that is not trained.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Evaluation {
    /// Steps before it.
    pub step: u64,
    /// Epochs before it.
    pub epoch: u32,
    /// Mean loss a labelled row, in nats.
    pub loss: f64,
    /// Labelled rows.
    pub labelled: usize,
}

impl History {
    /// Mean of the losses of the last epoch's steps; none without a step.
    pub fn last_epoch(&self, steps: &Steps) -> Option<f64> {
        let last = (self.losses.len() as u64).checked_sub(1)?;
        let first = (last / steps.an_epoch * steps.an_epoch) as usize;
        let losses = self.losses.get(first..)?;
        Some(losses.iter().sum::<f64>() / losses.len() as f64)
    }
}

impl<'a> Trainer<'a> {
    /// A run from its beginning: a copy of `adapter` is taken into training.
    ///
    /// # Errors
    /// Settings that cannot be; those of the engine.
    pub fn start(
        engine: &mut Engine,
        data: &'a Dataset,
        settings: Settings,
        adapter: &Adapter,
    ) -> Result<Trainer<'a>, TrainError> {
        let steps = settings.steps(data)?;
        let learner = engine.start_learner(adapter, settings.optimizer)?;
        Ok(Trainer { data, settings, steps, learner, history: History::default() })
    }

    /// A run from where a checkpoint of it stands. `adapter` is what the run began with.
    ///
    /// # Errors
    /// As [`Trainer::start`]; a checkpoint of another learner, or past the end.
    pub fn resume(
        engine: &mut Engine,
        data: &'a Dataset,
        settings: Settings,
        adapter: &Adapter,
        checkpoint: &Checkpoint,
    ) -> Result<Trainer<'a>, TrainError> {
        let mut trainer = Trainer::start(engine, data, settings, adapter)?;
        let restored = engine.restore_learner(&mut trainer.learner, &checkpoint.state);
        let (steps, losses) = (checkpoint.state.steps, checkpoint.history.losses.len() as u64);
        if restored.is_ok() && steps == losses && steps <= trainer.steps.schedule.steps {
            trainer.history = checkpoint.history.clone();
            return Ok(trainer);
        }
        trainer.end(engine);
        restored?;
        let expected = "as many steps as losses, and no more than the run has".to_owned();
        Err(TrainError::Setting { name: "checkpoint", expected, found: format!("{steps} and {losses}") })
    }

    /// Gives back what it holds.
    pub fn end(self, engine: &mut Engine) {
        engine.end_learner(self.learner);
    }

    /// Compiles what the steps need, and with `judged` what evaluations need, in the largest shape: smaller ones use it too.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn reserve(
        &mut self,
        engine: &mut Engine,
        shape: &StepShape,
        judged: bool,
    ) -> Result<(), TrainError> {
        Ok(engine.reserve_step(&mut self.learner, shape, judged)?)
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// Its steps.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }
    /// Steps taken.
    pub fn taken(&self) -> u64 {
        self.learner.steps()
    }
    /// Whether all steps are taken.
    pub fn finished(&self) -> bool {
        self.taken() >= self.steps.schedule.steps
    }
    /// Whether an epoch has just ended.
    pub fn epoch_ended(&self) -> bool {
        self.taken() > 0 && self.taken().is_multiple_of(self.steps.an_epoch)
    }
    /// Whether losses on data that is not trained are due: at the start, and when an epoch has ended.
    pub fn evaluation_due(&self) -> bool {
        (self.history.evaluations.len() as u64) <= self.taken() / self.steps.an_epoch
    }
    /// What it has seen.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The adapter as it stands.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn adapter(&self, engine: &Engine) -> Result<Adapter, TrainError> {
        Ok(engine.learnt(&self.learner)?)
    }

    /// The learner.
    pub(crate) fn learner(&self) -> &Learner {
        &self.learner
    }

    /// Takes the next step, or none where `stop` says so between two of its micro-batches: nothing has changed then.
    ///
    /// # Errors
    /// Those of the engine. The step is not taken then.
    pub fn step(&mut self, engine: &mut Engine, stop: &dyn Fn() -> bool) -> Result<Option<Step>, TrainError> {
        let number = self.taken();
        let samples = self.steps.samples(self.settings.seed, number);
        let samples: Vec<&Sample> = samples.into_iter().map(|index| &self.data.samples[index]).collect();
        let labelled = samples.iter().map(|sample| sample.labelled()).sum();
        engine.begin(&mut self.learner, labelled)?;
        let mut found: Option<Gradients> = None;
        for cut in micro_batches(&samples, self.settings.batch, engine.model().hyper().vocab) {
            if stop() {
                return Ok(None);
            }
            let learner = &mut self.learner;
            found = Some(with_spans(engine, self.settings.objective, &samples[cut], |engine, spans| {
                engine.accumulate(learner, spans)
            })?);
        }
        let Some(Gradients { loss, norm, labelled }) = found else { return Ok(None) };
        let rate = self.steps.schedule.rate(number);
        engine.update_at(&mut self.learner, rate)?;
        self.history.losses.push(loss);
        let rows = samples.iter().map(|sample| sample.rows()).sum();
        let (step, epoch) = (number + 1, self.steps.epoch(number) + 1);
        Ok(Some(Step { step, epoch, loss, norm, rate, rows, labelled }))
    }

    /// Losses on other data under the adapter as it stands, or none where `stop` says so in between.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn evaluate(
        &mut self,
        engine: &mut Engine,
        data: &Dataset,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Evaluation>, TrainError> {
        let samples: Vec<&Sample> = data.samples.iter().collect();
        let mut all = Losses { sum: 0.0, labelled: 0 };
        for cut in micro_batches(&samples, self.settings.batch, engine.model().hyper().vocab) {
            if stop() {
                return Ok(None);
            }
            let learner = &mut self.learner;
            let found = with_spans(engine, self.settings.objective, &samples[cut], |engine, spans| {
                engine.losses_onto(learner, spans, all.sum)
            })?;
            all = Losses { sum: found.sum, labelled: all.labelled + found.labelled };
        }
        let step = self.taken();
        let (loss, labelled) = (all.sum / all.labelled as f64, all.labelled);
        self.history.evaluations.push((step, loss));
        Ok(Some(Evaluation { step, epoch: self.steps.epoch(step), loss, labelled }))
    }
}

/// The largest micro-batch that data sets may come to, for the account of memory: in each of its sizes no smaller than any
/// that a run takes, whatever the order of its samples.
pub fn largest_step<'d>(
    data: impl IntoIterator<Item = &'d Dataset>,
    settings: &Settings,
    learner: &LearnerShape,
    vocab: usize,
) -> StepShape {
    let samples: Vec<&Sample> = data.into_iter().flat_map(|data| &data.samples).collect();
    let most = |size: &dyn Fn(&Sample) -> usize, limit: usize| {
        let mut sizes: Vec<usize> = samples.iter().map(|sample| size(sample)).collect();
        sizes.sort_unstable_by(|left, right| right.cmp(left));
        let one = sizes.first().copied().unwrap_or(0);
        sizes.into_iter().take(settings.batch).fold(0, usize::saturating_add).min(limit.max(one))
    };
    let logits_rows = MICRO_BATCH.logits_bytes / (vocab.max(1) * size_of::<f32>());
    let pages = |sample: &Sample| sample.spans.len() * sample.context().div_ceil(PAGE_POSITIONS);
    let rows = most(&Sample::rows, MICRO_BATCH.rows);
    StepShape {
        sites: learner.sites.clone(),
        rank: learner.rank,
        rows,
        labelled: most(&Sample::labelled, logits_rows).min(rows),
        sequences: most(&|sample| sample.spans.len(), usize::MAX),
        context_pages: match settings.objective {
            Objective::All => 0,
            Objective::Reply => most(&pages, usize::MAX),
        },
    }
}

/// Calls `work` with the spans of samples, over sequences that hold their contexts.
fn with_spans<T>(
    engine: &mut Engine,
    objective: Objective,
    samples: &[&Sample],
    work: impl FnOnce(&mut Engine, &[Span<'_>]) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let mut contexts: Vec<Option<SequenceId>> = Vec::with_capacity(samples.len());
    for sample in samples {
        let read = objective == Objective::Reply && sample.context() > 0;
        contexts.push(read.then(|| engine.open_sequence()));
    }
    let runs = samples.iter().zip(&contexts).filter_map(|(sample, context)| {
        let tokens = &sample.tokens[..sample.context()];
        Some(Run { sequence: (*context)?, tokens, named: Named::Nothing, outputs: Outputs::Nothing })
    });
    let runs: Vec<Run<'_>> = runs.collect();
    let read = if runs.is_empty() { Ok(()) } else { engine.greedy(&runs).map(drop) };
    let result = read.and_then(|()| {
        let spans = samples.iter().zip(&contexts).flat_map(|(sample, context)| {
            sample.spans.iter().map(|rows| Span {
                context: context.filter(|_| rows.start > 0),
                first_position: rows.start,
                tokens: &sample.tokens[rows.clone()],
                labels: &sample.labels[rows.clone()],
                weights: None,
            })
        });
        work(engine, &spans.collect::<Vec<_>>())
    });
    let closed = contexts.into_iter().flatten().try_for_each(|context| engine.close_sequence(context));
    let found = result?;
    closed?;
    Ok(found)
}
