//! Eight pairs of 6-bit scales and minima in twelve bytes, as Q4_K and Q5_K hold them.
//!
//! ```text
//! byte      bits 7 6            bits 5 to 0
//! 0 to 3    scale 4 to 7: 5 4   scale 0 to 3
//! 4 to 7    min 4 to 7: 5 4     min 0 to 3
//!           bits 7 to 4         bits 3 to 0
//! 8 to 11   min 4 to 7: 3 to 0  scale 4 to 7: 3 to 0
//! ```

/// Scales and minima of the eight groups.
#[inline(always)]
pub(super) fn scales_and_minima(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let [mut scales, mut minima] = [[0; 8]; 2];
    for j in 0..4 {
        scales[j] = packed[j] & 63;
        minima[j] = packed[j + 4] & 63;
        scales[j + 4] = (packed[j + 8] & 15) | packed[j] >> 6 << 4;
        minima[j + 4] = packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4;
    }
    (scales, minima)
}
