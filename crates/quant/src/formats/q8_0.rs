//! Q8_0: 32 values `d * q`, `q` a signed byte.
//!
//! ```text
//! byte 0    2                                34
//!      | d  | q                              |  d: f16, q: i8
//! ```
//! Encoding (ggml's `quantize_row_q8_0_ref`): `d = max|x| / 127` in float32; `q = round(x * (1 / d))`, halves away from
//! zero, and `d` is stored as float16.

use crate::block::{Block, Encode, OutOfRange, field, largest, scale, stored_scale};
use crate::integers::{Grid, Integers, Strip, plain};

pub(crate) struct Q8_0;

impl Block<34, 32> for Q8_0 {
    const NAME: &'static str = "Q8_0";
    const GGUF_ID: u32 = 8;
    const ENCODE: Option<Encode<34, 32>> = Some(encode);
    const INTEGERS: Option<Integers<34>> =
        Some(Integers { grid: Grid { codes: -128..=127, factors: 1..=1, minima: 0..=0 }, strip });

    #[inline(always)]
    fn decode(block: &[u8; 34], out: &mut [f32; 32]) {
        let d = scale(block, 0);
        let bytes = field::<32>(block, 2);
        for (out, &byte) in out.iter_mut().zip(bytes) {
            *out = d * f32::from(byte as i8);
        }
    }
}

fn encode(values: &[f32; 32], block: &mut [u8; 34]) -> Result<(), OutOfRange> {
    let (index, max) = largest(values);
    let d = max.abs() / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    block[..2].copy_from_slice(&stored_scale(d, index)?);
    for (byte, value) in block[2..].iter_mut().zip(values) {
        // The cast saturates, which holds a subnormal block's infinities and NaN inside the range.
        *byte = (value * inverse).round() as i8 as u8;
    }
    Ok(())
}

fn strip(block: &[u8; 34], _: usize) -> Strip {
    plain(scale(block, 0), field::<32>(block, 2).map(u8::cast_signed))
}
