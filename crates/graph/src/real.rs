//! Float64 functions of our own: `exp`, `ln`, `pow`, `sin_cos`. Tables and powers that a kernel, a schedule or an
//! optimiser reads come from here and never from a system library, so they have the same bits on every machine.
//!
//! Only `+ - * /`, rounding to an integer and integer arithmetic on bits are used, one rounding each. Each function
//! reduces its argument and sums a Taylor series whose first omitted term is below 2^-56 of the result.

/// ln 2 in two parts: the upper has 32 bits, so its product with an exponent is exact.
const LN2: [f64; 2] = [f64::from_bits(0x3fe6_2e42_fee0_0000), f64::from_bits(0x3dea_39ef_3579_3c76)];
/// Pi / 2 in five parts, all but the last of 22 bits, so their products with a number below 2^31 are exact.
const HALF_PI: [f64; 5] = [
    f64::from_bits(0x3ff9_21fb_0000_0000),
    f64::from_bits(0x3e95_110b_0000_0000),
    f64::from_bits(0x3d31_8469_8000_0000),
    f64::from_bits(0x3ba3_198a_0000_0000),
    f64::from_bits(0x3a37_01b8_39a2_5205),
];
/// Angles that [`sin_cos`] reduces without loss.
const LARGEST_ANGLE: f64 = 2_147_483_648.0;

/// `e^x`, within one unit in the last place; below -745.13 it is +0, above 709.78 infinity.
pub fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x > 710.0 {
        return f64::INFINITY;
    }
    if x < -746.0 {
        return 0.0;
    }
    // x = k ln 2 + r, |r| <= ln 2 / 2; the difference with the upper part is exact.
    let k = (x * std::f64::consts::LOG2_E).round_ties_even();
    let (upper, lower) = (x - k * LN2[0], k * LN2[1]);
    let r = upper - lower;
    let lost = (upper - r) - lower;
    // 1/2!, 1/3!, ..., 1/13!: the tail of the series, of which 1 + r are the large terms.
    let tail = horner(r, &RECIPROCAL_FACTORIALS);
    let value = 1.0 + (r + (lost + r * r * tail));
    // Two factors, because 2^k alone may lie outside of the range where the result does not.
    let half = (k as i64).div_euclid(2);
    value * power_of_two(half) * power_of_two(k as i64 - half)
}

