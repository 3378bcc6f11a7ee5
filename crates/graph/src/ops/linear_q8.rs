//! Linear map of activations that were rounded to 8 bits: `y[r, o] = sum over i of (d q)[r, i] * W[o, i]`, the weight read
//! from the blocks of its file, whose codes, factors and minima are integers.
//!
//! A strip of 32 columns is an integer product, folded into one float32 accumulator a result, strips ascending:
//!
//! ```text
//! I = sum over halves j of factor_j * sum over i of code_i * q_i           below 2^24: exact as float32
//! M = sum over halves j of minimum_j * sum over i of q_i                   likewise; only formats with minima
//! acc = fma(scale * d, I, acc)      then      acc = fma(minimum * d, M, acc)
//! ```
//!
//! `scale * d` and `minimum * d` are float32 products, rounded by themselves. Codes, factors, minima, `scale` and `minimum` of
//! each format are what [`Format::strip`] gives: `minimum` is `-dmin` for the K formats. No strip is skipped.
//!
//! `x` is what was rounded. It is not read: the gradient, straight through the rounding, is that of the smooth product.

use apprentice_quant::Format;
use serde::{Deserialize, Serialize};

use super::check;
use super::quantise_q8::{BLOCK, HALF};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::ops::LinearVjp;
use crate::types::{Element, Extent, ShapeError, Type};

/// `x [rows, in]`, `q [rows, in]` int8, `d [rows, in / 32]`, `sums [rows, in / 16]` int32, `weight [out, in]` ->
/// `[rows, out]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinearQ8 {}

impl Op<5, 1> for LinearQ8 {
    const NAME: &'static str = "linear_q8";
    const INPUTS: [Input; 5] = [
        Input::new("x"),
        Input::constant("q"),
        Input::constant("d"),
        Input::constant("sums"),
        Input::constant("weight"),
    ];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [x, q, d, sums, weight]: [&Type; 5]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        x.expect_rank("x", 2)?;
        let (rows, width) = (x.rows(), x.width());
        q.expect_same("q", &x.of(Element::I8))?;
        d.expect_same("d", &x.shaped([rows, width.div_ceil(BLOCK)]))?;
        sums.expect_same("sums", &x.of(Element::I32).shaped([rows, width.div_ceil(HALF)]))?;
        check::weight(weight, "weight")?;
        if !matches!(weight.element, Element::Weight(format) if format.grid().is_some()) {
            return Err(ShapeError::new("weight", "blocks of integers", weight));
        }
        if weight.width() != width {
            return Err(ShapeError::new("weight", format!("width {width}"), weight));
        }
        Ok([x.shaped([rows, weight.rows()])])
    }

    /// `dx = dy W`, as of [`struct@crate::ops::Linear`].
    fn vjp<'g>(&self, v: Vjp<'g, 5, 1>) -> Result<[Option<Value<'g>>; 5], Refusal> {
        let ([x, _, _, _, weight], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None; 5]) };
        let [dx] = x.builder().push(LinearVjp {}, [dy, weight]);
        Ok([Some(dx), None, None, None, None])
    }

    fn cost(&self, [x, q, d, sums, weight]: [&Type; 5]) -> Cost {
        let y = x.shaped([x.rows(), weight.rows()]);
        let products = x.shape.count().unwrap_or(usize::MAX).saturating_mul(weight.rows());
        Cost::moving(products.saturating_mul(2), &[q, d, sums, weight, &y])
    }

    fn oracle(&self, [_, q, d, _, weight]: [&Array; 5]) -> [Array; 1] {
        let mut y = Array::zeros([q.rows(), weight.rows()]);
        for row in 0..q.rows() {
            let x: Vec<f64> = q.row(row).iter().enumerate().map(|(i, q)| d.row(row)[i / BLOCK] * q).collect();
            for out in 0..weight.rows() {
                y.row_mut(row)[out] = x.iter().zip(weight.row(out)).map(|(x, w)| x * w).sum();
            }
        }
        [y]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |count, format: Format, out, width| {
            let [x, q, d, sums] = quantised(count, width);
            Case::new(LinearQ8 {}, vec![x, q, d, sums, Given::weight(format, &[out, width])])
        };
        let refused = |change: &dyn Fn(&mut Vec<Given>), message| {
            let mut inputs: Vec<Given> = quantised(3, 64).to_vec();
            inputs.push(Given::weight(Format::Q8_0, &[5, 64]));
            change(&mut inputs);
            Case::refuse(LinearQ8 {}, inputs, message)
        };
        vec![
            case(3, Format::Q8_0, 5, 64),
            case(70, Format::Q8_0, 19, 96).note("rows across a block of 64"),
            case(1, Format::Q8_0, 300, 32).note("one row, more than 256 results"),
            case(1, Format::Q4_0, 33, 64).note("one row, one result more than two groups of 16"),
            case(7, Format::Q4_0, 40, 160),
            case(5, Format::Q4_1, 7, 160),
            case(9, Format::Q5_0, 17, 96),
            case(2, Format::Q5_1, 16, 64),
            case(4, Format::Q2K, 6, 256),
            case(3, Format::Q3K, 18, 512),
            case(13, Format::Q4K, 6, 768).note("three blocks a row of the weight"),
            case(3, Format::Q5K, 6, 256),
            case(17, Format::Q6K, 3, 512),
            refused(
                &|inputs| inputs[1] = Given::normal(&[3, 64]).counted(Extent::Rows),
                "q: expected i8[3, 64]@rows, found f32[3, 64]@rows",
            ),
            refused(
                &|inputs| inputs[2] = Given::normal(&[3, 3]).counted(Extent::Rows),
                "d: expected f32[3, 2]@rows, found f32[3, 3]@rows",
            ),
            refused(
                &|inputs| inputs[4] = Given::weight(Format::F16, &[5, 64]),
                "weight: expected blocks of integers, found weight:F16[5, 64]",
            ),
            refused(
                &|inputs| inputs[4] = Given::weight(Format::Q8_0, &[5, 96]),
                "weight: expected width 64, found weight:Q8_0[5, 96]",
            ),
        ]
    }
}

