//! Where the values of a run lie: the arena, weights, stores and the caller's data, as slices for kernels.
//!
//! Proof of the `unsafe` here. A [`Memory`] is made for one run and lives as long as it. Its pointers lead into buffers
//! that the backend holds borrowed for that time: the arena and written stores exclusively, the others shared. Slices are
//! made for one unit at a time, while it runs: [`Memory::read`] of bytes that no unit of the same step writes, and
//! [`Memory::write`] as a [`Disjoint`], which hands out parts. The plan gives values that are alive at the same step
//! disjoint bytes, except an output in place of an input, and there lowering reads through the output. A store that is
//! written is bound once and is never the value of an effect: the graph's checks see to both. Steps follow each
//! other: the pool opens one when all units of the last are done.

use std::marker::PhantomData;

use apprentice_graph::{Bound, Extents, Graph, Origin, Plan, Type, ValueId};

use crate::disjoint::Disjoint;

/// A cache line; buffers are made of them, so every element is aligned.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[allow(dead_code, reason = "read through pointers to its bytes")] [u8; LINE_BYTES]);

const LINE_BYTES: usize = 64;

/// Bytes aligned to a cache line, zero at first.
pub(crate) struct Buffer {
    lines: Vec<Line>,
    bytes: usize,
}

impl Buffer {
    /// `bytes` zero bytes, or `None` where the system does not give them.
    pub(crate) fn zeroed(bytes: usize) -> Option<Buffer> {
        let mut lines = Vec::new();
        lines.try_reserve_exact(bytes.div_ceil(LINE_BYTES)).ok()?;
        lines.resize(bytes.div_ceil(LINE_BYTES), Line([0; LINE_BYTES]));
        Some(Buffer { lines, bytes })
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
        // SAFETY: `Line` is 64 bytes without padding, and every byte is initialised.
        let all = unsafe {
            std::slice::from_raw_parts(self.lines.as_ptr().cast::<u8>(), self.lines.len() * LINE_BYTES)
        };
        &all[..self.bytes]
    }
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        // SAFETY: `Line` is 64 bytes without padding, every byte pattern is valid, and the borrow is exclusive.
        let all = unsafe {
            std::slice::from_raw_parts_mut(
                self.lines.as_mut_ptr().cast::<u8>(),
                self.lines.len() * LINE_BYTES,
            )
        };
        &mut all[..bytes]
    }
    /// Sets every byte of the arena to a NaN: what a kernel reads without having been given it shows.
    pub(crate) fn poison(&mut self) {
        self.lines.fill(Line([0xff; LINE_BYTES]));
    }
}

/// An element type of slices in memory.
pub(crate) trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for i32 {}
impl Plain for u32 {}

/// Bytes of one binding.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: a `Place` is an address; what is read or written through it is governed by the proof at the top of this file.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

