//! Rounding to f16 and back: nearest, ties to even; denormals of f16 kept, infinity above its range, NaN stays NaN.
//!
//! Above 2^-14 the lowest 13 bits of the mantissa are rounded away in integers. Below, f16 has steps of 2^-24, which are
//! those of f32 just above 1/2: adding 1/2 and subtracting it rounds to them.

use crate::isa::Isa;
use crate::kernels::map::Function;

/// The least normal f16.
const NORMAL_MIN: f32 = 6.103_515_6e-5;
/// The first power of two that f16 lacks; what rounds to it is infinite.
const BEYOND: f32 = 65_536.0;

/// `f32(f16(x))`.
#[derive(Clone, Copy, Debug)]
pub struct RoundF16;

impl Function for RoundF16 {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::V) -> I::V {
        let size = isa.abs(x);
        let bits = isa.bits(size);
        let odd = isa.and_int(isa.shr::<13>(bits), isa.splat_int(1));
        let up = isa.add_int(bits, isa.add_int(odd, isa.splat_int(0xfff)));
        let normal = isa.from_bits(isa.and_int(up, isa.splat_int(!0x1fff)));
        let half = isa.splat(0.5);
        let small = isa.sub(isa.add(size, half), half);
        let value = isa.select(isa.lt(size, isa.splat(NORMAL_MIN)), small, normal);
        let value = isa.select(isa.ge(value, isa.splat(BEYOND)), isa.splat(f32::INFINITY), value);
        let sign = isa.and_int(isa.bits(x), isa.splat_int(i32::MIN));
        let value = isa.from_bits(isa.or_int(isa.bits(value), sign));
        isa.select(isa.is_nan(x), x, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::map::Map;
    use crate::kernels::suite::{Numbers, Wanted, check};
    use half::f16;

    #[test]
    fn as_the_conversion_there_and_back() {
        let mut x = Numbers::new(9).hard(3001);
        // Every f16, the points half-way to the next, and their neighbours.
        for bits in 0..=u16::MAX {
            let (here, next) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits ^ 1).to_f32());
            let middle = ((f64::from(here) + f64::from(next)) / 2.0) as f32;
            x.extend([
                here,
                middle,
                f32::from_bits(middle.to_bits() + 1),
                f32::from_bits(middle.to_bits().max(1) - 1),
            ]);
        }
        x.extend([65_519.996, 65_520.0, 65_536.0, f32::MAX, f32::INFINITY, -f32::INFINITY, f32::NAN]);
        x.extend([f32::from_bits(0x7fff_ffff), f32::from_bits(0xffff_ffff), f32::from_bits(1)]);
        let expected: Vec<f32> = x.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
        check(9, &[Wanted::new(&expected)], |outs, run| {
            run.all(&Map { function: RoundF16, x: Some(&x), y: outs[0] });
        });
    }
}
