//! AVX-512: the sixteen lanes are one register.
//!
//! Proof of every `unsafe` here: an [`Avx512`] comes only from [`Avx512::detect`], which saw the instructions.

use std::arch::x86_64::*;

use super::{ByteTask, Bytes, Isa, LANES, Task};
use crate::error::CpuError;

/// AVX-512 F, BW, DQ and VL, with FMA and F16C; perhaps with VNNI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Avx512 {
    /// VNNI was seen, and is to be used.
    vnni: bool,
}

impl Avx512 {
    /// # Errors
    /// [`CpuError::LevelAbsent`] names the first instruction set that is missing.
    pub fn detect() -> Result<Self, CpuError> {
        let seen = [
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("fma", std::arch::is_x86_feature_detected!("fma")),
            ("f16c", std::arch::is_x86_feature_detected!("f16c")),
            ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
            ("avx512bw", std::arch::is_x86_feature_detected!("avx512bw")),
            ("avx512dq", std::arch::is_x86_feature_detected!("avx512dq")),
            ("avx512vl", std::arch::is_x86_feature_detected!("avx512vl")),
        ];
        match seen.iter().find(|(_, seen)| !seen) {
            Some((missing, _)) => Err(CpuError::LevelAbsent { level: "avx512", missing }),
            None => Ok(Self { vnni: false }),
        }
    }

    /// The same with VNNI.
    ///
    /// # Errors
    /// [`CpuError::LevelAbsent`] names the first instruction set that is missing.
    pub fn detect_vnni() -> Result<Self, CpuError> {
        const LEVEL: &str = "avx512vnni";
        match Self::detect() {
            Ok(_) if std::arch::is_x86_feature_detected!("avx512vnni") => Ok(Self { vnni: true }),
            Ok(_) => Err(CpuError::LevelAbsent { level: LEVEL, missing: "avx512vnni" }),
            Err(CpuError::LevelAbsent { missing, .. }) => {
                Err(CpuError::LevelAbsent { level: LEVEL, missing })
            }
            Err(other) => Err(other),
        }
    }

