//! What the engine has done and holds, for those who watch it.

use crate::engine::Engine;

/// Counts since the engine was made, and of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Pages of all layer groups.
    pub pages_total: usize,
    /// Pages that sequences and jobs hold.
    pub pages_used: usize,
    /// Pages that hold rows nobody needs now, kept for whoever asks for the same.
    pub pages_cached: usize,
    /// Jobs whose rows are in batches, and lessons in progress.
    pub running: usize,
    /// Jobs that have not begun.
    pub waiting: usize,
    /// Tokens of replies that were computed one by one.
    pub decoded: u64,
    /// Positions of prompts that were computed.
    pub prompted: u64,
    /// Positions of prompts that were found in pages.
    pub cached: u64,
    /// Serving programs compiled.
    pub compiled: u64,
}

/// What only grows.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) decoded: u64,
    pub(crate) prompted: u64,
    pub(crate) cached: u64,
    pub(crate) compiled: u64,
}

impl Engine {
    /// What the engine has done and holds.
    pub fn stats(&self) -> Stats {
        let sum = |of: &dyn Fn(usize) -> usize| (0..self.cache.groups()).map(of).sum::<usize>();
        let (total, available) =
            (sum(&|group| self.cache.total(group)), sum(&|group| self.cache.available(group)));
        Stats {
            pages_total: total,
            pages_used: total - available,
            pages_cached: sum(&|group| self.cache.cached(group)),
            running: self.jobs.running.len() + usize::from(self.jobs.learning.is_some()),
            waiting: self.jobs.waiting.len(),
            decoded: self.counts.decoded,
            prompted: self.counts.prompted,
            cached: self.counts.cached,
            compiled: self.counts.compiled,
        }
    }
}
