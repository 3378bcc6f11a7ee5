//! What graphs are made for: the capacities of a serving batch and of a learning step. The engine compiles these, and the
//! account of memory is taken of the same.

use apprentice_models::{Model, Request, Want};

use crate::blocks::BLOCK_ROWS;
use crate::options::{
    ADAPTERS_MAX, HEAD_ROWS, Options, PAGE_POSITIONS, ROWS_ALL_LOGITS, ROWS_CHUNK, ROWS_FEW,
};

/// The counts of a learning step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StepCounts {
    pub(crate) rows: usize,
    pub(crate) labelled: usize,
    pub(crate) sequences: usize,
    pub(crate) page_entries: usize,
}

/// Rows and head rows of a batch.
pub(crate) const FEW: (usize, usize) = (ROWS_FEW, HEAD_ROWS);
/// Rows and head rows of a batch.
pub(crate) const CHUNK: (usize, usize) = (ROWS_CHUNK, HEAD_ROWS);
/// Rows and head rows of a batch.
pub(crate) const ALL_LOGITS: (usize, usize) = (ROWS_ALL_LOGITS, ROWS_ALL_LOGITS);

/// Rows and head rows of the batch that so many fit.
pub(crate) fn capacity(rows: usize, head_rows: usize) -> (usize, usize) {
    match (rows, head_rows) {
        _ if rows <= ROWS_FEW && head_rows <= HEAD_ROWS => FEW,
        _ if head_rows <= HEAD_ROWS => CHUNK,
        _ => ALL_LOGITS,
    }
}

/// The request of a serving batch with this [`capacity`], over adapters on `sites` in stores of `rank_rows`.
pub(crate) fn serving_request(
    model: &Model,
    options: &Options,
    want: Want,
    (rows, head_rows): (usize, usize),
    sites: Vec<usize>,
    rank_rows: usize,
) -> Request {
    let adapted = !sites.is_empty();
    Request {
        want,
        rows,
        head_rows,
        sequences: rows,
        // Jobs share pages, so their tables may name more than there are.
        page_entries: options.pages().max(HEAD_ROWS.saturating_mul(options.context.div_ceil(PAGE_POSITIONS))),
        cells: cells(model, options),
        cache: options.cache,
        sites,
        rank_rows: if adapted { rank_rows } else { 0 },
        adapters: if adapted { ADAPTERS_MAX } else { 0 },
        segment: options.segment,
        numerics: options.numerics,
    }
}

/// The request of a learning step: capacities a little above the counts, so that steps of about a size share a program.
pub(crate) fn learning_request(
    model: &Model,
    options: &Options,
    sites: Vec<usize>,
    rank_rows: usize,
    counts: StepCounts,
) -> Request {
    Request {
        want: Want::Loss,
        rows: counts.rows.next_multiple_of(BLOCK_ROWS),
        head_rows: counts.labelled.next_multiple_of(BLOCK_ROWS / 4),
        sequences: counts.sequences.next_power_of_two(),
        page_entries: counts.page_entries.next_multiple_of(BLOCK_ROWS / 4).max(1),
        cells: cells(model, options),
        cache: options.cache,
        sites,
        rank_rows,
        adapters: 1,
        segment: options.segment,
        numerics: options.numerics,
    }
}

/// Cells of the pools of each layer group.
fn cells(model: &Model, options: &Options) -> Vec<usize> {
    vec![options.pages().saturating_mul(PAGE_POSITIONS); model.groups().len()]
}
