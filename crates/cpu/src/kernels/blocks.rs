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
        let half = |start| {
            let lanes: [f32; LANES] =
                std::array::from_fn(|i| f32::from_le_bytes(*bytes(block, start + 4 * i)));
            isa.load(&lanes)
        };
        [half(0), half(64)]
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
        let d = isa.splat(scale(isa, block, 0));
        nibbles(isa, bytes(block, 2)).map(|code| isa.mul(d, signed(isa, code, 8)))
    }
}

impl Block for Q4_1 {
    const BYTES: usize = 20;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let (d, m) = (isa.splat(scale(isa, block, 0)), isa.splat(scale(isa, block, 2)));
        nibbles(isa, bytes(block, 4)).map(|code| isa.fma(d, isa.from_int(code), m))
    }
}

impl Block for Q5_0 {
    const BYTES: usize = 22;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let d = isa.splat(scale(isa, block, 0));
        let codes = with_fifth_bits(isa, nibbles(isa, bytes(block, 6)), *bytes(block, 2));
        codes.map(|code| isa.mul(d, signed(isa, code, 16)))
    }
}

impl Block for Q5_1 {
    const BYTES: usize = 24;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let (d, m) = (isa.splat(scale(isa, block, 0)), isa.splat(scale(isa, block, 2)));
        let codes = with_fifth_bits(isa, nibbles(isa, bytes(block, 8)), *bytes(block, 4));
        codes.map(|code| isa.fma(d, isa.from_int(code), m))
    }
}

impl Block for Q8_0 {
    const BYTES: usize = 34;
    const STRIPS: usize = 1;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], _: usize) -> [I::V; 2] {
        let d = isa.splat(scale(isa, block, 0));
        [isa.load_i8(bytes(block, 2)), isa.load_i8(bytes(block, 18))]
            .map(|code| isa.mul(d, isa.from_int(code)))
    }
}

impl Block for Q2K {
    const BYTES: usize = 84;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        let (d, dmin) = (scale(isa, block, 80), scale(isa, block, 82));
        let (half, quarter) = (strip / 4, strip % 4);
        std::array::from_fn(|side| {
            let packed = block[2 * strip + side];
            let code = isa.load_u8(bytes(block, 16 + 32 * half + 16 * side));
            let code = isa.and_int(isa.shr_by(code, 2 * quarter as u32), isa.splat_int(3));
            stepped(isa, code, d * f32::from(packed & 15), dmin * f32::from(packed >> 4))
        })
    }
}

impl Block for Q3K {
    const BYTES: usize = 110;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        let d = scale(isa, block, 108);
        let (half, quarter) = (strip / 4, strip % 4);
        std::array::from_fn(|side| {
            let group = 2 * strip + side;
            let lower = block[96 + group % 8] >> (4 * (group / 8)) & 15;
            let upper = block[104 + group % 4] >> (2 * (group / 4)) & 3;
            let step = d * f32::from((lower | upper << 4) as i8 - 32);
            let low = isa.load_u8(bytes(block, 32 + 32 * half + 16 * side));
            let low = isa.and_int(isa.shr_by(low, 2 * quarter as u32), isa.splat_int(3));
            let third = isa.load_u8(bytes(block, 16 * side));
            let third = isa.and_int(isa.shr_by(third, strip as u32), isa.splat_int(1));
            let code = isa.or_int(low, isa.shl::<2>(third));
            isa.mul(isa.splat(step), signed(isa, code, 4))
        })
    }
}

impl Block for Q4K {
    const BYTES: usize = 144;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        let (step, minimum) = step_and_minimum(isa, block, strip);
        std::array::from_fn(|side| {
            let code = isa.load_u8(bytes(block, 16 + 32 * (strip / 2) + 16 * side));
            let code = isa.and_int(isa.shr_by(code, 4 * (strip % 2) as u32), isa.splat_int(15));
            stepped(isa, code, step, minimum)
        })
    }
}

impl Block for Q5K {
    const BYTES: usize = 176;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        let (step, minimum) = step_and_minimum(isa, block, strip);
        std::array::from_fn(|side| {
            let low = isa.load_u8(bytes(block, 48 + 32 * (strip / 2) + 16 * side));
            let low = isa.and_int(isa.shr_by(low, 4 * (strip % 2) as u32), isa.splat_int(15));
            let fifth = isa.load_u8(bytes(block, 16 + 16 * side));
            let fifth = isa.and_int(isa.shr_by(fifth, strip as u32), isa.splat_int(1));
            stepped(isa, isa.or_int(low, isa.shl::<4>(fifth)), step, minimum)
        })
    }
}

impl Block for Q6K {
    const BYTES: usize = 210;
    const STRIPS: usize = 8;
    #[inline(always)]
    fn strip<I: Isa>(isa: I, block: &[u8], strip: usize) -> [I::V; 2] {
        let d = scale(isa, block, 208);
        let (half, quarter) = (strip / 4, strip % 4);
        std::array::from_fn(|side| {
            let step = d * f32::from(block[192 + 2 * strip + side].cast_signed());
            let low = isa.load_u8(bytes(block, 64 * half + 32 * (quarter % 2) + 16 * side));
            let low = isa.and_int(isa.shr_by(low, 4 * (quarter / 2) as u32), isa.splat_int(15));
            let high = isa.load_u8(bytes(block, 128 + 32 * half + 16 * side));
            let high = isa.and_int(isa.shr_by(high, 2 * quarter as u32), isa.splat_int(3));
            let code = isa.or_int(low, isa.shl::<4>(high));
            isa.mul(isa.splat(step), signed(isa, code, 32))
        })
    }
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

/// The low nibbles, then the high ones.
#[inline(always)]
fn nibbles<I: Isa>(isa: I, packed: &[u8; LANES]) -> [I::W; 2] {
    let packed = isa.load_u8(packed);
    [isa.and_int(packed, isa.splat_int(15)), isa.shr::<4>(packed)]
}

/// Bit `i` of `high` as the fifth bit of code `i`.
#[inline(always)]
fn with_fifth_bits<I: Isa>(isa: I, codes: [I::W; 2], high: [u8; 4]) -> [I::W; 2] {
    let lane = isa.load_int(&std::array::from_fn(|i| i as i32));
    let high = u32::from_le_bytes(high);
    let fifth = |codes, high: u32| {
        let bit = isa.and_int(isa.shr_each(isa.splat_int(high.cast_signed()), lane), isa.splat_int(1));
        isa.or_int(codes, isa.shl::<4>(bit))
    };
    [fifth(codes[0], high), fifth(codes[1], high >> 16)]
}

/// `code - offset` as f32.
#[inline(always)]
fn signed<I: Isa>(isa: I, code: I::W, offset: i32) -> I::V {
    isa.from_int(isa.sub_int(code, isa.splat_int(offset)))
}

/// `step * code - minimum`.
#[inline(always)]
fn stepped<I: Isa>(isa: I, code: I::W, step: f32, minimum: f32) -> I::V {
    isa.fma(isa.splat(step), isa.from_int(code), isa.splat(-minimum))
}

/// Scale and minimum of group `j` of Q4_K and Q5_K, 6 bits each in the twelve bytes from byte 4, times `d` and `dmin`.
#[inline(always)]
fn step_and_minimum<I: Isa>(isa: I, block: &[u8], j: usize) -> (f32, f32) {
    let packed = bytes::<12>(block, 4);
    let (step, minimum) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        ((packed[j + 4] & 15) | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    };
    (scale(isa, block, 0) * f32::from(step), scale(isa, block, 2) * f32::from(minimum))
}
