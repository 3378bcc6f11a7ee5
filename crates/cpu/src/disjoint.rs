//! A slice that is written by several threads, each in ranges of its own.
//!
//! Proof: a [`Disjoint`] holds the only borrow of its slice; whoever takes a range promises that no other range that
//! overlaps it is alive. Kernels keep the promise by writing what belongs to their unit and nothing else.

use std::marker::PhantomData;
use std::ops::Range;

/// A `&mut [T]` from which several threads take ranges that do not overlap.
#[derive(Clone, Copy, Debug)]
pub struct Disjoint<'a, T> {
    start: *mut T,
    count: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Disjoint` only hands out `&mut [T]`, each to one thread by the promise of `range`; `T: Send` permits that.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above; a shared `Disjoint` reads nothing by itself.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Borrows `slice` for as long as ranges of it are handed out.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), count: slice.len(), borrow: PhantomData }
    }

    /// `count` elements from `start` on.
    ///
    /// # Safety
    /// For `'a`, they must be valid for reads and writes, aligned, and touched through ranges of this only.
    pub unsafe fn from_raw(start: *mut T, count: usize) -> Self {
        Self { start, count, borrow: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements `range`, to be written.
    ///
    /// # Panics
    /// If `range` reaches past the end.
    ///
    /// # Safety
    /// While the result is alive, no other range that overlaps this one may be taken or alive, in any thread.
    #[allow(clippy::mut_from_ref)] // the promise above stands in for the borrow
    #[inline(always)]
    pub unsafe fn range(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.count, "{range:?} of {} elements", self.count);
        // SAFETY: inside the borrowed slice by the line above; not aliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_write_ranges_of_their_own() {
        let mut values = vec![0usize; 64];
        let shared = Disjoint::new(&mut values);
        std::thread::scope(|scope| {
            for part in 0..4 {
                scope.spawn(move || {
                    // SAFETY: sixteen elements a thread, each part once.
                    let own = unsafe { shared.range(part * 16..part * 16 + 16) };
                    own.iter_mut().enumerate().for_each(|(at, value)| *value = part * 16 + at);
                });
            }
        });
        assert!(values.iter().enumerate().all(|(at, value)| at == *value));
    }

    #[test]
    #[should_panic(expected = "0..4 of 3 elements")]
    fn a_range_past_the_end_is_refused() {
        let mut values = [0; 3];
        // SAFETY: the only range.
        unsafe { Disjoint::new(&mut values).range(0..4) };
    }
}
