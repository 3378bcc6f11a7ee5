//! Q5_0: 32 values `d * (q - 16)`, `q` of 5 bits.
//!
//! ```text
//! byte 0    2       6                22
//!      | d  | high  | low            |  d: f16, high: u32
//! ```
//! Byte `i` of `low` holds the lower 4 bits of value `i` in its low nibble and of value `i + 16` in its high one; bit `i`
//! of `high` is the fifth bit of value `i`.

use super::q4_0::nibbles;
use crate::block::{Block, field, scale};
use crate::integers::{Grid, Integers, STRIP, Strip, plain};

pub(crate) struct Q5_0;

impl Block<22, 32> for Q5_0 {
    const NAME: &'static str = "Q5_0";
    const GGUF_ID: u32 = 6;
    const INTEGERS: Option<Integers<22>> =
        Some(Integers { grid: Grid { codes: -16..=15, factors: 1..=1, minima: 0..=0 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 22], out: &mut [f32; 32]) {
        let d = scale(block, 0);
        let high = u32::from_le_bytes(*field(block, 2));
        let low = field::<16>(block, 6);
        for (i, byte) in low.iter().enumerate() {
            let fifth = |bit: usize| ((high >> bit & 1) << 4) as i32;
            out[i] = d * ((i32::from(byte & 15) | fifth(i)) - 16) as f32;
            out[i + 16] = d * ((i32::from(byte >> 4) | fifth(i + 16)) - 16) as f32;
        }
    }
}

fn strip(block: &[u8; 22], _: usize) -> Strip {
    plain(scale(block, 0), five_bits(field(block, 2), field(block, 6)).map(|code| code - 16))
}

/// Nibbles of `low` with bit `i` of `high` above code `i`.
pub(super) fn five_bits(high: &[u8; 4], low: &[u8; 16]) -> [i8; STRIP] {
    let (low, high) = (nibbles(low), u32::from_le_bytes(*high));
    std::array::from_fn(|i| low[i] | ((high >> i & 1) << 4) as i8)
}
