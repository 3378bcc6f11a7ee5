//! Logits of chosen rows of a text, a piece at a time, so that a large vocabulary never fills the memory.

use apprentice_engine::{Engine, EngineError, Named, Outputs, Run, SequenceId};

use crate::error::CheckError;

/// Rows whose logits are held at a time.
const ROWS_HELD: usize = 64;

/// Runs `tokens` on a sequence of its own and hands the logits of each of `rows` (ascending) to `take`, as
/// `(index in rows, logits [vocab])`.
///
/// # Errors
/// As [`Engine::logits`]; rows that do not ascend or lie outside the tokens.
pub fn logits_at(
    engine: &mut Engine,
    tokens: &[u32],
    named: Named,
    rows: &[usize],
    mut take: impl FnMut(usize, &[f32]),
) -> Result<(), CheckError> {
    let ascending = rows.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascending || rows.last().is_some_and(|last| *last >= tokens.len()) {
        return Err(EngineError::Empty { what: "rows that ascend within the tokens" }.into());
    }
    let sequence = engine.open_sequence();
    let result = run_pieces(engine, sequence, tokens, named, rows, &mut take);
    engine.close_sequence(sequence)?;
    result
}

fn run_pieces(
    engine: &mut Engine,
    sequence: SequenceId,
    tokens: &[u32],
    named: Named,
    rows: &[usize],
    take: &mut impl FnMut(usize, &[f32]),
) -> Result<(), CheckError> {
    let vocab = engine.model().hyper().vocab;
    let (mut position, mut index) = (0, 0);
    while index < rows.len() {
        let (end, count) = piece(&rows[index..], position);
        let outputs = if count == end - position { Outputs::All } else { Outputs::Last };
        let logits = engine.logits(&[Run { sequence, tokens: &tokens[position..end], named, outputs }])?;
        for row in logits.chunks_exact(vocab) {
            take(index, row);
            index += 1;
        }
        position = end;
    }
    Ok(())
}

/// Where the next piece ends, and how many of `rows` lie in it: a stretch of consecutive rows that begins at `position`, or
/// everything up to the next row.
fn piece(rows: &[usize], position: usize) -> (usize, usize) {
    if rows[0] != position {
        return (rows[0] + 1, 1);
    }
    let count =
        rows.iter().zip(position..).take(ROWS_HELD).take_while(|(row, wanted)| *row == wanted).count();
    (position + count, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &[usize], expected: &[(usize, usize)]) {
        let (mut pieces, mut position, mut index) = (Vec::new(), 0, 0);
        while index < rows.len() {
            let (end, count) = piece(&rows[index..], position);
            pieces.push((end, count));
            (position, index) = (end, index + count);
        }
        assert_eq!(pieces, expected, "{rows:?}");
    }

    #[test]
    fn stretches_are_taken_whole_and_gaps_are_run_over() {
        check(&[0, 1, 2, 3], &[(4, 4)]);
        check(&[0, 1, 5, 6, 9], &[(2, 2), (6, 1), (7, 1), (10, 1)]);
        check(&[3], &[(4, 1)]);
    }

    #[test]
    fn a_long_stretch_is_cut() {
        let rows: Vec<usize> = (0..130).collect();
        check(&rows, &[(64, 64), (128, 64), (130, 2)]);
    }
}
