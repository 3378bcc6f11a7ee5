//! Fine-tuning from a file: data sets, schedules, checkpoints, and the loop that takes the steps.
//!
//! Invariants: every line of a file is checked before anything is trained; a run that is stopped and resumed gives the bytes
//! of one that never stopped; nothing here computes with activations, and no step depends on the clock.
//!
//! - [`Dataset`] is a JSONL file as [`Sample`]s: tokens, labels and the rows of each span.
//! - [`Trainer`] takes optimiser steps and evaluates; [`train()`] calls it to the end, or until it is told to stop.
//! - [`Checkpoint`] is all that the rest of a run depends on; [`Log`] and [`Curve`] are what a reader sees of it.

#![forbid(unsafe_code)]

mod checkpoint;
mod curve;
mod data;
mod error;
mod files;
mod log;
mod record;
mod run;
mod sample;
mod schedule;
mod settings;
mod trainer;

pub use apprentice_engine::ErrorKind;
pub use checkpoint::{Checkpoint, Identity};
pub use curve::Curve;
pub use data::Dataset;
pub use error::{CheckpointError, LineError, TrainError};
pub use log::Log;
pub use run::{Ending, Observer, train};
pub use sample::{Sample, SampleRules};
pub use schedule::{Schedule, shuffled};
pub use settings::{MICRO_BATCH, Settings, Steps};
pub use trainer::{Evaluation, History, Step, Trainer, largest_step};
