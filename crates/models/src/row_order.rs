//! Row orders of tensors: which row of Hugging Face's class a row of the file is, and matrices brought from one to the other.
//!
//! Where rotation pairs are interleaved, row `2j+s` of a head is Hugging Face's row `s*d/2+j` of that head (`s` = 0, 1;
//! `d` = width of the head), whatever part of the head rotates. Biases and B of an adapter follow their tensor's rows.

use crate::hyper::Hyper;
use crate::table::RowOrder;

impl RowOrder {
    /// Hugging Face's row for each of the `rows` rows of the file; `None` where the orders agree.
    pub(crate) fn sources(self, hyper: &Hyper, rows: usize) -> Option<Vec<usize>> {
        match self {
            RowOrder::Plain => None,
            RowOrder::RopeInterleavedQuery => Some(interleaved(rows, hyper.heads)),
            RowOrder::RopeInterleavedKey => Some(interleaved(rows, hyper.kv_heads)),
        }
    }
}

/// What held at Hugging Face's rows, at the file's: `[rank, rows]` of B transposed.
pub(crate) fn to_file(sources: &[usize], values: &[f32]) -> Vec<f32> {
    let moved = values.chunks_exact(sources.len()).flat_map(|row| sources.iter().map(|source| row[*source]));
    moved.collect()
}

/// The inverse of [`to_file`].
pub(crate) fn from_file(sources: &[usize], values: &[f32]) -> Vec<f32> {
    let mut moved = vec![0.0; values.len()];
    let rows = moved.chunks_exact_mut(sources.len()).zip(values.chunks_exact(sources.len()));
    for (to, from) in rows {
        for (source, value) in sources.iter().zip(from) {
            to[*source] = *value;
        }
    }
    moved
}

/// A head of odd width cannot be told in pairs; its last row keeps its place.
fn interleaved(rows: usize, heads: usize) -> Vec<usize> {
    let width = rows / heads;
    let half = width / 2;
    let within = move |row: usize| if row < 2 * half { row % 2 * half + row / 2 } else { row };
    (0..rows).map(|row| row / width * width + within(row % width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_head_interleave_its_halves() {
        let check = |rows, heads, expected: &[usize]| assert_eq!(interleaved(rows, heads), expected);
        check(8, 1, &[0, 4, 1, 5, 2, 6, 3, 7]);
        check(8, 2, &[0, 2, 1, 3, 4, 6, 5, 7]);
        check(4, 2, &[0, 1, 2, 3]);
        check(3, 3, &[0, 1, 2]);
        check(5, 1, &[0, 2, 1, 3, 4]);
    }

    #[test]
    fn there_and_back_is_the_same() {
        for (rows, heads, rank) in [(8, 1, 1), (24, 4, 3), (64, 2, 2), (15, 3, 2)] {
            let sources = interleaved(rows, heads);
            let values: Vec<f32> = (0..rows * rank).map(|value| value as f32).collect();
            let moved = to_file(&sources, &values);
            assert_eq!(moved[1], values[sources[1]]);
            assert_eq!(from_file(&sources, &moved), values, "{rows} rows, {heads} heads, rank {rank}");
            assert_eq!(to_file(&sources, &from_file(&sources, &values)), values);
        }
    }
}
