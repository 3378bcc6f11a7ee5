//! Block formats as integers, sixteen rows at a time: what products of bytes multiply, a lane for each row.
//!
//! A *strip* is 32 columns of sixteen rows, as vectors of sixteen lanes one behind the other:
//!
//! ```text
//! codes          8    lane r of vector c: codes of columns 4 c to 4 c + 3 of row r, a byte each
//! scale          1    float32; what an integer sum counts
//! minimum        1    float32, with the sign with which it is added; only formats with minima
//! factors      1, 2   float32 of the integers: one for the strip, or one for each half of 16 columns
//! minima       1, 2   likewise
//! ```
//!
//! Codes are unsigned: [`offset`] more than the code that `quant` gives. Only Q8_0's fill all of a byte: they keep their
//! sign where the machine's product of bytes is not that wide. The codes, factors, minima and floats are those of
//! `quant`'s strips, which say where in a block they lie.

use apprentice_quant::Format;

use crate::isa::{Isa, LANES};

/// Vectors of codes in a strip.
pub(crate) const CODES: usize = 8;

/// The same block of sixteen rows, which lie equally far apart.
pub(crate) struct Blocks<I: Isa> {
    first: *const u8,
    stride: usize,
    /// Distance of each row from the first.
    distances: I::W,
}

impl<I: Isa> Blocks<I> {
    /// Blocks of which the first begins at `first`, the others `stride` bytes apart.
    ///
    /// # Panics
    /// If they are too far apart for an offset of 32 bits.
    #[inline(always)]
    pub(crate) fn new(isa: I, first: *const u8, stride: usize) -> Self {
        assert!(stride < 1 << 26, "rows of {stride} bytes");
        let mut distances = [0; LANES];
        for (lane, distance) in distances.iter_mut().enumerate() {
            *distance = (lane * stride) as i32;
        }
        Self { first, stride, distances: isa.load_int(&distances) }
    }

    /// The blocks `bytes` further on.
    ///
    /// # Safety
    /// They lie in the same rows.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, bytes: usize) -> Self {
        // SAFETY: by the caller's promise.
        Self { first: unsafe { self.first.add(bytes) }, ..*self }
    }

    /// The 32-bit word at byte `start` of each block.
    ///
    /// # Safety
    /// Every block is valid for reading `start + 4` bytes.
    #[inline(always)]
    unsafe fn words(&self, isa: I, start: usize) -> I::W {
        // SAFETY: by the caller's promise; distances are those of the blocks.
        unsafe { isa.words_at(self.first.add(start), self.distances) }
    }

    /// Bytes `start` to `start + 16` of each block, turned.
    ///
    /// # Safety
    /// Every block is valid for reading `start + 16` bytes.
    #[inline(always)]
    unsafe fn columns(&self, isa: I, start: usize) -> [I::W; 4] {
        // SAFETY: by the caller's promise.
        unsafe { isa.columns_at(self.first.add(start), self.stride) }
    }
}

/// Which vectors a strip has, and what a product makes of them.
pub(crate) trait Kind {
    /// Whether there are integer factors, and integer minima where there are any.
    const FACTORS: bool;
    /// Whether each half of a strip has a factor of its own.
    const HALVES: bool;
    /// Whether there are minima.
    const MINIMA: bool;
    /// Whether codes are signed bytes.
    const SIGNED: bool = false;

    /// Factors, and minima, of a strip.
    const PARTS: usize = if Self::HALVES { 2 } else { 1 };
    /// Where the factors stand.
    const FACTOR: usize = CODES + 1 + Self::MINIMA as usize;
    /// Where the minima stand.
    const MINIMUM: usize = Self::FACTOR + Self::PARTS * Self::FACTORS as usize;
    /// Vectors of a strip.
    const VECTORS: usize = Self::MINIMUM + Self::PARTS * (Self::FACTORS && Self::MINIMA) as usize;
}

/// A scale.
pub(crate) struct Scaled;
/// A scale, and codes that are signed.
pub(crate) struct Signed;
/// A scale and a minimum.
pub(crate) struct Shifted;
/// A factor and a minimum for each half.
pub(crate) struct ShiftedHalves;
/// A factor and a minimum.
pub(crate) struct ShiftedStrips;
/// A factor for each half.
pub(crate) struct ScaledHalves;

impl Kind for Scaled {
    const FACTORS: bool = false;
    const HALVES: bool = false;
    const MINIMA: bool = false;
}

