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

/// Pointers to the same block of sixteen rows.
pub(crate) type Blocks = [*const u8; LANES];

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
    /// Every pointer is valid for reading [`Grid::BYTES`] bytes.
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, wide: bool, strips: &mut Strips<'_>);
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
    fn put_codes<I: Isa>(&mut self, isa: I, strip: usize, codes: [I::W; CODES]) {
        let vectors = &mut self.vectors[strip * self.each..][..CODES];
        for (vector, codes) in vectors.iter_mut().zip(codes) {
            isa.store(vector, isa.from_bits(codes));
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
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 18 of a block.
        let (scale, packed) = unsafe { (f16s(isa, blocks, 0), columns(isa, blocks, 2)) };
        strips.put_codes(isa, 0, nibbles(isa, packed));
        strips.put(isa, 0, CODES, scale);
    }
}

impl Grid for Q4_1 {
    type Kind = Shifted;
    const BYTES: usize = 20;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 20 of a block.
        let (scale, minimum, packed) =
            unsafe { (f16s(isa, blocks, 0), f16s(isa, blocks, 2), columns(isa, blocks, 4)) };
        strips.put_codes(isa, 0, nibbles(isa, packed));
        strips.put(isa, 0, CODES, scale);
        strips.put(isa, 0, CODES + 1, minimum);
    }
}

impl Grid for Q5_0 {
    type Kind = Scaled;
    const BYTES: usize = 22;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 22 of a block.
        let (scale, high, packed) =
            unsafe { (f16s(isa, blocks, 0), words(isa, blocks, 2), columns(isa, blocks, 6)) };
        strips.put_codes(isa, 0, five_bits(isa, high, packed));
        strips.put(isa, 0, CODES, scale);
    }
}

impl Grid for Q5_1 {
    type Kind = Shifted;
    const BYTES: usize = 24;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 24 of a block.
        let (scale, minimum, high, packed) = unsafe {
            (f16s(isa, blocks, 0), f16s(isa, blocks, 2), words(isa, blocks, 4), columns(isa, blocks, 8))
        };
        strips.put_codes(isa, 0, five_bits(isa, high, packed));
        strips.put(isa, 0, CODES, scale);
        strips.put(isa, 0, CODES + 1, minimum);
    }
}

impl Grid for Q8_0 {
    type Kind = Scaled;
    const BYTES: usize = 34;
    const STRIPS: usize = 1;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, wide: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 34 of a block.
        let (scale, mut codes) = unsafe { (f16s(isa, blocks, 0), eight(isa, blocks, 2)) };
        if wide {
            codes = codes.map(|codes| isa.xor_int(codes, each(isa, 0x80)));
        }
        strips.put_codes(isa, 0, codes);
        strips.put(isa, 0, CODES, scale);
    }
}