/// The memory of one run.
pub(crate) struct Memory<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) plan: &'a Plan,
    pub(crate) extents: &'a Extents,
    /// Place of each binding, in the order of [`Graph::bindings`].
    bindings: Vec<Place>,
    arena: Place,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> Memory<'a> {
    /// The memory of a run over `bindings`, whose number and lengths have been checked against the graph.
    ///
    /// # Safety
    /// Every place must be valid for reads of its bytes for `'a`, and those of the arena and of stores that the graph
    /// writes for writes too, with no other access meanwhile; the arena has the plan's bytes.
    pub(crate) unsafe fn new(
        graph: &'a Graph,
        plan: &'a Plan,
        extents: &'a Extents,
        bindings: Vec<Place>,
        arena: Place,
    ) -> Memory<'a> {
        assert!(
            arena.bytes >= plan.bytes,
            "the arena has {} bytes, the plan needs {}",
            arena.bytes,
            plan.bytes
        );
        Memory { graph, plan, extents, bindings, arena, borrow: PhantomData }
    }

    /// Type of a value.
    pub(crate) fn ty(&self, value: ValueId) -> &'a Type {
        self.graph.ty(value)
    }

    /// Rows that a run counts on axis 0 of a value.
    pub(crate) fn rows(&self, value: ValueId) -> usize {
        let ty = self.graph.ty(value);
        ty.extent.map_or(ty.rows(), |extent| self.extents.get(extent))
    }

    /// Elements of a value in this run.
    pub(crate) fn count(&self, value: ValueId) -> usize {
        self.rows(value) * self.graph.ty(value).row_count()
    }

    /// Elements of a value, to be read by one unit.
    pub(crate) fn read<T: Plain>(&self, value: ValueId) -> &'a [T] {
        let count = self.count(value);
        let start = self.start::<T>(value, count);
        // SAFETY: inside a buffer that lives for `'a` and is aligned, by `start`; not written during the unit, by the
        // proof at the top of this file.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Elements of a value, to be written in parts by the units of one step.
    pub(crate) fn write<T: Plain>(&self, value: ValueId) -> Disjoint<'a, T> {
        let count = self.count(value);
        let start = self.start::<T>(value, count);
        // SAFETY: inside a buffer that lives for `'a`, is aligned and written by this step alone, by the proof above.
        unsafe { Disjoint::from_raw(start, count) }
    }

    /// All bytes of a weight or store, to be read by one unit.
    pub(crate) fn read_bytes(&self, value: ValueId) -> &'a [u8] {
        let place = self.place(value);
        // SAFETY: a buffer that lives for `'a`; not written during the unit, by the proof at the top of this file.
        unsafe { std::slice::from_raw_parts(place.start, place.bytes) }
    }

    /// All bytes of a store, to be written in parts by the units of one step.
    pub(crate) fn write_bytes(&self, value: ValueId) -> Disjoint<'a, u8> {
        let place = self.place(value);
        // SAFETY: a buffer that lives for `'a` and is written by this step alone, by the proof at the top of this file.
        unsafe { Disjoint::from_raw(place.start, place.bytes) }
    }

    /// Whether two values share their bytes.
    pub(crate) fn shares(&self, a: ValueId, b: ValueId) -> bool {
        self.plan.roots[a.index()] == self.plan.roots[b.index()]
    }

    fn start<T: Plain>(&self, value: ValueId, count: usize) -> *mut T {
        let place = self.place(value);
        let bytes = count * size_of::<T>();
        assert!(bytes <= place.bytes, "{value}: {bytes} bytes of {}", place.bytes);
        assert!(place.start.addr().is_multiple_of(align_of::<T>()), "{value}: not aligned");
        place.start.cast()
    }

    fn place(&self, value: ValueId) -> Place {
        let root = self.plan.roots[value.index()];
        match self.graph.values()[root.index()].origin {
            Origin::Binding(index) => self.bindings[index],
            Origin::Node { .. } => {
                let offset = self.plan.offsets[value.index()].expect("the plan places what nodes make");
                let bytes = self.graph.ty(root).bytes().expect("a verified type has a size");
                assert!(offset + bytes <= self.arena.bytes, "{value}: outside the arena");
                // SAFETY: inside the arena by the line above.
                Place { start: unsafe { self.arena.start.add(offset) }, bytes }
            }
        }
    }
}

/// The place of data that the caller gives.
pub(crate) fn data_place(bound: &Bound<'_>) -> Option<Place> {
    let (start, bytes) = match bound {
        Bound::I32(data) => (data.as_ptr().cast::<u8>(), size_of_val(*data)),
        Bound::F32(data) => (data.as_ptr().cast::<u8>(), size_of_val(*data)),
        Bound::F64(data) => (data.as_ptr().cast::<u8>(), size_of_val(*data)),
        Bound::Weight(_) | Bound::Store(_) => return None,
    };
    Some(Place { start: start.cast_mut(), bytes })
}
