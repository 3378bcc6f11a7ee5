//! How far a float32 result may be from the float64 meaning of a single op.
//!
//! An op that is exact gives the meaning rounded once: the same bits. Of the others each result passes through a number of
//! roundings, counted here along the longest path from an input; each is at most half a unit in the last place,
//! `2^-24` of what is rounded. The bound is that number times `2^-24` times the largest result, of the whole output or,
//! where nothing cancels, of the element itself. Partial sums of deviates are seldom larger than the largest of their
//! results, and their roundings seldom have one sign: the bound is wide of the error and far below any term left out.

use apprentice_graph::{AnyOp, Array, Tolerance};

/// What half a unit in the last place is of the number that is rounded.
const HALF_UNIT: f64 = 1.0 / 16_777_216.0;
/// Roundings in our exponential, logarithm and hyperbolic tangent, as units in the last place of their results: their
/// measured bounds are below 2 units, which is 4 halves; a multiplied argument doubles that.
const FUNCTION: usize = 8;

/// What the bound is relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    /// The largest magnitude of the output.
    Output,
    /// The magnitude of the element.
    Element,
}

/// Whether `found` is as near to the meaning `expected` as it must be, for output `output` of `op` on `inputs`: the worst
/// error as a part of the bound; else the first element that is off by more, and by how much.
pub fn within(
    op: &AnyOp,
    inputs: &[&Array],
    output: usize,
    expected: &Array,
    found: &Array,
) -> Result<f64, String> {
    if expected.shape != found.shape {
        return Err(format!("shape {:?}, expected {:?}", found.shape, expected.shape));
    }
    let exact = op.tolerance() == Tolerance::Exact;
    let (roundings, of) = roundings(op, inputs, output);
    // The one op whose result is float64.
    let half_unit = if matches!(op, AnyOp::AddSquares(_)) { f64::EPSILON / 2.0 } else { HALF_UNIT };
    let mut worst = 0.0f64;
    let finite = expected.data.iter().filter(|value| value.is_finite());
    let largest = finite.fold(0.0f64, |largest, value| largest.max(value.abs()));
    for (index, (expected, found)) in expected.data.iter().zip(&found.data).enumerate() {
        let rounded = f64::from(*expected as f32);
        let same = (exact || !rounded.is_finite())
            && (rounded.to_bits() == found.to_bits() || rounded.is_nan() && found.is_nan());
        let size = if of == Of::Element { expected.abs() } else { largest };
        // Below the smallest normal number a rounding is absolute.
        let bound = (size * half_unit * roundings as f64).max(f64::from(f32::MIN_POSITIVE) * half_unit);
        let error = (expected - found).abs();
        let near = !exact && error <= bound; // false for a NaN
        if near {
            worst = worst.max(error / bound);
        }
        if !(same || near) {
            let limit = if exact { 0.0 } else { bound };
            return Err(format!(
                "element {index}: expected {expected:e}, found {found:e}, off by {error:.2e}, bound {limit:.2e}"
            ));
        }
    }
    Ok(worst)
}