impl Grid for Q2K {
    type Kind = ShiftedHalves;
    const BYTES: usize = 84;
    const STRIPS: usize = 8;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 16 and 80 to 84 of a block.
        let (packed, scale, dmin) =
            unsafe { (columns(isa, blocks, 0), f16s(isa, blocks, 80), f16s(isa, blocks, 82)) };
        for half in 0..2 {
            // SAFETY: bytes 16 to 80.
            let quants = unsafe { eight(isa, blocks, 16 + 32 * half) };
            for quarter in 0..4 {
                let strip = 4 * half + quarter;
                let code = |quants| isa.and_int(isa.shr_by(quants, 2 * quarter as u32), each(isa, 3));
                strips.put_codes(isa, strip, quants.map(code));
                strips.put(isa, strip, CODES, scale);
                strips.put(isa, strip, CODES + 1, isa.neg(dmin));
                for j in 0..2 {
                    let byte = bits(isa, packed[strip / 2], 8 * (2 * (strip % 2) + j), 255);
                    strips.put(
                        isa,
                        strip,
                        <Self::Kind as Kind>::FACTOR + j,
                        isa.from_int(bits(isa, byte, 0, 15)),
                    );
                    strips.put(
                        isa,
                        strip,
                        <Self::Kind as Kind>::MINIMUM + j,
                        isa.from_int(bits(isa, byte, 4, 15)),
                    );
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
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 32 and 96 to 110 of a block.
        let (high, packed, scale) = unsafe {
            let packed = [96, 100, 104].map(|start| words(isa, blocks, start));
            (eight(isa, blocks, 0), packed, f16s(isa, blocks, 108))
        };
        for half in 0..2 {
            // SAFETY: bytes 32 to 96.
            let low = unsafe { eight(isa, blocks, 32 + 32 * half) };
            for quarter in 0..4 {
                let strip = 4 * half + quarter;
                let codes = std::array::from_fn(|c| {
                    let low = isa.and_int(isa.shr_by(low[c], 2 * quarter as u32), each(isa, 3));
                    let third = isa.and_int(isa.shr_by(high[c], strip as u32), each(isa, 1));
                    isa.or_int(low, isa.shl::<2>(third))
                });
                strips.put_codes(isa, strip, codes);
                strips.put(isa, strip, CODES, scale);
                for j in 0..2 {
                    let group = 2 * strip + j;
                    let low = bits(isa, packed[group % 8 / 4], 8 * (group % 4) + 4 * (group / 8), 15);
                    let high = bits(isa, packed[2], 8 * (group % 4) + 2 * (group / 4), 3);
                    let factor = isa.sub_int(isa.or_int(low, isa.shl::<4>(high)), isa.splat_int(32));
                    strips.put(isa, strip, <Self::Kind as Kind>::FACTOR + j, isa.from_int(factor));
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
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 20 of a block.
        unsafe { six_bits::<I, Self>(isa, blocks, strips) };
        for pair in 0..4 {
            // SAFETY: bytes 16 to 144.
            let packed = unsafe { eight(isa, blocks, 16 + 32 * pair) };
            strips.put_codes(isa, 2 * pair, packed.map(|packed| lower(isa, packed)));
            strips.put_codes(isa, 2 * pair + 1, packed.map(|packed| upper(isa, packed)));
        }
    }
}

impl Grid for Q5K {
    type Kind = ShiftedStrips;
    const BYTES: usize = 176;
    const STRIPS: usize = 8;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 0 to 48 of a block.
        let high = unsafe {
            six_bits::<I, Self>(isa, blocks, strips);
            eight(isa, blocks, 16)
        };
        for pair in 0..4 {
            // SAFETY: bytes 48 to 176.
            let packed = unsafe { eight(isa, blocks, 48 + 32 * pair) };
            let fifth = |c: usize, strip: usize| {
                isa.shl::<4>(isa.and_int(isa.shr_by(high[c], strip as u32), each(isa, 1)))
            };
            let even = std::array::from_fn(|c| isa.or_int(lower(isa, packed[c]), fifth(c, 2 * pair)));
            let odd = std::array::from_fn(|c| isa.or_int(upper(isa, packed[c]), fifth(c, 2 * pair + 1)));
            strips.put_codes(isa, 2 * pair, even);
            strips.put_codes(isa, 2 * pair + 1, odd);
        }
    }
}

impl Grid for Q6K {
    type Kind = ScaledHalves;
    const BYTES: usize = 210;
    const STRIPS: usize = 8;
    #[inline(always)]
    unsafe fn read<I: Isa>(isa: I, blocks: &Blocks, _: bool, strips: &mut Strips<'_>) {
        // SAFETY: bytes 192 to 210 of a block.
        let (factors, scale) = unsafe { (columns(isa, blocks, 192), f16s(isa, blocks, 208)) };
        for half in 0..2 {
            // SAFETY: bytes 0 to 192.
            let high = unsafe { eight(isa, blocks, 128 + 32 * half) };
            for odd in 0..2 {
                // SAFETY: as above. The low nibbles are of quarter `odd`, the high ones of quarter `odd + 2`.
                let low = unsafe { eight(isa, blocks, 64 * half + 32 * odd) };
                let codes = |part: &dyn Fn(I::W) -> I::W, quarter: usize| -> [I::W; CODES] {
                    std::array::from_fn(|c| {
                        let high = isa.and_int(isa.shr_by(high[c], 2 * quarter as u32), each(isa, 3));
                        isa.or_int(part(low[c]), isa.shl::<4>(high))
                    })
                };
                strips.put_codes(isa, 4 * half + odd, codes(&|low| lower(isa, low), odd));
                strips.put_codes(isa, 4 * half + odd + 2, codes(&|low| upper(isa, low), odd + 2));
            }
        }
        for strip in 0..Self::STRIPS {
            strips.put(isa, strip, CODES, scale);
            for j in 0..2 {
                let byte = bits(isa, factors[strip / 2], 8 * (2 * (strip % 2) + j), 255);
                let sign = isa.splat_int(128);
                let factor = isa.sub_int(isa.xor_int(byte, sign), sign);
                strips.put(isa, strip, <Self::Kind as Kind>::FACTOR + j, isa.from_int(factor));
            }
        }
    }
}

/// Scales, minima and both floats of Q4_K and Q5_K: 6 bits each in the twelve bytes from byte 4.
///
/// # Safety
/// Every pointer is valid for reading 20 bytes.
#[inline(always)]
unsafe fn six_bits<I: Isa, G: Grid>(isa: I, blocks: &Blocks, strips: &mut Strips<'_>) {
    // SAFETY: by the caller's promise.
    let (scale, dmin, packed) =
        unsafe { (f16s(isa, blocks, 0), f16s(isa, blocks, 2), columns(isa, blocks, 4)) };
    for j in 0..8 {
        let at = 8 * (j % 4);
        let (factor, minimum) = if j < 4 {
            (bits(isa, packed[0], at, 63), bits(isa, packed[1], at, 63))
        } else {
            let top = |word| isa.shl::<4>(bits(isa, word, at + 6, 3));
            let (factor, minimum) = (bits(isa, packed[2], at, 15), bits(isa, packed[2], at + 4, 15));
            (isa.or_int(factor, top(packed[0])), isa.or_int(minimum, top(packed[1])))
        };
        strips.put(isa, j, CODES, scale);
        strips.put(isa, j, CODES + 1, isa.neg(dmin));
        strips.put(isa, j, G::Kind::FACTOR, isa.from_int(factor));
        strips.put(isa, j, G::Kind::MINIMUM, isa.from_int(minimum));
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

/// The low nibbles of sixteen bytes, then the high ones.
#[inline(always)]
fn nibbles<I: Isa>(isa: I, packed: [I::W; 4]) -> [I::W; CODES] {
    std::array::from_fn(|c| if c < 4 { lower(isa, packed[c]) } else { upper(isa, packed[c - 4]) })
}

/// The same with bit `i` of `high` above code `i`.
#[inline(always)]
fn five_bits<I: Isa>(isa: I, high: I::W, packed: [I::W; 4]) -> [I::W; CODES] {
    // Four bits as bit 4 of four bytes.
    let spread: [i32; LANES] = std::array::from_fn(|four| {
        let bit = |i: usize| ((four >> i & 1) as u8) << 4;
        i32::from_le_bytes([bit(0), bit(1), bit(2), bit(3)])
    });
    let spread = isa.from_bits(isa.load_int(&spread));
    let nibbles = nibbles(isa, packed);
    std::array::from_fn(|c| {
        let four = bits(isa, high, 4 * c, 15);
        isa.or_int(nibbles[c], isa.bits(isa.lookup(spread, four)))
    })
}

/// The float16 at byte `start` of each block, as float32.
///
/// # Safety
/// Every pointer is valid for reading `start + 2` bytes.
#[inline(always)]
unsafe fn f16s<I: Isa>(isa: I, blocks: &Blocks, start: usize) -> I::V {
    let mut halves = [[0; 2]; LANES];
    for (half, block) in halves.iter_mut().zip(blocks) {
        // SAFETY: by the caller's promise; an array of bytes has no alignment.
        *half = unsafe { block.add(start).cast::<[u8; 2]>().read() };
    }
    let mut bytes = [0; 2 * LANES];
    bytes.copy_from_slice(halves.as_flattened());
    isa.load_f16(&bytes)
}

/// The 32-bit word at byte `start` of each block.
///
/// # Safety
/// Every pointer is valid for reading `start + 4` bytes.
#[inline(always)]
unsafe fn words<I: Isa>(isa: I, blocks: &Blocks, start: usize) -> I::W {
    let mut words = [0; LANES];
    for (word, block) in words.iter_mut().zip(blocks) {
        // SAFETY: by the caller's promise; an array of bytes has no alignment.
        *word = i32::from_le_bytes(unsafe { block.add(start).cast::<[u8; 4]>().read() });
    }
    isa.load_int(&words)
}

/// Bytes `start` to `start + 16` of each block, turned: see [`Isa::columns_at`].
///
/// # Safety
/// Every pointer is valid for reading `start + 16` bytes.
#[inline(always)]
unsafe fn columns<I: Isa>(isa: I, blocks: &Blocks, start: usize) -> [I::W; 4] {
    // SAFETY: by the caller's promise.
    unsafe { isa.columns_at(&blocks.map(|block| block.add(start))) }
}

/// Bytes `start` to `start + 32` of each block, turned.
///
/// # Safety
/// Every pointer is valid for reading `start + 32` bytes.
#[inline(always)]
unsafe fn eight<I: Isa>(isa: I, blocks: &Blocks, start: usize) -> [I::W; CODES] {
    // SAFETY: by the caller's promise.
    let [low, high] = unsafe { [columns(isa, blocks, start), columns(isa, blocks, start + 16)] };
    std::array::from_fn(|c| if c < 4 { low[c] } else { high[c - 4] })
}
