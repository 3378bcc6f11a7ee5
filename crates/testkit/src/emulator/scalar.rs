//! Float32 arithmetic one number at a time: the kinds of sums, and the functions, of `docs/numerics.md` section 1.

/// Coefficients of `exp`'s polynomial, lowest power first.
const EXP: [f32; 6] = [0.5, 0.166_666_67, 0.041_666_463, 0.008_333_31, 0.001_393_373_1, 0.000_198_910_8];
/// Coefficients of `log`'s polynomial, lowest power first.
const LOG: [f32; 4] = [0.666_666_7, 0.400_001_23, 0.285_507_35, 0.233_327_63];
/// ln 2, upper and lower part.
const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// `2 sqrt(2 / pi)`, that times 0.044715, and three times that.
const GELU: [f32; 3] = [1.595_769_2, 0.071_354_814, 0.214_064_45];

/// `a * b + c` with one rounding.
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// `sum a_i b_i`: one fused chain from +0.
pub fn chain(pairs: impl Iterator<Item = (f32, f32)>) -> f32 {
    pairs.fold(0.0, |sum, (a, b)| fma(a, b, sum))
}

/// [`chain`]s over segments of 256, added ascending to +0.
pub fn segmented(count: usize, pair: impl Fn(usize) -> (f32, f32)) -> f32 {
    let mut sum = 0.0;
    let mut start = 0;
    while start < count {
        sum += chain((start..count.min(start + 256)).map(&pair));
        start += 256;
    }
    sum
}

/// Sixteen lanes added in a tree.
pub fn tree16(mut lanes: [f32; 16]) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    lanes[0]
}

/// The dot product of sixteen fused lanes.
pub fn dot16(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "a dot product of two lengths");
    let mut lanes = [0.0; 16];
    for index in 0..a.len() {
        lanes[index % 16] = fma(a[index], b[index], lanes[index % 16]);
    }
    tree16(lanes)
}

/// The larger as kernels compare: a NaN never moves what is there.
pub fn larger(there: f32, next: f32) -> f32 {
    if next > there { next } else { there }
}

/// `e^x`.
pub fn exp(x: f32) -> f32 {
    if x < -87.33 {
        return 0.0;
    }
    if x > 88.72 {
        return f32::INFINITY;
    }
    let k = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = fma(k, -LN2[1], fma(k, -LN2[0], x));
    let value = ((r * r) * horner(r, &EXP) + r) + 1.0;
    // A NaN becomes k = 0 in the cast and stays what it is.
    f32::from_bits(value.to_bits().wrapping_add_signed((k as i32) << 23))
}

/// The natural logarithm of a number of at least 1, which is all that a loss asks for.
pub fn log(x: f32) -> f32 {
    if x.is_nan() || x == f32::INFINITY {
        return x;
    }
    // x = 2^k * mantissa with the mantissa in [sqrt(1/2), sqrt(2)): the exponent of x / sqrt(1/2).
    let k = ((x.to_bits() - 0x3f35_04f3) >> 23) as i32;
    let mantissa = f32::from_bits(x.to_bits().wrapping_add_signed(-(k << 23)));
    let k = k as f32;
    let f = mantissa - 1.0;
    let s = f / (f + 2.0);
    let square = s * s;
    let tail = square * horner(square, &LOG);
    let half = (f * 0.5) * f;
    let inner = fma(s, half + tail, k * LN2[1]);
    fma(k, LN2[0], -((half - inner) - f))
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// The derivative of [`silu`].
pub fn silu_slope(x: f32) -> f32 {
    sigmoid(x) * (1.0 + x * sigmoid(-x))
}

/// GELU in its tanh form.
pub fn gelu(x: f32) -> f32 {
    x * sigmoid(gelu_argument(x))
}

/// The derivative of [`gelu`].
pub fn gelu_slope(x: f32) -> f32 {
    let argument = gelu_argument(x);
    let (s, t) = (sigmoid(argument), sigmoid(-argument));
    s + (x * (s * t)) * ((x * x) * GELU[2] + GELU[0])
}

/// `1 / sqrt(mean of squares + eps)` of a norm.
pub fn norm_factor(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot16(x, x) / x.len() as f32 + eps).sqrt()
}

/// The nearest float16 as float32, ties to even; infinity from 65,520 on.
pub fn round_half(x: f32) -> f32 {
    if !x.is_finite() {
        return x;
    }
    // All numbers here are exact in float64: float16 has steps of 2^-24 at the least, 2^(e - 10) at an exponent e.
    let size = f64::from(x.abs());
    let mut step = 2f64.powi(-24);
    while step * 2048.0 <= size {
        step *= 2.0;
    }
    let rounded = (size / step).round_ties_even() * step;
    (if rounded >= 65_536.0 { f32::INFINITY } else { rounded as f32 }).copysign(x)
}

/// A float16 by its bits.
pub fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    (sign * size) as f32
}

fn gelu_argument(x: f32) -> f32 {
    x * ((x * x) * GELU[1] + GELU[0])
}

/// By Horner's rule, fused.
fn horner(x: f32, coefficients: &[f32]) -> f32 {
    let (last, lower) = coefficients.split_last().expect("a polynomial has coefficients");
    lower.iter().rev().fold(*last, |sum, coefficient| fma(sum, x, *coefficient))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_near_those_of_float64() {
        for x in (-3000..3000).map(|at| at as f32 * 0.029) {
            let near = |found: f32, truth: f64| {
                assert!((f64::from(found) - truth).abs() <= 3e-7 * truth.abs(), "at {x}: {found} {truth}");
            };
            near(exp(x), f64::from(x).exp());
            near(sigmoid(x), 1.0 / (1.0 + f64::from(-x).exp()));
            near(log(1.0 + x.abs()), f64::from(1.0 + x.abs()).ln());
        }
    }

    #[test]
    fn every_float16_and_what_lies_between() {
        for bits in 0..=u16::MAX {
            let value = half::f16::from_bits(bits).to_f32();
            assert!(
                half(bits).to_bits() == value.to_bits() || value.is_nan() && half(bits).is_nan(),
                "{bits:x}"
            );
            if value.is_finite() {
                for near in [value, value * 1.000_488_2, value * 1.000_244_1, value * 0.999_9] {
                    let expected = half::f16::from_f32(near).to_f32();
                    assert_eq!(round_half(near).to_bits(), expected.to_bits(), "{near:e}");
                }
            }
        }
    }
}
