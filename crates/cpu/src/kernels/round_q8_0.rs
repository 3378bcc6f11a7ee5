//! Vectors of a q8_0 page: blocks of 32 elements, the last of which may be shorter; a block is a float16 step `d`, then an
//! int8 `q` for each element.
//!
//! With `amax` the largest magnitude of a block: `d = f16(amax / 127)`, `q = round_ties_even(x * (127 / amax))`. Where
//! `amax` is below 2^-100 both are 0; a block that holds a NaN or an infinity has `q = 0` and a NaN for `d`. An element
//! comes back as `d * q`, which is exact. Magnitudes are compared as integers, and rounding is the addition of
//! 1.5 * 2^23, which leaves `q` in the lowest byte: plain loops are vectors at every level.

use half::f16;

use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::kernels::{Kernel, map, rows_of_a_unit, unit_rows};

/// Elements of a block.
const BLOCK: usize = apprentice_graph::PAGE_BLOCK;
/// Bytes of a step.
const STEP_BYTES: usize = 2;
/// The magnitude from which on a block is more than zeros: 2^-100.
const LEAST: f32 = f32::from_bits((127 - 100) << 23);
/// Bits of infinity.
const INFINITE: u32 = 0x7f80_0000;
/// 1.5 * 2^23.
const ROUNDER: f32 = 12_582_912.0;

/// Bytes of a vector of `width` elements.
pub(crate) fn vector_bytes(width: usize) -> usize {
    width + STEP_BYTES * width.div_ceil(BLOCK)
}

/// Writes what a page keeps of `vector`: [`vector_bytes`] of its width.
#[inline(always)]
pub(crate) fn encode(vector: &[f32], bytes: &mut [u8]) {
    for (block, bytes) in vector.chunks(BLOCK).zip(bytes.chunks_mut(STEP_BYTES + BLOCK)) {
        let (step, levels) = bytes.split_at_mut(STEP_BYTES);
        step.copy_from_slice(&quantise(block, levels).to_le_bytes());
    }
}

/// Reads a vector of a page.
#[inline(always)]
pub(crate) fn decode(step_of: impl Fn(u16) -> f32, bytes: &[u8], vector: &mut [f32]) {
    for (block, bytes) in vector.chunks_mut(BLOCK).zip(bytes.chunks(STEP_BYTES + BLOCK)) {
        let ([low, high], levels) = bytes.split_first_chunk().expect("a block has a step");
        restore(step_of(u16::from_le_bytes([*low, *high])), levels, block);
    }
}

/// The step of a block as bits of a float16, and its levels, as many as it has elements.
#[inline(always)]
fn quantise(block: &[f32], levels: &mut [u8]) -> u16 {
    let mut largest = 0;
    for x in block {
        let size = x.to_bits() & !(1 << 31);
        largest = if size > largest { size } else { largest };
    }
    let amax = f32::from_bits(largest);
    if largest >= INFINITE || amax < LEAST {
        levels.fill(0);
        return if largest >= INFINITE { f16::NAN.to_bits() } else { 0 };
    }
    let inverse = 127.0 / amax;
    for (level, x) in levels.iter_mut().zip(block) {
        *level = (x * inverse + ROUNDER).to_bits() as u8; // -127 to 127: the lowest byte
    }
    f16::from_f32(amax / 127.0).to_bits()
}

#[inline(always)]
fn restore(step: f32, levels: &[u8], block: &mut [f32]) {
    for (x, level) in block.iter_mut().zip(levels) {
        *x = step * f32::from(level.cast_signed());
    }
}

/// `y` is what a q8_0 page keeps of `x`.
pub struct RoundQ8_0<'a> {
    /// Elements of a vector: of the last axis.
    pub width: usize,
    /// `[vectors, width]`, or `None` where they lie in `y`.
    pub x: Option<&'a [f32]>,
    /// `[vectors, width]`.
    pub y: Disjoint<'a, f32>,
}

