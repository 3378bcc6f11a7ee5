//! Q4_0: 32 values `d * (q - 8)`, `q` of 4 bits.
//!
//! ```text
//! byte 0    2                18
//!      | d  | q              |  d: f16
//! ```
//! Byte `i` of `q` holds value `i` in its low nibble and value `i + 16` in its high one.
//!
//! Encoding (ggml's `quantize_row_q4_0_ref`): with `max` the value of largest magnitude, sign kept, `d = max / -8` in
//! float32; `q = min(15, trunc(x * (1 / d) + 8.5))`, and `d` is stored as float16. So `max` itself becomes -8, and the
//! largest value of the other sign may be off by a whole `d`.

use crate::block::{Block, Encode, OutOfRange, field, largest, scale, stored_scale};
use crate::integers::{Grid, Integers, STRIP, Strip, plain};

pub(crate) struct Q4_0;

impl Block<18, 32> for Q4_0 {
    const NAME: &'static str = "Q4_0";
    const GGUF_ID: u32 = 2;
    const ENCODE: Option<Encode<18, 32>> = Some(encode);
    const INTEGERS: Option<Integers<18>> =
        Some(Integers { grid: Grid { codes: -8..=7, factors: 1..=1, minima: 0..=0 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 18], out: &mut [f32; 32]) {
        let d = scale(block, 0);
        let nibbles = field::<16>(block, 2);
        for (i, byte) in nibbles.iter().enumerate() {
            out[i] = d * f32::from((byte & 15) as i8 - 8);
            out[i + 16] = d * f32::from((byte >> 4) as i8 - 8);
        }
    }
}

fn encode(values: &[f32; 32], block: &mut [u8; 18]) -> Result<(), OutOfRange> {
    let (index, max) = largest(values);
    let d = max / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    block[..2].copy_from_slice(&stored_scale(d, index)?);
    // A cast to u8 truncates, and holds a subnormal block's infinities and NaN inside the range.
    let code = |value: f32| ((value * inverse + 8.5) as u8).min(15);
    for (i, byte) in block[2..].iter_mut().enumerate() {
        *byte = code(values[i]) | code(values[i + 16]) << 4;
    }
    Ok(())
}

fn strip(block: &[u8; 18], _: usize) -> Strip {
    plain(scale(block, 0), nibbles(field(block, 2)).map(|code| code - 8))
}

/// Low nibbles, then high ones.
pub(super) fn nibbles(packed: &[u8; 16]) -> [i8; STRIP] {
    std::array::from_fn(|i| (packed[i % 16] >> (4 * (i / 16)) & 15).cast_signed())
}
