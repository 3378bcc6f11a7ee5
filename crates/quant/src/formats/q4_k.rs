//! Q4_K: 256 values `d * scale_j * q - dmin * min_j`, `q` of 4 bits, `j` a group of 32 values.
//!
//! ```text
//! byte 0    2      4              16                    144
//!      | d  | dmin | scales, min  | q                   |  d, dmin: f16
//! ```
//! Two neighbouring groups share 32 bytes of `q`: byte `i` holds value `i` of the even group in its low nibble and of the
//! odd one in its high nibble. The packing of scales and minima is that of `scales_6bit`.

use super::scales_6bit::scales_and_minima;
use crate::block::{Block, field, scale};
use crate::integers::{Grid, Integers, Strip};

pub(crate) struct Q4K;

impl Block<144, 256> for Q4K {
    const NAME: &'static str = "Q4_K";
    const GGUF_ID: u32 = 12;
    const INTEGERS: Option<Integers<144>> =
        Some(Integers { grid: Grid { codes: 0..=15, factors: 0..=63, minima: 0..=63 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 144], out: &mut [f32; 256]) {
        let (d, dmin) = (scale(block, 0), scale(block, 2));
        let (scales, minima) = scales_and_minima(field(block, 4));
        let (groups, _) = out.as_chunks_mut::<32>();
        for (j, group) in groups.iter_mut().enumerate() {
            let quants = field::<32>(block, 16 + 32 * (j / 2));
            let (step, minimum) = (d * f32::from(scales[j]), dmin * f32::from(minima[j]));
            for (out, byte) in group.iter_mut().zip(quants) {
                *out = step * f32::from(byte >> (4 * (j % 2)) & 15) - minimum;
            }
        }
    }
}

fn strip(block: &[u8; 144], strip: usize) -> Strip {
    let (scales, minima) = scales_and_minima(field(block, 4));
    let quants = field::<32>(block, 16 + 32 * (strip / 2));
    Strip {
        codes: quants.map(|byte| (byte >> (4 * (strip % 2)) & 15).cast_signed()),
        factors: [i32::from(scales[strip]); 2],
        minima: [i32::from(minima[strip]); 2],
        scale: scale(block, 0),
        minimum: -scale(block, 2),
    }
}
