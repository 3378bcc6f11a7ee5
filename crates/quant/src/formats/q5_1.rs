//! Q5_1: 32 values `d * q + m`, `q` of 5 bits.
//!
//! ```text
//! byte 0    2    4       8                24
//!      | d  | m  | high  | low            |  d, m: f16, high: u32
//! ```
//! Byte `i` of `low` holds the lower 4 bits of value `i` in its low nibble and of value `i + 16` in its high one; bit `i`
//! of `high` is the fifth bit of value `i`.

use super::q5_0::five_bits;
use crate::block::{Block, field, scale};
use crate::integers::{Grid, Integers, Strip, with_minimum};

pub(crate) struct Q5_1;

impl Block<24, 32> for Q5_1 {
    const NAME: &'static str = "Q5_1";
    const GGUF_ID: u32 = 7;
    const INTEGERS: Option<Integers<24>> =
        Some(Integers { grid: Grid { codes: 0..=31, factors: 1..=1, minima: 1..=1 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 24], out: &mut [f32; 32]) {
        let (d, m) = (scale(block, 0), scale(block, 2));
        let high = u32::from_le_bytes(*field(block, 4));
        let low = field::<16>(block, 8);
        for (i, byte) in low.iter().enumerate() {
            let fifth = |bit: usize| ((high >> bit & 1) << 4) as i32;
            out[i] = d * (i32::from(byte & 15) | fifth(i)) as f32 + m;
            out[i + 16] = d * (i32::from(byte >> 4) | fifth(i + 16)) as f32 + m;
        }
    }
}

fn strip(block: &[u8; 24], _: usize) -> Strip {
    with_minimum(scale(block, 0), scale(block, 2), five_bits(field(block, 4), field(block, 8)))
}
