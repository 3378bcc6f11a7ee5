//! Forward product of activations that were rounded to 8 bits with a weight of integer blocks.
//!
//! Order (docs/numerics.md, q8): a strip of 32 columns is an integer product, exact, then `acc = fma(scale * d, I, acc)` and,
//! with minima, `acc = fma(minimum * d, M, acc)`, both products of scales rounded by themselves; strips ascending.
//!
//! A lane is an output: sixteen rows of the weight are turned into strips (`grids`) once a unit, some columns at a
//! time, and every row of `x` goes over them. Integer factors come in after the conversion to float32: every product and
//! sum of them is an integer below 2^24, exact in any order. Codes that are stored with an offset start from minus the
//! offset times the sum of `q`. Between two chunks of columns the accumulators rest in `y`.

use std::ops::Range;

use apprentice_quant::Format;

use crate::disjoint::Disjoint;
use crate::isa::{ByteTask, Bytes, Isa, LANES, Task};
use crate::kernels::grids::{self, Blocks, CODES, Grid, Kind, Strips};
use crate::kernels::grids::{Scaled, ScaledHalves, Shifted, ShiftedHalves, ShiftedStrips, Signed};
use crate::kernels::prefetch::prefetch;
use crate::kernels::quantise_q8::BLOCK;
use crate::kernels::weight::Weight;
use crate::kernels::{ALIGNMENT, Kernel, aligned};

/// Strips of a chunk of columns: a whole number of blocks in every format.
const CHUNK: usize = 16;
/// Groups of sixteen outputs that are worked on together.
const GROUPS: usize = 2;
/// Bytes of the largest block.
const BYTES_MAX: usize = 210;
/// Outputs that are worked on together.
const TOGETHER: usize = GROUPS * LANES;
/// Vectors of the largest strip.
const VECTORS_MAX: usize = CODES + 6;
/// Bytes of the weight that a unit reads, about.
const UNIT_BYTES: usize = 48 << 10;
/// The same for large weights.
const UNIT_BYTES_LARGE: usize = 128 << 10;
/// Bytes from which on a weight is large.
const LARGE: usize = 4 << 20;

/// Activations as [`super::quantise_q8`] leaves them.
#[derive(Clone, Copy)]
pub struct Quantised<'a> {
    /// `[rows, width]`.
    pub q: &'a [i8],
    /// `[rows, width / 32]`.
    pub d: &'a [f32],
    /// `[rows, width / 16]`.
    pub sums: &'a [i32],
}

/// `x [rows, width]`, `weight [outputs, width]` -> `y [rows, outputs]`.
pub struct LinearQ8<'a> {
    x: Quantised<'a>,
    weight: Weight<'a>,
    y: Disjoint<'a, f32>,
    rows: usize,
}

impl<'a> LinearQ8<'a> {
    /// # Panics
    /// If `x` or `y` is not as large as its shape, or the weight is not of integer blocks.
    pub fn new(rows: usize, x: Quantised<'a>, weight: Weight<'a>, y: Disjoint<'a, f32>) -> Self {
        let width = weight.width();
        assert!(weight.format().grid().is_some(), "{} has no integers", weight.format());
        assert_eq!(x.q.len(), rows * width, "q [{rows}, {width}]");
        assert_eq!(x.d.len(), rows * (width / BLOCK), "d [{rows}, {}]", width / BLOCK);
        assert_eq!(x.sums.len(), rows * (width / LANES), "sums [{rows}, {}]", width / LANES);
        assert_eq!(y.len(), rows * weight.rows(), "y [{rows}, {}]", weight.rows());
        Self { x, weight, y, rows }
    }

    /// Outputs of a unit: a whole number of pairs of groups.
    fn outputs_of_a_unit(&self) -> usize {
        let pair = GROUPS * LANES * self.weight.row_bytes();
        let bytes =
            if self.weight.rows() * self.weight.row_bytes() < LARGE { UNIT_BYTES } else { UNIT_BYTES_LARGE };
        (bytes / pair.max(1)).max(1) * GROUPS * LANES
    }
}

