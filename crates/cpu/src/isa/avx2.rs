//! AVX2 with FMA and F16C: the sixteen lanes are two registers, the lower eight first.
//!
//! Proof of every `unsafe` here: an [`Avx2`] comes only from [`Avx2::detect`], which saw the instructions.

use std::arch::x86_64::*;

use super::{ByteTask, Bytes, Isa, LANES, Task};
use crate::error::CpuError;

/// AVX2 with FMA and F16C; perhaps with AVX-VNNI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Avx2 {
    /// AVX-VNNI was seen, and is to be used.
    vnni: bool,
}

impl Avx2 {
    /// # Errors
    /// [`CpuError::LevelAbsent`] names the first instruction set that is missing.
    pub fn detect() -> Result<Self, CpuError> {
        let seen = [
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("fma", std::arch::is_x86_feature_detected!("fma")),
            ("f16c", std::arch::is_x86_feature_detected!("f16c")),
        ];
        match seen.iter().find(|(_, seen)| !seen) {
            Some((missing, _)) => Err(CpuError::LevelAbsent { level: "avx2", missing }),
            None => Ok(Self { vnni: false }),
        }
    }

    /// The same with AVX-VNNI.
    ///
    /// # Errors
    /// [`CpuError::LevelAbsent`] names the first instruction set that is missing.
    pub fn detect_vnni() -> Result<Self, CpuError> {
        const LEVEL: &str = "avxvnni";
        match Self::detect() {
            Ok(_) if std::arch::is_x86_feature_detected!("avxvnni") => Ok(Self { vnni: true }),
            Ok(_) => Err(CpuError::LevelAbsent { level: LEVEL, missing: "avxvnni" }),
            Err(CpuError::LevelAbsent { missing, .. }) => {
                Err(CpuError::LevelAbsent { level: LEVEL, missing })
            }
            Err(other) => Err(other),
        }
    }

