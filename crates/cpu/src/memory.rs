//! Memory that the backend holds: buffers of the arena, of stores and of weights, and the addresses of what a run works on.

use std::ptr::NonNull;

use apprentice_graph::Bound;

/// A cache line: every buffer begins at one, so every element is aligned.
const LINE_BYTES: usize = 64;
/// The alignment that the system's allocator gives by itself. For more it takes memory and clears it, which touches every
/// page; for this it hands out pages that are zero until they are written.
const SYSTEM_ALIGNMENT: usize = 16;

/// Bytes aligned to a cache line, zero at first. They are addresses only until they are touched.
pub(crate) struct Buffer {
    allocation: NonNull<u8>,
    layout: std::alloc::Layout,
    /// The first cache line of the allocation.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `Buffer` owns its bytes as a `Vec<u8>` would, and gives them out by its own borrow.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `zeroed`.
        unsafe { std::alloc::dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

impl Buffer {
    /// `bytes` zero bytes, or `None` where the system does not give them.
    pub(crate) fn zeroed(bytes: usize) -> Option<Buffer> {
        // Whole lines, and room to begin at one: never empty.
        let size = bytes.checked_next_multiple_of(LINE_BYTES)?.checked_add(LINE_BYTES)?;
        let layout = std::alloc::Layout::from_size_align(size, SYSTEM_ALIGNMENT).ok()?;
        // SAFETY: the layout is not empty.
        let allocation = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let skipped = allocation.addr().get().wrapping_neg() % LINE_BYTES;
        // SAFETY: less than a line, by which the allocation is longer than the bytes.
        let start = unsafe { allocation.add(skipped) };
        Some(Buffer { allocation, layout, start, bytes })
    }
    /// A copy of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Option<Buffer> {
        let mut buffer = Buffer::zeroed(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Some(buffer)
    }
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: inside the allocation by `zeroed`, every byte initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the allocation by `zeroed`, every byte initialised, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
    /// The first byte, for a run that holds the buffer exclusively.
    pub(crate) fn place(&mut self) -> Place {
        Place { start: self.start.as_ptr(), bytes: self.bytes }
    }
    /// Sets every byte of the arena to a NaN: what a kernel reads without having been given it shows.
    pub(crate) fn poison(&mut self) {
        self.bytes_mut().fill(0xff);
    }
}

/// An element type of slices in memory.
pub(crate) trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for i32 {}
impl Plain for i8 {}
impl Plain for u32 {}

/// Bytes of a binding, or of a value in the arena.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: a `Place` is an address; what is read or written through it is governed by the proof in `operand.rs`.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

/// The place of data that the caller gives.
pub(crate) fn data_place(bound: &Bound<'_>) -> Option<Place> {
    let (start, bytes) = match bound {
        Bound::I32(data) => (data.as_ptr().cast::<u8>(), size_of_val(*data)),
        Bound::I8(data) => (data.as_ptr().cast::<u8>(), size_of_val(*data)),
        Bound::F32(data) => (data.as_ptr().cast::<u8>(), size_of_val(*data)),
        Bound::F64(data) => (data.as_ptr().cast::<u8>(), size_of_val(*data)),
        Bound::Weight(_) | Bound::Store(_) => return None,
    };
    Some(Place { start: start.cast_mut(), bytes })
}
