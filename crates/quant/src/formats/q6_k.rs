//! Q6_K: 256 values `d * scale_j * (q - 32)`, `q` of 6 bits, `scale_j` a signed byte, `j` a group of 16 values.
//!
//! ```text
//! byte 0              128      192     208  210
//!      | low          | high   | scale | d  |  d: f16
//! ```
//! The values lie in halves of 128, a half in quarters of 32. A half has 64 bytes of `low`: byte `i` of the first 32 holds
//! the lower 4 bits of value `i` of quarter 0 in its low nibble and of quarter 2 in its high one, the other 32 bytes those
//! of quarters 1 and 3. It has 32 bytes of `high`: byte `i` holds the upper two bits of value `i`, quarter 0 lowest.

use crate::block::{Block, field, scale};
use crate::integers::{Grid, Integers, Strip};

pub(crate) struct Q6K;

impl Block<210, 256> for Q6K {
    const NAME: &'static str = "Q6_K";
    const GGUF_ID: u32 = 14;
    const INTEGERS: Option<Integers<210>> =
        Some(Integers { grid: Grid { codes: -32..=31, factors: -128..=127, minima: 0..=0 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 210], out: &mut [f32; 256]) {
        let scales = field::<16>(block, 192);
        let d = scale(block, 208);
        let (halves, _) = out.as_chunks_mut::<128>();
        for (half, out) in halves.iter_mut().enumerate() {
            for side in 0..2 {
                let low = [0, 32].map(|start| field::<16>(block, 64 * half + start + 16 * side));
                let high = field::<16>(block, 128 + 32 * half + 16 * side);
                for quarter in 0..4 {
                    let step = d * f32::from(scales[8 * half + 2 * quarter + side] as i8);
                    let out = &mut out[32 * quarter + 16 * side..][..16];
                    for (out, (low, high)) in out.iter_mut().zip(low[quarter % 2].iter().zip(high)) {
                        let code = (low >> (4 * (quarter / 2)) & 15) | (high >> (2 * quarter) & 3) << 4;
                        *out = step * f32::from(code as i8 - 32);
                    }
                }
            }
        }
    }
}

fn strip(block: &[u8; 210], strip: usize) -> Strip {
    let (half, quarter) = (strip / 4, strip % 4);
    let low = field::<32>(block, 64 * half + 32 * (quarter % 2));
    let high = field::<32>(block, 128 + 32 * half);
    let code = |i: usize| (low[i] >> (4 * (quarter / 2)) & 15) | (high[i] >> (2 * quarter) & 3) << 4;
    let factor = |j: usize| i32::from(block[192 + 2 * strip + j].cast_signed());
    Strip {
        codes: std::array::from_fn(|i| code(i).cast_signed() - 32),
        factors: [factor(0), factor(1)],
        minima: [0; 2],
        scale: scale(block, 208),
        minimum: 0.0,
    }
}