/// The natural logarithm, within one unit in the last place; -infinity at zero, NaN below.
pub fn ln(x: f64) -> f64 {
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x <= 0.0 {
        return if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    let (mut k, mut mantissa) = split(x);
    if mantissa > std::f64::consts::SQRT_2 {
        (k, mantissa) = (k + 1, mantissa / 2.0);
    }
    // With f = mantissa - 1 and s = f / (2 + f): ln(1 + f) = 2 (s + s^3/3 + s^5/5 + ...) = f - s (f - tail).
    let f = mantissa - 1.0;
    let s = f / (2.0 + f);
    let square = s * s;
    let tail = square * horner(square, &DOUBLED_ODD_RECIPROCALS);
    let half_square = 0.5 * f * f;
    let k = k as f64;
    k * LN2[0] - ((half_square - (s * (half_square + tail) + k * LN2[1])) - f)
}

/// `base^exponent` as `exp(exponent * ln(base))` for `base >= 0`: a relative error below
/// `(1 + |exponent * ln(base)|) * 2^-51`. A negative base gives NaN, an exponent of zero gives 1.
pub fn pow(base: f64, exponent: f64) -> f64 {
    if exponent == 0.0 {
        return 1.0;
    }
    exp(exponent * ln(base))
}

/// Sine and cosine of an angle in radians, each within 2^-52 of the exact value for `|angle| < 2^31`; NaN beyond.
pub fn sin_cos(angle: f64) -> (f64, f64) {
    if angle.is_nan() || angle.abs() >= LARGEST_ANGLE {
        return (f64::NAN, f64::NAN);
    }
    let quarter = (angle * std::f64::consts::FRAC_2_PI).round_ties_even();
    let (r, lost) = reduce(angle, quarter);
    let (sine, cosine) = (sine_near_zero(r, lost), cosine_near_zero(r, lost));
    match (quarter as i64).rem_euclid(4) {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

/// 1/2!, 1/3!, ..., 1/13!.
const RECIPROCAL_FACTORIALS: [f64; 12] = [
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5_040.0,
    1.0 / 40_320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
    1.0 / 479_001_600.0,
    1.0 / 6_227_020_800.0,
];
/// 2/3, 2/5, ..., 2/25.
const DOUBLED_ODD_RECIPROCALS: [f64; 12] = [
    2.0 / 3.0,
    2.0 / 5.0,
    2.0 / 7.0,
    2.0 / 9.0,
    2.0 / 11.0,
    2.0 / 13.0,
    2.0 / 15.0,
    2.0 / 17.0,
    2.0 / 19.0,
    2.0 / 21.0,
    2.0 / 23.0,
    2.0 / 25.0,
];
/// -1/3!, 1/5!, ..., 1/17!.
const SINE: [f64; 8] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
    1.0 / 355_687_428_096_000.0,
];
/// 1/4!, -1/6!, ..., -1/18!.
const COSINE: [f64; 8] = [
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 20_922_789_888_000.0,
    -1.0 / 6_402_373_705_728_000.0,
];

/// `coefficients[0] + x * (coefficients[1] + x * (...))`.
fn horner(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// `2^k` for a normal result.
fn power_of_two(k: i64) -> f64 {
    debug_assert!((-1022..=1023).contains(&k), "2^{k} is not normal");
    f64::from_bits(((k + 1023) as u64) << 52)
}

/// `x = 2^k * mantissa` with `1 <= mantissa < 2`, for a positive finite `x`.
fn split(x: f64) -> (i64, f64) {
    // A denormal is made normal first.
    let (x, shift) = if x < f64::MIN_POSITIVE { (x * power_of_two(54), 54) } else { (x, 0) };
    let exponent = (x.to_bits() >> 52) as i64 - 1023;
    let mantissa = f64::from_bits((x.to_bits() & ((1 << 52) - 1)) | (1023 << 52));
    (exponent - shift, mantissa)
}

/// `angle - quarter * pi / 2` as a sum of two numbers, the second far below the first.
fn reduce(angle: f64, quarter: f64) -> (f64, f64) {
    // Exact: products of 22 and 31 bits; differences that are multiples of both operands' last places and smaller.
    let upper = (angle - quarter * HALF_PI[0]) - quarter * HALF_PI[1];
    let (sum, lost) = add_exactly(upper, -quarter * HALF_PI[2]);
    let (sum, more) = add_exactly(sum, -quarter * HALF_PI[3]);
    add_exactly(sum, (lost + more) - quarter * HALF_PI[4])
}

/// `a + b` and what its rounding lost.
fn add_exactly(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// The sine of `r + lost` for `|r| <= pi / 4`.
fn sine_near_zero(r: f64, lost: f64) -> f64 {
    let square = r * r;
    let cube = square * r;
    r + (cube * horner(square, &SINE) + lost * (1.0 - 0.5 * square))
}

/// The cosine of `r + lost` for `|r| <= pi / 4`.
fn cosine_near_zero(r: f64, lost: f64) -> f64 {
    let square = r * r;
    let half = 0.5 * square;
    let large = 1.0 - half;
    large + (((1.0 - large) - half) + (square * square * horner(square, &COSINE) - r * lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a linear congruential sequence, uniform in `from..to`.
    fn numbers(from: f64, to: f64) -> impl Iterator<Item = f64> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            from + (to - from) * ((state >> 11) as f64 / (1u64 << 53) as f64)
        })
        .take(100_000)
    }

    /// Units in the last place of `expected` between the two.
    fn ulps(found: f64, expected: f64) -> f64 {
        let unit = f64::from_bits(expected.abs().to_bits() + 1) - expected.abs();
        ((found - expected) / unit).abs()
    }

    /// The system's functions are themselves within one unit, so a bound of one of ours shows as two.
    fn check(
        name: &str,
        bound: f64,
        values: impl Iterator<Item = f64>,
        ours: fn(f64) -> f64,
        theirs: fn(f64) -> f64,
    ) {
        let worst = values
            .map(|x| (ulps(ours(x), theirs(x)), x))
            .fold((0.0, 0.0), |worst, next| if next.0 > worst.0 || next.0.is_nan() { next } else { worst });
        assert!(worst.0 <= bound, "{name}({:e}): {} units apart", worst.1, worst.0);
    }

    #[test]
    fn exp_is_within_a_unit() {
        check("exp", 1.0, numbers(-700.0, 700.0), exp, f64::exp);
        check("exp", 1.0, numbers(-1.0, 1.0), exp, f64::exp);
        check("exp", 1.0, numbers(-1e-9, 1e-9), exp, f64::exp);
    }

    #[test]
    fn ln_is_within_a_unit() {
        check("ln", 1.0, numbers(0.5, 2.0), ln, f64::ln);
        check("ln", 1.0, numbers(0.0, 1e9), ln, f64::ln);
        check("ln", 1.0, numbers(-1e-3, 1e-3).map(|x| 1.0 + x), ln, f64::ln);
        check("ln", 1.0, numbers(-740.0, 709.0).map(f64::exp), ln, f64::ln);
    }

    #[test]
    fn ends_of_the_range() {
        let check = |found: f64, expected: f64| {
            assert_eq!(found.to_bits(), expected.to_bits(), "{found:e} {expected:e}")
        };
        check(exp(0.0), 1.0);
        check(exp(-0.0), 1.0);
        check(exp(f64::NEG_INFINITY), 0.0);
        check(exp(-745.2), 0.0);
        check(exp(-745.1), f64::from_bits(1));
        check(exp(709.79), f64::INFINITY);
        check(exp(f64::INFINITY), f64::INFINITY);
        check(ln(1.0), 0.0);
        check(ln(0.0), f64::NEG_INFINITY);
        check(ln(f64::INFINITY), f64::INFINITY);
        assert!(ulps(ln(f64::from_bits(1)), -744.440_071_921_381_2) <= 1.0);
        check(pow(0.0, 2.0), 0.0);
        check(pow(10_000.0, 0.0), 1.0);
        check(pow(10_000.0, -0.0), 1.0);
        check(sin_cos(0.0).0, 0.0);
        check(sin_cos(0.0).1, 1.0);
        assert!(
            [exp(f64::NAN), ln(f64::NAN), ln(-1.0), pow(-2.0, 0.5), sin_cos(f64::NAN).0]
                .iter()
                .all(|x| x.is_nan())
        );
        assert!(sin_cos(f64::INFINITY).0.is_nan() && sin_cos(LARGEST_ANGLE).1.is_nan());
    }

    #[test]
    fn rope_frequencies_are_within_their_bound() {
        for base in [10_000.0, 500_000.0, 1e6] {
            for pair in 0..64 {
                let exponent = -f64::from(pair) / 64.0;
                let bound = (1.0 + (exponent * ln(base)).abs()) * 4.0;
                assert!(ulps(pow(base, exponent), f64::powf(base, exponent)) <= bound, "{base}^{exponent}");
            }
        }
    }

    #[test]
    fn sine_and_cosine_of_far_positions() {
        let worst = |from: f64, to: f64| {
            numbers(from, to)
                .map(|x| {
                    let ((sine, cosine), (sine_std, cosine_std)) = (sin_cos(x), x.sin_cos());
                    (sine - sine_std).abs().max((cosine - cosine_std).abs())
                })
                .fold(0.0, f64::max)
        };
        for (from, to) in [(-1.0, 1.0), (-100.0, 100.0), (0.0, 1e6), (-2e9, 2e9)] {
            assert!(worst(from, to) <= 2.0 * f64::EPSILON, "{from:e}..{to:e}: {:e}", worst(from, to));
        }
    }

    #[test]
    fn sine_near_its_zeros_keeps_its_digits() {
        for turns in [1.0, 2.0, 355.0, 1e5, 6e8] {
            let angle = turns * std::f64::consts::PI;
            assert!(ulps(sin_cos(angle).0, angle.sin()) <= 1.0, "the sine of {angle}");
        }
    }
}
