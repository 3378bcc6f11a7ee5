//! Q4_1: 32 values `d * q + m`, `q` of 4 bits.
//!
//! ```text
//! byte 0    2    4                20
//!      | d  | m  | q              |  d, m: f16
//! ```
//! Byte `i` of `q` holds value `i` in its low nibble and value `i + 16` in its high one.

use super::q4_0::nibbles;
use crate::block::{Block, field, scale};
use crate::integers::{Grid, Integers, Strip, with_minimum};

pub(crate) struct Q4_1;

impl Block<20, 32> for Q4_1 {
    const NAME: &'static str = "Q4_1";
    const GGUF_ID: u32 = 3;
    const INTEGERS: Option<Integers<20>> =
        Some(Integers { grid: Grid { codes: 0..=15, factors: 1..=1, minima: 1..=1 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 20], out: &mut [f32; 32]) {
        let (d, m) = (scale(block, 0), scale(block, 2));
        let nibbles = field::<16>(block, 4);
        for (i, byte) in nibbles.iter().enumerate() {
            out[i] = d * f32::from(byte & 15) + m;
            out[i + 16] = d * f32::from(byte >> 4) + m;
        }
    }
}

fn strip(block: &[u8; 20], _: usize) -> Strip {
    with_minimum(scale(block, 0), scale(block, 2), nibbles(field(block, 4)))
}