impl Kernel for LinearQ8<'_> {
    fn units(&self) -> usize {
        if self.rows == 0 { 0 } else { self.weight.rows().div_ceil(self.outputs_of_a_unit()) }
    }

    fn scratch(&self) -> usize {
        GROUPS * CHUNK * VECTORS_MAX * LANES + ALIGNMENT
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, scratch: &mut [f32]) {
        let first = unit * self.outputs_of_a_unit();
        let outputs = first..self.weight.rows().min(first + self.outputs_of_a_unit());
        let (tile, _) = aligned(scratch).as_chunks_mut::<LANES>();
        let strips = self.weight.width() / BLOCK;
        let wide = isa.run_bytes(Wide);
        let end = outputs.end;
        for first in outputs.step_by(TOGETHER) {
            let outputs = first..end.min(first + TOGETHER);
            // What this unit reads next, to be fetched meanwhile: as it is read, it lies in too many streams to be guessed.
            let row_bytes = self.weight.row_bytes();
            let next =
                &self.weight.bytes()[outputs.end * row_bytes..end.min(outputs.end + TOGETHER) * row_bytes];
            for start in (0..strips.max(1)).step_by(CHUNK) {
                let strips = start..strips.min(start + CHUNK);
                let next = part(next, strips.clone(), self.weight.width() / BLOCK);
                isa.run(Turn { weight: &self.weight, first, strips: strips.clone(), wide, next, tile });
                isa.run_bytes(Chunk { of: self, tile, outputs: outputs.clone(), strips });
            }
        }
    }
}

/// The part of `bytes` that belongs to `strips` of `all`.
#[inline(always)]
fn part(bytes: &[u8], strips: Range<usize>, all: usize) -> &[u8] {
    let at = |strip| bytes.len() * strip / all.max(1);
    &bytes[at(strips.start)..at(strips.end)]
}

/// Whether the machine's product of bytes takes codes of all eight bits.
struct Wide;

impl ByteTask for Wide {
    type Output = bool;
    #[inline(always)]
    fn run<I: Isa, B: Bytes<I>>(self, _: I, _: B) -> bool {
        B::WIDE
    }
}

/// Writes the strips of [`GROUPS`] times sixteen outputs from `first` on; where there are fewer, the last one again. A task
/// of its own, so that its code for each format exists once a level.
struct Turn<'a, 'b> {
    weight: &'a Weight<'a>,
    first: usize,
    strips: Range<usize>,
    wide: bool,
    next: &'a [u8],
    tile: &'b mut [[f32; LANES]],
}

impl Task for Turn<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let format = self.weight.format();
        let known = grids::visit(format, TurnAs { blocks: TurnBlocks { isa }, turn: self });
        known.expect("`new` saw that the format has integers");
    }
}

struct TurnAs<'a, 'b, I> {
    blocks: TurnBlocks<I>,
    turn: Turn<'a, 'b>,
}

struct TurnBlocks<I> {
    isa: I,
}

impl<I: Isa> grids::Visit for TurnAs<'_, '_, I> {
    type Output = ();
    #[inline(always)]
    fn visit<G: Grid>(self) {
        let Turn { weight, first, strips, wide, next, tile } = self.turn;
        assert!(strips.start.is_multiple_of(G::STRIPS) && strips.end.is_multiple_of(G::STRIPS));
        let range = strips.start / G::STRIPS * G::BYTES..strips.end / G::STRIPS * G::BYTES;
        let stride = weight.row_bytes();
        assert!(range.end <= stride && strips.len() <= CHUNK);
        // Scratch is as large as the largest kernel of the program wants it: not all of it is tile.
        for (group, tile) in tile.chunks_exact_mut(CHUNK * VECTORS_MAX).take(GROUPS).enumerate() {
            let next = part(next, group..group + 1, GROUPS);
            let first = first + group * LANES;
            if first + LANES <= weight.rows() {
                let bytes = &weight.bytes()[first * stride..][..LANES * stride];
                self.blocks.rows::<G>(bytes, stride, range.clone(), wide, next, tile);
            } else if first < weight.rows() {
                // Fewer rows, block by block in a place where there are sixteen.
                for (block, tile) in
                    range.clone().step_by(G::BYTES).zip(tile.chunks_mut(G::STRIPS * G::Kind::VECTORS))
                {
                    let mut bytes = [0; LANES * BYTES_MAX];
                    for (row, bytes) in (first..weight.rows()).zip(bytes.chunks_exact_mut(BYTES_MAX)) {
                        bytes[..G::BYTES].copy_from_slice(&weight.row(row)[block..][..G::BYTES]);
                    }
                    self.blocks.rows::<G>(&bytes, BYTES_MAX, 0..G::BYTES, wide, &[], tile);
                }
            }
        }
    }
}