    /// Whether VNNI is used.
    pub fn has_vnni(self) -> bool {
        self.vnni
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn enter<T: Task>(isa: Avx512, task: T) -> T::Output {
    task.run(isa)
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn enter_pairs<T: ByteTask>(isa: Avx512, task: T) -> T::Output {
    task.run(isa, Pairs(()))
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn enter_quads<T: ByteTask>(isa: Avx512, task: T) -> T::Output {
    task.run(isa, Quads(()))
}

/// An instruction that the token proves.
macro_rules! proven {
    ($instruction:expr) => {
        // SAFETY: the token comes only from `detect`, which saw the instruction set.
        unsafe { $instruction }
    };
}

impl Isa for Avx512 {
    type V = __m512;
    type W = __m512i;
    type M = __mmask16;

    const REGISTERS: usize = 32;

    #[inline]
    fn run<T: Task>(self, task: T) -> T::Output {
        proven!(enter(self, task))
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        proven!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    unsafe fn load_at(self, source: *const f32) -> Self::V {
        // SAFETY: the instruction by the token; sixteen f32 by the caller's promise.
        unsafe { _mm512_loadu_ps(source) }
    }
    #[inline(always)]
    unsafe fn store_at(self, target: *mut f32, v: Self::V) {
        // SAFETY: the instruction by the token; room for sixteen f32 by the caller's promise.
        unsafe { _mm512_storeu_ps(target, v) }
    }
    #[inline(always)]
    fn load_partial_or(self, source: &[f32], absent: f32) -> Self::V {
        let mask = first(source.len());
        // SAFETY: the instruction by the token; lanes outside the mask are not read.
        unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(absent), mask, source.as_ptr()) }
    }
    #[inline(always)]
    fn store_partial(self, target: &mut [f32], v: Self::V) {
        let mask = first(target.len());
        // SAFETY: the instruction by the token; lanes outside the mask are not written.
        unsafe { _mm512_mask_storeu_ps(target.as_mut_ptr(), mask, v) }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        proven!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        proven!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        proven!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        proven!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        proven!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn sqrt(self, a: Self::V) -> Self::V {
        proven!(_mm512_sqrt_ps(a))
    }
    #[inline(always)]
    fn round_ties_even(self, a: Self::V) -> Self::V {
        proven!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn lt(self, a: Self::V, b: Self::V) -> Self::M {
        proven!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn le(self, a: Self::V, b: Self::V) -> Self::M {
        proven!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b))
    }
    #[inline(always)]
    fn eq(self, a: Self::V, b: Self::V) -> Self::M {
        proven!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b))
    }
    #[inline(always)]
    fn and_mask(self, a: Self::M, b: Self::M) -> Self::M {
        a & b
    }
    #[inline(always)]
    fn or_mask(self, a: Self::M, b: Self::M) -> Self::M {
        a | b
    }
    #[inline(always)]
    fn not_mask(self, a: Self::M) -> Self::M {
        !a
    }
    #[inline(always)]
    fn any(self, a: Self::M) -> bool {
        a != 0
    }
    #[inline(always)]
    fn first_lanes(self, count: usize) -> Self::M {
        first(count)
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::V, b: Self::V) -> Self::V {
        proven!(_mm512_mask_blend_ps(mask, b, a))
    }

    #[inline(always)]
    fn bits(self, a: Self::V) -> Self::W {
        proven!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn from_bits(self, a: Self::W) -> Self::V {
        proven!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn to_int(self, a: Self::V) -> Self::W {
        proven!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn from_int(self, a: Self::W) -> Self::V {
        proven!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn splat_int(self, value: i32) -> Self::W {
        proven!(_mm512_set1_epi32(value))
    }
    #[inline(always)]
    fn load_int(self, source: &[i32; LANES]) -> Self::W {
        proven!(_mm512_loadu_si512(source.as_ptr().cast()))
    }
    #[inline(always)]
    fn load_u8(self, source: &[u8; LANES]) -> Self::W {
        proven!(_mm512_cvtepu8_epi32(_mm_loadu_si128(source.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_i8(self, source: &[u8; LANES]) -> Self::W {
        proven!(_mm512_cvtepi8_epi32(_mm_loadu_si128(source.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_i8(self, target: &mut [i8; LANES], a: Self::W) {
        proven!(_mm_storeu_si128(target.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(a)))
    }
    #[inline(always)]
    unsafe fn columns_at(self, first: *const u8, stride: usize) -> [Self::W; 4] {
        // SAFETY: the instructions by the token; sixteen bytes of each row by the caller's promise.
        unsafe {
            // Quarter `l` of vector `g` is row `4 l + g`: then a turn inside the quarters is all.
            let mut g = [_mm512_setzero_si512(); 4];
            for (index, g) in g.iter_mut().enumerate() {
                let row = first.add(index * stride);
                let low = _mm256_castsi128_si256(_mm_loadu_si128(row.cast()));
                let low = _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(row.add(4 * stride).cast()));
                let v = _mm512_castsi256_si512(low);
                let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(row.add(8 * stride).cast()));
                *g = _mm512_inserti32x4::<3>(v, _mm_loadu_si128(row.add(12 * stride).cast()));
            }
            let (ab, cd) = (_mm512_unpacklo_epi32(g[0], g[1]), _mm512_unpacklo_epi32(g[2], g[3]));
            let (ab_high, cd_high) = (_mm512_unpackhi_epi32(g[0], g[1]), _mm512_unpackhi_epi32(g[2], g[3]));
            [
                _mm512_unpacklo_epi64(ab, cd),
                _mm512_unpackhi_epi64(ab, cd),
                _mm512_unpacklo_epi64(ab_high, cd_high),
                _mm512_unpackhi_epi64(ab_high, cd_high),
            ]
        }
    }
    #[inline(always)]
    unsafe fn words_at(self, first: *const u8, distances: Self::W) -> Self::W {
        // SAFETY: the instruction by the token; four bytes of each lane by the caller's promise.
        unsafe { _mm512_i32gather_epi32::<1>(distances, first.cast()) }
    }
    #[inline(always)]
    fn f16s(self, a: Self::W) -> Self::V {
        proven!(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)))
    }
    #[inline(always)]
    fn load_u16(self, source: &[u8; 2 * LANES]) -> Self::W {
        proven!(_mm512_cvtepu16_epi32(_mm256_loadu_si256(source.as_ptr().cast())))
    }
    #[inline(always)]
    fn add_int(self, a: Self::W, b: Self::W) -> Self::W {
        proven!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_int(self, a: Self::W, b: Self::W) -> Self::W {
        proven!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn and_int(self, a: Self::W, b: Self::W) -> Self::W {
        proven!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or_int(self, a: Self::W, b: Self::W) -> Self::W {
        proven!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor_int(self, a: Self::W, b: Self::W) -> Self::W {
        proven!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn shl<const BITS: u32>(self, a: Self::W) -> Self::W {
        proven!(_mm512_slli_epi32::<BITS>(a))
    }
    #[inline(always)]
    fn shr<const BITS: u32>(self, a: Self::W) -> Self::W {
        proven!(_mm512_srli_epi32::<BITS>(a))
    }
    #[inline(always)]
    fn shr_each(self, a: Self::W, by: Self::W) -> Self::W {
        proven!(_mm512_srlv_epi32(a, by))
    }
    #[inline(always)]
    fn shr_by(self, a: Self::W, by: u32) -> Self::W {
        proven!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(by.cast_signed())))
    }
    #[inline(always)]
    fn f16(self, bits: u16) -> f32 {
        proven!(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))))
    }
    #[inline(always)]
    fn splat_f16s(self, source: &[u8; 4]) -> [Self::V; 2] {
        proven!({
            let both = _mm512_cvtph_ps(_mm256_set1_epi32(i32::from_le_bytes(*source)));
            [_mm512_moveldup_ps(both), _mm512_movehdup_ps(both)]
        })
    }
    #[inline(always)]
    fn load_f16(self, source: &[u8; 2 * LANES]) -> Self::V {
        proven!(_mm512_cvtph_ps(_mm256_loadu_si256(source.as_ptr().cast())))
    }

    const FAST_LOOKUP: bool = true;
    #[inline(always)]
    fn lookup(self, table: Self::V, code: Self::W) -> Self::V {
        proven!(_mm512_permutexvar_ps(code, table))
    }

    #[inline]
    fn run_bytes<T: ByteTask>(self, task: T) -> T::Output {
        if self.vnni { proven!(enter_quads(self, task)) } else { proven!(enter_pairs(self, task)) }
    }

    #[inline(always)]
    fn sum_tree(self, a: Self::V) -> f32 {
        proven!({
            let a = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        })
    }
    #[inline(always)]
    fn sum_trees(self, a: [Self::V; 8]) -> [f32; 8] {
        // Two vectors are added as one: of the first the lower part meets its upper, of the second likewise, side by
        // side. Halves: a0|a1, a2|a3, ..; quarters: a0 a2 a1 a3, a4 a6 a5 a7; then pairs of both, and single lanes.
        let mut sums = [0.0; 8];
        proven!({
            let eights: [__m512; 4] = std::array::from_fn(|i| {
                let (a, b) = (a[2 * i], a[2 * i + 1]);
                _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4::<0x4e>(a, b))
            });
            let crossed = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
            let fours: [__m512; 2] = std::array::from_fn(|i| {
                let (a, b) = (eights[2 * i], eights[2 * i + 1]);
                _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, a, b), _mm512_permutex2var_ps(a, crossed, b))
            });
            let [a, b] = fours;
            let twos = _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps::<0x4e>(a, b));
            let ones = _mm512_add_ps(twos, _mm512_permute_ps::<0xb1>(twos));
            let order = _mm512_setr_epi32(0, 8, 4, 12, 2, 10, 6, 14, 0, 0, 0, 0, 0, 0, 0, 0);
            let ordered = _mm512_castps512_ps256(_mm512_permutexvar_ps(order, ones));
            _mm256_storeu_ps(sums.as_mut_ptr(), ordered);
        });
        sums
    }
}

/// The first `count` lanes.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    assert!(count <= LANES, "{count} elements for {LANES} lanes");
    ((1u32 << count) - 1) as __mmask16
}

/// Products of bytes in pairs of 16 bits, then in fours. Made only where the token is.
#[derive(Clone, Copy)]
struct Pairs(());

impl Bytes<Avx512> for Pairs {
    const WIDE: bool = false;

    #[inline(always)]
    fn dot(self, _: Avx512, sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // A pair is at most 2 * 128 * 127 = 32,512: it does not saturate.
        proven!(_mm512_add_epi32(
            sums,
            _mm512_madd_epi16(_mm512_maddubs_epi16(codes, x), _mm512_set1_epi16(1))
        ))
    }

    #[inline(always)]
    fn dot_signed(self, isa: Avx512, sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        proven!({
            let negative = _mm512_movepi8_mask(codes);
            let x = _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x);
            self.dot(isa, sums, _mm512_abs_epi8(codes), x)
        })
    }
}

/// Products of bytes by VNNI. Made only by `enter_quads`, where a token says that it was seen.
#[derive(Clone, Copy)]
struct Quads(());

impl Bytes<Avx512> for Quads {
    const WIDE: bool = true;

    #[inline(always)]
    fn dot(self, _: Avx512, sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // SAFETY: `Quads` is made only where VNNI was seen.
        unsafe { _mm512_dpbusd_epi32(sums, codes, x) }
    }

    #[inline(always)]
    fn dot_signed(self, isa: Avx512, sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // With 128 added to each code, 128 times the sum of `x` is too much.
        proven!({
            let offset = _mm512_set1_epi8(i8::MIN);
            let excess = self.dot(isa, _mm512_setzero_si512(), offset, x);
            _mm512_sub_epi32(self.dot(isa, sums, _mm512_xor_si512(codes, offset), x), excess)
        })
    }
}
