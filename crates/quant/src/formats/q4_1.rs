//! Q4_1: 32 values `d * q + m`, `q` of 4 bits.
//!
//! ```text
//! byte 0    2    4                20
//!      | d  | m  | q              |  d, m: f16
//! ```
//! Byte `i` of `q` holds value `i` in its low nibble and value `i + 16` in its high one.

use crate::block::{Block, field, scale};

pub(crate) struct Q4_1;

impl Block<20, 32> for Q4_1 {
    const NAME: &'static str = "Q4_1";
    const GGUF_ID: u32 = 3;

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
