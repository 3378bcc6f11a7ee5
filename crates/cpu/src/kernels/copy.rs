//! A value into a store, whole.

use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::kernels::Kernel;

/// Elements of a unit.
const UNIT: usize = 16 * 1024;

/// `y = x`, byte for byte.
pub struct Copy<'a> {
    /// What is copied.
    pub x: &'a [f32],
    /// As many elements.
    pub y: Disjoint<'a, f32>,
}

impl Kernel for Copy<'_> {
    fn units(&self) -> usize {
        self.y.len().div_ceil(UNIT)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, _: I, unit: usize, _: &mut [f32]) {
        let range = unit * UNIT..((unit + 1) * UNIT).min(self.y.len());
        // SAFETY: units are ranges that follow each other.
        unsafe { self.y.range(range.clone()) }.copy_from_slice(&self.x[range]);
    }
}
