//! Weights as the file's blocks hold them: thirty-two integers with their scales at a time, and the float32 values that
//! these stand for.
//!
//! Written from the description of the blocks in GGUF. `w_i = (scale * scales[g]) * codes[i] + minimum * minima[g]`, with
//! `g = i / 16`; both products are exact, and where the format has no minimum nothing is added.

use apprentice_quant::Format;

use super::scalar::half;

/// Thirty-two neighbouring weights of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The float16 scale.
    pub scale: f32,
    /// Integer scales of the first and the last sixteen; 1 where the format has none.
    pub scales: [i32; 2],
    /// What each weight is a multiple of the scale by.
    pub codes: [i32; 32],
    /// The float16 minimum, with the sign with which it is added.
    pub minimum: Option<f32>,
    /// Integer minima of the first and the last sixteen; 1 where the format has none.
    pub minima: [i32; 2],
}

impl Block {
    /// The weights.
    pub fn values(&self) -> [f32; 32] {
        std::array::from_fn(|i| {
            let product = (self.scale * self.scales[i / 16] as f32) * self.codes[i] as f32;
            match self.minimum {
                None => product,
                Some(minimum) => product + minimum * self.minima[i / 16] as f32,
            }
        })
    }
}

/// Reads the blocks of 32 in one of the file's blocks.
type Reader = fn(&[u8]) -> Vec<Block>;

/// A row of weights, in blocks; `None` for the formats of floats.
pub fn blocks(format: Format, bytes: &[u8]) -> Option<Vec<Block>> {
    let (size, read): (usize, Reader) = match format {
        Format::F32 | Format::F16 | Format::BF16 => return None,
        Format::Q4_0 => (18, |b| vec![plain(b, 0, None, |i| nibble(&b[2..], i) - 8)]),
        Format::Q4_1 => (20, |b| vec![plain(b, 0, Some(2), |i| nibble(&b[4..], i))]),
        Format::Q5_0 => (22, |b| vec![plain(b, 0, None, |i| nibble(&b[6..], i) + 16 * bit(&b[2..], i) - 16)]),
        Format::Q5_1 => (24, |b| vec![plain(b, 0, Some(2), |i| nibble(&b[8..], i) + 16 * bit(&b[4..], i))]),
        Format::Q8_0 => (34, |b| vec![plain(b, 0, None, |i| i32::from(b[2 + i] as i8))]),
        Format::Q2K => (84, q2_k),
        Format::Q3K => (110, q3_k),
        Format::Q4K => (144, q4_k),
        Format::Q5K => (176, q5_k),
        Format::Q6K => (210, q6_k),
    };
    Some(bytes.chunks(size).flat_map(read).collect())
}

/// A row of weights as float32.
pub fn values(format: Format, bytes: &[u8]) -> Vec<f32> {
    let two = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    match format {
        Format::F32 => bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Format::F16 => bytes.chunks(2).map(|b| half(two(b))).collect(),
        Format::BF16 => bytes.chunks(2).map(|b| f32::from_bits(u32::from(two(b)) << 16)).collect(),
        _ => blocks(format, bytes).into_iter().flatten().flat_map(|block| block.values()).collect(),
    }
}

/// A block without integer scales, its float16 fields at these bytes.
fn plain(b: &[u8], scale: usize, minimum: Option<usize>, code: impl Fn(usize) -> i32) -> Block {
    Block {
        scale: half_at(b, scale),
        scales: [1, 1],
        codes: std::array::from_fn(code),
        minimum: minimum.map(|at| half_at(b, at)),
        minima: [1, 1],
    }
}

/// Value `i` of sixteen bytes that hold `i` in the low nibbles and `i + 16` in the high ones.
fn nibble(b: &[u8], i: usize) -> i32 {
    i32::from(b[i % 16] >> (4 * (i / 16)) & 15)
}

/// Bit `i` of a little-endian number.
fn bit(b: &[u8], i: usize) -> i32 {
    i32::from(b[i / 8] >> (i % 8) & 1)
}

