//! What a format file provides: the size of a block, its decoder and, for some, its encoder.

use half::f16;

use crate::integers::Integers;

/// A block format: `VALUES` values in `BYTES` bytes.
pub(crate) trait Block<const BYTES: usize, const VALUES: usize> {
    /// GGUF's own spelling.
    const NAME: &'static str;
    /// Number of the type in a GGUF tensor table.
    const GGUF_ID: u32;
    /// Values and bytes of a block, for code that has no array in hand.
    const SIZE: Size = Size { values: VALUES, bytes: BYTES };
    /// Writes a block, where the format is written at all.
    const ENCODE: Option<Encode<BYTES, VALUES>> = None;
    /// The block as integers; none for single values.
    const INTEGERS: Option<Integers<BYTES>> = None;

    /// Reads a block.
    fn decode(block: &[u8; BYTES], out: &mut [f32; VALUES]);

    /// Reads as many blocks as both sides hold.
    fn decode_blocks(bytes: &[u8], out: &mut [f32]) {
        let (blocks, _) = bytes.as_chunks();
        let (outs, _) = out.as_chunks_mut();
        for (block, out) in blocks.iter().zip(outs) {
            Self::decode(block, out);
        }
    }
}

/// Writes a block, or names the value in it that cannot be written.
pub(crate) type Encode<const BYTES: usize, const VALUES: usize> =
    fn(values: &[f32; VALUES], block: &mut [u8; BYTES]) -> Result<(), OutOfRange>;

/// Size of a block.
pub(crate) struct Size {
    pub values: usize,
    pub bytes: usize,
}

/// Index, inside its block, of a value that no finite scale can hold.
pub(crate) struct OutOfRange(pub usize);

/// Appends `values` to `out` block by block; `None` where the format has no encoder. Whole blocks are the caller's duty.
pub(crate) fn encode_blocks<B, const BYTES: usize, const VALUES: usize>(
    values: &[f32],
    out: &mut Vec<u8>,
) -> Option<Result<(), OutOfRange>>
where
    B: Block<BYTES, VALUES>,
{
    let encode = B::ENCODE?;
    let start = out.len();
    let (blocks, _) = values.as_chunks::<VALUES>();
    out.reserve(blocks.len() * BYTES);
    let mut bytes = [0; BYTES];
    for (index, block) in blocks.iter().enumerate() {
        if let Err(OutOfRange(within)) = encode(block, &mut bytes) {
            out.truncate(start);
            return Some(Err(OutOfRange(index * VALUES + within)));
        }
        out.extend_from_slice(&bytes);
    }
    Some(Ok(()))
}

/// `N` bytes of a block from `start`; both are constants of the format, so the check is done by the compiler.
#[inline(always)]
pub(crate) fn field<const N: usize>(block: &[u8], start: usize) -> &[u8; N] {
    block[start..].first_chunk().expect("a field lies inside its block")
}

/// The little-endian float16 at `start`, as float32.
#[inline(always)]
pub(crate) fn scale(block: &[u8], start: usize) -> f32 {
    f16::from_le_bytes(*field(block, start)).to_f32()
}

/// The element of largest magnitude, the first on a tie, with its index; NaN counts as the largest.
pub(crate) fn largest(values: &[f32]) -> (usize, f32) {
    let mut best = (0, 0.0f32);
    for (index, &value) in values.iter().enumerate() {
        if value.is_nan() {
            return (index, value);
        }
        if value.abs() > best.1.abs() {
            best = (index, value);
        }
    }
    best
}

/// `scale` as the float16 that is stored; refused where that is not finite because of the value at `index`.
pub(crate) fn stored_scale(scale: f32, index: usize) -> Result<[u8; 2], OutOfRange> {
    let stored = f16::from_f32(scale);
    if stored.is_finite() { Ok(stored.to_le_bytes()) } else { Err(OutOfRange(index)) }
}
