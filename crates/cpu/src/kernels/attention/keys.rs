//! The keys and values of an attention: earlier positions in pages, the batch's own rows behind them.
//!
//! A block is 64 positions, cut at absolute multiples of 64. Where the pages end and the own rows begin does not show:
//! a block is gathered from both before anything is computed.

use std::ops::Range;

use half::f16;

use crate::isa::{Isa, LANES};
use crate::kernels::dots::Rows;
use crate::kernels::round_q8_0::{self, vector_bytes};

/// Positions of a block, and of a page.
pub const BLOCK: usize = 64;

/// A pool of pages, `[cells, kv_heads, dim]`; page `i` is the cells from `64 i` on.
#[derive(Clone, Copy, Debug)]
pub enum Pages<'a> {
    /// Elements as they are.
    F32(&'a [f32]),
    /// Little-endian f16, two bytes an element.
    F16(&'a [u8]),
    /// Blocks of eight bits within each vector; see [`crate::kernels::round_q8_0`].
    Q8_0(&'a [u8]),
}

/// What the rows of a batch attend to.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// Key heads, and value heads.
    pub kv_heads: usize,
    /// Elements of a key.
    pub head_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// A row sees positions less than this behind its own.
    pub window: Option<u32>,
    /// `[rows, kv_heads, head_dim]`, rounded to the type of the pages.
    pub k: &'a [f32],
    /// `[rows, kv_heads, value_dim]`, rounded likewise.
    pub v: &'a [f32],
    /// `[cells, kv_heads, head_dim]`.
    pub k_pages: Pages<'a>,
    /// `[cells, kv_heads, value_dim]`.
    pub v_pages: Pages<'a>,
    /// `[sequences, 4]`: first row, rows, position of the first row, first entry in `pages`.
    pub sequences: &'a [i32],
    /// `[entries]`: the page of each block of positions, sequence after sequence.
    pub pages: &'a [i32],
}

/// The rows of one sequence in the batch.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// Position of the first of them; earlier positions are in pages.
    pub position: usize,
    /// Entry of the page of position 0.
    entry: usize,
}

impl Sequence {
    /// The position of a row of the batch.
    pub fn position_of(&self, row: usize) -> usize {
        self.position + row - self.rows.start
    }

    /// The row of the batch at `position`, which is not before [`Sequence::position`].
    pub fn row_at(&self, position: usize) -> usize {
        self.rows.start + position - self.position
    }
}

/// Keys, or values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    K,
    V,
}

/// A block of one sequence, for one head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub sequence: &'a Sequence,
    pub kv_head: usize,
    pub block: usize,
}

