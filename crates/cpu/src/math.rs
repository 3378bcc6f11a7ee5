//! Transcendental functions of sixteen lanes, as polynomials of our own: the same bits at every level.
//!
//! Each is written with separate and fused roundings in a fixed order, so one lane in any level gives what the scalar
//! form gives. Bounds in units of the last place are measured over every 601st bit pattern of the argument's range
//! against float64. NaN gives NaN.

use crate::isa::Isa;

/// Below, `exp` is +0: the result would soon leave the normal numbers.
pub const EXP_LOW: f32 = -87.33;
/// Above, `exp` is infinity: the result would soon leave the finite numbers.
pub const EXP_HIGH: f32 = 88.72;

/// ln 2 in two parts; the upper has 15 bits, so its product with an exponent is exact.
const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// `(e^r - 1 - r) / r^2` for `|r| <= ln 2 / 2`, within 2e-9.
const EXP: [f32; 6] = [0.5, 0.166_666_67, 0.041_666_463, 0.008_333_31, 0.001_393_373_1, 0.000_198_910_8];
/// `(ln((1 + s) / (1 - s)) / s - 2) / s^2` in powers of `s^2` for `|s| <= 0.1717`, within 2e-9.
const LOG: [f32; 4] = [0.666_666_7, 0.400_001_23, 0.285_507_35, 0.233_327_63];
/// `(tanh(x) / x - 1) / x^2` in powers of `x^2` for `|x| <= 0.625`, within 2e-9.
const TANH: [f32; 6] =
    [-0.333_333_34, 0.133_333_04, -0.053_959_258, 0.021_768_919, -0.008_343_945, 0.002_292_744_8];
/// From here on `tanh` is taken from `exp`.
const TANH_FROM_EXP: f32 = 0.625;
/// The bits of sqrt(1/2), where a mantissa's range begins.
const SQRT_HALF_BITS: i32 = 0x3f35_04f3;

/// `e^x`, within 1 unit; +0 below [`EXP_LOW`], infinity above [`EXP_HIGH`].
#[inline(always)]
pub fn exp<I: Isa>(isa: I, x: I::V) -> I::V {
    // x = k ln 2 + r, |r| <= ln 2 / 2.
    let k = isa.round_ties_even(isa.mul(x, isa.splat(std::f32::consts::LOG2_E)));
    let r = isa.fma(k, isa.splat(-LN2[0]), x);
    let r = isa.fma(k, isa.splat(-LN2[1]), r);
    let tail = isa.mul(isa.mul(r, r), horner(isa, r, &EXP));
    let value = isa.add(isa.add(tail, r), isa.splat(1.0));
    // Inside the range the result is normal, so 2^k is added to the exponent's bits. A NaN has k = i32::MIN, whose
    // lowest bits are zero: it passes.
    let value = isa.from_bits(isa.add_int(isa.bits(value), isa.shl::<23>(isa.to_int(k))));
    let value = isa.select(isa.lt(x, isa.splat(EXP_LOW)), isa.zero(), value);
    isa.select(isa.gt(x, isa.splat(EXP_HIGH)), isa.splat(f32::INFINITY), value)
}

/// The natural logarithm, within 1 unit; -infinity at zeros, NaN below.
#[inline(always)]
pub fn log<I: Isa>(isa: I, x: I::V) -> I::V {
    // A denormal is made normal first.
    let small = isa.lt(x, isa.splat(f32::MIN_POSITIVE));
    let normal = isa.select(small, isa.mul(x, isa.splat(8_388_608.0)), x);
    let shift = isa.select(small, isa.splat(23.0 + 127.0), isa.splat(127.0));
    // x = 2^k * mantissa, sqrt(1/2) <= mantissa < sqrt(2); the exponent is kept biased, so it is never negative.
    let bits = isa.bits(normal);
    let biased = isa.shr::<23>(isa.add_int(bits, isa.splat_int((127 << 23) - SQRT_HALF_BITS)));
    let k = isa.sub(isa.from_int(biased), shift);
    let mantissa = isa.sub_int(bits, isa.shl::<23>(isa.sub_int(biased, isa.splat_int(127))));
    // With f = mantissa - 1 and s = f / (2 + f): ln(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + tail)).
    let f = isa.sub(isa.from_bits(mantissa), isa.splat(1.0));
    let s = isa.div(f, isa.add(f, isa.splat(2.0)));
    let square = isa.mul(s, s);
    let tail = isa.mul(square, horner(isa, square, &LOG));
    let half_square = isa.mul(isa.mul(f, isa.splat(0.5)), f);
    let inner = isa.fma(s, isa.add(half_square, tail), isa.mul(k, isa.splat(LN2[1])));
    let rest = isa.sub(isa.sub(half_square, inner), f);
    let value = isa.fma(k, isa.splat(LN2[0]), isa.neg(rest));
    let value = isa.select(isa.lt(x, isa.splat(f32::INFINITY)), value, x); // infinity and NaN pass
    let value = isa.select(isa.lt(x, isa.zero()), isa.splat(f32::NAN), value);
    isa.select(isa.eq(x, isa.zero()), isa.splat(f32::NEG_INFINITY), value)
}

