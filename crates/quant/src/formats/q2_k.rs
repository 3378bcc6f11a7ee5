//! Q2_K: 256 values `d * scale_j * q - dmin * min_j`, `q` of 2 bits, `j` a group of 16 values.
//!
//! ```text
//! byte 0           16                    80   82     84
//!      | scale,min | q                   | d  | dmin |  d, dmin: f16
//! ```
//! Byte `j` of the first part holds the 4-bit `scale_j` in its low nibble and `min_j` in its high one. The values lie in
//! halves of 128, a half in quarters of 32: byte `i` of a half's 32 bytes of `q` holds value `i` of quarter 0 in its lowest
//! two bits, then of quarters 1, 2, 3.

use crate::block::{Block, field, scale};
use crate::integers::{Grid, Integers, Strip};

pub(crate) struct Q2K;

impl Block<84, 256> for Q2K {
    const NAME: &'static str = "Q2_K";
    const GGUF_ID: u32 = 10;
    const INTEGERS: Option<Integers<84>> =
        Some(Integers { grid: Grid { codes: 0..=3, factors: 0..=15, minima: 0..=15 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 84], out: &mut [f32; 256]) {
        let scales = field::<16>(block, 0);
        let (d, dmin) = (scale(block, 80), scale(block, 82));
        let (halves, _) = out.as_chunks_mut::<128>();
        for (half, out) in halves.iter_mut().enumerate() {
            for side in 0..2 {
                let quants = field::<16>(block, 16 + 32 * half + 16 * side);
                for quarter in 0..4 {
                    let packed = scales[8 * half + 2 * quarter + side];
                    let (step, minimum) = (d * f32::from(packed & 15), dmin * f32::from(packed >> 4));
                    let out = &mut out[32 * quarter + 16 * side..][..16];
                    for (out, byte) in out.iter_mut().zip(quants) {
                        *out = step * f32::from(byte >> (2 * quarter) & 3) - minimum;
                    }
                }
            }
        }
    }
}

fn strip(block: &[u8; 84], strip: usize) -> Strip {
    let quants = field::<32>(block, 16 + 32 * (strip / 4));
    let packed = [block[2 * strip], block[2 * strip + 1]].map(i32::from);
    Strip {
        codes: quants.map(|byte| (byte >> (2 * (strip % 4)) & 3).cast_signed()),
        factors: packed.map(|packed| packed & 15),
        minima: packed.map(|packed| packed >> 4),
        scale: scale(block, 80),
        minimum: -scale(block, 82),
    }
}
