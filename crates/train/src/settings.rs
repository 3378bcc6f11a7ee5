//! Settings of a run, and how its samples fall into steps and micro-batches.
//!
//! A step is one mean over the labelled rows of `batch * accumulate` samples; the last of an epoch takes what is left. How
//! it is cut into graphs changes no byte: `batch`, and what [`MICRO_BATCH`] says, bound memory only.

use std::ops::Range;

use apprentice_engine::{LearnerOptions, MicroBatch, Objective};

use crate::data::Dataset;
use crate::error::TrainError;
use crate::sample::Sample;
use crate::schedule::{Schedule, shuffled};

/// What one graph of a step takes at most; a longer span has one of its own.
pub const MICRO_BATCH: MicroBatch = MicroBatch { rows: 1024, logits_bytes: 256 << 20 };

/// Settings of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Which gradient is taken.
    pub objective: Objective,
    /// How often the data is gone through.
    pub epochs: u32,
    /// Samples of a micro-batch.
    pub batch: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
    /// Steps of warm-up; `None`: a twentieth of all.
    pub warmup: Option<u64>,
    /// Seed of the order of samples.
    pub seed: u64,
    /// The optimiser; its learning rate is the peak.
    pub optimizer: LearnerOptions,
}

/// Steps of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Steps {
    /// Samples of an epoch.
    pub samples: usize,
    /// Samples of a step.
    pub samples_a_step: usize,
    /// Steps of an epoch.
    pub an_epoch: u64,
    /// Steps in all, and their rates.
    pub schedule: Schedule,
}

/// One in so many steps is warm-up, unless it is said otherwise.
const WARMUP_PART: u64 = 20;

impl Settings {
    /// The steps over a data set.
    ///
    /// # Errors
    /// A setting that cannot be.
    pub fn steps(&self, data: &Dataset) -> Result<Steps, TrainError> {
        self.check()?;
        let samples = data.samples.len();
        let samples_a_step = self.batch.saturating_mul(self.accumulate);
        let an_epoch = samples.div_ceil(samples_a_step) as u64;
        let steps = an_epoch.saturating_mul(u64::from(self.epochs));
        let warmup = self.warmup.unwrap_or(steps.div_ceil(WARMUP_PART));
        if warmup > steps {
            let expected = format!("at most the {steps} steps of the run");
            return Err(TrainError::Setting { name: "warmup", expected, found: warmup.to_string() });
        }
        let schedule = Schedule { peak: self.optimizer.learning_rate, warmup, steps };
        Ok(Steps { samples, samples_a_step, an_epoch, schedule })
    }

    fn check(&self) -> Result<(), TrainError> {
        let wrong = |name, expected: &str, found: String| {
            Err(TrainError::Setting { name, expected: expected.to_owned(), found })
        };
        let LearnerOptions { learning_rate, betas, eps, weight_decay, clip_norm } = self.optimizer;
        let at_least_0 = |value: f64| value.is_finite() && value >= 0.0;
        for (name, count) in
            [("epochs", self.epochs as usize), ("batch", self.batch), ("accumulate", self.accumulate)]
        {
            if count == 0 {
                return wrong(name, "at least 1", "0".to_owned());
            }
        }
        if self.epochs >= 1 << 31 {
            return wrong("epochs", "less than 2^31", self.epochs.to_string());
        }
        if !(learning_rate.is_finite() && learning_rate > 0.0) {
            return wrong("lr", "a number above 0", learning_rate.to_string());
        }
        for (name, value) in [("weight-decay", weight_decay), ("eps", eps)] {
            if !at_least_0(value) {
                return wrong(name, "a number of at least 0", value.to_string());
            }
        }
        if let Some(beta) = [betas.0, betas.1].into_iter().find(|beta| !(0.0..1.0).contains(beta)) {
            return wrong("betas", "numbers of at least 0 and below 1", beta.to_string());
        }
        match clip_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            Some(norm) => wrong("clip", "a number above 0", norm.to_string()),
            None => Ok(()),
        }
    }
}

impl Steps {
    /// Epoch of a step, both counted from 0.
    pub fn epoch(&self, step: u64) -> u32 {
        // Below the number of epochs, which is a u32.
        (step / self.an_epoch) as u32
    }

    /// Samples of a step, counted from 0.
    pub fn samples(&self, seed: u64, step: u64) -> Vec<usize> {
        let order = shuffled(seed, self.epoch(step), self.samples);
        let first = (step % self.an_epoch) as usize * self.samples_a_step;
        let last = first.saturating_add(self.samples_a_step).min(order.len());
        order[first..last].to_vec()
    }
}

/// Micro-batches of samples: at most `batch`, and no more than [`MICRO_BATCH`], unless one sample is.
pub(crate) fn micro_batches(samples: &[&Sample], batch: usize, vocab: usize) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    for first in (0..samples.len()).step_by(batch.max(1)) {
        let last = first.saturating_add(batch).min(samples.len());
        let pieces: Vec<(usize, usize)> =
            samples[first..last].iter().map(|sample| (sample.rows(), sample.labelled())).collect();
        let inside = apprentice_engine::cut_step(&pieces, vocab, MICRO_BATCH);
        cuts.extend(inside.into_iter().map(|cut| first + cut.start..first + cut.end));
    }
    cuts
}
