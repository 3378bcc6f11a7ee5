//! The kernels, one a file, and what they have in common.
//!
//! A kernel is a struct of borrowed slices and sizes; what it writes is a [`crate::Disjoint`]. Its work is cut into units whose
//! borders depend on shapes only, never on workers; units write disjoint bytes, and no result depends on the cut.
//! Workers call [`run_unit`], which enters the instruction set once a unit, so the whole body is compiled for it:
//! `unit` and everything generic over [`Isa`] that it calls is `#[inline(always)]`.

use crate::isa::{Isa, Level, Task};

mod blocks;
mod dots;
mod grids;
pub(crate) mod prefetch;
mod weighted;

pub mod adamw;
pub mod adapt;
pub mod adapt_vjp;
pub mod add_squares;
pub mod argmax;
pub mod arithmetic;
pub mod attention;
pub mod attention_vjp;
pub mod clip_factor;
pub mod copy;
pub mod cross_entropy;
pub mod cross_entropy_vjp;
pub mod dot;
pub mod embed;
pub mod gelu;
pub mod linear;
pub mod linear_q8;
pub mod linear_vjp;
pub mod map;
pub mod quantise_q8;
pub mod rms_norm;
pub mod rope;
pub mod rope_table;
pub mod round_f16;
pub mod round_q8_0;
pub mod scatter_rows;
pub mod select_rows;
pub mod silu;
pub mod sum_rows;
pub mod weight;
pub mod write_rows;

#[cfg(test)]
mod suite;

/// Work on slices that several workers share.
pub trait Kernel: Sync {
    /// Number of units.
    fn units(&self) -> usize;

    /// Number of f32 that one unit needs as working memory.
    fn scratch(&self) -> usize {
        0
    }

    /// Does `unit`, below [`Kernel::units`]. `scratch` has at least [`Kernel::scratch`] elements with any content.
    ///
    /// Each unit runs once a run; it writes what belongs to it and nothing else. Implementations are
    /// `#[inline(always)]`.
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]);
}

/// Does one unit of `kernel` at `level`.
///
/// # Panics
/// If `unit` does not exist or `scratch` is too short.
pub fn run_unit<K: Kernel>(level: Level, kernel: &K, unit: usize, scratch: &mut [f32]) {
    assert!(unit < kernel.units(), "unit {unit} of {}", kernel.units());
    assert!(scratch.len() >= kernel.scratch(), "{} of {} f32 of scratch", scratch.len(), kernel.scratch());
    level.run(Unit { kernel, unit, scratch });
}

/// Does `units` of `kernel` in order at `level`.
///
/// # Panics
/// If one of them does not exist or `scratch` is too short.
pub fn run_units<K: Kernel>(level: Level, kernel: &K, units: std::ops::Range<usize>, scratch: &mut [f32]) {
    assert!(units.end <= kernel.units(), "units {units:?} of {}", kernel.units());
    assert!(scratch.len() >= kernel.scratch(), "{} of {} f32 of scratch", scratch.len(), kernel.scratch());
    for unit in units {
        level.run(Unit { kernel, unit, scratch: &mut *scratch });
    }
}

/// Does all units of `kernel` in order on this thread.
pub fn run_all<K: Kernel>(level: Level, kernel: &K) {
    let mut scratch = vec![0.0; kernel.scratch()];
    (0..kernel.units()).for_each(|unit| run_unit(level, kernel, unit, &mut scratch));
}

/// Elements that one unit of a kernel over rows touches, about: half of a first-level cache.
const UNIT_ELEMENTS: usize = 8192;

/// Rows of one unit where a row has `width` elements.
pub(crate) fn rows_of_a_unit(width: usize) -> usize {
    (UNIT_ELEMENTS / width.max(1)).max(1)
}

/// The rows of `unit`, of `rows` in all.
pub(crate) fn unit_rows(unit: usize, width: usize, rows: usize) -> std::ops::Range<usize> {
    let count = rows_of_a_unit(width);
    (unit * count).min(rows)..((unit + 1) * count).min(rows)
}

/// `scratch` from its first whole cache line on, for a kernel that asked for [`ALIGNMENT`] elements more: a vector that
/// lies across two lines is stored and loaded in two.
#[inline(always)]
pub(crate) fn aligned(scratch: &mut [f32]) -> &mut [f32] {
    let skipped = scratch.as_ptr().align_offset(ALIGNMENT * size_of::<f32>());
    // Where the offset is not known, the scratch is good as it lies.
    scratch.get_mut(if skipped < ALIGNMENT { skipped } else { 0 }..).unwrap_or_default()
}

/// f32 in a cache line.
pub(crate) const ALIGNMENT: usize = 16;

struct Unit<'a, K> {
    kernel: &'a K,
    unit: usize,
    scratch: &'a mut [f32],
}

impl<K: Kernel> Task for Unit<'_, K> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        self.kernel.unit(isa, self.unit, self.scratch);
    }
}