    /// Whether AVX-VNNI is used.
    pub fn has_vnni(self) -> bool {
        self.vnni
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn enter<T: Task>(isa: Avx2, task: T) -> T::Output {
    task.run(isa)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn enter_pairs<T: ByteTask>(isa: Avx2, task: T) -> T::Output {
    task.run(isa, Pairs(()))
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn enter_quads<T: ByteTask>(isa: Avx2, task: T) -> T::Output {
    task.run(isa, Quads(()))
}

/// An instruction that the token proves.
macro_rules! proven {
    ($instruction:expr) => {
        // SAFETY: the token comes only from `detect`, which saw the instruction set.
        unsafe { $instruction }
    };
}

/// One instruction on both halves.
macro_rules! both {
    ($instruction:ident($($lane:ident),+) $(<$imm:tt>)?) => {
        proven!([$instruction $(::<$imm>)? ($($lane[0]),+), $instruction $(::<$imm>)? ($($lane[1]),+)])
    };
}

impl Isa for Avx2 {
    type V = [__m256; 2];
    type W = [__m256i; 2];
    type M = [__m256; 2];

    const REGISTERS: usize = 8;

    #[inline]
    fn run<T: Task>(self, task: T) -> T::Output {
        proven!(enter(self, task))
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        proven!([_mm256_set1_ps(value); 2])
    }
    #[inline(always)]
    unsafe fn load_at(self, source: *const f32) -> Self::V {
        // SAFETY: the instruction by the token; sixteen f32 by the caller's promise.
        unsafe { [_mm256_loadu_ps(source), _mm256_loadu_ps(source.add(8))] }
    }
    #[inline(always)]
    unsafe fn store_at(self, target: *mut f32, v: Self::V) {
        // SAFETY: the instruction by the token; room for sixteen f32 by the caller's promise.
        unsafe {
            _mm256_storeu_ps(target, v[0]);
            _mm256_storeu_ps(target.add(8), v[1]);
        }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        both!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn sqrt(self, a: Self::V) -> Self::V {
        both!(_mm256_sqrt_ps(a))
    }
    #[inline(always)]
    fn round_ties_even(self, a: Self::V) -> Self::V {
        both!(_mm256_round_ps(a) < { _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC } >)
    }

    #[inline(always)]
    fn lt(self, a: Self::V, b: Self::V) -> Self::M {
        both!(_mm256_cmp_ps(a, b) < _CMP_LT_OQ >)
    }
    #[inline(always)]
    fn le(self, a: Self::V, b: Self::V) -> Self::M {
        both!(_mm256_cmp_ps(a, b) < _CMP_LE_OQ >)
    }
    #[inline(always)]
    fn eq(self, a: Self::V, b: Self::V) -> Self::M {
        both!(_mm256_cmp_ps(a, b) < _CMP_EQ_OQ >)
    }
    #[inline(always)]
    fn and_mask(self, a: Self::M, b: Self::M) -> Self::M {
        both!(_mm256_and_ps(a, b))
    }
    #[inline(always)]
    fn or_mask(self, a: Self::M, b: Self::M) -> Self::M {
        both!(_mm256_or_ps(a, b))
    }
    #[inline(always)]
    fn not_mask(self, a: Self::M) -> Self::M {
        let ones = proven!([_mm256_castsi256_ps(_mm256_set1_epi32(-1)); 2]);
        both!(_mm256_xor_ps(a, ones))
    }
    #[inline(always)]
    fn any(self, a: Self::M) -> bool {
        proven!(_mm256_movemask_ps(_mm256_or_ps(a[0], a[1])) != 0)
    }
    #[inline(always)]
    fn first_lanes(self, count: usize) -> Self::M {
        proven!({
            let count = _mm256_set1_epi32(count as i32);
            let low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
            [low, high].map(|lane| _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, lane)))
        })
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_blendv_ps(b, a, mask))
    }

    #[inline(always)]
    fn bits(self, a: Self::V) -> Self::W {
        both!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    fn from_bits(self, a: Self::W) -> Self::V {
        both!(_mm256_castsi256_ps(a))
    }
    #[inline(always)]
    fn to_int(self, a: Self::V) -> Self::W {
        both!(_mm256_cvtps_epi32(a))
    }
    #[inline(always)]
    fn from_int(self, a: Self::W) -> Self::V {
        both!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn splat_int(self, value: i32) -> Self::W {
        proven!([_mm256_set1_epi32(value); 2])
    }
    #[inline(always)]
    fn load_int(self, source: &[i32; LANES]) -> Self::W {
        let (low, high) = (source.as_ptr(), source[8..].as_ptr());
        proven!([_mm256_loadu_si256(low.cast()), _mm256_loadu_si256(high.cast())])
    }
    #[inline(always)]
    fn load_u8(self, source: &[u8; LANES]) -> Self::W {
        proven!({
            let bytes = _mm_loadu_si128(source.as_ptr().cast());
            [_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))]
        })
    }
    #[inline(always)]
    fn load_i8(self, source: &[u8; LANES]) -> Self::W {
        proven!({
            let bytes = _mm_loadu_si128(source.as_ptr().cast());
            [_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes))]
        })
    }
    #[inline(always)]
    fn store_i8(self, target: &mut [i8; LANES], a: Self::W) {
        proven!({
            // Lanes 0 to 3, 8 to 11, 4 to 7, 12 to 15; then in order, and their bytes twice.
            let words = _mm256_permute4x64_epi64::<0xd8>(_mm256_packs_epi32(a[0], a[1]));
            let bytes = _mm256_packs_epi16(words, words);
            let bytes =
                _mm_unpacklo_epi64(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
            _mm_storeu_si128(target.as_mut_ptr().cast(), bytes);
        })
    }
    #[inline(always)]
    unsafe fn columns_at(self, first: *const u8, stride: usize) -> [Self::W; 4] {
        // SAFETY: the instructions by the token; sixteen bytes of each row by the caller's promise.
        unsafe {
            let [mut a, mut b, mut c, mut d] = [[_mm256_setzero_si256(); 2]; 4];
            for (part, (((a, b), c), d)) in a.iter_mut().zip(&mut b).zip(&mut c).zip(&mut d).enumerate() {
                // Half `l` of vector `g` is row `4 l + g`: then a turn inside the halves is all.
                let mut g = [_mm256_setzero_si256(); 4];
                for (index, g) in g.iter_mut().enumerate() {
                    let row = first.add((8 * part + index) * stride);
                    let low = _mm256_castsi128_si256(_mm_loadu_si128(row.cast()));
                    *g = _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(row.add(4 * stride).cast()));
                }
                let (ab, cd) = (_mm256_unpacklo_epi32(g[0], g[1]), _mm256_unpacklo_epi32(g[2], g[3]));
                let (ab_high, cd_high) =
                    (_mm256_unpackhi_epi32(g[0], g[1]), _mm256_unpackhi_epi32(g[2], g[3]));
                *a = _mm256_unpacklo_epi64(ab, cd);
                *b = _mm256_unpackhi_epi64(ab, cd);
                *c = _mm256_unpacklo_epi64(ab_high, cd_high);
                *d = _mm256_unpackhi_epi64(ab_high, cd_high);
            }
            [a, b, c, d]
        }
    }
    #[inline(always)]
    unsafe fn words_at(self, first: *const u8, distances: Self::W) -> Self::W {
        // SAFETY: the instruction by the token; four bytes of each lane by the caller's promise.
        unsafe {
            [
                _mm256_i32gather_epi32::<1>(first.cast(), distances[0]),
                _mm256_i32gather_epi32::<1>(first.cast(), distances[1]),
            ]
        }
    }
    #[inline(always)]
    fn f16s(self, a: Self::W) -> Self::V {
        proven!({
            let mask = _mm256_set1_epi32(0xffff);
            let (low, high) = (_mm256_and_si256(a[0], mask), _mm256_and_si256(a[1], mask));
            // Lanes 0 to 3, 8 to 11, 4 to 7, 12 to 15; then in order.
            let words = _mm256_permute4x64_epi64::<0xd8>(_mm256_packus_epi32(low, high));
            [
                _mm256_cvtph_ps(_mm256_castsi256_si128(words)),
                _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(words)),
            ]
        })
    }
    #[inline(always)]
    fn load_u16(self, source: &[u8; 2 * LANES]) -> Self::W {
        let (low, high) = (source.as_ptr(), source[LANES..].as_ptr());
        proven!([
            _mm256_cvtepu16_epi32(_mm_loadu_si128(low.cast())),
            _mm256_cvtepu16_epi32(_mm_loadu_si128(high.cast()))
        ])
    }
    #[inline(always)]
    fn add_int(self, a: Self::W, b: Self::W) -> Self::W {
        both!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_int(self, a: Self::W, b: Self::W) -> Self::W {
        both!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn and_int(self, a: Self::W, b: Self::W) -> Self::W {
        both!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or_int(self, a: Self::W, b: Self::W) -> Self::W {
        both!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn xor_int(self, a: Self::W, b: Self::W) -> Self::W {
        both!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn shl<const BITS: u32>(self, a: Self::W) -> Self::W {
        let by = proven!(_mm_cvtsi32_si128(BITS.cast_signed()));
        proven!([_mm256_sll_epi32(a[0], by), _mm256_sll_epi32(a[1], by)])
    }
    #[inline(always)]
    fn shr<const BITS: u32>(self, a: Self::W) -> Self::W {
        let by = proven!(_mm_cvtsi32_si128(BITS.cast_signed()));
        proven!([_mm256_srl_epi32(a[0], by), _mm256_srl_epi32(a[1], by)])
    }
    #[inline(always)]
    fn shr_each(self, a: Self::W, by: Self::W) -> Self::W {
        both!(_mm256_srlv_epi32(a, by))
    }
    #[inline(always)]
    fn shr_by(self, a: Self::W, by: u32) -> Self::W {
        let by = proven!(_mm_cvtsi32_si128(by.cast_signed()));
        proven!([_mm256_srl_epi32(a[0], by), _mm256_srl_epi32(a[1], by)])
    }
    #[inline(always)]
    fn f16(self, bits: u16) -> f32 {
        proven!(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))))
    }
    #[inline(always)]
    fn splat_f16s(self, source: &[u8; 4]) -> [Self::V; 2] {
        proven!({
            let both = _mm256_cvtph_ps(_mm_set1_epi32(i32::from_le_bytes(*source)));
            [[_mm256_moveldup_ps(both); 2], [_mm256_movehdup_ps(both); 2]]
        })
    }
    #[inline(always)]
    fn load_f16(self, source: &[u8; 2 * LANES]) -> Self::V {
        let (low, high) = (source.as_ptr(), source[LANES..].as_ptr());
        proven!([_mm256_cvtph_ps(_mm_loadu_si128(low.cast())), _mm256_cvtph_ps(_mm_loadu_si128(high.cast()))])
    }

    const FAST_LOOKUP: bool = false;
    #[inline(always)]
    fn lookup(self, table: Self::V, code: Self::W) -> Self::V {
        proven!({
            let eighth = _mm256_set1_epi32(8);
            let mut found = table;
            for (found, code) in found.iter_mut().zip(code) {
                let (low, high) =
                    (_mm256_permutevar8x32_ps(table[0], code), _mm256_permutevar8x32_ps(table[1], code));
                let upper = _mm256_cmpeq_epi32(_mm256_and_si256(code, eighth), eighth);
                *found = _mm256_blendv_ps(low, high, _mm256_castsi256_ps(upper));
            }
            found
        })
    }

    #[inline]
    fn run_bytes<T: ByteTask>(self, task: T) -> T::Output {
        if self.vnni { proven!(enter_quads(self, task)) } else { proven!(enter_pairs(self, task)) }
    }

    #[inline(always)]
    fn sum_tree(self, a: Self::V) -> f32 {
        proven!({
            let a = _mm256_add_ps(a[0], a[1]);
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        })
    }
}

/// Products of bytes in pairs of 16 bits, then in fours. Made only where the token is.
#[derive(Clone, Copy)]
struct Pairs(());

impl Bytes<Avx2> for Pairs {
    const WIDE: bool = false;

    #[inline(always)]
    fn dot(self, _: Avx2, sums: [__m256i; 2], codes: [__m256i; 2], x: [__m256i; 2]) -> [__m256i; 2] {
        // A pair is at most 2 * 128 * 127 = 32,512: it does not saturate.
        let pairs = both!(_mm256_maddubs_epi16(codes, x));
        let ones = proven!([_mm256_set1_epi16(1); 2]);
        let quads = both!(_mm256_madd_epi16(pairs, ones));
        both!(_mm256_add_epi32(sums, quads))
    }

    #[inline(always)]
    fn dot_signed(self, isa: Avx2, sums: [__m256i; 2], codes: [__m256i; 2], x: [__m256i; 2]) -> [__m256i; 2] {
        let magnitudes = both!(_mm256_abs_epi8(codes));
        self.dot(isa, sums, magnitudes, both!(_mm256_sign_epi8(x, codes)))
    }
}

/// Products of bytes by AVX-VNNI. Made only by `enter_quads`, where a token says that it was seen.
#[derive(Clone, Copy)]
struct Quads(());

impl Bytes<Avx2> for Quads {
    const WIDE: bool = true;

    #[inline(always)]
    fn dot(self, _: Avx2, sums: [__m256i; 2], codes: [__m256i; 2], x: [__m256i; 2]) -> [__m256i; 2] {
        both!(_mm256_dpbusd_avx_epi32(sums, codes, x))
    }

    #[inline(always)]
    fn dot_signed(self, isa: Avx2, sums: [__m256i; 2], codes: [__m256i; 2], x: [__m256i; 2]) -> [__m256i; 2] {
        // With 128 added to each code, 128 times the sum of `x` is too much.
        let (offset, zero) = proven!(([_mm256_set1_epi8(i8::MIN); 2], [_mm256_setzero_si256(); 2]));
        let excess = self.dot(isa, zero, offset, x);
        let sums = self.dot(isa, sums, both!(_mm256_xor_si256(codes, offset)), x);
        both!(_mm256_sub_epi32(sums, excess))
    }
}