impl Kernel for RoundQ8_0<'_> {
    fn units(&self) -> usize {
        (self.y.len() / self.width.max(1)).div_ceil(rows_of_a_unit(self.width))
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let rows = unit_rows(unit, self.width, self.y.len() / self.width);
        // SAFETY: units are ranges of vectors that follow each other.
        let y = unsafe { map::take(&self.y, self.x, rows.start * self.width..rows.end * self.width) };
        for vector in y.chunks_mut(self.width) {
            for block in vector.chunks_mut(BLOCK) {
                let mut levels = [0; BLOCK];
                let levels = &mut levels[..block.len()];
                let step = isa.f16(quantise(block, levels));
                restore(step, levels, block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Element, Numbers, Wanted, check};

    /// Bytes and values of a vector, an element at a time.
    fn reference(vector: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let (mut bytes, mut values) = (Vec::new(), Vec::new());
        for block in vector.chunks(32) {
            let finite = block.iter().all(|x| x.is_finite());
            let amax = block.iter().fold(0.0f32, |amax, x| if x.abs() > amax { x.abs() } else { amax });
            let zero = !finite || amax < 2f32.powi(-100);
            let step = match (finite, zero) {
                (false, _) => f16::NAN,
                (true, true) => f16::ZERO,
                (true, false) => f16::from_f32(amax / 127.0),
            };
            let level = |x: f32| if zero { 0 } else { (x * (127.0 / amax)).round_ties_even() as i8 };
            bytes.extend(step.to_bits().to_le_bytes());
            bytes.extend(block.iter().map(|x| level(*x).cast_unsigned()));
            values.extend(block.iter().map(|x| step.to_f32() * f32::from(level(*x))));
        }
        (bytes, values)
    }

    /// Vectors of ordinary size, tiny and huge ones, ties, zeros, and such as hold what is no number.
    fn vectors(seed: u64, width: usize) -> Vec<f32> {
        let mut numbers = Numbers::new(seed);
        let mut all = Vec::new();
        for scale in [1.0, 0.0, 1e-9, 1e-29, 7e-31, 8e-31, 2e6, 3e7, 1e38] {
            all.extend(numbers.normal(width).into_iter().map(|x| x * scale));
        }
        all.extend((0..width).map(|i| if i % 32 == 0 { -127.0 } else { i as f32 - 16.5 }));
        for bad in [f32::NAN, f32::INFINITY, -f32::INFINITY] {
            let mut vector = numbers.normal(width);
            vector[width / 2] = bad;
            all.extend(vector);
        }
        all.extend(numbers.hard(4 * width));
        all
    }

    #[test]
    fn as_an_element_at_a_time_says() {
        for (seed, width) in [64, 80, 20, 32, 33, 1].into_iter().enumerate() {
            let x = vectors(seed as u64, width);
            let (bytes, values): (Vec<_>, Vec<_>) = x.chunks(width).map(reference).unzip();
            let (bytes, values) = (bytes.concat(), values.concat());
            check(seed as u64, &[Wanted::new(&values)], |outs, run| {
                run.all(&RoundQ8_0 { width, x: Some(&x), y: outs[0] });
            });
            check(seed as u64, &[Wanted::in_place(&values, &x)], |outs, run| {
                run.all(&RoundQ8_0 { width, x: None, y: outs[0] });
            });
            let mut encoded = vec![0; bytes.len()];
            for (vector, bytes) in x.chunks(width).zip(encoded.chunks_mut(vector_bytes(width))) {
                encode(vector, bytes);
            }
            assert_eq!(encoded, bytes, "width {width}");
            let mut decoded = vec![0.0f32; width];
            for (bytes, values) in encoded.chunks(vector_bytes(width)).zip(values.chunks(width)) {
                decode(|bits| f16::from_bits(bits).to_f32(), bytes, &mut decoded);
                let bits = |values: &[f32]| values.iter().map(|v| v.canonical()).collect::<Vec<_>>();
                assert_eq!(bits(&decoded), bits(values), "width {width}");
            }
        }
    }

    #[test]
    fn rounding_what_was_rounded_changes_nothing() {
        let x = vectors(3, 64);
        for vector in x.chunks(64) {
            let (_, once) = reference(vector);
            let (_, twice) = reference(&once);
            let usual = once.iter().all(|x| x.is_finite() && (*x != 0.0 || x.is_sign_positive()));
            assert!(!usual || once == twice, "{vector:?}");
        }
    }
}