impl<I: Isa> TurnBlocks<I> {
    /// The blocks that lie in `range` of each of sixteen rows of `stride` bytes.
    #[inline(always)]
    fn rows<G: Grid>(
        &self,
        bytes: &[u8],
        stride: usize,
        range: Range<usize>,
        wide: bool,
        next: &[u8],
        tile: &mut [[f32; LANES]],
    ) {
        assert!(bytes.len() == LANES * stride && range.end <= stride && range.len().is_multiple_of(G::BYTES));
        let each = G::Kind::VECTORS;
        let blocks = Blocks::new(self.isa, bytes.as_ptr(), stride);
        let count = range.len() / G::BYTES;
        let ahead = next.len().div_ceil(count.max(1));
        for (index, vectors) in tile.chunks_exact_mut(G::STRIPS * each).take(count).enumerate() {
            let at = range.start + index * G::BYTES;
            prefetch(next, index * ahead, 0..ahead);
            // SAFETY: `at` and `G::BYTES` more lie inside each of the sixteen rows, by the assertion above.
            unsafe { G::read(self.isa, &blocks.at(at), wide, &mut Strips { vectors, each }) };
        }
    }
}

/// Some outputs and columns of the weight, turned, for all rows of `x`.
struct Chunk<'a, 'b> {
    of: &'a LinearQ8<'a>,
    /// For each group of outputs room for `CHUNK` of the largest strips.
    tile: &'b [[f32; LANES]],
    outputs: Range<usize>,
    strips: Range<usize>,
}

impl ByteTask for Chunk<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa, B: Bytes<I>>(self, isa: I, bytes: B) {
        match self.of.weight.format() {
            Format::Q8_0 if !B::WIDE => self.all_rows::<I, B, Signed>(isa, bytes),
            Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => self.all_rows::<I, B, Scaled>(isa, bytes),
            Format::Q4_1 | Format::Q5_1 => self.all_rows::<I, B, Shifted>(isa, bytes),
            Format::Q4K | Format::Q5K => self.all_rows::<I, B, ShiftedStrips>(isa, bytes),
            Format::Q3K | Format::Q6K => self.all_rows::<I, B, ScaledHalves>(isa, bytes),
            Format::Q2K => self.all_rows::<I, B, ShiftedHalves>(isa, bytes),
            Format::F32 | Format::F16 | Format::BF16 => {
                unreachable!("`new` saw that the format has integers")
            }
        }
    }
}

impl Chunk<'_, '_> {
    /// All rows of `x`, some at a time; what is left over, fewer.
    #[inline(always)]
    fn all_rows<I: Isa, B: Bytes<I>, K: Kind>(&self, isa: I, bytes: B) {
        let mut row = 0;
        if I::REGISTERS >= 32 && !K::HALVES {
            while row + 6 <= self.of.rows {
                self.rows::<I, B, K, 6>(isa, bytes, row);
                row += 6;
            }
        }
        if I::REGISTERS >= 32 && K::HALVES {
            while row + 4 <= self.of.rows {
                self.rows::<I, B, K, 4>(isa, bytes, row);
                row += 4;
            }
        }
        if I::REGISTERS >= 8 {
            while row + 2 <= self.of.rows {
                self.rows::<I, B, K, 2>(isa, bytes, row);
                row += 2;
            }
        }
        while row < self.of.rows {
            self.rows::<I, B, K, 1>(isa, bytes, row);
            row += 1;
        }
    }

    /// `HEIGHT` rows from `row` on, from where the chunk before left off.
    #[inline(always)]
    fn rows<I: Isa, B: Bytes<I>, K: Kind, const HEIGHT: usize>(&self, isa: I, bytes: B, row: usize) {
        let outputs = self.of.weight.rows();
        let count = self.outputs.len();
        let mut sums = [[isa.zero(); GROUPS]; HEIGHT];
        for (r, sums) in sums.iter_mut().enumerate() {
            let start = (row + r) * outputs + self.outputs.start;
            // SAFETY: outputs of this unit; units have outputs of their own and a unit takes one row at a time.
            let y = unsafe { self.of.y.range(start..start + count) };
            for (sum, y) in sums.iter_mut().zip(y.chunks(LANES)) {
                if self.strips.start > 0 {
                    *sum = isa.load_partial(y);
                }
            }
        }
        let sums = self.products::<I, B, K, HEIGHT>(isa, bytes, row, sums);
        for (r, sums) in sums.iter().enumerate() {
            let start = (row + r) * outputs + self.outputs.start;
            // SAFETY: as above.
            let y = unsafe { self.of.y.range(start..start + count) };
            for (sum, y) in sums.iter().zip(y.chunks_mut(LANES)) {
                isa.store_partial(y, *sum);
            }
        }
    }

