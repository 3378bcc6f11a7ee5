//! What a step works on, as slices for its kernel: the values of a node or effect, each with its address and what kernels
//! need to know of its type, side by side.
//!
//! Proof of the `unsafe` here. Operands are made by a [`Schedule`](crate::schedule::Schedule), whose `execute` has the
//! promise of its caller that all addresses are those of buffers held for the run: the arena and written stores
//! exclusively, the others shared. Slices are made for one call of a kernel: [`Operands::read`] of bytes that no unit of the
//! same step writes, and [`Operands::write`] as a [`Disjoint`], which hands out parts. The plan gives values that are alive
//! at the same step disjoint bytes, except an output in place of an input, and there lowering reads through the output. A
//! store that is written is bound once and is never the value of an effect: the graph's checks see to both. Steps follow
//! each other: the pool opens one when all units of the last are done.

use apprentice_graph::{Element, Type};

use crate::disjoint::Disjoint;
use crate::kernels::weight::Weight;
use crate::memory::{Place, Plain};

/// Axes that a value may have.
pub(crate) const AXES: usize = 4;

/// One value of a step: a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Operand {
    pub(crate) place: Place,
    /// Rows that the run counts on axis 0.
    rows: usize,
    /// Elements of a row.
    row_count: usize,
    /// Capacities.
    sizes: [u32; AXES],
    rank: u8,
    element: Element,
    /// Output 0 lies in the same bytes.
    pub(crate) in_place: bool,
}

impl Operand {
    /// An optional input that is not given.
    pub(crate) const ABSENT: Operand = Operand {
        place: Place { start: std::ptr::null_mut(), bytes: 0 },
        rows: 0,
        row_count: 0,
        sizes: [0; AXES],
        rank: 0,
        element: Element::Absent,
        in_place: false,
    };

    /// A value of this type with `rows` rows, at `place`. A type of more than [`AXES`] axes is refused before.
    pub(crate) fn new(ty: &Type, rows: usize, place: Place) -> Operand {
        let mut sizes = [1; AXES];
        for (size, axis) in sizes.iter_mut().zip(&ty.shape.0) {
            *size = u32::try_from(*axis).expect("an axis of more than 2^32 has no memory");
        }
        let rank = ty.rank() as u8;
        Operand { place, rows, row_count: ty.row_count(), sizes, rank, element: ty.element, in_place: false }
    }

    /// The same value in a run of other counts.
    pub(crate) fn set_rows(&mut self, rows: usize) {
        self.rows = rows;
    }
}

/// The values of a step: its inputs, then its outputs.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a> {
    values: &'a [Operand],
    inputs: usize,
}

impl<'a> Operands<'a> {
    /// # Safety
    /// The proof at the top of this file holds for the places of `values` as long as `'a`.
    pub(crate) unsafe fn new(values: &'a [Operand], inputs: usize) -> Operands<'a> {
        Operands { values, inputs }
    }

    /// Whether an optional input is given.
    pub(crate) fn has(self, slot: usize) -> bool {
        self.values[slot].element != Element::Absent
    }
    pub(crate) fn element(self, slot: usize) -> Element {
        self.values[slot].element
    }
    pub(crate) fn rank(self, slot: usize) -> usize {
        usize::from(self.values[slot].rank)
    }
    /// Capacity of an axis.
    pub(crate) fn size(self, slot: usize, axis: usize) -> usize {
        self.values[slot].sizes[axis] as usize
    }
    /// Size of the last axis; 1 for a scalar.
    pub(crate) fn width(self, slot: usize) -> usize {
        self.size(slot, self.rank(slot).saturating_sub(1))
    }
    /// Elements of a row: the product of all axes but the first.
    pub(crate) fn row_count(self, slot: usize) -> usize {
        self.values[slot].row_count
    }
    /// Rows of the run.
    pub(crate) fn rows(self, slot: usize) -> usize {
        self.values[slot].rows
    }
    /// Whether two values have the same capacities.
    pub(crate) fn same_shape(self, a: usize, b: usize) -> bool {
        self.rank(a) == self.rank(b) && self.values[a].sizes == self.values[b].sizes
    }

    pub(crate) fn floats(self, slot: usize) -> &'a [f32] {
        self.read(slot)
    }
    pub(crate) fn ints(self, slot: usize) -> &'a [i32] {
        self.read(slot)
    }
    pub(crate) fn doubles(self, slot: usize) -> &'a [f64] {
        self.read(slot)
    }
    /// An input, unless output 0 lies in its place.
    pub(crate) fn unless_in_place(self, slot: usize) -> Option<&'a [f32]> {
        (!self.values[slot].in_place).then(|| self.floats(slot))
    }
    /// An output of float32.
    pub(crate) fn out(self, output: usize) -> Disjoint<'a, f32> {
        self.write(self.inputs + output)
    }
    /// An output.
    pub(crate) fn write_out<T: Plain>(self, output: usize) -> Disjoint<'a, T> {
        self.write(self.inputs + output)
    }

    /// A weight in blocks.
    pub(crate) fn weight(self, slot: usize) -> Weight<'a> {
        let Element::Weight(format) = self.element(slot) else {
            unreachable!("a verified product has a weight")
        };
        let weight = Weight::new(format, self.read_bytes(slot), self.size(slot, 0), self.width(slot));
        weight.expect("a weight's bytes were checked when it was taken")
    }

    /// Elements of a value, to be read.
    pub(crate) fn read<T: Plain>(self, slot: usize) -> &'a [T] {
        let (start, count) = self.start::<T>(slot);
        // SAFETY: inside a buffer that lives for `'a` and is aligned, by `start`; not written meanwhile, by the proof at the
        // top of this file.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Elements of a value, to be written in parts by the units of one step.
    pub(crate) fn write<T: Plain>(self, slot: usize) -> Disjoint<'a, T> {
        let (start, count) = self.start::<T>(slot);
        // SAFETY: inside a buffer that lives for `'a`, is aligned and written by this step alone, by the proof above.
        unsafe { Disjoint::from_raw(start, count) }
    }

    /// All bytes of a weight or store, to be read.
    pub(crate) fn read_bytes(self, slot: usize) -> &'a [u8] {
        let place = self.present(slot).place;
        // SAFETY: a buffer that lives for `'a`; not written meanwhile, by the proof at the top of this file.
        unsafe { std::slice::from_raw_parts(place.start, place.bytes) }
    }

    /// All bytes of a store, to be written in parts by the units of one step.
    pub(crate) fn write_bytes(self, slot: usize) -> Disjoint<'a, u8> {
        let place = self.present(slot).place;
        // SAFETY: a buffer that lives for `'a` and is written by this step alone, by the proof at the top of this file.
        unsafe { Disjoint::from_raw(place.start, place.bytes) }
    }

    fn present(self, slot: usize) -> &'a Operand {
        let operand = &self.values[slot];
        assert!(operand.element != Element::Absent, "input {slot} of a verified node is required");
        operand
    }

    fn start<T: Plain>(self, slot: usize) -> (*mut T, usize) {
        let Operand { place, rows, row_count, .. } = self.present(slot);
        let count = rows * row_count;
        let bytes = count * size_of::<T>();
        assert!(bytes <= place.bytes, "operand {slot}: {bytes} bytes of {}", place.bytes);
        assert!(place.start.addr().is_multiple_of(align_of::<T>()), "operand {slot}: not aligned");
        (place.start.cast(), count)
    }
}
