//! Where the time of runs goes: for each kind of step what its kernels took, summed over workers.
//!
//! Taking it costs two looks at the clock for every call of a kernel, half of which lands in the kernel's time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What runs have spent since it was taken last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// Runs and parts of runs.
    pub runs: u64,
    /// Time inside of them, from the first check of their bindings to the last kernel.
    pub total: Duration,
    /// Kinds of steps in the order in which they were first seen.
    pub kinds: Vec<Kind>,
}

/// Steps that do the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kind {
    /// The op, of a product also the shape of its weight.
    pub name: String,
    /// Calls of kernels.
    pub calls: u64,
    /// Time in kernels, summed over workers.
    pub time: Duration,
}

/// Handle to the times of a backend. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Times(Arc<Mutex<Spent>>);

/// What one worker has spent on a kind.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) time: Duration,
}

impl Times {
    /// What was spent, and begins anew.
    pub fn take(&self) -> Spent {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = spent.kinds.iter().map(|kind| Kind { name: kind.name.clone(), ..Kind::default() });
        let empty = Spent { kinds: kinds.collect(), ..Spent::default() };
        std::mem::replace(&mut spent, empty)
    }

    /// The number of a kind.
    pub(crate) fn kind(&self, name: String) -> usize {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = spent.kinds.iter().position(|kind| kind.name == name);
        known.unwrap_or_else(|| {
            spent.kinds.push(Kind { name, ..Kind::default() });
            spent.kinds.len() - 1
        })
    }

    /// Adds a run; tallies are taken and left empty.
    pub(crate) fn add<'a>(&self, total: Duration, tallies: impl Iterator<Item = &'a mut Vec<Tally>>) {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spent.runs += 1;
        spent.total += total;
        for tallies in tallies {
            for (kind, tally) in spent.kinds.iter_mut().zip(tallies) {
                kind.calls += tally.calls;
                kind.time += tally.time;
                *tally = Tally::default();
            }
        }
    }
}

impl Spent {
    /// Time in kernels, summed over workers.
    pub fn kernels(&self) -> Duration {
        self.kinds.iter().map(|kind| kind.time).sum()
    }
}