    /// `sums` of `HEIGHT` rows and all groups of outputs, the strips of the chunk added.
    #[inline(always)]
    fn products<I: Isa, B: Bytes<I>, K: Kind, const HEIGHT: usize>(
        &self,
        isa: I,
        bytes: B,
        row: usize,
        mut sums: [[I::V; GROUPS]; HEIGHT],
    ) -> [[I::V; GROUPS]; HEIGHT] {
        let (of, width) = (self.of, self.of.weight.width());
        let all = width / BLOCK;
        assert!((row + HEIGHT) * width <= of.x.q.len() && self.strips.end * BLOCK <= width);
        assert!(GROUPS * CHUNK * VECTORS_MAX <= self.tile.len() && self.strips.len() <= CHUNK);
        let offset = if K::SIGNED { 0 } else { grids::offset(of.weight.format()) };
        for (local, strip) in self.strips.clone().enumerate() {
            let tile = |group: usize, vector: usize| {
                let at = group * CHUNK * VECTORS_MAX + local * K::VECTORS + vector;
                // SAFETY: a vector of strip `local` of group `group`, inside the tile by the assertion above.
                isa.load(unsafe { self.tile.get_unchecked(at) })
            };
            let halves: [[i32; 2]; HEIGHT] = std::array::from_fn(|r| {
                let at = (row + r) * 2 * all + 2 * strip;
                // SAFETY: `sums` has two elements for each of the strips of a row, as `new` saw.
                unsafe { [*of.x.sums.get_unchecked(at), *of.x.sums.get_unchecked(at + 1)] }
            });
            let mut integers = [[isa.zero(); GROUPS]; HEIGHT];
            for part in 0..K::PARTS {
                let mut products = [[isa.splat_int(0); GROUPS]; HEIGHT];
                if !K::MINIMA && !K::SIGNED {
                    for (products, halves) in products.iter_mut().zip(halves) {
                        let sum = if K::HALVES { halves[part] } else { halves[0] + halves[1] };
                        *products = [isa.splat_int(-offset * sum); GROUPS];
                    }
                }
                for column in part * CODES / K::PARTS..(part + 1) * CODES / K::PARTS {
                    let codes: [I::W; GROUPS] = std::array::from_fn(|group| isa.bits(tile(group, column)));
                    for (r, products) in products.iter_mut().enumerate() {
                        let at = (row + r) * width + strip * BLOCK + 4 * column;
                        // SAFETY: four bytes of a row of `q`, by the first assertion; bytes have no alignment.
                        let four = unsafe { of.x.q.as_ptr().add(at).cast::<[u8; 4]>().read() };
                        let x = isa.splat_int(i32::from_le_bytes(four));
                        for (product, codes) in products.iter_mut().zip(codes) {
                            *product = if K::SIGNED {
                                bytes.dot_signed(isa, *product, codes, x)
                            } else {
                                bytes.dot(isa, *product, codes, x)
                            };
                        }
                    }
                }
                for group in 0..GROUPS {
                    for (integers, products) in integers.iter_mut().zip(&products) {
                        let product = isa.from_int(products[group]);
                        integers[group] = match (K::FACTORS, part) {
                            (false, _) => product,
                            (true, 0) => isa.mul(tile(group, K::FACTOR), product),
                            (true, _) => isa.fma(tile(group, K::FACTOR + part), product, integers[group]),
                        };
                    }
                }
            }
            for (r, (sums, integers)) in sums.iter_mut().zip(&integers).enumerate() {
                // SAFETY: `d` has an element for each strip of a row, as `new` saw.
                let d = isa.splat(unsafe { *of.x.d.get_unchecked((row + r) * all + strip) });
                for (group, (sum, integer)) in sums.iter_mut().zip(integers).enumerate() {
                    *sum = isa.fma(isa.mul(tile(group, CODES), d), *integer, *sum);
                }
                if K::MINIMA {
                    let [low, high] = halves[r];
                    for (group, sum) in sums.iter_mut().enumerate() {
                        let minima = if !K::FACTORS {
                            isa.splat((low + high) as f32)
                        } else if K::HALVES {
                            let first = isa.mul(tile(group, K::MINIMUM), isa.splat(low as f32));
                            isa.fma(tile(group, K::MINIMUM + 1), isa.splat(high as f32), first)
                        } else {
                            isa.mul(tile(group, K::MINIMUM), isa.splat((low + high) as f32))
                        };
                        let minimum = isa.mul(tile(group, CODES + 1), d);
                        *sum = isa.fma(minimum, minima, *sum);
                    }
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests;