impl Kind for Signed {
    const FACTORS: bool = false;
    const HALVES: bool = false;
    const MINIMA: bool = false;
    const SIGNED: bool = true;
}

impl Kind for Shifted {
    const FACTORS: bool = false;
    const HALVES: bool = false;
    const MINIMA: bool = true;
}

impl Kind for ShiftedHalves {
    const FACTORS: bool = true;
    const HALVES: bool = true;
    const MINIMA: bool = true;
}

impl Kind for ShiftedStrips {
    const FACTORS: bool = true;
    const HALVES: bool = false;
    const MINIMA: bool = true;
}

impl Kind for ScaledHalves {
    const FACTORS: bool = true;
    const HALVES: bool = true;
    const MINIMA: bool = false;
}

/// A format whose blocks are integers.
pub(crate) trait Grid {
    /// The vectors of its strips.
    type Kind: Kind;
    /// Bytes of a block.
    const BYTES: usize;
    /// Strips of a block.
    const STRIPS: usize;

    /// Writes the strips of a block of sixteen rows. Codes that fill a byte are signed unless `wide`.
    ///
    /// # Safety
    /// Every block is valid for reading [`Grid::BYTES`] bytes, and there is room for its strips.
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, wide: bool, strips: &mut Strips<'_>);
}

/// What the stored codes of a format exceed the true ones by; those of Q8_0 where they are not signed.
pub(crate) fn offset(format: Format) -> i32 {
    match format {
        Format::Q4_0 => 8,
        Format::Q5_0 => 16,
        Format::Q8_0 => 128,
        Format::Q3K => 4,
        Format::Q6K => 32,
        Format::Q4_1 | Format::Q5_1 | Format::Q2K | Format::Q4K | Format::Q5K => 0,
        Format::F32 | Format::F16 | Format::BF16 => 0,
    }
}

/// Strips that are written: [`Kind::VECTORS`] vectors each.
pub(crate) struct Strips<'a> {
    /// The vectors.
    pub vectors: &'a mut [[f32; LANES]],
    /// Vectors of a strip.
    pub each: usize,
}

impl Strips<'_> {
    #[inline(always)]
    fn put<I: Isa>(&mut self, isa: I, strip: usize, at: usize, v: I::V) {
        isa.store(&mut self.vectors[strip * self.each + at], v);
    }

    #[inline(always)]
    fn put_codes<I: Isa>(&mut self, isa: I, strip: usize, column: usize, codes: I::W) {
        self.put(isa, strip, column, isa.from_bits(codes));
    }

    /// The low nibbles of sixteen bytes, then the high ones.
    #[inline(always)]
    fn put_nibbles<I: Isa>(&mut self, isa: I, strip: usize, packed: &[I::W; 4]) {
        for (c, packed) in packed.iter().enumerate() {
            self.put_codes(isa, strip, c, lower(isa, *packed));
            self.put_codes(isa, strip, c + 4, upper(isa, *packed));
        }
    }

    /// The same with bit `i` of `high` above code `i`.
    #[inline(always)]
    fn put_five_bits<I: Isa>(&mut self, isa: I, strip: usize, high: I::W, packed: &[I::W; 4]) {
        let spread = isa.from_bits(isa.load_int(&SPREAD));
        for (c, packed) in packed.iter().enumerate() {
            let (low, high) = (bits(isa, high, 4 * c, 15), bits(isa, high, 4 * c + 16, 15));
            let (low, high) = (isa.bits(isa.lookup(spread, low)), isa.bits(isa.lookup(spread, high)));
            self.put_codes(isa, strip, c, isa.or_int(lower(isa, *packed), low));
            self.put_codes(isa, strip, c + 4, isa.or_int(upper(isa, *packed), high));
        }
    }
}

/// Work that is written once for all formats.
pub(crate) trait Visit {
    /// What comes out.
    type Output;
    /// Does it for the format with the blocks `G`.
    fn visit<G: Grid>(self) -> Self::Output;
}

