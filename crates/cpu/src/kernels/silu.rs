//! SiLU: `y = x * s`, `s = sigmoid(x)`, and its gradient `dx = dy * (s * (1 + x * t))`, `t = 1 - s = sigmoid(-x)`.
//!
//! Every step rounded apart, in the order written; `t` is computed as it stands, because `1 - s` cancels on the right.

use crate::isa::Isa;
use crate::kernels::map::{Function, Pair};
use crate::math::sigmoid;

/// `x * sigmoid(x)`.
#[derive(Clone, Copy, Debug)]
pub struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::V) -> I::V {
        isa.mul(x, sigmoid(isa, x))
    }
}

/// The cotangent of x from that of `y` and from x.
#[derive(Clone, Copy, Debug)]
pub struct SiluVjp;

impl Pair for SiluVjp {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, dy: I::V, x: I::V) -> I::V {
        let (s, t) = (sigmoid(isa, x), sigmoid(isa, isa.neg(x)));
        let slope = isa.mul(s, isa.add(isa.splat(1.0), isa.mul(x, t)));
        isa.mul(dy, slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::map::{Map, Operand, Zip};
    use crate::kernels::suite::{Numbers, Wanted, check, scalar};

    #[test]
    fn both_ways() {
        let mut numbers = Numbers::new(7);
        let (x, dy) = (numbers.hard(999), numbers.normal(999));
        let s = |x: f32| scalar(sigmoid, x);
        let y: Vec<f32> = x.iter().map(|x| x * s(*x)).collect();
        check(7, &[Wanted::new(&y)], |outs, run| run.all(&Map { function: Silu, x: Some(&x), y: outs[0] }));
        let dx: Vec<f32> = x.iter().zip(&dy).map(|(x, dy)| dy * (s(*x) * (1.0 + x * s(-x)))).collect();
        check(7, &[Wanted::in_place(&dx, &dy)], |outs, run| {
            run.all(&Zip { function: SiluVjp, width: 37, a: None, b: Operand::Each(&x), y: outs[0] });
        });
    }

    #[test]
    fn slope_follows_the_formula_in_float64() {
        let x: Vec<f32> = (-400..400).map(|at| at as f32 * 0.05).collect();
        for x in x {
            let s = 1.0 / (1.0 + f64::from(-x).exp());
            let truth = s * (1.0 + f64::from(x) * (1.0 - s));
            let found = scalar(|isa, x| SiluVjp.apply(isa, isa.splat(1.0), x), x);
            assert!((f64::from(found) - truth).abs() < 4e-7, "{x}: {found} against {truth}");
        }
    }
}