/// `x`, `q`, `d` and `sums` of a case: integers of every size, and sums that are theirs.
fn quantised(count: usize, width: usize) -> [Given; 4] {
    let q: Vec<i32> = (0..count * width).map(|i| (i * 89 + i / 7 * 31) as i32 % 255 - 127).collect();
    let halves = q.chunks(width).flat_map(|row| row.chunks(HALF)).map(|half| half.iter().sum());
    let (sums, q): (Vec<i32>, Vec<f64>) = (halves.collect(), q.iter().map(|q| f64::from(*q)).collect());
    [
        Given::normal(&[count, width]),
        Given::of(Type::new(Element::I8, [count, width])).filled(Fill::Values(q)),
        Given::normal(&[count, width.div_ceil(BLOCK)]).filled(Fill::Positive(0.01)),
        Given::ints(&[count, width.div_ceil(HALF)], &sums),
    ]
    .map(|given| given.counted(Extent::Rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, differentiate, prune};

    #[test]
    fn the_gradient_is_that_of_the_smooth_product() {
        let nodes = |quantised: bool| {
            let builder = Builder::new();
            let x = builder.data("x", Type::f32([3, 64]));
            let weight = builder.weight("w", Type::new(Element::Weight(Format::Q8_0), [5, 64]));
            let dy = builder.data("dy", Type::f32([3, 5]));
            let [y] = if quantised {
                let [q, d, sums] = builder.push(crate::ops::QuantiseQ8 {}, [x]);
                builder.push(LinearQ8 {}, [x, q, d, sums, weight])
            } else {
                builder.push(crate::ops::Linear {}, [x, weight])
            };
            let ids = [x, y, dy].map(|value| value.id().expect("no error came before"));
            let graph = builder.finish().expect("the forward holds");
            let (mut graph, gradients) = differentiate(graph, &[(ids[1], ids[2])], &[ids[0]]).expect("a gradient");
            let builder = Builder::reopen(graph);
            builder.output("dx", builder.value(gradients[0].gradient));
            graph = prune(&builder.finish().expect("it holds"));
            graph.nodes().iter().map(|node| node.op.name()).collect::<Vec<_>>()
        };
        assert_eq!(nodes(true), ["linear_vjp"]);
        assert_eq!(nodes(true), nodes(false));
    }
}
