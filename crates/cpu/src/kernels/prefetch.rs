//! Hints to the memory: what will be read soon, where the machine cannot guess it. No result depends on them.

use std::ops::Range;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Asks for the elements `part` behind `start` of `slice`, as far as there are any.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], start: usize, part: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    for at in part.step_by((LINE_BYTES / size_of::<T>()).max(1)) {
        if let Some(element) = slice.get(start + at) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: SSE is part of x86-64, and a prefetch of an address inside a slice reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, start, part);
}
