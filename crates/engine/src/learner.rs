//! The learner: an adapter in training, with its moments, in stores of the backend.
//!
//! A matrix has two generations of its parameter and moments, and two of the sum of its gradients so far. A run reads one
//! and writes the other; to swap which is which is the commit, so a run that fails has changed nothing.

use std::collections::HashMap;

use apprentice_graph::{Graph, ProgramId, StoreId};
use apprentice_models::{AdapterRows, Request, names};

use crate::program::{Program, SiteBinding};
use crate::update::{Trained, UpdateNames, gradient, next_gradient};

/// Settings of AdamW and clipping. Defaults are PyTorch's, with a learning rate that LoRA takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearnerOptions {
    /// Learning rate of steps that give none of their own.
    pub learning_rate: f64,
    /// Decay rates of the moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Norm that gradients are clipped to; `None`: not clipped.
    pub clip_norm: Option<f64>,
}

impl Default for LearnerOptions {
    fn default() -> LearnerOptions {
        LearnerOptions {
            learning_rate: 2e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            clip_norm: Some(1.0),
        }
    }
}

/// An adapter in training.
pub struct Learner {
    pub(crate) pairs: Vec<PairShape>,
    pub(crate) rows: AdapterRows,
    pub(crate) rank_rows: usize,
    pub(crate) matrices: Vec<Trained>,
    /// Stores of each matrix, in the order of `matrices`.
    pub(crate) stores: Vec<Matrix>,
    /// What every store is called in the graphs: the matrix that it belongs to and which of its stores it is.
    pub(crate) names: HashMap<String, (usize, Part)>,
    /// The generation of parameters and moments that counts.
    pub(crate) current: usize,
    /// The sums of gradients that count.
    pub(crate) summed: usize,
    pub(crate) programs: HashMap<Request, Program>,
    /// Losses without gradients.
    pub(crate) judges: HashMap<Request, Program>,
    pub(crate) update: (ProgramId, Graph),
    pub(crate) tables: Vec<[i32; 2]>,
    pub(crate) scales: Vec<[f32; 1]>,
    pub(crate) options: LearnerOptions,
    pub(crate) steps: u64,
    pub(crate) powers: (f64, f64),
    /// The step whose gradients are being summed.
    pub(crate) sums: Option<Sums>,
}

/// What a step has summed so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sums {
    /// Labelled rows of the whole step.
    pub(crate) expected: usize,
    /// Those that were summed.
    pub(crate) labelled: usize,
    /// Their weighted losses.
    pub(crate) loss: f64,
    /// Sum of squares of the gradients.
    pub(crate) squares: f64,
}

/// Where a pair sits.
pub(crate) struct PairShape {
    pub(crate) site: usize,
    pub(crate) rank: usize,
    pub(crate) scale: f32,
}

/// Stores of one trained matrix.
pub(crate) struct Matrix {
    pub(crate) gradients: [StoreId; 2],
    pub(crate) generations: [Generation; 2],
}

/// Which store of a matrix.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Parameter,
    Gradient,
    Moment,
    Square,
    Next,
    NextGradient,
    NextMoment,
    NextSquare,
}

/// A parameter and its moments.
#[derive(Clone, Copy)]
pub(crate) struct Generation {
    pub(crate) parameter: StoreId,
    pub(crate) moment: StoreId,
    pub(crate) square: StoreId,
}

impl Matrix {
    /// All its stores.
    pub(crate) fn all(&self) -> impl Iterator<Item = StoreId> {
        let generations = self.generations.iter().flat_map(|g| [g.parameter, g.moment, g.square]);
        generations.chain(self.gradients)
    }
}

impl Learner {
    /// Optimiser steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Settings of its optimiser.
    pub fn options(&self) -> &LearnerOptions {
        &self.options
    }

    /// Changes the learning rate of the steps to come.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.options.learning_rate = rate;
    }

    /// Programs that were compiled for it, the update included.
    pub fn compiled(&self) -> usize {
        self.programs.len() + self.judges.len() + 1
    }

    /// What a site binds.
    pub(crate) fn site(&self, name: &str, site: usize) -> Option<SiteBinding<'_>> {
        let index = self.pairs.iter().position(|pair| pair.site == site)?;
        Some(SiteBinding {
            a: self.store(&names::adapter_a(name))?,
            b: self.store(&names::adapter_b(name))?,
            table: &self.tables[index],
            scales: &self.scales[index],
        })
    }

    /// The store behind a name of the learner's graphs.
    pub(crate) fn store(&self, name: &str) -> Option<StoreId> {
        let (matrix, part) = *self.names.get(name)?;
        let stores = &self.stores[matrix];
        let (now, next) = (stores.generations[self.current], stores.generations[1 - self.current]);
        Some(match part {
            Part::Gradient => stores.gradients[self.summed],
            Part::NextGradient => stores.gradients[1 - self.summed],
            Part::Parameter => now.parameter,
            Part::Moment => now.moment,
            Part::Square => now.square,
            Part::Next => next.parameter,
            Part::NextMoment => next.moment,
            Part::NextSquare => next.square,
        })
    }
}

/// The name of every store of the matrices.
pub(crate) fn store_names(matrices: &[Trained]) -> HashMap<String, (usize, Part)> {
    let names = matrices.iter().enumerate().flat_map(|(index, matrix)| {
        let at = UpdateNames::new(&matrix.name);
        [
            (matrix.name.clone(), Part::Parameter),
            (gradient(&matrix.name), Part::Gradient),
            (next_gradient(&matrix.name), Part::NextGradient),
            (at.moment, Part::Moment),
            (at.square, Part::Square),
            (at.next, Part::Next),
            (at.next_moment, Part::NextMoment),
            (at.next_square, Part::NextSquare),
        ]
        .map(|(name, part)| (name, (index, part)))
    });
    names.collect()
}
