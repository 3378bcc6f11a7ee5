//! Every operation at every level against plain arithmetic, on ordinary and on hard numbers.

use std::array::from_fn;

use half::f16;

use super::{ByteTask, Bytes, Isa, LANES, Level, Task, dot16};
use crate::CpuError;

type Lanes = [f32; LANES];

/// Numbers whose products, sums and roundings are of every kind.
fn hard(seed: u32) -> Lanes {
    const HARD: [f32; 16] = [
        0.0,
        -0.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-40,
        0.5,
        -1.5,
        2.5,
        8_388_607.5,
        -8_388_608.0,
        2_147_483_648.0,
        -2_147_483_648.0,
    ];
    let mut state = seed;
    from_fn(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match state >> 30 {
            0 => HARD[(state >> 20) as usize % HARD.len()],
            1 => f32::from_bits(state.rotate_left(9)),
            _ => (state as i32 >> 8) as f32 / 65_536.0,
        }
    })
}

fn bytes<const COUNT: usize>(seed: u32) -> [u8; COUNT] {
    let mut state = seed ^ 0x9e37_79b9;
    from_fn(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
}

/// All results of one input, in the order of the trait; truth values as 1 and 0, integers by their bits.
struct All {
    seed: u32,
}

impl Task for All {
    type Output = Vec<(&'static str, Lanes)>;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Self::Output {
        let [a, b, c] = [0, 1, 2].map(|part| hard(self.seed.wrapping_mul(3) + part));
        let (a, b, c) = (isa.load(&a), isa.load(&b), isa.load(&c));
        let raw: [u8; 64] = bytes(self.seed);
        let (short, pair, long): (&[u8; 16], &[u8; 4], &[u8; 32]) = (
            raw[..16].first_chunk().unwrap(),
            raw[5..].first_chunk().unwrap(),
            raw[7..].first_chunk().unwrap(),
        );
        let [v, w] = [raw, bytes(self.seed + 1)].map(|raw| isa.bits(isa.load_f32(&raw)));
        let (one, zero) = (isa.splat(1.0), isa.zero());
        let count = self.seed as usize % (LANES + 1);
        let values = |x| isa.lanes(x);
        let truth = |mask| isa.lanes(isa.select(mask, one, zero));
        let whole = |x| isa.lanes(isa.from_bits(x));
        let (some, other) = (isa.lt(a, b), isa.le(b, c));
        let partial = {
            let mut out = [7.0; LANES];
            isa.store_partial(&mut out[..count], a);
            out
        };
        let source: Lanes = isa.lanes(b);
        let [low, high] = isa.splat_f16s(pair);
        // SAFETY: the last row begins at byte 45 of 64, the last word at byte 60.
        let (columns, words) = unsafe {
            let distances: [i32; LANES] = from_fn(|lane| (lane * 7 % 61) as i32);
            (isa.columns_at(raw.as_ptr(), 3), isa.words_at(raw.as_ptr(), isa.load_int(&distances)))
        };
        let mut stored = [0; LANES];
        isa.store_i8(&mut stored, isa.load_i8(short));
        let trees = isa.sum_trees([a, b, c, one, isa.add(a, one), isa.abs(b), isa.neg(c), zero]);
        vec![
            ("splat", values(isa.splat(f32::from_bits(self.seed)))),
            ("add", values(isa.add(a, b))),
            ("sub", values(isa.sub(a, b))),
            ("mul", values(isa.mul(a, b))),
            ("div", values(isa.div(a, b))),
            ("fma", values(isa.fma(a, b, c))),
            ("sqrt", values(isa.sqrt(a))),
            ("round", values(isa.round_ties_even(a))),
            ("neg", values(isa.neg(a))),
            ("abs", values(isa.abs(a))),
            ("lt", truth(some)),
            ("le", truth(isa.le(a, b))),
            ("eq", truth(isa.eq(a, a))),
            ("gt", truth(isa.gt(a, b))),
            ("ge", truth(isa.ge(a, b))),
            ("is_nan", truth(isa.is_nan(a))),
            ("and", truth(isa.and_mask(some, other))),
            ("or", truth(isa.or_mask(some, other))),
            ("not", truth(isa.not_mask(some))),
            ("any", [f32::from(u8::from(isa.any(isa.and_mask(some, other)))); LANES]),
            ("first_lanes", truth(isa.first_lanes(count))),
            ("select", values(isa.select(some, a, b))),
            ("to_int", whole(isa.to_int(a))),
            ("from_int", values(isa.from_int(v))),
            ("load_u8", whole(isa.load_u8(short))),
            ("load_i8", whole(isa.load_i8(short))),
            ("load_u16", whole(isa.load_u16(long))),
            ("load_f16", values(isa.load_f16(long))),
            ("f16s", values(isa.f16s(v))),
            ("words_at", whole(words)),
            ("columns_at 0", whole(columns[0])),
            ("columns_at 1", whole(columns[1])),
            ("columns_at 2", whole(columns[2])),
            ("columns_at 3", whole(columns[3])),
            ("store_i8", stored.map(f32::from)),
            ("load_bf16", values(isa.load_bf16(long))),
            ("splat_f16s 0", values(low)),
            ("splat_f16s 1", values(high)),
            ("f16", values(isa.splat(isa.f16(u16::from_le_bytes([raw[0], raw[1]]))))),
            ("add_int", whole(isa.add_int(v, w))),
            ("sub_int", whole(isa.sub_int(v, w))),
            ("and_int", whole(isa.and_int(v, w))),
            ("or_int", whole(isa.or_int(v, w))),
            ("xor_int", whole(isa.xor_int(v, w))),
            ("shl", whole(isa.shl::<5>(v))),
            ("shr", whole(isa.shr::<5>(v))),
            ("shr_by", whole(isa.shr_by(v, self.seed % 32))),
            ("shr_each", whole(isa.shr_each(v, isa.load_u8(short)))),
            ("lookup", values(isa.lookup(a, isa.load_u8(short)))),
            ("load_partial", values(isa.load_partial_or(&source[..count], -3.0))),
            ("store_partial", partial),
            ("sum_tree", [isa.sum_tree(a); LANES]),
            ("sum_trees", from_fn(|at| trees[at % 8])),
        ]
    }
}

/// The same by plain arithmetic.
fn expected(seed: u32) -> Vec<(&'static str, Lanes)> {
    let [a, b, c] = [0, 1, 2].map(|part| hard(seed.wrapping_mul(3) + part));
    let raw: [u8; 64] = bytes(seed);
    let next: [u8; 64] = bytes(seed + 1);
    let v: [u32; LANES] = from_fn(|i| u32::from_le_bytes(*raw[4 * i..].first_chunk().unwrap()));
    let w: [u32; LANES] = from_fn(|i| u32::from_le_bytes(*next[4 * i..].first_chunk().unwrap()));
    let short = &raw[..16];
    let long: [u16; LANES] = from_fn(|i| u16::from_le_bytes(*raw[7 + 2 * i..].first_chunk().unwrap()));
    let count = seed as usize % (LANES + 1);
    let values = |f: &dyn Fn(usize) -> f32| from_fn(f);
    let truth = |f: &dyn Fn(usize) -> bool| from_fn(|i| f32::from(u8::from(f(i))));
    let whole = |f: &dyn Fn(usize) -> u32| from_fn(|i| f32::from_bits(f(i)));
    let half = |bits: u16| f16::from_bits(bits).to_f32();
    let at = |start: usize| half(u16::from_le_bytes([raw[start], raw[start + 1]]));
    let word = |at: usize| u32::from_le_bytes(*raw[at..].first_chunk().unwrap());
    let eight: [Lanes; 8] =
        [a, b, c, [1.0; LANES], a.map(|a| a + 1.0), b.map(f32::abs), c.map(|c| -c), [0.0; LANES]];
    vec![
        ("splat", [f32::from_bits(seed); LANES]),
        ("add", values(&|i| a[i] + b[i])),
        ("sub", values(&|i| a[i] - b[i])),
        ("mul", values(&|i| a[i] * b[i])),
        ("div", values(&|i| a[i] / b[i])),
        ("fma", values(&|i| a[i].mul_add(b[i], c[i]))),
        ("sqrt", values(&|i| a[i].sqrt())),
        ("round", values(&|i| a[i].round_ties_even())),
        ("neg", values(&|i| -a[i])),
        ("abs", values(&|i| a[i].abs())),
        ("lt", truth(&|i| a[i] < b[i])),
        ("le", truth(&|i| a[i] <= b[i])),
        ("eq", truth(&|i| !a[i].is_nan())),
        ("gt", truth(&|i| a[i] > b[i])),
        ("ge", truth(&|i| a[i] >= b[i])),
        ("is_nan", truth(&|i| a[i].is_nan())),
        ("and", truth(&|i| a[i] < b[i] && b[i] <= c[i])),
        ("or", truth(&|i| a[i] < b[i] || b[i] <= c[i])),
        ("not", truth(&|i| !matches!(a[i].partial_cmp(&b[i]), Some(std::cmp::Ordering::Less)))),
        ("any", [f32::from(u8::from((0..LANES).any(|i| a[i] < b[i] && b[i] <= c[i]))); LANES]),
        ("first_lanes", truth(&|i| i < count)),
        ("select", values(&|i| if a[i] < b[i] { a[i] } else { b[i] })),
        (
            "to_int",
            whole(&|i| {
                let whole = f64::from(a[i].round_ties_even());
                let fits = whole >= f64::from(i32::MIN) && whole <= f64::from(i32::MAX);
                (if fits { whole as i32 } else { i32::MIN }).cast_unsigned()
            }),
        ),
        ("from_int", values(&|i| v[i].cast_signed() as f32)),
        ("load_u8", whole(&|i| u32::from(short[i]))),
        ("load_i8", whole(&|i| i32::from(short[i].cast_signed()).cast_unsigned())),
        ("load_u16", whole(&|i| u32::from(long[i]))),
        ("load_f16", values(&|i| half(long[i]))),
        ("f16s", values(&|i| half(v[i] as u16))),
        ("words_at", whole(&|i| word(i * 7 % 61))),
        ("columns_at 0", whole(&|i| word(3 * i))),
        ("columns_at 1", whole(&|i| word(3 * i + 4))),
        ("columns_at 2", whole(&|i| word(3 * i + 8))),
        ("columns_at 3", whole(&|i| word(3 * i + 12))),
        ("store_i8", values(&|i| f32::from(short[i].cast_signed()))),
        ("load_bf16", whole(&|i| u32::from(long[i]) << 16)),
        ("splat_f16s 0", [at(5); LANES]),
        ("splat_f16s 1", [at(7); LANES]),
        ("f16", [at(0); LANES]),
        ("add_int", whole(&|i| v[i].wrapping_add(w[i]))),
        ("sub_int", whole(&|i| v[i].wrapping_sub(w[i]))),
        ("and_int", whole(&|i| v[i] & w[i])),
        ("or_int", whole(&|i| v[i] | w[i])),
        ("xor_int", whole(&|i| v[i] ^ w[i])),
        ("shl", whole(&|i| v[i] << 5)),
        ("shr", whole(&|i| v[i] >> 5)),
        ("shr_by", whole(&|i| v[i] >> (seed % 32))),
        ("shr_each", whole(&|i| if short[i] < 32 { v[i] >> short[i] } else { 0 })),
        ("lookup", values(&|i| a[usize::from(short[i]) % LANES])),
        ("load_partial", values(&|i| if i < count { b[i] } else { -3.0 })),
        ("store_partial", values(&|i| if i < count { a[i] } else { 7.0 })),
        ("sum_tree", [tree(a); LANES]),
        ("sum_trees", values(&|i| tree(eight[i % 8]))),
    ]
}

fn tree(a: Lanes) -> f32 {
    let a: [f32; 8] = from_fn(|i| a[i] + a[i + 8]);
    let a: [f32; 4] = from_fn(|i| a[i] + a[i + 4]);
    (a[0] + a[2]) + (a[1] + a[3])
}

fn bits(x: f32) -> u32 {
    if x.is_nan() { u32::MAX } else { x.to_bits() }
}

#[test]
fn every_operation_is_plain_arithmetic_on_sixteen_lanes() {
    for seed in 0..3000 {
        let expected = expected(seed);
        for level in Level::all() {
            let found = level.run(All { seed });
            assert_eq!(found.len(), expected.len());
            for ((name, found), (expected_name, expected)) in found.iter().zip(&expected) {
                assert_eq!(name, expected_name);
                let wrong = (0..LANES).find(|i| bits(found[*i]) != bits(expected[*i]));
                let wrong = wrong.map(|i| (i, found[i], expected[i]));
                assert_eq!(wrong, None, "{name} at {level}, seed {seed} (lane, found, expected)");
            }
        }
    }
}

/// Both products of the bytes of these lanes, added to sums: of unsigned and of signed codes.
struct Products {
    sums: [i32; LANES],
    codes: [[u8; 4]; LANES],
    x: [[i8; 4]; LANES],
}

impl ByteTask for Products {
    type Output = (bool, [i32; LANES], [i32; LANES]);
    #[inline(always)]
    fn run<I: Isa, B: Bytes<I>>(self, isa: I, bytes: B) -> Self::Output {
        let codes = isa.load_int(&self.codes.map(i32::from_le_bytes));
        let x = isa.load_int(&self.x.map(|x| i32::from_le_bytes(x.map(i8::cast_unsigned))));
        let sums = isa.load_int(&self.sums);
        let ints = |w| isa.lanes(isa.from_bits(w)).map(|lane| lane.to_bits().cast_signed());
        (B::WIDE, ints(bytes.dot(isa, sums, codes, x)), ints(bytes.dot_signed(isa, sums, codes, x)))
    }
}

/// Enters a level for its product of bytes.
struct Multiply(Products);

impl Task for Multiply {
    type Output = (bool, [i32; LANES], [i32; LANES]);
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Self::Output {
        isa.run_bytes(self.0)
    }
}

#[test]
fn products_of_bytes_are_exact() {
    for seed in 0..2000u32 {
        let raw: [u8; 128] = bytes(seed);
        // Some seeds hold the bytes of largest magnitude only.
        let byte = |at: usize, extremes: [u8; 2]| {
            if seed % 4 == 0 { extremes[usize::from(raw[at] & 1)] } else { raw[at] }
        };
        let sums = from_fn(|lane| (raw[lane] as i32 - 128) * 70_000);
        let x: [[i8; 4]; LANES] =
            from_fn(|lane| from_fn(|i| byte(64 + 4 * lane + i, [127, 129]).cast_signed().max(-127)));
        for level in Level::all() {
            for extremes in [[128, 0], [255, 128]] {
                let codes: [[u8; 4]; LANES] = from_fn(|lane| from_fn(|i| byte(4 * lane + i, extremes)));
                let (wide, _, signed) = level.run(Multiply(Products { sums, codes, x }));
                let unsigned = if wide { codes } else { codes.map(|codes| codes.map(|code| code.min(128))) };
                let (_, found, _) = level.run(Multiply(Products { sums, codes: unsigned, x }));
                for lane in 0..LANES {
                    let sum = |number: &dyn Fn(u8) -> i32, codes: [u8; 4]| {
                        let products =
                            codes.iter().zip(x[lane]).map(|(code, x)| number(*code) * i32::from(x));
                        sums[lane] + products.sum::<i32>()
                    };
                    assert_eq!(found[lane], sum(&i32::from, unsigned[lane]), "{level}, seed {seed}");
                    let expected = sum(&|code| i32::from(code.cast_signed()), codes[lane]);
                    assert_eq!(signed[lane], expected, "{level}, seed {seed}: signed");
                }
            }
        }
    }
}

struct Dot<'a>(&'a [f32], &'a [f32]);

impl Task for Dot<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> f32 {
        dot16(isa, self.0, self.1)
    }
}

#[test]
fn absent_elements_are_skipped_in_a_dot_product() {
    let check = |a: &[f32], b: &[f32], expected: f32| {
        for level in Level::all() {
            assert_eq!(bits(level.run(Dot(a, b))), bits(expected), "{level}: {a:?} {b:?}");
        }
    };
    check(&[], &[], 0.0);
    check(&[2.0; 17], &[3.0; 17], 102.0);
    // Every lane underflows to -0: a product of zeros added to it would make +0 of it.
    check(&[-1e-30; 16], &[1e-30; 16], -0.0);
    check(&[-1e-30; 24], &[1e-30; 24], -0.0);
}

#[test]
fn levels_are_found_by_name() {
    for level in Level::all() {
        assert_eq!(Level::parse(level.name()), Ok(level));
    }
    assert_eq!(Level::all().last(), Level::detect().as_ref().ok());
    assert_eq!(Level::parse("sse9"), Err(CpuError::UnknownLevel { found: "sse9".to_string() }));
}