/// Roundings on the longest path to a result, and what they are relative to.
fn roundings(op: &AnyOp, inputs: &[&Array], output: usize) -> (usize, Of) {
    let tree = |terms: usize| terms.div_ceil(16) + 4; // dot16: a lane's chain, then four levels
    let segments = |terms: usize| terms.min(256) + terms.div_ceil(256); // chains of 256, their sums added
    let blocks = |rows: usize| rows.min(64) + rows.div_ceil(64) + 2; // chains of 64, a short first one, sums added
    let width = |input: usize| inputs[input].width();
    let rows = |input: usize| inputs[input].rows();
    match op {
        // Exact: never asked for by a comparison that rounds.
        AnyOp::Add(_)
        | AnyOp::Argmax(_)
        | AnyOp::ClipFactor(_)
        | AnyOp::Divide(_)
        | AnyOp::Embed(_)
        | AnyOp::Mul(_)
        | AnyOp::Offset(_)
        | AnyOp::QuantiseQ8(_)
        | AnyOp::Reshape(_)
        | AnyOp::RoundF16(_)
        | AnyOp::RoundQ8_0(_)
        | AnyOp::Scale(_)
        | AnyOp::SelectRows(_) => (0, Of::Element),

        AnyOp::Dot(_) => (tree(width(0)), Of::Output),
        AnyOp::Linear(_) => (tree(width(0)), Of::Output),
        // A strip: the product of scales, the fused addition, and both again for minima; strips in one chain.
        AnyOp::LinearQ8(_) => (4 * width(2), Of::Output),
        AnyOp::LinearVjp(_) => (segments(width(0)), Of::Output),
        AnyOp::SumRows(_) => (blocks(rows(0)) * inputs[0].row_count() / width(0).max(1), Of::Output),
        // As many sums as rows may meet in one.
        AnyOp::ScatterRows(_) => (rows(0), Of::Output),
        // Chains of 1,024 squares, their sums added; in float64.
        AnyOp::AddSquares(_) => {
            let count = inputs[0].data.len();
            (count.min(1024) + count.div_ceil(1024) + 1, Of::Element)
        }

        // u, then B u, then the scale and the sum.
        AnyOp::Adapt(_) => (tree(width(1)) + tree(rows(2)) + 2, Of::Output),
        // g; du over the outputs; then dx over the ranks, da over the rows; db has u instead of du.
        AnyOp::AdaptVjp(_) => match output {
            0 => (1 + segments(width(0)) + rows(2), Of::Output),
            1 => (1 + segments(width(0)) + blocks(rows(0)), Of::Output),
            _ => (1 + tree(width(1)) + blocks(rows(0)), Of::Output),
        },

        // The mean square's tree, half of it after the root; then division, sum, root, reciprocal and two products.
        AnyOp::RmsNorm(_) => (tree(width(0)) + 6, Of::Element),
        AnyOp::Rsqrt(_) => (2, Of::Element),
        // One rounding of the function, one of its product with the scale.
        AnyOp::RopeTable(_) => (3, Of::Output),
        AnyOp::Rope(_) => (3, Of::Output),
        // The exponential; a sum, a quotient, a product.
        AnyOp::Silu(_) => (FUNCTION + 3, Of::Element),
        // Two terms that may cancel.
        AnyOp::SiluVjp(_) => (FUNCTION + 8, Of::Output),
        // The cubic's roundings reach the result through the slope of tanh; 1 + tanh may cancel.
        AnyOp::Gelu(_) | AnyOp::GeluVjp(_) => (2 * FUNCTION + 12, Of::Output),

        // Scores by a tree, whose error the exponential makes relative; then a chain over the keys of a block, blocks
        // and segments rescaled and merged, and the quotient.
        AnyOp::Attention(_) => {
            let keys = longest_past(inputs[5]);
            let score = (tree(width(0)) + 1) * SCORE;
            match output {
                0 => (score + FUNCTION + keys.min(64) + 3 * keys.div_ceil(64) + 2, Of::Output),
                1 => (score, Of::Output),
                _ => (score + FUNCTION + keys.min(64) + 3 * keys.div_ceil(64), Of::Output),
            }
        }
        AnyOp::AttentionVjp(_) => {
            let keys = longest_past(inputs[6]);
            let score = (tree(width(1)) + 1) * SCORE + FUNCTION;
            let group = inputs[1].shape[1] / inputs[2].shape[1].max(1);
            let (d, dp) = (tree(width(0)), tree(width(0)));
            match output {
                0 => (score + d + dp + 3 + keys.min(64) + keys.div_ceil(64), Of::Output),
                1 => (score + d + dp + 3 + group * blocks(rows(0)), Of::Output),
                _ => (score + 1 + group * blocks(rows(0)), Of::Output),
            }
        }

        // Trees over 256 logits, added; each exponential with the rounding of its argument.
        AnyOp::CrossEntropy(_) => match output {
            1 => (0, Of::Element),
            _ => (2 * FUNCTION + tree(width(0).min(256)) + width(0).div_ceil(256) + 3, Of::Output),
        },
        AnyOp::CrossEntropyVjp(_) => (SCORE + FUNCTION + 4, Of::Output),
        // Decay, a moment of two products, a quotient of a root, and their difference.
        AnyOp::AdamW(_) => (10, Of::Output),
    }
}

/// The size of a score: an exponential turns the error of its argument into a relative one, this many times larger.
const SCORE: usize = 8;

/// The most keys that a row of these sequences sees.
fn longest_past(sequences: &Array) -> usize {
    let seen = |sequence: usize| (sequences.int(4 * sequence + 1) + sequences.int(4 * sequence + 2)) as usize;
    (0..sequences.rows()).map(seen).max().unwrap_or(0)
}
