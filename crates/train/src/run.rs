//! The loop: evaluations and steps in their order, until all are done or somebody stops it.

use apprentice_engine::Engine;

use crate::data::Dataset;
use crate::error::TrainError;
use crate::trainer::{Evaluation, Step, Trainer};

/// Who hears of a run.
pub trait Observer {
    /// Whether the run is to stop. Once it says so it goes on saying so.
    fn stop(&self) -> bool;
    /// A step was taken.
    ///
    /// # Errors
    /// What ends the run.
    fn stepped(&mut self, step: &Step) -> Result<(), TrainError>;
    /// Losses on data that is not trained are known.
    ///
    /// # Errors
    /// What ends the run.
    fn evaluated(&mut self, evaluation: &Evaluation) -> Result<(), TrainError>;
    /// An epoch has ended, or the run is stopped: what it has come to can be kept.
    ///
    /// # Errors
    /// What ends the run.
    fn keep(&mut self, engine: &Engine, trainer: &Trainer<'_>) -> Result<(), TrainError>;
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All steps are taken.
    Complete,
    /// It was stopped, and kept.
    Stopped,
}

/// Goes on with a run to its end, or until it is stopped.
///
/// # Errors
/// Those of [`Trainer::step`], and the observer's. The run stands after the last step that was taken.
pub fn train(
    engine: &mut Engine,
    trainer: &mut Trainer<'_>,
    evaluation: Option<&Dataset>,
    observer: &mut dyn Observer,
) -> Result<Ending, TrainError> {
    loop {
        if observer.stop() {
            observer.keep(engine, trainer)?;
            return Ok(Ending::Stopped);
        }
        if let Some(data) = evaluation.filter(|_| trainer.evaluation_due()) {
            if let Some(found) = trainer.evaluate(engine, data, &|| observer.stop())? {
                observer.evaluated(&found)?;
            }
            continue;
        }
        if trainer.finished() {
            return Ok(Ending::Complete);
        }
        if let Some(step) = trainer.step(engine, &|| observer.stop())? {
            observer.stepped(&step)?;
            if trainer.epoch_ended() && !trainer.finished() {
                observer.keep(engine, trainer)?;
            }
        }
    }
}