/// The one place where a format meets its integers; `None` for single values, which have none.
#[inline(always)]
pub(crate) fn visit<T: Visit>(format: Format, work: T) -> Option<T::Output> {
    Some(match format {
        Format::F32 | Format::F16 | Format::BF16 => return None,
        Format::Q4_0 => work.visit::<Q4_0>(),
        Format::Q4_1 => work.visit::<Q4_1>(),
        Format::Q5_0 => work.visit::<Q5_0>(),
        Format::Q5_1 => work.visit::<Q5_1>(),
        Format::Q8_0 => work.visit::<Q8_0>(),
        Format::Q2K => work.visit::<Q2K>(),
        Format::Q3K => work.visit::<Q3K>(),
        Format::Q4K => work.visit::<Q4K>(),
        Format::Q5K => work.visit::<Q5K>(),
        Format::Q6K => work.visit::<Q6K>(),
    })
}

struct Q4_0;
struct Q4_1;
struct Q5_0;
struct Q5_1;
struct Q8_0;
struct Q2K;
struct Q3K;
struct Q4K;
struct Q5K;
struct Q6K;

impl Grid for Q4_0 {
    type Kind = Scaled;
    const BYTES: usize = 18;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 18 of a block.
        let (scale, packed) = unsafe { (blocks.words(isa, 0), blocks.columns(isa, 2)) };
        strips.put_nibbles(isa, 0, &packed);
        strips.put(isa, 0, CODES, isa.f16s(scale));
    }
}

impl Grid for Q4_1 {
    type Kind = Shifted;
    const BYTES: usize = 20;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 20 of a block.
        let (floats, packed) = unsafe { (blocks.words(isa, 0), blocks.columns(isa, 4)) };
        strips.put_nibbles(isa, 0, &packed);
        strips.put(isa, 0, CODES, isa.f16s(floats));
        strips.put(isa, 0, CODES + 1, isa.f16s(isa.shr::<16>(floats)));
    }
}

impl Grid for Q5_0 {
    type Kind = Scaled;
    const BYTES: usize = 22;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 22 of a block.
        let (scale, high, packed) =
            unsafe { (blocks.words(isa, 0), blocks.words(isa, 2), blocks.columns(isa, 6)) };
        strips.put_five_bits(isa, 0, high, &packed);
        strips.put(isa, 0, CODES, isa.f16s(scale));
    }
}

impl Grid for Q5_1 {
    type Kind = Shifted;
    const BYTES: usize = 24;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 24 of a block.
        let (floats, high, packed) =
            unsafe { (blocks.words(isa, 0), blocks.words(isa, 4), blocks.columns(isa, 8)) };
        strips.put_five_bits(isa, 0, high, &packed);
        strips.put(isa, 0, CODES, isa.f16s(floats));
        strips.put(isa, 0, CODES + 1, isa.f16s(isa.shr::<16>(floats)));
    }
}

impl Grid for Q8_0 {
    type Kind = Scaled;
    const BYTES: usize = 34;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, wide: bool, strips: &mut Strips<'_>) {
        let sign = each(isa, if wide { 0x80 } else { 0 });
        for half in 0..2 {
            // SAFETY: bytes 2 to 34 of a block.
            let codes = unsafe { blocks.columns(isa, 2 + 16 * half) };
            for (c, codes) in codes.into_iter().enumerate() {
                strips.put_codes(isa, 0, 4 * half + c, isa.xor_int(codes, sign));
            }
        }
        // SAFETY: bytes 0 to 4 of a block.
        let scale = unsafe { blocks.words(isa, 0) };
        strips.put(isa, 0, CODES, isa.f16s(scale));
    }
}

impl Grid for Q2K {
    type Kind = ShiftedHalves;
    const BYTES: usize = 84;
    const STRIPS: usize = 8;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 16 and 80 to 84 of a block.
        let (packed, floats) = unsafe { (blocks.columns(isa, 0), blocks.words(isa, 80)) };
        let (scale, minimum) = (isa.f16s(floats), isa.neg(isa.f16s(isa.shr::<16>(floats))));
        for strip in 0..Self::STRIPS {
            strips.put(isa, strip, CODES, scale);
            strips.put(isa, strip, CODES + 1, minimum);
            for j in 0..2 {
                let byte = isa.shr_by(packed[strip / 2], 8 * (2 * (strip % 2) + j) as u32);
                let (factor, minimum) = (bits(isa, byte, 0, 15), bits(isa, byte, 4, 15));
                strips.put(isa, strip, Self::Kind::FACTOR + j, isa.from_int(factor));
                strips.put(isa, strip, Self::Kind::MINIMUM + j, isa.from_int(minimum));
            }
        }
        for part in 0..4 {
            // SAFETY: bytes 16 to 80: a half of the block, a half of its columns.
            let quants = unsafe { blocks.columns(isa, 16 + 16 * part) };
            for (c, quants) in quants.into_iter().enumerate() {
                for quarter in 0..4 {
                    let codes = isa.and_int(isa.shr_by(quants, 2 * quarter as u32), each(isa, 3));
                    strips.put_codes(isa, 4 * (part / 2) + quarter, 4 * (part % 2) + c, codes);
                }
            }
        }
    }
}

