//! Float64 functions of `docs/numerics.md` section 1, for tables and powers: additions, products, quotients and rounding
//! to integers only.

use std::f64::consts::{FRAC_2_PI, LOG2_E, SQRT_2};

/// ln 2 in two parts.
const LN2: [u64; 2] = [0x3fe6_2e42_fee0_0000, 0x3dea_39ef_3579_3c76];
/// Pi / 2 in five parts.
const HALF_PI: [u64; 5] = [
    0x3ff9_21fb_0000_0000,
    0x3e95_110b_0000_0000,
    0x3d31_8469_8000_0000,
    0x3ba3_198a_0000_0000,
    0x3a37_01b8_39a2_5205,
];

/// `e^x` for a result that is a normal number.
pub fn exp(x: f64) -> f64 {
    let ln2 = LN2.map(f64::from_bits);
    let k = (x * LOG2_E).round_ties_even();
    let (upper, lower) = (x - k * ln2[0], k * ln2[1]);
    let r = upper - lower;
    let lost = (upper - r) - lower;
    // 1/2! + r/3! + ... + r^11/13!
    let tail = horner(r, (2..=13).map(|n| 1.0 / factorial(n)));
    let value = 1.0 + (r + (lost + r * r * tail));
    value * 2f64.powi(k as i32)
}

/// The natural logarithm of a normal number above 0.
pub fn ln(x: f64) -> f64 {
    let ln2 = LN2.map(f64::from_bits);
    let mut k = 0.0;
    let mut mantissa = x;
    while mantissa >= 2.0 {
        (mantissa, k) = (mantissa / 2.0, k + 1.0);
    }
    while mantissa < 1.0 {
        (mantissa, k) = (mantissa * 2.0, k - 1.0);
    }
    if mantissa > SQRT_2 {
        (mantissa, k) = (mantissa / 2.0, k + 1.0);
    }
    let f = mantissa - 1.0;
    let s = f / (2.0 + f);
    let square = s * s;
    let tail = square * horner(square, (1..=12).map(|n| 2.0 / f64::from(2 * n + 1)));
    let half = 0.5 * f * f;
    k * ln2[0] - ((half - (s * (half + tail) + k * ln2[1])) - f)
}

/// `base^exponent`.
pub fn pow(base: f64, exponent: f64) -> f64 {
    if exponent == 0.0 { 1.0 } else { exp(exponent * ln(base)) }
}

/// Sine and cosine of an angle below 2^31.
pub fn sin_cos(angle: f64) -> (f64, f64) {
    let part = HALF_PI.map(f64::from_bits);
    let quarter = (angle * FRAC_2_PI).round_ties_even();
    // The rest of the angle, r + lost.
    let (sum, first) = two_sum((angle - quarter * part[0]) - quarter * part[1], -quarter * part[2]);
    let (sum, second) = two_sum(sum, -quarter * part[3]);
    let (r, lost) = two_sum(sum, (first + second) - quarter * part[4]);
    let square = r * r;
    let half = 0.5 * square;
    let sign = |n: i32| if n % 2 == 0 { 1.0 } else { -1.0 };
    // -1/3! + r^2/5! - ... + r^14/17!, and 1/4! - r^2/6! + ... - r^14/18!.
    let odd = horner(square, (1..=8).map(|n| sign(n) / factorial(2 * n + 1)));
    let even = horner(square, (2..=9).map(|n| sign(n) / factorial(2 * n)));
    let sine = r + (square * r * odd + lost * (1.0 - half));
    let large = 1.0 - half;
    let cosine = large + (((1.0 - large) - half) + (square * square * even - r * lost));
    match (quarter as i64).rem_euclid(4) {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

/// The sum, and what its rounding lost.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

fn factorial(n: i32) -> f64 {
    (2..=n).map(f64::from).product()
}

/// Lowest power first; a product and a sum a term, rounded apart, from 0.
fn horner(x: f64, coefficients: impl DoubleEndedIterator<Item = f64>) -> f64 {
    coefficients.rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_the_system_s() {
        for at in -4000..4000 {
            let x = f64::from(at) * 0.017;
            let near =
                |found: f64, truth: f64| assert!((found - truth).abs() <= 1e-15 * truth.abs(), "at {x}");
            near(exp(x), x.exp());
            near(ln(1e-3 + x.abs()), (1e-3 + x.abs()).ln());
            let (sine, cosine) = sin_cos(x * 1000.0);
            assert!(
                (sine - (x * 1000.0).sin()).abs() + (cosine - (x * 1000.0).cos()).abs() < 1e-15,
                "at {x}"
            );
        }
    }
}
