//! Sixteen lanes of f32, at three levels of instruction set, and the choice between them.
//!
//! An algorithm is written once over [`Isa`]. Every operation is IEEE's with one rounding and the lanes are sixteen at
//! every level (one register of AVX-512, two of AVX2, an array), so levels agree to the byte by construction. The
//! instruction set is a value that proves itself: a token is made only where the machine was seen to have it.
//!
//! NaN: a comparison with a NaN is false; NaN in, NaN out everywhere else. Payloads are not part of the contract.

use std::fmt;
use std::hint::black_box;

use crate::error::CpuError;

mod scalar;
pub use scalar::Scalar;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;

/// Lanes of a vector, at every level.
pub const LANES: usize = 16;

/// Something to be done at a level; `run` is compiled for it.
pub trait Task {
    /// What comes out.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`, as is all generic code that they call.
    fn run<I: Isa>(self, isa: I) -> Self::Output;
}

/// Something to be done at a level that multiplies bytes; `run` is compiled for it.
pub trait ByteTask {
    /// What comes out.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`, as is all generic code that they call.
    fn run<I: Isa, B: Bytes<I>>(self, isa: I, bytes: B) -> Self::Output;
}

/// Products of bytes, four to a lane, added to 32-bit sums. Exact: the largest sums of a kernel stay far inside.
pub trait Bytes<I: Isa>: Copy {
    /// Whether [`Bytes::dot`] takes codes up to 255, and not only up to 128.
    const WIDE: bool;
    /// `sums + sum of four products` a lane; `codes` are unsigned, `x` signed.
    fn dot(self, isa: I, sums: I::W, codes: I::W, x: I::W) -> I::W;
    /// The same with signed codes; no byte of `x` is -128.
    fn dot_signed(self, isa: I, sums: I::W, codes: I::W, x: I::W) -> I::W;
}