/// Two bits of byte `i`: the `n`th lowest pair.
fn pair(b: &[u8], i: usize, n: usize) -> i32 {
    i32::from(b[i] >> (2 * n) & 3)
}

fn half_at(b: &[u8], at: usize) -> f32 {
    half(u16::from_le_bytes([b[at], b[at + 1]]))
}

/// 256 weights: for block `n` of eight its codes, integer scales and integer minima.
fn eight(
    scale: f32,
    minimum: Option<f32>,
    code: impl Fn(usize, usize) -> i32,
    scales: impl Fn(usize) -> i32,
    minima: impl Fn(usize) -> i32,
) -> Vec<Block> {
    let block = |n: usize| Block {
        scale,
        scales: [scales(2 * n), scales(2 * n + 1)],
        codes: std::array::from_fn(|i| code(n, i)),
        minimum,
        minima: [minima(2 * n), minima(2 * n + 1)],
    };
    (0..8).map(block).collect()
}

fn q2_k(b: &[u8]) -> Vec<Block> {
    eight(
        half_at(b, 80),
        Some(-half_at(b, 82)),
        |n, i| pair(&b[16 + 32 * (n / 4)..], i, n % 4),
        |group| i32::from(b[group] & 15),
        |group| i32::from(b[group] >> 4),
    )
}

fn q3_k(b: &[u8]) -> Vec<Block> {
    let scale = |group: usize| {
        let low = i32::from(b[96 + group % 8] >> (4 * (group / 8)) & 15);
        low + 16 * pair(&b[104..], group % 4, group / 4) - 32
    };
    let code =
        |n: usize, i: usize| pair(&b[32 + 32 * (n / 4)..], i, n % 4) + 4 * i32::from(b[i] >> n & 1) - 4;
    eight(half_at(b, 108), None, code, scale, |_| 0)
}

fn q4_k(b: &[u8]) -> Vec<Block> {
    let code = |n: usize, i: usize| i32::from(b[16 + 32 * (n / 2) + i] >> (4 * (n % 2)) & 15);
    eight(half_at(b, 0), Some(-half_at(b, 2)), code, |g| six_bits(b, 0, g / 2), |g| six_bits(b, 4, g / 2))
}

fn q5_k(b: &[u8]) -> Vec<Block> {
    let low = |n: usize, i: usize| i32::from(b[48 + 32 * (n / 2) + i] >> (4 * (n % 2)) & 15);
    let code = |n: usize, i: usize| low(n, i) + 16 * i32::from(b[16 + i] >> n & 1);
    eight(half_at(b, 0), Some(-half_at(b, 2)), code, |g| six_bits(b, 0, g / 2), |g| six_bits(b, 4, g / 2))
}

fn q6_k(b: &[u8]) -> Vec<Block> {
    let code = |n: usize, i: usize| {
        let (half, quarter) = (n / 4, n % 4);
        let low = b[64 * half + 32 * (quarter % 2) + i] >> (4 * (quarter / 2)) & 15;
        i32::from(low) + 16 * pair(&b[128 + 32 * half..], i, quarter) - 32
    };
    eight(half_at(b, 208), None, code, |group| i32::from(b[192 + group] as i8), |_| 0)
}

/// Number `j` of eight in the twelve bytes from byte 4 on: scales for `kind` 0, minima for `kind` 4.
fn six_bits(b: &[u8], kind: usize, j: usize) -> i32 {
    let packed = &b[4..16];
    let number = if j < 4 {
        packed[kind + j] & 63
    } else {
        packed[4 + j] >> kind & 15 | packed[kind + j - 4] >> 6 << 4
    };
    i32::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::random_blocks;
    use crate::random::Random;

    #[test]
    fn values_are_those_of_the_decoder() {
        for &format in Format::ALL {
            let bytes = random_blocks(format, 40, 256, 0.3, &mut Random::new(7)).unwrap();
            let mut expected = vec![0f32; 40 * 256];
            format.decode(&bytes, &mut expected).unwrap();
            let found = values(format, &bytes);
            let bits = |all: &[f32]| all.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert!(bits(&found) == bits(&expected), "{format}: other values");
        }
    }
}
