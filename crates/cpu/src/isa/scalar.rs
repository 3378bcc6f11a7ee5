//! One element at a time: the reference of every suite, and the level of machines without vector units of ours.
//!
//! `mul_add` is one rounding: the instruction where the machine has it, else the C library's `fmaf`. It stands in
//! functions of its own, chosen by the token, so the kernels need not be compiled twice.

use std::array::from_fn;

use half::f16;

use super::{ByteTask, Bytes, Isa, LANES, Task};

/// One element at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scalar {
    /// The machine has an instruction for `mul_add`, and it was seen.
    fused: bool,
}

impl Scalar {
    /// Looks whether the machine has a fused multiply-add.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let fused = std::arch::is_x86_feature_detected!("fma");
        #[cfg(not(target_arch = "x86_64"))]
        let fused = false; // where it is part of the base, as on aarch64, there is nothing to choose
        Self { fused }
    }
}

type Lanes = [f32; LANES];

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
fn fma_by_instruction(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    from_fn(|i| a[i].mul_add(b[i], c[i]))
}

#[inline(never)]
fn fma(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    from_fn(|i| a[i].mul_add(b[i], c[i]))
}

#[inline(never)]
fn f16_to_f32(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// Adding 2^23 leaves no fraction, and rounds to nearest even.
#[inline(always)]
fn round_ties_even(x: f32) -> f32 {
    const WHOLE_FROM: f32 = 8_388_608.0;
    let shift = WHOLE_FROM.copysign(x);
    if x.abs() < WHOLE_FROM { ((x + shift) - shift).copysign(x) } else { x }
}

impl Isa for Scalar {
    type V = [f32; LANES];
    type W = [u32; LANES];
    type M = [bool; LANES];

    const REGISTERS: usize = 4;

    #[inline]
    fn run<T: Task>(self, task: T) -> T::Output {
        task.run(self)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load_at(self, source: *const f32) -> Self::V {
        // SAFETY: sixteen f32 by the caller's promise; f32 at any alignment is read as an unaligned array.
        unsafe { source.cast::<[f32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_at(self, target: *mut f32, v: Self::V) {
        // SAFETY: room for sixteen f32 by the caller's promise.
        unsafe { target.cast::<[f32; LANES]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        #[cfg(target_arch = "x86_64")]
        if self.fused {
            // SAFETY: `fused` is set only by `detect`, which saw the instruction.
            return unsafe { fma_by_instruction(&a, &b, &c) };
        }
        fma(&a, &b, &c)
    }
    #[inline(always)]
    fn sqrt(self, a: Self::V) -> Self::V {
        a.map(f32::sqrt)
    }
    #[inline(always)]
    fn round_ties_even(self, a: Self::V) -> Self::V {
        a.map(round_ties_even)
    }

    #[inline(always)]
    fn lt(self, a: Self::V, b: Self::V) -> Self::M {
        from_fn(|i| a[i] < b[i])
    }
    #[inline(always)]
    fn le(self, a: Self::V, b: Self::V) -> Self::M {
        from_fn(|i| a[i] <= b[i])
    }
    #[inline(always)]
    fn eq(self, a: Self::V, b: Self::V) -> Self::M {
        from_fn(|i| a[i] == b[i])
    }
    #[inline(always)]
    fn and_mask(self, a: Self::M, b: Self::M) -> Self::M {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or_mask(self, a: Self::M, b: Self::M) -> Self::M {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn not_mask(self, a: Self::M) -> Self::M {
        a.map(|lane| !lane)
    }
    #[inline(always)]
    fn any(self, a: Self::M) -> bool {
        a.contains(&true)
    }
    #[inline(always)]
    fn first_lanes(self, count: usize) -> Self::M {
        from_fn(|i| i < count)
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| if mask[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn bits(self, a: Self::V) -> Self::W {
        a.map(f32::to_bits)
    }
    #[inline(always)]
    fn from_bits(self, a: Self::W) -> Self::V {
        a.map(f32::from_bits)
    }
    #[inline(always)]
    fn to_int(self, a: Self::V) -> Self::W {
        a.map(|lane| {
            let whole = round_ties_even(lane);
            let fits = (-2_147_483_648.0..2_147_483_648.0).contains(&whole);
            (if fits { whole as i32 } else { i32::MIN }).cast_unsigned()
        })
    }
    #[inline(always)]
    fn from_int(self, a: Self::W) -> Self::V {
        a.map(|lane| lane.cast_signed() as f32)
    }
    #[inline(always)]
    fn splat_int(self, value: i32) -> Self::W {
        [value.cast_unsigned(); LANES]
    }
    #[inline(always)]
    fn load_int(self, source: &[i32; LANES]) -> Self::W {
        source.map(i32::cast_unsigned)
    }
    #[inline(always)]
    fn load_u8(self, source: &[u8; LANES]) -> Self::W {
        source.map(u32::from)
    }
    #[inline(always)]
    fn load_i8(self, source: &[u8; LANES]) -> Self::W {
        source.map(|byte| i32::from(byte.cast_signed()).cast_unsigned())
    }
    #[inline(always)]
    fn store_i8(self, target: &mut [i8; LANES], a: Self::W) {
        *target = a.map(|lane| lane as u8 as i8);
    }
    #[inline(always)]
    unsafe fn columns_at(self, first: *const u8, stride: usize) -> [Self::W; 4] {
        let mut columns = [[0; LANES]; 4];
        for lane in 0..LANES {
            // SAFETY: sixteen bytes by the caller's promise; an array of bytes has no alignment.
            let bytes = unsafe { first.add(lane * stride).cast::<[[u8; 4]; 4]>().read() };
            for (column, bytes) in columns.iter_mut().zip(bytes) {
                column[lane] = u32::from_le_bytes(bytes);
            }
        }
        columns
    }
    #[inline(always)]
    unsafe fn words_at(self, first: *const u8, distances: Self::W) -> Self::W {
        distances.map(|distance| {
            // SAFETY: four bytes by the caller's promise; an array of bytes has no alignment.
            u32::from_le_bytes(unsafe { first.add(distance as usize).cast::<[u8; 4]>().read() })
        })
    }
    #[inline(always)]
    fn f16s(self, a: Self::W) -> Self::V {
        a.map(|lane| f16_to_f32(lane as u16))
    }
    #[inline(always)]
    fn load_u16(self, source: &[u8; 2 * LANES]) -> Self::W {
        from_fn(|i| u32::from(u16::from_le_bytes([source[2 * i], source[2 * i + 1]])))
    }
    #[inline(always)]
    fn add_int(self, a: Self::W, b: Self::W) -> Self::W {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn sub_int(self, a: Self::W, b: Self::W) -> Self::W {
        from_fn(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn and_int(self, a: Self::W, b: Self::W) -> Self::W {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or_int(self, a: Self::W, b: Self::W) -> Self::W {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn xor_int(self, a: Self::W, b: Self::W) -> Self::W {
        from_fn(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn shl<const BITS: u32>(self, a: Self::W) -> Self::W {
        a.map(|lane| lane << BITS)
    }
    #[inline(always)]
    fn shr<const BITS: u32>(self, a: Self::W) -> Self::W {
        a.map(|lane| lane >> BITS)
    }
    #[inline(always)]
    fn shr_each(self, a: Self::W, by: Self::W) -> Self::W {
        from_fn(|i| a[i].checked_shr(by[i]).unwrap_or(0))
    }
    #[inline(always)]
    fn shr_by(self, a: Self::W, by: u32) -> Self::W {
        a.map(|lane| lane >> by)
    }
    #[inline(always)]
    fn f16(self, bits: u16) -> f32 {
        f16_to_f32(bits)
    }
    #[inline(always)]
    fn splat_f16s(self, source: &[u8; 4]) -> [Self::V; 2] {
        let [a, b, c, d] = *source;
        [[a, b], [c, d]].map(|bits| self.splat(f16_to_f32(u16::from_le_bytes(bits))))
    }
    #[inline(always)]
    fn load_f16(self, source: &[u8; 2 * LANES]) -> Self::V {
        from_fn(|i| f16_to_f32(u16::from_le_bytes([source[2 * i], source[2 * i + 1]])))
    }

    const FAST_LOOKUP: bool = false;
    #[inline(always)]
    fn lookup(self, table: Self::V, code: Self::W) -> Self::V {
        code.map(|code| table[code as usize % LANES])
    }

    #[inline]
    fn run_bytes<T: ByteTask>(self, task: T) -> T::Output {
        task.run(self, Plain)
    }

    #[inline(always)]
    fn sum_tree(self, a: Self::V) -> f32 {
        let a: [f32; 8] = from_fn(|i| a[i] + a[i + 8]);
        let a: [f32; 4] = from_fn(|i| a[i] + a[i + 4]);
        let a: [f32; 2] = from_fn(|i| a[i] + a[i + 2]);
        a[0] + a[1]
    }
}

/// A product at a time.
#[derive(Clone, Copy)]
struct Plain;

impl Bytes<Scalar> for Plain {
    const WIDE: bool = true;

    #[inline(always)]
    fn dot(self, _: Scalar, sums: [u32; LANES], codes: [u32; LANES], x: [u32; LANES]) -> [u32; LANES] {
        from_fn(|i| {
            let products = codes[i].to_le_bytes().map(i32::from).into_iter().zip(x[i].to_le_bytes());
            let sum: i32 = products.map(|(code, x)| code * i32::from(x.cast_signed())).sum();
            sums[i].wrapping_add(sum.cast_unsigned())
        })
    }

    #[inline(always)]
    fn dot_signed(self, _: Scalar, sums: [u32; LANES], codes: [u32; LANES], x: [u32; LANES]) -> [u32; LANES] {
        from_fn(|i| {
            let products = codes[i].to_le_bytes().into_iter().zip(x[i].to_le_bytes());
            let sum: i32 =
                products.map(|(code, x)| i32::from(code.cast_signed()) * i32::from(x.cast_signed())).sum();
            sums[i].wrapping_add(sum.cast_unsigned())
        })
    }
}