/// `1 / (1 + e^-x)`, within 3 units where the result is normal; +0 below `-EXP_HIGH`.
#[inline(always)]
pub fn sigmoid<I: Isa>(isa: I, x: I::V) -> I::V {
    let one = isa.splat(1.0);
    isa.div(one, isa.add(one, exp(isa, isa.neg(x))))
}

/// The hyperbolic tangent, within 2 units; odd, so -0 stays.
#[inline(always)]
pub fn tanh<I: Isa>(isa: I, x: I::V) -> I::V {
    let size = isa.abs(x);
    let one = isa.splat(1.0);
    // |x| large: 1 - 2 / (e^2|x| + 1).
    let large = isa.add(exp(isa, isa.add(size, size)), one);
    let large = isa.sub(one, isa.div(isa.splat(2.0), large));
    // |x| small: x + x^3 p(x^2).
    let square = isa.mul(size, size);
    let small = isa.fma(isa.mul(square, horner(isa, square, &TANH)), size, size);
    let value = isa.select(isa.lt(size, isa.splat(TANH_FROM_EXP)), small, large);
    let sign = isa.and_int(isa.bits(x), isa.splat_int(i32::MIN));
    isa.from_bits(isa.or_int(isa.bits(value), sign))
}

/// `coefficients[0] + x * (coefficients[1] + x * (...))`, fused.
#[inline(always)]
fn horner<I: Isa, const TERMS: usize>(isa: I, x: I::V, coefficients: &[f32; TERMS]) -> I::V {
    let mut sum = isa.splat(coefficients[TERMS - 1]);
    for coefficient in coefficients[..TERMS - 1].iter().rev() {
        sum = isa.fma(sum, x, isa.splat(*coefficient));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{LANES, Level, Task};

    #[derive(Clone, Copy, Debug)]
    enum Function {
        Exp,
        Log,
        Sigmoid,
        Tanh,
    }

    impl Function {
        fn truth(self, x: f64) -> f64 {
            match self {
                Function::Exp => x.exp(),
                Function::Log => x.ln(),
                Function::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                Function::Tanh => x.tanh(),
            }
        }
    }

    /// `function` of each argument, sixteen at a time.
    struct Apply<'a>(Function, &'a [f32]);

    impl Task for Apply<'_> {
        type Output = Vec<f32>;
        #[inline(always)]
        fn run<I: Isa>(self, isa: I) -> Vec<f32> {
            let mut results = Vec::with_capacity(self.1.len());
            for x in self.1.as_chunks::<LANES>().0 {
                let x = isa.load(x);
                results.extend(isa.lanes(match self.0 {
                    Function::Exp => exp(isa, x),
                    Function::Log => log(isa, x),
                    Function::Sigmoid => sigmoid(isa, x),
                    Function::Tanh => tanh(isa, x),
                }));
            }
            results
        }
    }

    const ALL: [Function; 4] = [Function::Exp, Function::Log, Function::Sigmoid, Function::Tanh];

    /// Every 601st bit pattern; sixteen at a time.
    fn patterns() -> impl Iterator<Item = Vec<f32>> {
        let all: Vec<u32> = (0..u32::MAX / 601).map(|at| at * 601).collect();
        let chunks: Vec<Vec<f32>> =
            all.chunks(1 << 16).map(|bits| bits.iter().map(|bits| f32::from_bits(*bits)).collect()).collect();
        chunks.into_iter()
    }

    fn bits(x: f32) -> u32 {
        if x.is_nan() { u32::MAX } else { x.to_bits() }
    }

    #[test]
    fn levels_agree_on_every_601st_bit_pattern() {
        let levels = Level::all();
        assert!(!levels.is_empty());
        for x in patterns() {
            for function in ALL {
                let reference = levels[0].run(Apply(function, &x));
                for level in &levels[1..] {
                    let found = level.run(Apply(function, &x));
                    let wrong = (0..found.len()).find(|at| bits(found[*at]) != bits(reference[*at]));
                    assert_eq!(
                        wrong.map(|at| (x[at], found[at], reference[at])),
                        None,
                        "{function:?} at {level}"
                    );
                }
            }
        }
    }

    /// The largest distance from the float64 result, in units of the last place of its f32, over results that are
    /// normal numbers.
    fn check_bound(function: Function, bound: f64, domain: std::ops::RangeInclusive<f32>) {
        let level = Level::detect().unwrap();
        let (mut worst, mut at, mut count) = (0.0, 0.0, 0);
        for x in patterns() {
            for (x, y) in x.iter().zip(level.run(Apply(function, &x))) {
                let truth = function.truth(f64::from(*x));
                if !domain.contains(x) || (truth as f32).abs() < f32::MIN_POSITIVE {
                    continue;
                }
                let exponent = (truth.abs().to_bits() >> 52) as i32 - 1023;
                let units = (f64::from(y) - truth).abs() / f64::from(2.0f32).powi(exponent - 23);
                count += 1;
                if units > worst || units.is_nan() {
                    (worst, at) = (units, *x);
                }
            }
        }
        assert!(count > 100_000, "{function:?}: {count} arguments");
        println!("{function:?}: {worst:.3} units at {at:e}");
        assert!(worst <= bound, "{function:?}({at:e}): {worst} units");
    }

    #[test]
    fn exp_is_within_1_unit() {
        check_bound(Function::Exp, 1.0, EXP_LOW..=EXP_HIGH);
    }

    #[test]
    fn log_is_within_1_unit() {
        check_bound(Function::Log, 1.0, f32::from_bits(1)..=f32::MAX);
    }

    #[test]
    fn sigmoid_is_within_3_units() {
        check_bound(Function::Sigmoid, 3.0, EXP_LOW..=f32::MAX);
    }

    #[test]
    fn tanh_is_within_2_units() {
        check_bound(Function::Tanh, 2.0, f32::MIN..=f32::MAX);
    }

    #[test]
    fn ends_of_the_range() {
        let check = |function: Function, x: f32, expected: f32| {
            for level in Level::all() {
                let found = level.run(Apply(function, &[x; LANES]))[0];
                assert_eq!(bits(found), bits(expected), "{function:?}({x:e}) at {level}: {found:e}");
            }
        };
        use Function::{Exp, Log, Sigmoid, Tanh};
        let infinity = f32::INFINITY;
        for function in ALL {
            check(function, f32::NAN, f32::NAN);
        }
        check(Exp, 0.0, 1.0);
        check(Exp, -0.0, 1.0);
        check(Exp, -87.34, 0.0);
        check(Exp, -infinity, 0.0);
        check(Exp, 88.73, infinity);
        check(Exp, infinity, infinity);
        check(Log, 1.0, 0.0);
        check(Log, 0.0, -infinity);
        check(Log, -0.0, -infinity);
        check(Log, -1.0, f32::NAN);
        check(Log, -infinity, f32::NAN);
        check(Log, infinity, infinity);
        check(Sigmoid, 0.0, 0.5);
        check(Sigmoid, infinity, 1.0);
        check(Sigmoid, -infinity, 0.0);
        check(Tanh, -0.0, -0.0);
        check(Tanh, 0.0, 0.0);
        check(Tanh, infinity, 1.0);
        check(Tanh, -infinity, -1.0);
        check(Tanh, f32::from_bits(1), f32::from_bits(1));
    }
}
