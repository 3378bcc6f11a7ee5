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
use std::ptr::NonNull;

use apprentice_graph::{Bound, Extents, Graph, Origin, Plan, Type, ValueData, ValueId};

use crate::disjoint::Disjoint;

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

/// Where each value lies in runs with the same counts, and how much of it there is: what a run needs to know of types,
/// worked out once.
pub(crate) struct Layout {
    values: Vec<Slot>,
    /// Bytes of the arena that the values reach to.
    arena_bytes: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    base: Base,
    /// Rows that the run counts on axis 0.
    rows: usize,
    /// Elements.
    count: usize,
}

#[derive(Clone, Copy)]
enum Base {
    /// The binding of this index.
    Binding(usize),
    /// Bytes of the arena.
    Arena { offset: usize, bytes: usize },
}

impl Layout {
    /// The layout of a verified graph by its plan.
    pub(crate) fn new(graph: &Graph, plan: &Plan, extents: &Extents) -> Layout {
        let slot = |index: usize, value: &ValueData| {
            let root = plan.roots[index];
            let base = match graph.values()[root.index()].origin {
                Origin::Binding(binding) => Base::Binding(binding),
                Origin::Node { .. } => Base::Arena {
                    offset: plan.offsets[index].expect("the plan places what nodes make"),
                    bytes: graph.ty(root).bytes().expect("a verified type has a size"),
                },
            };
            let ty = &value.ty;
            let rows = ty.extent.map_or(ty.rows(), |extent| extents.get(extent));
            Slot { base, rows, count: rows * ty.row_count() }
        };
        let values: Vec<Slot> =
            graph.values().iter().enumerate().map(|(index, value)| slot(index, value)).collect();
        let end = |slot: &Slot| match slot.base {
            Base::Arena { offset, bytes } => offset + bytes,
            Base::Binding(_) => 0,
        };
        let arena_bytes = values.iter().map(end).max().unwrap_or(0);
        Layout { values, arena_bytes }
    }
}

/// A value in one run.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    place: Place,
    rows: usize,
    count: usize,
}

/// The memory of one run.
pub(crate) struct Memory<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) plan: &'a Plan,
    spots: &'a [Spot],
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> Memory<'a> {
    /// The memory of a run over `bindings`, one for each of [`Graph::bindings`], whose lengths have been checked against
    /// the graph. `spots` is room for a table, kept from run to run.
    ///
    /// # Safety
    /// Every place must be valid for reads of its bytes for `'a`, and those of the arena and of stores that the graph
    /// writes for writes too, with no other access meanwhile.
    pub(crate) unsafe fn new(
        graph: &'a Graph,
        plan: &'a Plan,
        layout: &Layout,
        bindings: &[Place],
        arena: Place,
        spots: &'a mut Vec<Spot>,
    ) -> Memory<'a> {
        let (have, need) = (arena.bytes, layout.arena_bytes);
        assert!(have >= need, "the arena has {have} bytes, the plan needs {need}");
        spots.clear();
        spots.extend(layout.values.iter().map(|slot| {
            let place = match slot.base {
                Base::Binding(index) => bindings[index],
                // SAFETY: inside the arena by the assertion above.
                Base::Arena { offset, bytes } => Place { start: unsafe { arena.start.add(offset) }, bytes },
            };
            Spot { place, rows: slot.rows, count: slot.count }
        }));
        Memory { graph, plan, spots, borrow: PhantomData }
    }

    /// Type of a value.
    pub(crate) fn ty(&self, value: ValueId) -> &'a Type {
        self.graph.ty(value)
    }

    /// Rows that a run counts on axis 0 of a value.
    pub(crate) fn rows(&self, value: ValueId) -> usize {
        self.spots[value.index()].rows
    }

    /// Elements of a value, to be read by one unit.
    pub(crate) fn read<T: Plain>(&self, value: ValueId) -> &'a [T] {
        let (start, count) = self.start::<T>(value);
        // SAFETY: inside a buffer that lives for `'a` and is aligned, by `start`; not written during the unit, by the
        // proof at the top of this file.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Elements of a value, to be written in parts by the units of one step.
    pub(crate) fn write<T: Plain>(&self, value: ValueId) -> Disjoint<'a, T> {
        let (start, count) = self.start::<T>(value);
        // SAFETY: inside a buffer that lives for `'a`, is aligned and written by this step alone, by the proof above.
        unsafe { Disjoint::from_raw(start, count) }
    }

    /// All bytes of a weight or store, to be read by one unit.
    pub(crate) fn read_bytes(&self, value: ValueId) -> &'a [u8] {
        let place = self.spots[value.index()].place;
        // SAFETY: a buffer that lives for `'a`; not written during the unit, by the proof at the top of this file.
        unsafe { std::slice::from_raw_parts(place.start, place.bytes) }
    }

    /// All bytes of a store, to be written in parts by the units of one step.
    pub(crate) fn write_bytes(&self, value: ValueId) -> Disjoint<'a, u8> {
        let place = self.spots[value.index()].place;
        // SAFETY: a buffer that lives for `'a` and is written by this step alone, by the proof at the top of this file.
        unsafe { Disjoint::from_raw(place.start, place.bytes) }
    }

    /// Whether two values share their bytes.
    pub(crate) fn shares(&self, a: ValueId, b: ValueId) -> bool {
        self.plan.roots[a.index()] == self.plan.roots[b.index()]
    }

    fn start<T: Plain>(&self, value: ValueId) -> (*mut T, usize) {
        let Spot { place, count, .. } = self.spots[value.index()];
        let bytes = count * size_of::<T>();
        assert!(bytes <= place.bytes, "{value}: {bytes} bytes of {}", place.bytes);
        assert!(place.start.addr().is_multiple_of(align_of::<T>()), "{value}: not aligned");
        (place.start.cast(), count)
    }
}

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
