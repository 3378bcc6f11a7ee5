//! F16: IEEE float16, little-endian. Encoding rounds to nearest, ties to even; what is too large becomes infinity.
//!
//! ```text
//! byte 0        2
//!      | f16    |  one value
//! ```

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::block::{Block, Encode};

pub(crate) struct F16;

impl Block<2, 1> for F16 {
    const NAME: &'static str = "F16";
    const GGUF_ID: u32 = 1;
    const ENCODE: Option<Encode<2, 1>> = Some(|&[value], block| {
        *block = f16::from_f32(value).to_le_bytes();
        Ok(())
    });

    #[inline(always)]
    fn decode(&block: &[u8; 2], out: &mut [f32; 1]) {
        *out = [f16::from_le_bytes(block).to_f32()];
    }

    /// Many at once, because the conversion of a slice has vector instructions where the machine has them.
    fn decode_blocks(bytes: &[u8], out: &mut [f32]) {
        const STRIP: usize = 256;
        let (halves, _) = bytes.as_chunks();
        let mut strip = [f16::ZERO; STRIP];
        for (halves, out) in halves.chunks(STRIP).zip(out.chunks_mut(STRIP)) {
            let strip = &mut strip[..halves.len()];
            for (half, &bytes) in strip.iter_mut().zip(halves) {
                *half = f16::from_le_bytes(bytes);
            }
            strip.convert_to_f32_slice(out);
        }
    }
}
