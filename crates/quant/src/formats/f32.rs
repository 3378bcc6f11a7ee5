//! F32: IEEE float32, little-endian.
//!
//! ```text
//! byte 0        4
//!      | f32    |  one value
//! ```

use crate::block::{Block, Encode};

pub(crate) struct F32;

impl Block<4, 1> for F32 {
    const NAME: &'static str = "F32";
    const GGUF_ID: u32 = 0;
    const ENCODE: Option<Encode<4, 1>> = Some(|&[value], block| {
        *block = value.to_le_bytes();
        Ok(())
    });

    #[inline(always)]
    fn decode(&block: &[u8; 4], out: &mut [f32; 1]) {
        *out = [f32::from_le_bytes(block)];
    }
}