impl Grid for Q3K {
    type Kind = ScaledHalves;
    const BYTES: usize = 110;
    const STRIPS: usize = 8;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 96 to 110 of a block; the scale is the upper half of a word.
        let (packed, scale) = unsafe {
            let packed = [blocks.words(isa, 96), blocks.words(isa, 100), blocks.words(isa, 104)];
            (packed, isa.f16s(isa.shr::<16>(blocks.words(isa, 106))))
        };
        for strip in 0..Self::STRIPS {
            strips.put(isa, strip, CODES, scale);
            for j in 0..2 {
                let group = 2 * strip + j;
                let low = bits(isa, packed[group % 8 / 4], 8 * (group % 4) + 4 * (group / 8), 15);
                let high = bits(isa, packed[2], 8 * (group % 4) + 2 * (group / 4), 3);
                let factor = isa.sub_int(isa.or_int(low, isa.shl::<4>(high)), isa.splat_int(32));
                strips.put(isa, strip, Self::Kind::FACTOR + j, isa.from_int(factor));
            }
        }
        for side in 0..2 {
            // SAFETY: bytes 0 to 32.
            let high = unsafe { blocks.columns(isa, 16 * side) };
            for half in 0..2 {
                // SAFETY: bytes 32 to 96.
                let low = unsafe { blocks.columns(isa, 32 + 32 * half + 16 * side) };
                for c in 0..4 {
                    for quarter in 0..4 {
                        let strip = 4 * half + quarter;
                        let low = isa.and_int(isa.shr_by(low[c], 2 * quarter as u32), each(isa, 3));
                        let third = isa.and_int(isa.shr_by(high[c], strip as u32), each(isa, 1));
                        strips.put_codes(isa, strip, 4 * side + c, isa.or_int(low, isa.shl::<2>(third)));
                    }
                }
            }
        }
    }
}

impl Grid for Q4K {
    type Kind = ShiftedStrips;
    const BYTES: usize = 144;
    const STRIPS: usize = 8;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 20 of a block.
        unsafe { six_bits(isa, blocks, strips) };
        for part in 0..8 {
            // SAFETY: bytes 16 to 144: two strips, a half of their columns.
            let packed = unsafe { blocks.columns(isa, 16 + 16 * part) };
            let (pair, first) = (part / 2, 4 * (part % 2));
            for (c, packed) in packed.into_iter().enumerate() {
                strips.put_codes(isa, 2 * pair, first + c, lower(isa, packed));
                strips.put_codes(isa, 2 * pair + 1, first + c, upper(isa, packed));
            }
        }
    }
}

impl Grid for Q5K {
    type Kind = ShiftedStrips;
    const BYTES: usize = 176;
    const STRIPS: usize = 8;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 20 of a block.
        unsafe { six_bits(isa, blocks, strips) };
        for side in 0..2 {
            // SAFETY: bytes 16 to 48.
            let high = unsafe { blocks.columns(isa, 16 + 16 * side) };
            for pair in 0..4 {
                // SAFETY: bytes 48 to 176.
                let packed = unsafe { blocks.columns(isa, 48 + 32 * pair + 16 * side) };
                for c in 0..4 {
                    // The bits of both strips, one above a low and one above a high nibble.
                    let two = isa.shr_by(high[c], 2 * pair as u32);
                    let even = isa.shl::<4>(isa.and_int(two, each(isa, 1)));
                    let odd = isa.shl::<3>(isa.and_int(two, each(isa, 2)));
                    let at = 4 * side + c;
                    strips.put_codes(isa, 2 * pair, at, isa.or_int(lower(isa, packed[c]), even));
                    strips.put_codes(isa, 2 * pair + 1, at, isa.or_int(upper(isa, packed[c]), odd));
                }
            }
        }
    }
}

