//! Sum over all axes but the last: `y[w] = sum over rows and inner axes of x[.., w]`.
//!
//! The order is that of gradients of weights: a block of the table is a chain from +0 (rows ascending, inner axes ascending
//! inside a row), and the sums of blocks are added in table order. Packing and cuts leave the bits alone.

use serde::{Deserialize, Serialize};

use super::check;
use super::table::{block_rows, block_table};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `x [rows, .., width]`, `blocks i32 [blocks, 2]` -> `[width]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SumRows {}

impl Op<2, 1> for SumRows {
    const NAME: &'static str = "sum_rows";
    const INPUTS: [Input; 2] = [Input::new("x"), Input::constant("blocks")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [x, blocks]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        check::axes(x, "x", 2)?;
        check::blocks(blocks, "blocks", x)?;
        Ok([Type::f32([x.width()])])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        Err(Refusal("a sum over rows has no second-order gradient here"))
    }

    fn cost(&self, [x, _]: [&Type; 2]) -> Cost {
        Cost::elementwise(x, 1, 1)
    }

    fn oracle(&self, [x, blocks]: [&Array; 2]) -> [Array; 1] {
        let mut sum = Array::zeros([x.width()]);
        for row in block_rows(blocks).flatten() {
            for vector in x.row(row).chunks(x.width().max(1)) {
                for (sum, x) in sum.data.iter_mut().zip(vector) {
                    *sum += x;
                }
            }
        }
        [sum]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |inner: &[usize], sequences: &[(usize, usize)], extent: Extent, blocks: Extent| {
            let table = block_table(sequences);
            let mut shape = vec![sequences.iter().map(|(rows, _)| rows).sum()];
            shape.extend(inner);
            let table = Given::ints(&[table.len() / 2, 2], &table).counted(blocks);
            Case::new(SumRows {}, vec![Given::normal(&shape).counted(extent), table])
        };
        let rows = |inner: &[usize], sequences: &[(usize, usize)]| {
            case(inner, sequences, Extent::Rows, Extent::RowBlocks)
        };
        vec![
            rows(&[64], &[(3, 0)]).note("one short block"),
            rows(&[20], &[(150, 40), (150, 7)])
                .note("two sequences of three blocks, the first of each short"),
            rows(&[3, 33], &[(70, 63)]).note("inner axes; a first block of one row"),
            case(&[17], &[(5, 0), (80, 60)], Extent::Labelled, Extent::LabelledBlocks).note("labelled rows"),
            Case::refuse(
                SumRows {},
                vec![
                    Given::normal(&[3, 64]).counted(Extent::Rows),
                    Given::ints(&[1, 2], &[0, 3]).counted(Extent::LabelledBlocks),
                ],
                "blocks: expected the block table of f32[3, 64]@rows, found i32[1, 2]@labelled_blocks",
            ),
            Case::refuse(
                SumRows {},
                vec![
                    Given::normal(&[3]).counted(Extent::Rows),
                    Given::ints(&[1, 2], &[0, 3]).counted(Extent::RowBlocks),
                ],
                "x: expected at least 2 axes, found [3]",
            ),
        ]
    }
}
