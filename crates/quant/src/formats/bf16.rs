//! BF16: the upper half of a float32, little-endian. Encoding rounds to nearest, ties to even.
//!
//! ```text
//! byte 0        2
//!      | bf16   |  one value
//! ```

use half::bf16;

use crate::block::{Block, Encode};

pub(crate) struct BF16;

impl Block<2, 1> for BF16 {
    const NAME: &'static str = "BF16";
    const GGUF_ID: u32 = 30;
    const ENCODE: Option<Encode<2, 1>> = Some(|&[value], block| {
        *block = bf16::from_f32(value).to_le_bytes();
        Ok(())
    });

    #[inline(always)]
    fn decode(&block: &[u8; 2], out: &mut [f32; 1]) {
        *out = [f32::from_bits(u32::from(u16::from_le_bytes(block)) << 16)];
    }
}
