//! What the blocks of a format are as integers: the grid that integer products multiply on.
//!
//! Thirty-two columns of a row are a *strip*: codes on a grid of integers, a factor and perhaps a minimum for each half of
//! sixteen columns, and two float32. A value is
//!
//! ```text
//! (scale * factor_j) * code_i + minimum * minimum_j         j = i / 16
//! ```
//!
//! rounded once, at the addition: [`Format::decode`](crate::Format::decode) gives the same bits. Where a format has one
//! factor for the strip, both halves hold it. `minimum` has the sign with which it is added: `-dmin` in the K formats.

use std::ops::RangeInclusive;

use crate::block::Block;

/// Columns of a strip.
pub const STRIP: usize = 32;
/// Columns of half a strip, which has a factor and a minimum of its own in some formats.
pub const HALF: usize = STRIP / 2;
/// Magnitude of the largest quantised activation.
const ACTIVATION_MAX: i64 = 127;

/// The integers that a format can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Codes.
    pub codes: RangeInclusive<i32>,
    /// Factors of a half; `1..=1` where the format has none.
    pub factors: RangeInclusive<i32>,
    /// Minima of a half; `0..=0` where the format has none, `1..=1` where the float alone is the minimum.
    pub minima: RangeInclusive<i32>,
}

impl Grid {
    /// The largest magnitude of `sum over j of factor_j * sum over i of code_i * q_i` over a strip, where `|q_i| <= 127`.
    pub fn product_max(&self) -> i64 {
        STRIP as i64 * magnitude(&self.codes) * magnitude(&self.factors) * ACTIVATION_MAX
    }

    /// The largest magnitude of `sum over j of minimum_j * sum over i of q_i` over a strip.
    pub fn minimum_max(&self) -> i64 {
        STRIP as i64 * magnitude(&self.minima) * ACTIVATION_MAX
    }

    /// Whether the format has minima.
    pub fn has_minima(&self) -> bool {
        magnitude(&self.minima) > 0
    }
}

fn magnitude(range: &RangeInclusive<i32>) -> i64 {
    i64::from(range.start().abs()).max(i64::from(range.end().abs()))
}

/// A strip as integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Strip {
    /// The codes.
    pub codes: [i8; STRIP],
    /// Factor of each half.
    pub factors: [i32; 2],
    /// Minimum of each half; 0 without minima.
    pub minima: [i32; 2],
    /// What a factor counts.
    pub scale: f32,
    /// What a minimum counts, with the sign with which it is added; 0 without minima.
    pub minimum: f32,
}

/// How a format is read as integers.
pub(crate) struct Integers<const BYTES: usize> {
    pub grid: Grid,
    pub strip: fn(block: &[u8; BYTES], strip: usize) -> Strip,
}

/// A strip with one scale, without factors and minima.
pub(crate) fn plain(scale: f32, codes: [i8; STRIP]) -> Strip {
    Strip { codes, factors: [1; 2], minima: [0; 2], scale, minimum: 0.0 }
}

/// A strip with one scale and one minimum.
pub(crate) fn with_minimum(scale: f32, minimum: f32, codes: [i8; STRIP]) -> Strip {
    Strip { codes, factors: [1; 2], minima: [1; 2], scale, minimum }
}

/// Grid of a format; `None` for single values.
pub(crate) fn grid<B: Block<BYTES, VALUES>, const BYTES: usize, const VALUES: usize>() -> Option<Grid> {
    B::INTEGERS.map(|integers| integers.grid)
}

/// Strip `index` of a row of whole blocks.
pub(crate) fn strip<B: Block<BYTES, VALUES>, const BYTES: usize, const VALUES: usize>(
    row: &[u8],
    index: usize,
) -> Option<Strip> {
    let strips = VALUES / STRIP;
    let (blocks, _) = row.as_chunks::<BYTES>();
    Some((B::INTEGERS?.strip)(blocks.get(index / strips)?, index % strips))
}