impl Keys<'_> {
    /// Sequence `index` of the table.
    ///
    /// # Panics
    /// If an entry is negative: the table is made by the engine, not by a request.
    pub(crate) fn sequence(&self, index: usize) -> Sequence {
        let entry = |at: usize| {
            usize::try_from(self.sequences[4 * index + at])
                .expect("rows, positions and entries are not negative")
        };
        Sequence { rows: entry(0)..entry(0) + entry(1), position: entry(2), entry: entry(3) }
    }

    /// Number of sequences.
    pub(crate) fn sequence_count(&self) -> usize {
        self.sequences.len() / 4
    }

    /// The first position that a row at `position` sees.
    pub(crate) fn first_key(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window as usize))
    }

    /// The positions of `block` that a row at `position` sees, counted from the start of the block.
    pub(crate) fn visible(&self, position: usize, block: usize) -> Range<usize> {
        let from = self.first_key(position).max(block * BLOCK);
        let to = (position + 1).min((block + 1) * BLOCK);
        if from < to { from - block * BLOCK..to - block * BLOCK } else { 0..0 }
    }

    /// The positions of `block` that any row sees which stands in `first..=last`, counted from the start of the block.
    pub(crate) fn visible_from(&self, first: usize, last: usize, block: usize) -> Range<usize> {
        let from = self.first_key(first).max(block * BLOCK);
        let to = (last + 1).min((block + 1) * BLOCK);
        if from < to { from - block * BLOCK..to - block * BLOCK } else { 0..0 }
    }

    /// Elements of a key or value.
    pub(crate) fn dim(&self, side: Side) -> usize {
        match side {
            Side::K => self.head_dim,
            Side::V => self.value_dim,
        }
    }

    /// Reads positions `keys` of a block into the rows of `into` of the same number, each filled up with zeros to a whole
    /// number of vectors; rows of other positions become zero.
    #[inline(always)]
    pub(crate) fn gather<I: Isa>(
        &self,
        isa: I,
        side: Side,
        Place { sequence, kv_head, block }: Place,
        keys: Range<usize>,
        into: &mut [f32],
    ) {
        let (dim, stride) = (self.dim(side), padded(self.dim(side)));
        into[..keys.start * stride].fill(0.0);
        into[keys.end * stride..BLOCK * stride].fill(0.0);
        // Earlier positions lie in a page, the batch's own behind them.
        let own = sequence.position.saturating_sub(block * BLOCK).clamp(keys.start, keys.end);
        if keys.start < own {
            let page =
                usize::try_from(self.pages[sequence.entry + block]).expect("a visible position has a page");
            let pages = match side {
                Side::K => self.k_pages,
                Side::V => self.v_pages,
            };
            let vector = |key: usize| (page * BLOCK + key) * self.kv_heads + kv_head;
            for key in keys.start..own {
                let target = &mut into[key * stride..(key + 1) * stride];
                target[dim..].fill(0.0);
                let (target, vector) = (&mut target[..dim], vector(key));
                match pages {
                    Pages::F32(cells) => target.copy_from_slice(&cells[vector * dim..(vector + 1) * dim]),
                    Pages::F16(bytes) => {
                        decode(isa, &bytes[2 * vector * dim..2 * (vector + 1) * dim], target)
                    }
                    Pages::Q8_0(bytes) => {
                        let count = vector_bytes(dim);
                        let bytes = &bytes[vector * count..(vector + 1) * count];
                        round_q8_0::decode(|step| isa.f16(step), bytes, target);
                    }
                }
            }
        }
        for key in own..keys.end {
            let target = &mut into[key * stride..(key + 1) * stride];
            target[dim..].fill(0.0);
            let row = sequence.row_at(block * BLOCK + key);
            target[..dim].copy_from_slice(self.own(side, row, kv_head));
        }
    }

    /// A key or value of the batch's own rows.
    #[inline(always)]
    pub(crate) fn own(&self, side: Side, row: usize, kv_head: usize) -> &[f32] {
        let dim = self.dim(side);
        let rows = match side {
            Side::K => self.k,
            Side::V => self.v,
        };
        &rows[(row * self.kv_heads + kv_head) * dim..][..dim]
    }
}

#[inline(always)]
fn decode<I: Isa>(isa: I, bytes: &[u8], target: &mut [f32]) {
    let ((bytes, bytes_rest), (target, target_rest)) =
        (bytes.as_chunks::<{ 2 * LANES }>(), target.as_chunks_mut::<LANES>());
    for (bytes, target) in bytes.iter().zip(target) {
        isa.store(target, isa.load_f16(bytes));
    }
    for (bytes, target) in bytes_rest.as_chunks::<2>().0.iter().zip(target_rest) {
        *target = f16::from_le_bytes(*bytes).to_f32();
    }
}

/// `dim` up to a whole number of vectors.
pub(crate) fn padded(dim: usize) -> usize {
    dim.next_multiple_of(LANES)
}

/// `columns[c * 64 + r] = rows[r * stride + c]` for the 64 rows and `c < stride`, a multiple of sixteen.
#[inline(always)]
pub(crate) fn transpose(rows: &[f32], stride: usize, columns: &mut [f32]) {
    assert!(rows.len() >= BLOCK * stride && columns.len() >= BLOCK * stride && stride.is_multiple_of(LANES));
    for row in (0..BLOCK).step_by(LANES) {
        for column in (0..stride).step_by(LANES) {
            let mut square = [[0.0f32; LANES]; LANES];
            for (r, square) in square.iter_mut().enumerate() {
                square.copy_from_slice(&rows[(row + r) * stride + column..][..LANES]);
            }
            for c in 0..LANES {
                let target = &mut columns[(column + c) * BLOCK + row..][..LANES];
                for (r, target) in target.iter_mut().enumerate() {
                    *target = square[r][c];
                }
            }
        }
    }
}

/// The next `count` elements of `scratch`.
pub(crate) fn carve<'a>(scratch: &mut &'a mut [f32], count: usize) -> &'a mut [f32] {
    let (taken, rest) = std::mem::take(scratch).split_at_mut(count);
    *scratch = rest;
    taken
}

/// Rows of a tensor `[rows, heads, dim]` as queries: from `row` on, in each the `together` heads from `head` on.
pub(crate) fn queries(
    data: &[f32],
    heads: usize,
    dim: usize,
    row: usize,
    head: usize,
    together: usize,
) -> Rows<'_> {
    Rows { data: &data[(row * heads + head) * dim..], together, outer: heads * dim, inner: dim }
}
