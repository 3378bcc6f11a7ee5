//! Q5_0: 32 values `d * (q - 16)`, `q` of 5 bits.
//!
//! ```text
//! byte 0    2       6                22
//!      | d  | high  | low            |  d: f16, high: u32
//! ```
//! Byte `i` of `low` holds the lower 4 bits of value `i` in its low nibble and of value `i + 16` in its high one; bit `i`
//! of `high` is the fifth bit of value `i`.

use crate::block::{Block, field, scale};

pub(crate) struct Q5_0;

impl Block<22, 32> for Q5_0 {
    const NAME: &'static str = "Q5_0";
    const GGUF_ID: u32 = 6;

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
