//! GELU in its tanh form: `y = x / 2 (1 + tanh(u)) = x * s`, `s = sigmoid(2 u)`, `u = sqrt(2 / pi) (x + 0.044715 x^3)`,
//! and its gradient `dx = dy * (s + (x * (s * t)) * 2 u')`, `t = 1 - s = sigmoid(-2 u)`.
//!
//! By the sigmoid because `1 + tanh` cancels on the left, where the result is small. With `q = x * x`:
//! `2 u = x * (q * CUBIC + LINEAR)`, `2 u' = q * SLOPE + LINEAR`, products and sums rounded apart.

use crate::isa::Isa;
use crate::kernels::map::{Function, Pair};
use crate::math::sigmoid;

/// `2 sqrt(2 / pi)`.
const LINEAR: f32 = 1.595_769_2;
/// `2 sqrt(2 / pi) * 0.044715`.
const CUBIC: f32 = 0.071_354_814;
/// `3 CUBIC`.
const SLOPE: f32 = 0.214_064_45;

/// `x * sigmoid(2 u)`.
#[derive(Clone, Copy, Debug)]
pub struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::V) -> I::V {
        isa.mul(x, sigmoid(isa, twice_u(isa, x, isa.mul(x, x))))
    }
}

/// The cotangent of x from that of `y` and from x.
#[derive(Clone, Copy, Debug)]
pub struct GeluVjp;

impl Pair for GeluVjp {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, dy: I::V, x: I::V) -> I::V {
        let square = isa.mul(x, x);
        let twice_u = twice_u(isa, x, square);
        let (s, t) = (sigmoid(isa, twice_u), sigmoid(isa, isa.neg(twice_u)));
        let slope = isa.add(isa.mul(square, isa.splat(SLOPE)), isa.splat(LINEAR));
        let moved = isa.mul(isa.mul(x, isa.mul(s, t)), slope);
        isa.mul(dy, isa.add(s, moved))
    }
}

/// `2 u` from x and its square.
#[inline(always)]
fn twice_u<I: Isa>(isa: I, x: I::V, square: I::V) -> I::V {
    isa.mul(x, isa.add(isa.mul(square, isa.splat(CUBIC)), isa.splat(LINEAR)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::map::{Map, Operand, Zip};
    use crate::kernels::suite::{Numbers, Wanted, check, scalar};

    #[test]
    fn both_ways() {
        let mut numbers = Numbers::new(8);
        let (x, dy) = (numbers.hard(999), numbers.normal(999));
        let sigmoid = |x: f32| scalar(sigmoid, x);
        let twice_u = |x: f32| x * ((x * x) * CUBIC + LINEAR);
        let y: Vec<f32> = x.iter().map(|x| x * sigmoid(twice_u(*x))).collect();
        check(8, &[Wanted::in_place(&y, &x)], |outs, run| {
            run.all(&Map { function: Gelu, x: None, y: outs[0] });
        });
        let slope = |x: f32| {
            let (s, t) = (sigmoid(twice_u(x)), sigmoid(-twice_u(x)));
            s + (x * (s * t)) * ((x * x) * SLOPE + LINEAR)
        };
        let dx: Vec<f32> = x.iter().zip(&dy).map(|(x, dy)| dy * slope(*x)).collect();
        check(8, &[Wanted::new(&dx)], |outs, run| {
            run.all(&Zip { function: GeluVjp, width: 27, a: Some(&dy), b: Operand::Each(&x), y: outs[0] });
        });
    }

    #[test]
    fn follows_the_formula_in_float64() {
        for x in (-400..400).map(|at| at as f32 * 0.05) {
            let wide = f64::from(x);
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let t = (root * (wide + 0.044715 * wide.powi(3))).tanh();
            let found = scalar(|isa, x| Gelu.apply(isa, x), x);
            let truth = 0.5 * wide * (1.0 + t);
            assert!((f64::from(found) - truth).abs() <= 1e-6 * truth.abs().max(0.1), "{x}: {found} {truth}");
            let truth =
                0.5 * (1.0 + t) + 0.5 * wide * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * wide * wide);
            let found = scalar(|isa, x| GeluVjp.apply(isa, isa.splat(1.0), x), x);
            assert!((f64::from(found) - truth).abs() < 1e-6, "{x}: {found} against {truth}");
        }
    }
}
