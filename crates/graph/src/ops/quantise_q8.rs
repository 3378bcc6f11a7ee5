//! Rounds activations to 8 bits, a block of 32 at a time: `x[i]` becomes about `d * q[i]`.
//!
//! Blocks are counted from the first column; the last may be shorter. In float32, every operation rounded by itself:
//!
//! ```text
//! amax = max |x[i]|
//! a NaN or infinity in the block:    q[i] = 0,   d = NaN
//! amax < 2^-100:                     q[i] = 0,   d = 0
//! else:                              q[i] = round_ties_even(x[i] * (127 / amax)),   d = amax / 127
//! ```
//!
//! So `|q[i]| <= 127`. `sums` are those of `q` over 16 columns, which products with minima and with offset codes need.
//! The gradient of the rounding is 1, and it passes by this op: the products that read `q` and `d` give it to `x` themselves.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Element, Extent, ShapeError, Type};

/// Columns that share a scale.
pub(super) const BLOCK: usize = 32;
/// Columns that share a sum.
pub(super) const HALF: usize = 16;
/// Below this largest magnitude a block is zero: its reciprocal would leave float32.
const AMAX_MIN: f32 = 1.0 / (1u128 << 100) as f32;

/// `x [rows, width]` -> `q [rows, width]` int8, `d [rows, ceil(width / 32)]`, `sums [rows, ceil(width / 16)]` int32.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QuantiseQ8 {}

impl Op<1, 3> for QuantiseQ8 {
    const NAME: &'static str = "quantise_q8";
    const INPUTS: [Input; 1] = [Input::constant("x")];
    const OUTPUTS: [&'static str; 3] = ["q", "d", "sums"];
    const TOLERANCE: Tolerance = Tolerance::Exact;

    fn shape(&self, [x]: [&Type; 1]) -> Result<[Type; 3], ShapeError> {
        x.expect_f32("x")?;
        x.expect_rank("x", 2)?;
        Ok(shapes(x))
    }

    fn vjp<'g>(&self, _: Vjp<'g, 1, 3>) -> Result<[Option<Value<'g>>; 1], Refusal> {
        Ok([None])
    }

    fn cost(&self, [x]: [&Type; 1]) -> Cost {
        let [q, d, sums] = shapes(x);
        Cost::moving(x.shape.count().unwrap_or(usize::MAX).saturating_mul(4), &[x, &q, &d, &sums])
    }

    /// In float32 as above: which integer is nearest is not a matter of precision.
    fn oracle(&self, [x]: [&Array; 1]) -> [Array; 3] {
        let (rows, width) = (x.rows(), x.width());
        let mut q = Array::zeros([rows, width]);
        let mut d = Array::zeros([rows, width.div_ceil(BLOCK)]);
        let mut sums = Array::zeros([rows, width.div_ceil(HALF)]);
        for row in 0..rows {
            for (block, x) in x.row(row).chunks(BLOCK).enumerate() {
                let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
                let largest = x.iter().fold(0.0f32, |largest, x| if x.abs() > largest { x.abs() } else { largest });
                if !x.iter().all(|x| x.is_finite()) {
                    d.row_mut(row)[block] = f64::NAN;
                } else if largest >= AMAX_MIN {
                    d.row_mut(row)[block] = f64::from(largest / 127.0);
                    let inverse = 127.0 / largest;
                    for (q, x) in q.row_mut(row)[block * BLOCK..].iter_mut().zip(&x) {
                        *q = f64::from((x * inverse).round_ties_even() as i8);
                    }
                }
            }
            for (sum, q) in sums.row_mut(row).iter_mut().zip(q.row(row).chunks(HALF)) {
                *sum = q.iter().sum();
            }
        }
        [q, d, sums]
    }

    fn cases() -> Vec<Case<Self>> {
        let rows = |count, width| Given::normal(&[count, width]).counted(Extent::Rows);
        // Amax 127 leaves x as it is: halves are ties.
        let ties: Vec<f64> = (0..32).map(|i| if i == 5 { -127.0 } else { f64::from(i) - 15.5 }).collect();
        let least = f64::from(AMAX_MIN);
        let mut small = vec![least; 64];
        small[..32].iter_mut().for_each(|x| *x = f64::from(f32::from_bits(AMAX_MIN.to_bits() - 1)));
        small[40] = -least * 0.5;
        let block = |values: &[f64]| Given::normal(&[1, values.len()]).filled(Fill::Values(values.to_vec()));
        vec![
            Case::new(QuantiseQ8 {}, vec![rows(3, 64)]),
            Case::new(QuantiseQ8 {}, vec![rows(70, 96)]).note("rows across a block of 64"),
            Case::new(QuantiseQ8 {}, vec![rows(2, 77)]).note("a last block of 13"),
            Case::new(QuantiseQ8 {}, vec![rows(4, 5)]).note("less than a block"),
            Case::new(QuantiseQ8 {}, vec![block(&ties)]).note("ties"),
            Case::new(QuantiseQ8 {}, vec![block(&small)]).note("the least block that is not zero, and one below"),
            Case::new(QuantiseQ8 {}, vec![rows(2, 64).filled(Fill::Normal(1e38))]).note("near the largest numbers"),
            Case::new(QuantiseQ8 {}, vec![rows(2, 64).filled(Fill::Normal(1e-40))]).note("denormal numbers"),
            Case::new(QuantiseQ8 {}, vec![Given::zeros(&[2, 64])]).note("zeros"),
            Case::refuse(QuantiseQ8 {}, vec![Given::ints(&[1, 2], &[1, 2])], "x: expected f32, found i32[1, 2]"),
            Case::refuse(QuantiseQ8 {}, vec![Given::normal(&[1, 2, 32])], "x: expected 2 axes, found [1, 2, 32]"),
        ]
    }
}

/// Types of `q`, `d` and `sums`.
fn shapes(x: &Type) -> [Type; 3] {
    let (rows, width) = (x.rows(), x.width());
    let q = x.of(Element::I8);
    let sums = x.of(Element::I32).shaped([rows, width.div_ceil(HALF)]);
    [q, x.shaped([rows, width.div_ceil(BLOCK)]), sums]
}
