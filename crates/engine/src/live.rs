//! Adapters in training: each generation is loaded as an adapter of its own, which never changes; a lesson loads the next.
//!
//! A reply keeps the generation that it began with. A generation that is no longer the newest is unloaded when no reply
//! names it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apprentice_models::{Adapter, AdapterRows, Model, targets};

use crate::bank::AdapterId;
use crate::engine::{Engine, Named};
use crate::error::EngineError;
use crate::job::LiveId;
use crate::learner::{Learner, LearnerOptions};
use crate::learner_state::LearnerState;

/// Optimiser steps of a lesson that says nothing else.
pub const TEACHING_STEPS: usize = 5;
/// Rank of an adapter that is taught in conversation.
pub const TEACHING_RANK: usize = 8;
/// Its alpha: a scale of 1.
const TEACHING_ALPHA: f32 = 8.0;
/// Seed of its A.
const TEACHING_SEED: u64 = 1;

/// Adapters in training, and generations that wait for the last reply that names them.
#[derive(Default)]
pub(crate) struct Lives {
    next: u32,
    pub(crate) entries: BTreeMap<LiveId, Live>,
    retired: BTreeSet<AdapterId>,
}

/// An adapter in training.
pub(crate) struct Live {
    /// Absent while a lesson has it.
    pub(crate) learner: Option<Learner>,
    /// The newest generation.
    pub(crate) adapter: AdapterId,
    pub(crate) content: Arc<Adapter>,
    pub(crate) generation: u64,
    pub(crate) before: Option<Before>,
}

/// What an adapter in training was before its last lesson.
pub(crate) struct Before {
    pub(crate) state: LearnerState,
    pub(crate) content: Arc<Adapter>,
}

impl LearnerOptions {
    /// Settings of teaching in conversation: those of [`LearnerOptions::default`].
    pub fn teaching() -> LearnerOptions {
        LearnerOptions::default()
    }
}

/// A new adapter to be taught in conversation: on every linear but the head, adding nothing yet, for the rows of replies.
///
/// # Errors
/// A model without linears.
pub fn teaching_adapter(model: &Model) -> Result<Adapter, EngineError> {
    let sites = targets::resolve(model, &[targets::ALL_LINEAR])?;
    let adapter =
        Adapter::fresh(model, &sites, TEACHING_RANK, TEACHING_ALPHA, AdapterRows::Reply, TEACHING_SEED);
    Ok(adapter?)
}

impl Engine {
    /// Takes a copy of `adapter` into training, and loads it as generation 0.
    ///
    /// # Errors
    /// Pairs that do not fit the model; too many adapters; memory that the backend does not get.
    pub fn live(&mut self, adapter: Arc<Adapter>, options: LearnerOptions) -> Result<LiveId, EngineError> {
        let learner = self.start_learner(&adapter, options)?;
        let loaded = match self.load_adapter(adapter.clone()) {
            Ok(loaded) => loaded,
            Err(error) => {
                self.end_learner(learner);
                return Err(error);
            }
        };
        self.lives.next += 1;
        let id = LiveId(self.lives.next);
        let live =
            Live { learner: Some(learner), adapter: loaded, content: adapter, generation: 0, before: None };
        self.lives.entries.insert(id, live);
        Ok(id)
    }

    /// The newest generation of an adapter in training: its handle, its content, its number.
    pub fn live_adapter(&self, id: LiveId) -> Result<(AdapterId, Arc<Adapter>, u64), EngineError> {
        let live = self.live_at(id)?;
        Ok((live.adapter, live.content.clone(), live.generation))
    }

    /// Ends the training of an adapter. Replies that name it go on.
    ///
    /// # Errors
    /// A handle that is not known; a lesson that waits or runs.
    pub fn end_live(&mut self, id: LiveId) -> Result<(), EngineError> {
        self.refuse_busy(id)?;
        let live = self.lives.entries.remove(&id).ok_or(EngineError::Live(id.0))?;
        if let Some(learner) = live.learner {
            self.end_learner(learner);
        }
        self.retire(live.adapter);
        Ok(())
    }

    /// Takes the last lesson back: a new generation with the parameters, and for training the moments, of before it. Once;
    /// a second time there is nothing to take back.
    ///
    /// # Errors
    /// A handle that is not known; a lesson that waits or runs; no lesson since the last call.
    pub fn revert(&mut self, id: LiveId) -> Result<(AdapterId, Arc<Adapter>, u64), EngineError> {
        self.refuse_busy(id)?;
        let nothing = EngineError::Empty { what: "lesson to take back" };
        let before = self.live_at(id)?.before.as_ref().ok_or(nothing)?;
        let loaded = self.load_adapter(before.content.clone())?;
        let Some(mut live) = self.lives.entries.remove(&id) else { return Err(EngineError::Live(id.0)) };
        let old = match (&mut live.learner, &live.before) {
            (Some(learner), Some(before)) => match self.restore_learner(learner, &before.state) {
                Ok(()) => {
                    live.content = before.content.clone();
                    live.before = None;
                    live.generation += 1;
                    Ok(std::mem::replace(&mut live.adapter, loaded))
                }
                Err(error) => Err(error),
            },
            _ => Err(EngineError::Busy { adapter: id.0 }),
        };
        self.lives.entries.insert(id, live);
        let old = match old {
            Ok(old) => old,
            Err(error) => {
                self.retire(loaded);
                return Err(error);
            }
        };
        self.retire(old);
        self.live_adapter(id)
    }

    pub(crate) fn live_at(&self, id: LiveId) -> Result<&Live, EngineError> {
        self.lives.entries.get(&id).ok_or(EngineError::Live(id.0))
    }

    /// Whether an adapter may be named by rows to come.
    pub(crate) fn check_named(&self, named: Named) -> Result<(), EngineError> {
        match named {
            Named::From(_, adapter) if self.lives.retired.contains(&adapter) => {
                Err(EngineError::Adapter(adapter.0))
            }
            Named::From(_, adapter) => self.bank.index(adapter).map(drop),
            Named::Nothing => Ok(()),
        }
    }

    /// Unloads an adapter now, or when the last reply that names it ends.
    pub(crate) fn retire(&mut self, adapter: AdapterId) {
        self.lives.retired.insert(adapter);
        self.unload_retired();
    }

    /// Unloads what nobody names any more.
    pub(crate) fn unload_retired(&mut self) {
        let jobs = &self.jobs;
        let unnamed: Vec<AdapterId> =
            self.lives.retired.extract_if(.., |adapter| !jobs.is_named(*adapter)).collect();
        for adapter in unnamed {
            // It is loaded: nothing but this unloads what is retired.
            let removed = self.bank.remove(adapter);
            debug_assert!(removed.is_ok(), "a retired adapter is loaded");
        }
    }

    fn refuse_busy(&self, id: LiveId) -> Result<(), EngineError> {
        match self.jobs.is_learning(id) {
            true => Err(EngineError::Busy { adapter: id.0 }),
            false => Ok(()),
        }
    }
}
