//! Q5_K: 256 values `d * scale_j * q - dmin * min_j`, `q` of 5 bits, `j` a group of 32 values.
//!
//! ```text
//! byte 0    2      4              16      48                    176
//!      | d  | dmin | scales, min  | high  | low                 |  d, dmin: f16
//! ```
//! Two neighbouring groups share 32 bytes of `low`: byte `i` holds the lower 4 bits of value `i` of the even group in its
//! low nibble and of the odd one in its high nibble; bit `j` of byte `i` of `high` is the fifth bit of value `i` of group
//! `j`. The packing of scales and minima is that of `scales_6bit`.

use super::scales_6bit::scales_and_minima;
use crate::block::{Block, field, scale};
use crate::integers::{Grid, Integers, Strip};

pub(crate) struct Q5K;

impl Block<176, 256> for Q5K {
    const NAME: &'static str = "Q5_K";
    const GGUF_ID: u32 = 13;
    const INTEGERS: Option<Integers<176>> =
        Some(Integers { grid: Grid { codes: 0..=31, factors: 0..=63, minima: 0..=63 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 176], out: &mut [f32; 256]) {
        let (d, dmin) = (scale(block, 0), scale(block, 2));
        let (scales, minima) = scales_and_minima(field(block, 4));
        let high = field::<32>(block, 16);
        let (groups, _) = out.as_chunks_mut::<32>();
        for (j, group) in groups.iter_mut().enumerate() {
            let low = field::<32>(block, 48 + 32 * (j / 2));
            let (step, minimum) = (d * f32::from(scales[j]), dmin * f32::from(minima[j]));
            for (out, (high, low)) in group.iter_mut().zip(high.iter().zip(low)) {
                let code = (low >> (4 * (j % 2)) & 15) | (high >> j & 1) << 4;
                *out = step * f32::from(code) - minimum;
            }
        }
    }
}

fn strip(block: &[u8; 176], strip: usize) -> Strip {
    let (scales, minima) = scales_and_minima(field(block, 4));
    let (high, low) = (field::<32>(block, 16), field::<32>(block, 48 + 32 * (strip / 2)));
    let code = |i: usize| (low[i] >> (4 * (strip % 2)) & 15) | (high[i] >> strip & 1) << 4;
    Strip {
        codes: std::array::from_fn(|i| code(i).cast_signed()),
        factors: [i32::from(scales[strip]); 2],
        minima: [i32::from(minima[strip]); 2],
        scale: scale(block, 0),
        minimum: -scale(block, 2),
    }
}
