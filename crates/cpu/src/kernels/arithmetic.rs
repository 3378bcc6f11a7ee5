//! The elementwise ops of one rounding a step: add, multiply, scale, offset, divide, `1 / sqrt`.

use crate::isa::Isa;
use crate::kernels::map::{Function, Pair};

/// `a + b`.
#[derive(Clone, Copy, Debug)]
pub struct Add;

impl Pair for Add {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, a: I::V, b: I::V) -> I::V {
        isa.add(a, b)
    }
}

/// `a * b`.
#[derive(Clone, Copy, Debug)]
pub struct Mul;

impl Pair for Mul {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, a: I::V, b: I::V) -> I::V {
        isa.mul(a, b)
    }
}

/// `x * factor`.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The factor.
    pub factor: f32,
}

impl Function for Scale {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::V) -> I::V {
        isa.mul(x, isa.splat(self.factor))
    }
}

/// `x + term`.
#[derive(Clone, Copy, Debug)]
pub struct Offset {
    /// The term.
    pub term: f32,
}

impl Function for Offset {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::V) -> I::V {
        isa.add(x, isa.splat(self.term))
    }
}

/// `x / divisor`.
#[derive(Clone, Copy, Debug)]
pub struct Divide {
    /// The divisor.
    pub divisor: f32,
}

impl Function for Divide {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::V) -> I::V {
        isa.div(x, isa.splat(self.divisor))
    }
}

/// `1 / sqrt(x)`, two roundings.
#[derive(Clone, Copy, Debug)]
pub struct Rsqrt;

impl Function for Rsqrt {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::V) -> I::V {
        isa.div(isa.splat(1.0), isa.sqrt(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::map::{Map, Operand, Zip};
    use crate::kernels::suite::{Numbers, Wanted, check};

    fn check_map<F: Function>(seed: u64, function: F, reference: impl Fn(f32) -> f32) {
        for count in [1, 15, 16, 8191, 20_003] {
            let x = Numbers::new(seed).hard(count);
            let expected: Vec<f32> = x.iter().map(|x| reference(*x)).collect();
            check(seed, &[Wanted::new(&expected)], |outs, run| {
                run.all(&Map { function, x: Some(&x), y: outs[0] });
            });
            check(seed, &[Wanted::in_place(&expected, &x)], |outs, run| {
                run.all(&Map { function, x: None, y: outs[0] });
            });
        }
    }

    #[test]
    fn one_operand() {
        check_map(1, Scale { factor: -0.3 }, |x| x * -0.3);
        check_map(2, Offset { term: 1e-5 }, |x| x + 1e-5);
        check_map(3, Divide { divisor: 576.0 }, |x| x / 576.0);
        check_map(4, Rsqrt, |x| 1.0 / x.sqrt());
    }

    /// Makes the second operand of elements, and tells which of them belongs to an element of the first.
    type Spread = fn(&[f32]) -> Operand;
    type Index = fn(usize, usize) -> usize;

    fn check_zip<F: Pair>(seed: u64, function: F, reference: impl Fn(f32, f32) -> f32) {
        for (rows, width) in [(1, 1), (3, 33), (70, 192), (2, 9000)] {
            let mut numbers = Numbers::new(seed);
            let a = numbers.hard(rows * width);
            let spread: [(usize, Spread, Index); 4] = [
                (rows * width, |b| Operand::Each(b), |at, _| at),
                (width, |b| Operand::Columns(b), |at, width| at % width),
                (rows, |b| Operand::Rows(b), |at, width| at / width),
                (1, |b| Operand::One(b), |_, _| 0),
            ];
            for (count, operand, index) in spread {
                let b = numbers.hard(count);
                let expected: Vec<f32> =
                    a.iter().enumerate().map(|(at, a)| reference(*a, b[index(at, width)])).collect();
                check(seed, &[Wanted::new(&expected)], |outs, run| {
                    run.all(&Zip { function, width, a: Some(&a), b: operand(&b), y: outs[0] });
                });
                check(seed, &[Wanted::in_place(&expected, &a)], |outs, run| {
                    run.all(&Zip { function, width, a: None, b: operand(&b), y: outs[0] });
                });
            }
        }
    }

    #[test]
    fn two_operands_in_every_spread() {
        check_zip(5, Add, |a, b| a + b);
        check_zip(6, Mul, |a, b| a * b);
    }
}
