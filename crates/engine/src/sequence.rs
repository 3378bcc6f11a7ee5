//! A sequence: its tokens and, for each layer group, the table of its pages.

use crate::options::PAGE_POSITIONS;
use crate::prefix::Cache;

/// Handle of an open sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SequenceId(pub(crate) u32);

/// Tokens whose keys and values lie in pages.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) tokens: Vec<u32>,
    /// Page of positions `64 i ..` at index `i`, a table for each layer group, all of the same length.
    pub(crate) tables: Vec<Vec<i32>>,
}

impl Sequence {
    pub(crate) fn new(groups: usize) -> Sequence {
        Sequence { tokens: Vec::new(), tables: vec![Vec::new(); groups] }
    }

    /// Pages that `positions` more positions need in each group.
    pub(crate) fn missing(&self, positions: usize) -> usize {
        let wanted = (self.tokens.len() + positions).div_ceil(PAGE_POSITIONS);
        wanted.saturating_sub(self.tables.first().map_or(0, Vec::len))
    }

    /// Takes `pages` more pages of every group. The caller has seen that they are there.
    pub(crate) fn grow(&mut self, cache: &mut Cache, pages: usize) {
        for (group, table) in self.tables.iter_mut().enumerate() {
            table.extend((0..pages).map_while(|_| cache.take(group)));
        }
    }

    /// Gives back all pages past the first `keep`.
    pub(crate) fn shrink(&mut self, cache: &mut Cache, keep: usize) {
        for (group, table) in self.tables.iter_mut().enumerate() {
            for page in table.drain(keep.min(table.len())..).rev() {
                cache.give(group, page);
            }
        }
    }

    /// The cell of a position in a group whose page is there.
    pub(crate) fn cell(&self, group: usize, position: usize) -> i32 {
        self.tables[group][position / PAGE_POSITIONS] * PAGE_POSITIONS as i32
            + (position % PAGE_POSITIONS) as i32
    }
}
