//! Embedding: `y[r] = table[tokens[r]]`, decoded from the blocks of the file.

use apprentice_quant::Format;
use serde::{Deserialize, Serialize};

use super::{check, table::at};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `tokens i32 [rows]`, `table` weight `[vocab, width]` -> `[rows, width]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Embed {}

impl Op<2, 1> for Embed {
    const NAME: &'static str = "embed";
    const INPUTS: [Input; 2] = [Input::constant("tokens"), Input::constant("table")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Exact;

    fn shape(&self, [tokens, table]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        check::index(tokens, "tokens")?;
        check::weight(table, "table")?;
        Ok([Type { extent: tokens.extent, ..Type::f32([tokens.rows(), table.width()]) }])
    }

    /// Neither input has a gradient: the table is the model's, as it lies in its file.
    fn vjp<'g>(&self, _: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        Ok([None, None])
    }

    fn cost(&self, [tokens, table]: [&Type; 2]) -> Cost {
        let read = table.element.bytes(table.width()).unwrap_or(usize::MAX);
        let row = read.saturating_add(table.width().saturating_mul(4));
        Cost::new(0, tokens.rows().saturating_mul(row))
    }

    fn oracle(&self, [tokens, table]: [&Array; 2]) -> [Array; 1] {
        let mut y = Array::zeros([tokens.rows(), table.width()]);
        for row in 0..tokens.rows() {
            y.row_mut(row).copy_from_slice(table.row(at(tokens, row)));
        }
        [y]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |tokens: &[i32], format: Format, shape: &[usize]| {
            let tokens = Given::ints(&[tokens.len()], tokens).counted(Extent::Rows);
            Case::new(Embed {}, vec![tokens, Given::weight(format, shape)])
        };
        vec![
            case(&[4, 0, 4, 9, 1], Format::Q8_0, &[10, 64])
                .note("a token twice, the first and the last of the vocabulary"),
            case(&[2, 0, 1], Format::Q4K, &[3, 256]),
            case(&[2, 0, 1], Format::Q6K, &[3, 512]).note("two blocks a row"),
            case(&[6, 5], Format::Q4_1, &[7, 96]),
            case(&[1, 3], Format::F16, &[4, 20]).note("a width that is no multiple of 16"),
            case(&[1, 0, 3], Format::F32, &[4, 33]),
            Case::refuse(
                Embed {},
                vec![Given::ints(&[1], &[0]).counted(Extent::Rows), Given::normal(&[10, 64])],
                "table: expected a weight, found f32[10, 64]",
            ),
            Case::refuse(
                Embed {},
                vec![Given::ints(&[1], &[0]).counted(Extent::Rows), Given::weight(Format::Q8_0, &[10, 33])],
                "table: expected rows of whole blocks, found weight:Q8_0[10, 33]",
            ),
        ]
    }
}
