//! Rotary positions: each pair of channels of a head is turned by its row's angle,
//! `x' = x cos - y sin`, `y' = x sin + y cos`; the inverse turns back. Products and sums are rounded apart.
//!
//! The first `2 * pairs` channels of a head are turned, the rest passes. Row orders of the weights decide which channels
//! are a pair: neighbours `(2j, 2j + 1)` or halves `(j, j + pairs)`.
//!
//! Source: Su et al. 2021, "RoFormer", eq. 34.

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// Which channels of a head are a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pairing {
    /// `(2j, 2j + 1)`.
    Interleaved,
    /// `(j, j + pairs)`.
    Halves,
}

impl Pairing {
    /// The two channels of pair `pair` of `pairs`.
    pub fn channels(self, pair: usize, pairs: usize) -> (usize, usize) {
        match self {
            Pairing::Interleaved => (2 * pair, 2 * pair + 1),
            Pairing::Halves => (pair, pair + pairs),
        }
    }
}

/// `x [rows, heads, head_dim]`, `table [rows, pairs, 2]` of (cosine, sine) -> shape of `x`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rope {
    /// Which channels are a pair.
    pub pairing: Pairing,
    /// Turns back.
    pub inverse: bool,
}

impl Op<2, 1> for Rope {
    const NAME: &'static str = "rope";
    const INPUTS: [Input; 2] = [Input::new("x"), Input::constant("table")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [x, table]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        x.expect_rank("x", 3)?;
        table.expect_f32("table")?;
        table.expect_rank("table", 3)?;
        table.expect_rows_of("table", x)?;
        let pairs = table.shape.0[1];
        table.expect("table", &[x.rows(), pairs, 2])?;
        if pairs > x.width() / 2 {
            return Err(ShapeError::new("table", format!("at most {} pairs", x.width() / 2), pairs));
        }
        Ok([x.clone()])
    }

    /// A rotation's gradient is the rotation back.
    fn vjp<'g>(&self, v: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        let ([_, table], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None, None]) };
        let [dx] = dy.builder().push(Rope { inverse: !self.inverse, ..*self }, [dy, table]);
        Ok([Some(dx), None])
    }

    fn cost(&self, [x, table]: [&Type; 2]) -> Cost {
        Cost::moving(x.shape.count().unwrap_or(usize::MAX).saturating_mul(3), &[x, table, x])
    }

    fn oracle(&self, [x, table]: [&Array; 2]) -> [Array; 1] {
        let mut turned = x.clone();
        let pairs = table.row_count() / 2;
        for row in 0..x.rows() {
            let angles = table.row(row);
            for head in turned.row_mut(row).chunks_mut(x.width().max(1)) {
                for pair in 0..pairs {
                    let (cos, sin) = (angles[2 * pair], angles[2 * pair + 1]);
                    let sin = if self.inverse { -sin } else { sin };
                    let (first, second) = self.pairing.channels(pair, pairs);
                    let (x, y) = (head[first], head[second]);
                    head[first] = x * cos - y * sin;
                    head[second] = x * sin + y * cos;
                }
            }
        }
        [turned]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |pairing, inverse, rows, heads, head_dim, pairs| {
            let x = Given::normal(&[rows, heads, head_dim]).counted(Extent::Rows);
            let table = Given::normal(&[rows, pairs, 2]).counted(Extent::Rows);
            Case::new(Rope { pairing, inverse }, vec![x, table])
        };
        let odd = case(Pairing::Halves, false, 3, 2, 5, 3).inputs;
        let mut narrow = case(Pairing::Halves, false, 3, 2, 4, 2).inputs;
        narrow[1] = Given::normal(&[4, 2, 2]).counted(Extent::Rows);
        vec![
            case(Pairing::Interleaved, false, 3, 2, 64, 32),
            case(Pairing::Halves, false, 3, 2, 64, 32),
            case(Pairing::Interleaved, true, 3, 1, 20, 10).note("back, a head no multiple of 16"),
            case(Pairing::Halves, true, 3, 1, 20, 10).note("back, a head no multiple of 16"),
            case(Pairing::Interleaved, false, 70, 3, 24, 5).note("a part of each head, rows across a block"),
            case(Pairing::Halves, false, 70, 3, 24, 5).note("a part of each head, rows across a block"),
            case(Pairing::Halves, false, 2, 2, 7, 3).note("an odd head: its last channel passes"),
            Case::refuse(
                Rope { pairing: Pairing::Halves, inverse: false },
                odd,
                "table: expected at most 2 pairs, found 3",
            ),
            Case::refuse(
                Rope { pairing: Pairing::Interleaved, inverse: false },
                narrow,
                "table: expected the rows of f32[3, 2, 4]@rows, found f32[4, 2, 2]@rows",
            ),
        ]
    }
}
