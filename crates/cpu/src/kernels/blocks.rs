//! Decoders of block formats, thirty-two values at a time: what `quant` decodes, bit for bit, in two vectors.
//!
//! Products of a scale and a code are exact in float32 (`quant` says why), so a fused multiply-add rounds where the
//! addition of the minimum rounds, and no order of evaluation changes a bit.

use apprentice_quant::Format;

use crate::isa::{Isa, LANES};

/// Values that are decoded at a time; the blocks of every format are cut by it without a remainder.
pub(crate) const STRIP: usize = 2 * LANES;

/// How the strips of a format are read. A format with single values takes thirty-two of them as a block.
pub(crate) trait Block {
    /// Bytes of a block.
    const BYTES: usize;
    /// Strips of a block.
    const STRIPS: usize;
    /// Values of the strip with this index in `block`.
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2];
}

/// Work that is written once for all formats.
pub(crate) trait Visit {
    /// What comes out.
    type Output;
    /// Does it for the format with the blocks `B`.
    fn visit<B: Block>(self) -> Self::Output;
}

/// The one place where a format meets its decoder.
#[inline(always)]
pub(crate) fn visit<T: Visit>(format: Format, work: T) -> T::Output {
    match format {
        Format::F32 => work.visit::<F32>(),
        Format::F16 => work.visit::<F16>(),
        Format::BF16 => work.visit::<BF16>(),
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
    }
}

struct F32;
struct F16;
struct BF16;
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

impl Block for F32 {
    const BYTES: usize = 4 * STRIP;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        [isa.load_f32(bytes(block, 0)), isa.load_f32(bytes(block, 64))]
    }
}

impl Block for F16 {
    const BYTES: usize = 2 * STRIP;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        [isa.load_f16(bytes(block, 0)), isa.load_f16(bytes(block, 32))]
    }
}

impl Block for BF16 {
    const BYTES: usize = 2 * STRIP;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        [isa.load_bf16(bytes(block, 0)), isa.load_bf16(bytes(block, 32))]
    }
}

impl Block for Q4_0 {
    const BYTES: usize = 18;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let [d, _] = isa.splat_f16s(bytes(block, 0));
        let packed = isa.load_u8(bytes(block, 2));
        let upper = isa.shr::<4>(packed);
        if I::FAST_LOOKUP {
            let table = isa.mul(d, signed(isa, iota(isa), 8));
            return [isa.lookup(table, packed), isa.lookup(table, upper)];
        }
        let lower = isa.and_int(packed, isa.splat_int(15));
        [isa.mul(d, signed(isa, lower, 8)), isa.mul(d, signed(isa, upper, 8))]
    }
}

impl Block for Q4_1 {
    const BYTES: usize = 20;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let [d, m] = isa.splat_f16s(bytes(block, 0));
        let packed = isa.load_u8(bytes(block, 4));
        let upper = isa.shr::<4>(packed);
        if I::FAST_LOOKUP {
            let table = isa.fma(d, isa.from_int(iota(isa)), m);
            return [isa.lookup(table, packed), isa.lookup(table, upper)];
        }
        let lower = isa.and_int(packed, isa.splat_int(15));
        [isa.fma(d, isa.from_int(lower), m), isa.fma(d, isa.from_int(upper), m)]
    }
}

impl Block for Q5_0 {
    const BYTES: usize = 22;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let [d, _] = isa.splat_f16s(bytes(block, 0));
        let [lower, upper] = five_bits(isa, bytes(block, 2), bytes(block, 6));
        [isa.mul(d, signed(isa, lower, 16)), isa.mul(d, signed(isa, upper, 16))]
    }
}

impl Block for Q5_1 {
    const BYTES: usize = 24;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let [d, m] = isa.splat_f16s(bytes(block, 0));
        let [lower, upper] = five_bits(isa, bytes(block, 4), bytes(block, 8));
        [isa.fma(d, isa.from_int(lower), m), isa.fma(d, isa.from_int(upper), m)]
    }
}

impl Block for Q8_0 {
    const BYTES: usize = 34;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let [d, _] = isa.splat_f16s(bytes(block, 0));
        let (lower, upper) = (isa.load_i8(bytes(block, 2)), isa.load_i8(bytes(block, 18)));
        [isa.mul(d, isa.from_int(lower)), isa.mul(d, isa.from_int(upper))]
    }
}

impl Block for Q2K {
    const BYTES: usize = 84;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        [q2_k(isa, block, strip, 0), q2_k(isa, block, strip, 1)]
    }
}

/// Sixteen values, the `side` of a strip; the other formats below likewise.
#[inline(always)]
fn q2_k<I: Isa>(isa: I, block: &[u8], strip: usize, side: usize) -> I::V {
    let [d, dmin] = isa.splat_f16s(bytes(block, 80));
    let packed = block[2 * strip + side];
    let code = part(isa, bytes(block, 16 + 32 * (strip / 4) + 16 * side), 2 * (strip % 4), 3);
    stepped(isa, code, times(isa, d, packed & 15), times(isa, dmin, packed >> 4))
}

impl Block for Q3K {
    const BYTES: usize = 110;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        [q3_k(isa, block, strip, 0), q3_k(isa, block, strip, 1)]
    }
}

#[inline(always)]
fn q3_k<I: Isa>(isa: I, block: &[u8], strip: usize, side: usize) -> I::V {
    let group = 2 * strip + side;
    let lower = block[96 + group % 8] >> (4 * (group / 8)) & 15;
    let upper = block[104 + group % 4] >> (2 * (group / 4)) & 3;
    let step = isa.splat(scale(isa, block, 108) * f32::from((lower | upper << 4) as i8 - 32));
    let low = part(isa, bytes(block, 32 + 32 * (strip / 4) + 16 * side), 2 * (strip % 4), 3);
    let third = part(isa, bytes(block, 16 * side), strip, 1);
    isa.mul(step, signed(isa, isa.or_int(low, isa.shl::<2>(third)), 4))
}