impl Grid for Q6K {
    type Kind = ScaledHalves;
    const BYTES: usize = 210;
    const STRIPS: usize = 8;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks<I>, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 192 to 210 of a block; the scale is the upper half of a word.
        let (factors, scale) =
            unsafe { (blocks.columns(isa, 192), isa.f16s(isa.shr::<16>(blocks.words(isa, 206)))) };
        for strip in 0..Self::STRIPS {
            strips.put(isa, strip, CODES, scale);
            for j in 0..2 {
                let byte = bits(isa, factors[strip / 2], 8 * (2 * (strip % 2) + j), 255);
                let sign = isa.splat_int(128);
                let factor = isa.sub_int(isa.xor_int(byte, sign), sign);
                strips.put(isa, strip, Self::Kind::FACTOR + j, isa.from_int(factor));
            }
        }
        for half in 0..2 {
            for side in 0..2 {
                // SAFETY: bytes 0 to 192. Low nibbles of `low` are of quarters 0 and 1, high ones of 2 and 3.
                let (low, high) = unsafe {
                    let start = 64 * half + 16 * side;
                    let low = [blocks.columns(isa, start), blocks.columns(isa, start + 32)];
                    (low, blocks.columns(isa, 128 + 32 * half + 16 * side))
                };
                for c in 0..4 {
                    for quarter in 0..4 {
                        let low = low[quarter % 2][c];
                        let low = if quarter < 2 { lower(isa, low) } else { upper(isa, low) };
                        let high = isa.and_int(isa.shr_by(high[c], 2 * quarter as u32), each(isa, 3));
                        let codes = isa.or_int(low, isa.shl::<4>(high));
                        strips.put_codes(isa, 4 * half + quarter, 4 * side + c, codes);
                    }
                }
            }
        }
    }
}

/// Scales, minima and both floats of Q4_K and Q5_K: 6 bits each in the twelve bytes from byte 4.
///
/// # Safety
/// Every block is valid for reading 20 bytes.
#[inline(always)]
unsafe fn six_bits<I: Isa>(isa: I, blocks: &Blocks<I>, strips: &mut Strips<'_>) {
    // SAFETY: by the caller's promise.
    let (floats, packed) = unsafe { (blocks.words(isa, 0), blocks.columns(isa, 4)) };
    let (scale, dmin) = (isa.f16s(floats), isa.neg(isa.f16s(isa.shr::<16>(floats))));
    for j in 0..8 {
        let at = 8 * (j % 4);
        let (factor, minimum) = if j < 4 {
            (bits(isa, packed[0], at, 63), bits(isa, packed[1], at, 63))
        } else {
            let factor_top = isa.shl::<4>(bits(isa, packed[0], at + 6, 3));
            let minimum_top = isa.shl::<4>(bits(isa, packed[1], at + 6, 3));
            let (factor, minimum) = (bits(isa, packed[2], at, 15), bits(isa, packed[2], at + 4, 15));
            (isa.or_int(factor, factor_top), isa.or_int(minimum, minimum_top))
        };
        strips.put(isa, j, CODES, scale);
        strips.put(isa, j, CODES + 1, dmin);
        strips.put(isa, j, ShiftedStrips::FACTOR, isa.from_int(factor));
        strips.put(isa, j, ShiftedStrips::MINIMUM, isa.from_int(minimum));
    }
}

/// `value` in every byte.
#[inline(always)]
fn each<I: Isa>(isa: I, value: u8) -> I::W {
    isa.splat_int(i32::from_ne_bytes([value; 4]))
}

/// Bits `mask` of each lane from bit `shift` on.
#[inline(always)]
fn bits<I: Isa>(isa: I, a: I::W, shift: usize, mask: i32) -> I::W {
    isa.and_int(isa.shr_by(a, shift as u32), isa.splat_int(mask))
}

/// Low nibbles of the bytes.
#[inline(always)]
fn lower<I: Isa>(isa: I, packed: I::W) -> I::W {
    isa.and_int(packed, each(isa, 15))
}

/// High nibbles of the bytes.
#[inline(always)]
fn upper<I: Isa>(isa: I, packed: I::W) -> I::W {
    isa.and_int(isa.shr::<4>(packed), each(isa, 15))
}

/// Four bits as bit 4 of four bytes, for each number of four bits.
const SPREAD: [i32; LANES] = {
    let mut spread = [0; LANES];
    let mut four = 0;
    while four < LANES {
        let mut bit = 0;
        while bit < 4 {
            spread[four] |= ((four >> bit & 1) as i32) << (8 * bit + 4);
            bit += 1;
        }
        four += 1;
    }
    spread
};
