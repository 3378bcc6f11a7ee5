//! Q3_K: 256 values `d * scale_j * (q - 4)`, `q` of 3 bits, `j` a group of 16 values.
//!
//! ```text
//! byte 0       32                    96          108  110
//!      | high  | low                 | scales    | d  |  d: f16
//! ```
//! The values lie in halves of 128, a half in quarters of 32: byte `i` of a half's 32 bytes of `low` holds the lower two
//! bits of value `i` of quarter 0 in its lowest two bits, then of quarters 1, 2, 3. Bit `4 * half + quarter` of byte `i`
//! of `high` is the third bit. `scale_j` is a 6-bit number less 32: byte `j % 8` of `scales` holds its lower four bits,
//! in the low nibble for `j < 8` and in the high one else; byte `8 + j % 4` holds the upper two, from bit `2 * (j / 4)`.

use crate::block::{Block, field, scale};
use crate::integers::{Grid, Integers, Strip};

pub(crate) struct Q3K;

impl Block<110, 256> for Q3K {
    const NAME: &'static str = "Q3_K";
    const GGUF_ID: u32 = 11;
    const INTEGERS: Option<Integers<110>> =
        Some(Integers { grid: Grid { codes: -4..=3, factors: -32..=31, minima: 0..=0 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 110], out: &mut [f32; 256]) {
        let scales = signed_scales(field(block, 96));
        let d = scale(block, 108);
        let (halves, _) = out.as_chunks_mut::<128>();
        for (half, out) in halves.iter_mut().enumerate() {
            for side in 0..2 {
                let high = field::<16>(block, 16 * side).map(|byte| byte >> (4 * half));
                let low = field::<16>(block, 32 + 32 * half + 16 * side);
                for quarter in 0..4 {
                    let step = d * f32::from(scales[8 * half + 2 * quarter + side]);
                    let out = &mut out[32 * quarter + 16 * side..][..16];
                    for (out, (high, low)) in out.iter_mut().zip(high.iter().zip(low)) {
                        let code = (low >> (2 * quarter) & 3) | (high >> quarter & 1) << 2;
                        *out = step * f32::from(code as i8 - 4);
                    }
                }
            }
        }
    }
}

fn signed_scales(packed: &[u8; 12]) -> [i8; 16] {
    std::array::from_fn(|j| {
        let lower = packed[j % 8] >> (4 * (j / 8)) & 15;
        let upper = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
        (lower | upper << 4) as i8 - 32
    })
}

fn strip(block: &[u8; 110], strip: usize) -> Strip {
    let (high, low) = (field::<32>(block, 0), field::<32>(block, 32 + 32 * (strip / 4)));
    let code = |i: usize| (low[i] >> (2 * (strip % 4)) & 3) | (high[i] >> strip & 1) << 2;
    let scales = signed_scales(field(block, 96));
    Strip {
        codes: std::array::from_fn(|i| code(i).cast_signed() - 4),
        factors: [scales[2 * strip], scales[2 * strip + 1]].map(i32::from),
        minima: [0; 2],
        scale: scale(block, 108),
        minimum: 0.0,
    }
}