impl Block for Q4K {
    const BYTES: usize = 144;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        let [step, minimum] = step_and_minimum(isa, block, strip);
        let (start, shift) = (16 + 32 * (strip / 2), 4 * (strip % 2) as u32);
        let lower = isa.shr_by(isa.load_u8(bytes(block, start)), shift);
        let upper = isa.shr_by(isa.load_u8(bytes(block, start + 16)), shift);
        if I::FAST_LOOKUP {
            let table = stepped(isa, iota(isa), step, minimum);
            return [isa.lookup(table, lower), isa.lookup(table, upper)];
        }
        let mask = isa.splat_int(15);
        let (lower, upper) = (isa.and_int(lower, mask), isa.and_int(upper, mask));
        [stepped(isa, lower, step, minimum), stepped(isa, upper, step, minimum)]
    }
}

impl Block for Q5K {
    const BYTES: usize = 176;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        let [step, minimum] = step_and_minimum(isa, block, strip);
        let (lower, upper) = (q5_k(isa, block, strip, 0), q5_k(isa, block, strip, 1));
        [stepped(isa, lower, step, minimum), stepped(isa, upper, step, minimum)]
    }
}

#[inline(always)]
fn q5_k<I: Isa>(isa: I, block: &[u8], strip: usize, side: usize) -> I::W {
    let low = part(isa, bytes(block, 48 + 32 * (strip / 2) + 16 * side), 4 * (strip % 2), 15);
    let fifth = part(isa, bytes(block, 16 + 16 * side), strip, 1);
    isa.or_int(low, isa.shl::<4>(fifth))
}

impl Block for Q6K {
    const BYTES: usize = 210;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        [q6_k(isa, block, strip, 0), q6_k(isa, block, strip, 1)]
    }
}

#[inline(always)]
fn q6_k<I: Isa>(isa: I, block: &[u8], strip: usize, side: usize) -> I::V {
    let (half, quarter) = (strip / 4, strip % 4);
    let step = isa.splat(scale(isa, block, 208) * f32::from(block[192 + 2 * strip + side].cast_signed()));
    let low = part(isa, bytes(block, 64 * half + 32 * (quarter % 2) + 16 * side), 4 * (quarter / 2), 15);
    let high = part(isa, bytes(block, 128 + 32 * half + 16 * side), 2 * quarter, 3);
    isa.mul(step, signed(isa, isa.or_int(low, isa.shl::<4>(high)), 32))
}

/// `COUNT` bytes of a block from `start`.
#[inline(always)]
fn bytes<const COUNT: usize>(block: &[u8], start: usize) -> &[u8; COUNT] {
    block[start..].first_chunk().expect("a field lies inside its block")
}

/// The f16 at `start`.
#[inline(always)]
fn scale<I: Isa>(isa: I, block: &[u8], start: usize) -> f32 {
    isa.f16(u16::from_le_bytes(*bytes(block, start)))
}

/// 0 to 15.
#[inline(always)]
fn iota<I: Isa>(isa: I) -> I::W {
    isa.load_int(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])
}

/// Bits `mask` of each byte from bit `shift` on.
#[inline(always)]
fn part<I: Isa>(isa: I, packed: &[u8; LANES], shift: usize, mask: i32) -> I::W {
    isa.and_int(isa.shr_by(isa.load_u8(packed), shift as u32), isa.splat_int(mask))
}

/// Codes of 5 bits: low nibbles of `low`, then its high ones, with bit `i` of `high` above code `i`.
#[inline(always)]
fn five_bits<I: Isa>(isa: I, high: &[u8; 4], low: &[u8; LANES]) -> [I::W; 2] {
    let (lane, one) = (iota(isa), isa.splat_int(1));
    let high = isa.shr_each(isa.splat_int(i32::from_le_bytes(*high)), lane);
    let packed = isa.load_u8(low);
    let lower = isa.and_int(packed, isa.splat_int(15));
    let upper = isa.shr::<4>(packed);
    let fifth = isa.shl::<4>(isa.and_int(high, one));
    let next_fifth = isa.shl::<4>(isa.and_int(isa.shr::<16>(high), one));
    [isa.or_int(lower, fifth), isa.or_int(upper, next_fifth)]
}

/// `code - offset` as f32.
#[inline(always)]
fn signed<I: Isa>(isa: I, code: I::W, offset: i32) -> I::V {
    isa.from_int(isa.sub_int(code, isa.splat_int(offset)))
}

/// `scale * code`.
#[inline(always)]
fn times<I: Isa>(isa: I, scale: I::V, code: u8) -> I::V {
    isa.mul(scale, isa.splat(f32::from(code)))
}

/// `step * code - minimum`.
#[inline(always)]
fn stepped<I: Isa>(isa: I, code: I::W, step: I::V, minimum: I::V) -> I::V {
    isa.fma(step, isa.from_int(code), isa.neg(minimum))
}

/// Scale and minimum of group `j` of Q4_K and Q5_K, 6 bits each in the twelve bytes from byte 4, times `d` and `dmin`.
#[inline(always)]
fn step_and_minimum<I: Isa>(isa: I, block: &[u8], j: usize) -> [I::V; 2] {
    let [d, dmin] = isa.splat_f16s(bytes(block, 0));
    let packed = bytes::<12>(block, 4);
    let (step, minimum) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        ((packed[j + 4] & 15) | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    };
    [times(isa, d, step), times(isa, dmin, minimum)]
}