/// An instruction set, as operations on sixteen lanes.
#[allow(
    clippy::wrong_self_convention,
    reason = "`self` is the proof that the instructions are there, not what is converted"
)]
pub trait Isa: Copy + Send + Sync + fmt::Debug + 'static {
    /// Sixteen f32.
    type V: Copy;
    /// Sixteen 32-bit integers.
    type W: Copy;
    /// Sixteen truth values.
    type M: Copy;

    /// Number of [`Isa::V`] that stay in registers; kernels choose their blocks by it. No result depends on it.
    const REGISTERS: usize;

    /// Enters the instruction set: `task` is compiled with it.
    fn run<T: Task>(self, task: T) -> T::Output;

    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::V;
    /// Sixteen elements at `source`.
    ///
    /// # Safety
    /// `source` is valid for reading sixteen f32; alignment is not needed.
    unsafe fn load_at(self, source: *const f32) -> Self::V;
    /// Sixteen elements to `target`.
    ///
    /// # Safety
    /// `target` is valid for writing sixteen f32; alignment is not needed.
    unsafe fn store_at(self, target: *mut f32, v: Self::V);
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The square root, correctly rounded.
    fn sqrt(self, a: Self::V) -> Self::V;
    /// The integer next to `a`, ties to the even one.
    fn round_ties_even(self, a: Self::V) -> Self::V;

    /// `a < b`; false with a NaN.
    fn lt(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a <= b`; false with a NaN.
    fn le(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a == b`; false with a NaN.
    fn eq(self, a: Self::V, b: Self::V) -> Self::M;
    /// Both.
    fn and_mask(self, a: Self::M, b: Self::M) -> Self::M;
    /// Either.
    fn or_mask(self, a: Self::M, b: Self::M) -> Self::M;
    /// Not.
    fn not_mask(self, a: Self::M) -> Self::M;
    /// Whether any lane is true.
    fn any(self, a: Self::M) -> bool;
    /// The first `count` lanes, at most sixteen.
    fn first_lanes(self, count: usize) -> Self::M;
    /// `a` where `mask`, else `b`.
    fn select(self, mask: Self::M, a: Self::V, b: Self::V) -> Self::V;

    /// The bits of the lanes.
    fn bits(self, a: Self::V) -> Self::W;
    /// Lanes of these bits.
    fn from_bits(self, a: Self::W) -> Self::V;
    /// The nearest integers, ties to even; outside of i32, and for a NaN, `i32::MIN`.
    fn to_int(self, a: Self::V) -> Self::W;
    /// Signed integers as f32, rounded to nearest even.
    fn from_int(self, a: Self::W) -> Self::V;
    /// `value` in every lane.
    fn splat_int(self, value: i32) -> Self::W;
    /// Sixteen integers.
    fn load_int(self, source: &[i32; LANES]) -> Self::W;
    /// Sixteen bytes, zero-extended.
    fn load_u8(self, source: &[u8; LANES]) -> Self::W;
    /// Sixteen bytes, sign-extended.
    fn load_i8(self, source: &[u8; LANES]) -> Self::W;
    /// The lanes, each in -128..=127, as bytes.
    fn store_i8(self, target: &mut [i8; LANES], a: Self::W);
    /// Sixteen bytes of each of sixteen rows, `stride` bytes apart, turned: lane `r` of column `c` holds bytes `4 c` to
    /// `4 c + 3` of row `r`.
    ///
    /// # Safety
    /// Every row is valid for reading sixteen bytes.
    unsafe fn columns_at(self, first: *const u8, stride: usize) -> [Self::W; 4];
    /// The little-endian 32-bit words that lie `distances` bytes behind `first`.
    ///
    /// # Safety
    /// Each is valid for reading four bytes.
    unsafe fn words_at(self, first: *const u8, distances: Self::W) -> Self::W;
    /// The f16 in the lower half of each lane, exactly.
    fn f16s(self, a: Self::W) -> Self::V;
    /// Sixteen little-endian 16-bit words, zero-extended.
    fn load_u16(self, source: &[u8; 2 * LANES]) -> Self::W;
    /// Wrapping `a + b`.
    fn add_int(self, a: Self::W, b: Self::W) -> Self::W;
    /// Wrapping `a - b`.
    fn sub_int(self, a: Self::W, b: Self::W) -> Self::W;
    /// Bitwise and.
    fn and_int(self, a: Self::W, b: Self::W) -> Self::W;
    /// Bitwise or.
    fn or_int(self, a: Self::W, b: Self::W) -> Self::W;
    /// Bitwise exclusive or.
    fn xor_int(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a << BITS`, `BITS < 32`.
    fn shl<const BITS: u32>(self, a: Self::W) -> Self::W;
    /// Logical `a >> BITS`, `BITS < 32`.
    fn shr<const BITS: u32>(self, a: Self::W) -> Self::W;
    /// Logical `a >> by`, a count for each lane, 32 and above give 0.
    fn shr_each(self, a: Self::W, by: Self::W) -> Self::W;
    /// Logical `a >> by`, one count for all lanes, `by < 32`.
    fn shr_by(self, a: Self::W, by: u32) -> Self::W;
    /// One f16 of these bits, exactly.
    fn f16(self, bits: u16) -> f32;
    /// Two little-endian f16, exactly, each in every lane.
    fn splat_f16s(self, source: &[u8; 4]) -> [Self::V; 2];
    /// Sixteen little-endian f16, exactly.
    fn load_f16(self, source: &[u8; 2 * LANES]) -> Self::V;

    /// Whether [`Isa::lookup`] is cheaper than a conversion and a multiply-add. No result depends on it.
    const FAST_LOOKUP: bool;
    /// Lane `code % 16` of `table`, for each code.
    fn lookup(self, table: Self::V, code: Self::W) -> Self::V;

    /// Does a task that multiplies bytes, with what the level has for it.
    fn run_bytes<T: ByteTask>(self, task: T) -> T::Output;

    /// The tree of NUMERICS: lanes `i` and `i+8` are added, then `i` and `i+4`, `i` and `i+2`, `i` and `i+1`.
    fn sum_tree(self, a: Self::V) -> f32;
    /// [`Isa::sum_tree`] of each.
    #[inline(always)]
    fn sum_trees(self, a: [Self::V; 8]) -> [f32; 8] {
        a.map(|a| self.sum_tree(a))
    }

    /// +0 in every lane.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }
    /// Sixteen elements.
    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> Self::V {
        // SAFETY: the array has sixteen elements.
        unsafe { self.load_at(source.as_ptr()) }
    }
    /// Sixteen elements to `target`.
    #[inline(always)]
    fn store(self, target: &mut [f32; LANES], v: Self::V) {
        // SAFETY: the array has sixteen elements.
        unsafe { self.store_at(target.as_mut_ptr(), v) }
    }
    /// At most sixteen elements; the lanes without one hold +0.
    ///
    /// # Panics
    /// If `source` is longer.
    #[inline(always)]
    fn load_partial(self, source: &[f32]) -> Self::V {
        self.load_partial_or(source, 0.0)
    }
    /// At most sixteen elements; the lanes without one hold `absent`.
    ///
    /// # Panics
    /// If `source` is longer.
    #[inline(always)]
    fn load_partial_or(self, source: &[f32], absent: f32) -> Self::V {
        let mut lanes = [absent; LANES];
        lanes[..source.len()].copy_from_slice(source);
        self.load(&lanes)
    }
    /// The first lanes to `target`, at most sixteen.
    ///
    /// # Panics
    /// If `target` is longer.
    #[inline(always)]
    fn store_partial(self, target: &mut [f32], v: Self::V) {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, v);
        target.copy_from_slice(&lanes[..target.len()]);
    }
    /// The lanes as an array.
    #[inline(always)]
    fn lanes(self, v: Self::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, v);
        lanes
    }
    /// `a > b`; false with a NaN.
    #[inline(always)]
    fn gt(self, a: Self::V, b: Self::V) -> Self::M {
        self.lt(b, a)
    }
    /// `a >= b`; false with a NaN.
    #[inline(always)]
    fn ge(self, a: Self::V, b: Self::V) -> Self::M {
        self.le(b, a)
    }
    /// Whether a lane is a NaN.
    #[inline(always)]
    fn is_nan(self, a: Self::V) -> Self::M {
        self.not_mask(self.eq(a, a))
    }
    /// The sign turned, also of a NaN and of zero.
    #[inline(always)]
    fn neg(self, a: Self::V) -> Self::V {
        self.from_bits(self.xor_int(self.bits(a), self.splat_int(i32::MIN)))
    }
    /// The sign cleared.
    #[inline(always)]
    fn abs(self, a: Self::V) -> Self::V {
        self.from_bits(self.and_int(self.bits(a), self.splat_int(i32::MAX)))
    }
    /// Sixteen little-endian f32.
    #[inline(always)]
    fn load_f32(self, source: &[u8; 4 * LANES]) -> Self::V {
        let mut bits = [0; LANES];
        for (bits, source) in bits.iter_mut().zip(source.as_chunks().0) {
            *bits = i32::from_le_bytes(*source);
        }
        self.from_bits(self.load_int(&bits))
    }
    /// Sixteen little-endian bf16, exactly.
    #[inline(always)]
    fn load_bf16(self, source: &[u8; 2 * LANES]) -> Self::V {
        self.from_bits(self.shl::<16>(self.load_u16(source)))
    }
}

/// `dot16` of NUMERICS: sixteen accumulators, lane `l` takes elements `l, l+16, ...` in order, fused; then the tree.
/// Absent elements are skipped. `a` and `b` have one length.
#[inline(always)]
pub fn dot16<I: Isa>(isa: I, a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "a dot product of two lengths");
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sum = isa.zero();
    for (a, b) in a.iter().zip(b) {
        sum = isa.fma(isa.load(a), isa.load(b), sum);
    }
    isa.sum_tree(fma_rest(isa, a_rest, b_rest, sum))
}

/// `sum` with the products of fewer than sixteen elements added in their lanes; the other lanes keep what they hold.
#[inline(always)]
pub fn fma_rest<I: Isa>(isa: I, a: &[f32], b: &[f32], sum: I::V) -> I::V {
    if a.is_empty() {
        return sum;
    }
    let next = isa.fma(isa.load_partial(a), isa.load_partial(b), sum);
    isa.select(isa.first_lanes(a.len()), next, sum)
}

/// A level that this machine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// One element at a time.
    Scalar(Scalar),
    /// AVX2 with FMA and F16C, perhaps with AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512 F, BW, DQ and VL, perhaps with VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Level {
    /// Names of all levels, lowest first: `scalar`; `avx2`, with FMA and F16C; `avxvnni`, the same with AVX-VNNI for products
    /// of bytes; `avx512`, which is F, BW, DQ and VL; `avx512vnni`, the same with VNNI.
    pub const NAMES: [&'static str; 5] = ["scalar", "avx2", "avxvnni", "avx512", "avx512vnni"];

    /// The highest level of this machine.
    ///
    /// # Errors
    /// [`CpuError::FusedMultiplyAdd`] where the machine rounds a multiply-add twice.
    pub fn detect() -> Result<Self, CpuError> {
        for name in Self::NAMES.into_iter().rev() {
            match Self::parse(name) {
                Err(CpuError::LevelAbsent { .. }) => {}
                found => return found,
            }
        }
        Self::parse("scalar")
    }

    /// The level of this name, one of [`Level::NAMES`].
    ///
    /// # Errors
    /// [`CpuError::UnknownLevel`]; [`CpuError::LevelAbsent`] where the machine lacks it;
    /// [`CpuError::FusedMultiplyAdd`] where it rounds a multiply-add twice.
    pub fn parse(name: &str) -> Result<Self, CpuError> {
        let level = match name {
            "scalar" => Self::Scalar(Scalar::detect()),
            #[cfg(target_arch = "x86_64")]
            "avx2" => Self::Avx2(Avx2::detect()?),
            #[cfg(target_arch = "x86_64")]
            "avxvnni" => Self::Avx2(Avx2::detect_vnni()?),
            #[cfg(target_arch = "x86_64")]
            "avx512" => Self::Avx512(Avx512::detect()?),
            #[cfg(target_arch = "x86_64")]
            "avx512vnni" => Self::Avx512(Avx512::detect_vnni()?),
            _ => match Self::NAMES.into_iter().find(|level| *level == name) {
                // No machine but x86-64 has it.
                Some(level) => return Err(CpuError::LevelAbsent { level, missing: level }),
                None => return Err(CpuError::UnknownLevel { found: name.to_string() }),
            },
        };
        if !level.run(RoundsOnce) {
            return Err(CpuError::FusedMultiplyAdd { level: level.name() });
        }
        Ok(level)
    }

    /// All levels of this machine, lowest first.
    pub fn all() -> Vec<Self> {
        Self::NAMES.into_iter().filter_map(|name| Self::parse(name).ok()).collect()
    }

    /// The name that [`Level::parse`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar(_) => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(isa) => {
                if isa.has_vnni() {
                    "avxvnni"
                } else {
                    "avx2"
                }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(isa) => {
                if isa.has_vnni() {
                    "avx512vnni"
                } else {
                    "avx512"
                }
            }
        }
    }

    /// Does `task` at this level.
    #[inline]
    pub fn run<T: Task>(self, task: T) -> T::Output {
        match self {
            Self::Scalar(isa) => isa.run(task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(isa) => isa.run(task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(isa) => isa.run(task),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a multiply-add is rounded once: `(1 + 2^-12)^2 + 2^-60` lies just above a tie that two roundings, in f32 or
/// by way of f64, take for one.
struct RoundsOnce;

impl Task for RoundsOnce {
    type Output = bool;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> bool {
        let factor = black_box(1.0 + f32::EPSILON * 2048.0);
        let tiny = black_box(f32::from_bits((127 - 60) << 23));
        let fused = isa.fma(isa.splat(factor), isa.splat(factor), isa.splat(tiny));
        isa.lanes(fused).iter().all(|lane| *lane == 1.0 + f32::EPSILON * (4096.0 + 1.0))
    }
}

#[cfg(test)]
mod tests;
