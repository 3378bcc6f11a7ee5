//! From pieces of sequences to the arrays that a graph binds: one row after another, sequence after sequence.

use apprentice_graph::{Extent, Extents};

use crate::blocks::block_table;

/// Rows of one sequence in a batch.
pub(crate) struct Piece<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) first_position: usize,
    /// Page tables of the positions before `first_position`, a table for each layer group; empty without any.
    pub(crate) tables: &'a [Vec<i32>],
    /// Index of the adapter that each row names, or -1.
    pub(crate) named: Vec<i32>,
    /// Rows of the piece that reach the head, ascending.
    pub(crate) head: Vec<usize>,
}

/// The arrays of a batch.
#[derive(Default, Debug)]
pub(crate) struct Arrays {
    pub(crate) tokens: Vec<i32>,
    pub(crate) positions: Vec<i32>,
    pub(crate) sequences: Vec<i32>,
    pub(crate) pages: Vec<Vec<i32>>,
    pub(crate) cells: Vec<Vec<i32>>,
    pub(crate) named: Vec<i32>,
    pub(crate) head: Vec<i32>,
    pub(crate) named_head: Vec<i32>,
    pub(crate) labels: Vec<i32>,
    pub(crate) factors: Vec<f32>,
    pub(crate) row_blocks: Vec<i32>,
    pub(crate) labelled_blocks: Vec<i32>,
}

/// Puts pieces together. Cells, labels and factors are the caller's to add.
pub(crate) fn assemble(pieces: &[Piece<'_>], groups: usize) -> Arrays {
    let mut arrays =
        Arrays { pages: vec![Vec::new(); groups], cells: vec![Vec::new(); groups], ..Arrays::default() };
    let (mut positions, mut head_positions) = (Vec::new(), Vec::new());
    for piece in pieces {
        let first_row = arrays.tokens.len();
        let entry = arrays.pages.first().map_or(0, Vec::len);
        arrays
            .sequences
            .extend([first_row, piece.tokens.len(), piece.first_position, entry].map(|number| number as i32));
        for (pages, table) in arrays.pages.iter_mut().zip(piece.tables) {
            pages.extend_from_slice(table);
        }
        let rows: Vec<usize> = (piece.first_position..piece.first_position + piece.tokens.len()).collect();
        arrays.tokens.extend(piece.tokens.iter().map(|token| *token as i32));
        arrays.positions.extend(rows.iter().map(|position| *position as i32));
        arrays.named.extend_from_slice(&piece.named);
        arrays.head.extend(piece.head.iter().map(|row| (first_row + row) as i32));
        arrays.named_head.extend(piece.head.iter().map(|row| piece.named[*row]));
        head_positions.push(piece.head.iter().map(|row| rows[*row]).collect::<Vec<_>>());
        positions.push(rows);
    }
    arrays.row_blocks = block_table(positions.iter().map(Vec::as_slice));
    arrays.labelled_blocks = block_table(head_positions.iter().map(Vec::as_slice));
    arrays
}

impl Arrays {
    /// The counts of a run over these arrays.
    pub(crate) fn extents(&self, adapters: usize) -> Extents {
        let mut extents = Extents::default()
            .with(Extent::Rows, self.tokens.len())
            .with(Extent::Outputs, self.head.len())
            .with(Extent::Labelled, self.head.len())
            .with(Extent::Sequences, self.sequences.len() / 4)
            .with(Extent::Adapters, adapters)
            .with(Extent::RowBlocks, self.row_blocks.len() / 2)
            .with(Extent::LabelledBlocks, self.labelled_blocks.len() / 2);
        for (group, pages) in self.pages.iter().enumerate() {
            extents = extents.with(Extent::Pages(group as u8), pages.len());
        }
        extents
    }
}
