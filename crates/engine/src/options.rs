//! Sizes that an engine is made for, and the limits of its batches.

use apprentice_graph::Element;
use apprentice_models::Numerics;

/// Positions of a page.
pub const PAGE_POSITIONS: usize = 64;
/// Keys of a segment of attention, everywhere but in tests.
pub const SEGMENT_KEYS: u32 = 1024;
/// Bytes that the logits of one learning step may take.
pub(crate) const LOGITS_BYTES_MAX: usize = 2 << 30;
/// Rows of the small serving batch.
pub(crate) const ROWS_FEW: usize = 16;
/// Rows of the large serving batch.
pub(crate) const ROWS_CHUNK: usize = 512;
/// Rows of a batch in which every row gives logits: a slice of 64 rows of the vocabulary is what memory allows everywhere.
pub(crate) const ROWS_ALL_LOGITS: usize = 64;
/// Rows of the head in the serving batches.
pub(crate) const HEAD_ROWS: usize = 16;
/// Adapters that may be loaded at a time.
pub(crate) const ADAPTERS_MAX: usize = 64;
/// Rows that one learning step takes in one graph.
pub(crate) const LEARN_ROWS_MAX: usize = 4096;

/// What an engine is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Element of pages: float32, float16 or q8_0.
    pub cache: Element,
    /// Positions that a sequence may have.
    pub context: usize,
    /// Sequences that may be open, each with its full context.
    pub sequences: usize,
    /// Keys that attention folds into one running sum, a multiple of 64: [`SEGMENT_KEYS`], less only in tests.
    pub segment: u32,
    /// How forward products are rounded.
    pub numerics: Numerics,
}

impl Options {
    /// Pages of each layer group.
    pub(crate) fn pages(&self) -> usize {
        self.context.div_ceil(PAGE_POSITIONS).saturating_mul(self.sequences)
    }
}
