//! The block table: in which order sums over rows are taken (NUMERICS, "Gradient to a weight").

/// Positions of a block.
pub const BLOCK_ROWS: usize = 64;

/// `(first row, rows)` of each block, in the order in which block sums are added: from the last block of a sequence to the
/// first, sequence after sequence. `sequences` gives the positions of the rows of each, ascending, rows one after another.
pub fn block_table<'a>(sequences: impl IntoIterator<Item = &'a [usize]>) -> Vec<i32> {
    let mut table = Vec::new();
    let mut first_row = 0usize;
    for positions in sequences {
        let mut row = first_row;
        let blocks = positions.chunk_by(|a, b| a / BLOCK_ROWS == b / BLOCK_ROWS).map(|block| {
            let entry = [row as i32, block.len() as i32];
            row += block.len();
            entry
        });
        let blocks: Vec<[i32; 2]> = blocks.collect();
        table.extend(blocks.into_iter().rev().flatten());
        first_row += positions.len();
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sequences: &[&[usize]], expected: &[i32]) {
        assert_eq!(block_table(sequences.iter().copied()), expected);
    }

    #[test]
    fn last_block_comes_first() {
        let rows: Vec<usize> = (0..130).collect();
        check(&[&rows], &[128, 2, 64, 64, 0, 64]);
    }

    #[test]
    fn first_block_of_a_span_may_be_short() {
        let rows: Vec<usize> = (60..70).collect();
        check(&[&rows], &[4, 6, 0, 4]);
    }

    #[test]
    fn sequences_follow_each_other() {
        check(&[&[62, 63, 64], &[0, 1]], &[2, 1, 0, 2, 3, 2]);
    }

    #[test]
    fn rows_that_are_left_out_do_not_move_borders() {
        check(&[&[0, 63, 64, 200]], &[3, 1, 2, 1, 0, 2]);
    }
}
