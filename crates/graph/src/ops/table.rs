//! Index data as oracles read it and cases write it: ids, counts and the block table of sums over rows.
//!
//! A block table is `[blocks, 2]`, each `(first row, rows)`, in the order in which the sums of blocks are added: from the
//! last block of a sequence to the first, sequence after sequence. A block holds the rows of 64 positions of a sequence,
//! so its first and its last may be short.

use std::ops::Range;

use crate::array::Array;

/// Positions of a block.
pub(super) const BLOCK: usize = 64;

/// Element `index` of an id or count array.
pub(super) fn at(array: &Array, index: usize) -> usize {
    usize::try_from(array.int(index)).expect("ids and counts are checked before a run: none is negative")
}

/// The rows of each block, in table order.
pub(super) fn block_rows(blocks: &Array) -> impl Iterator<Item = Range<usize>> {
    (0..blocks.rows()).map(|block| {
        let first = at(blocks, 2 * block);
        first..first + at(blocks, 2 * block + 1)
    })
}

/// The block table of sequences `(rows, first position)` that lie one after the other.
pub(super) fn block_table(sequences: &[(usize, usize)]) -> Vec<i32> {
    let mut table = Vec::new();
    let mut row = 0;
    for &(rows, position) in sequences {
        let mut blocks = Vec::new();
        let end = row + rows;
        while row < end {
            let within = (position + rows - (end - row)) % BLOCK;
            let count = (BLOCK - within).min(end - row);
            blocks.push([row as i32, count as i32]);
            row += count;
        }
        table.extend(blocks.into_iter().rev().flatten());
    }
    table
}
