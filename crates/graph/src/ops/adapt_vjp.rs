//! Gradient of `adapt` to `x`, `a` and `b`: with `g = scale * dy` and `u = A x` of a row's own adapter,
//! `du_j = sum over o of g[o] B[j, o]`, `dx = sum over j of du_j A[j]`, `da[j] = sum over rows of du_j x`,
//! `db[j] = sum over rows of u_j g`.
//!
//! `du` and `dx` go in segments of 256 of the summed and the result's index as every gradient to an input; sums over rows
//! follow the block table, onto the sums so far. A row of `da` and `db` gets the sums of the rows that name its adapter and
//! +0 otherwise; a row that names none has `dx = +0`.

use serde::{Deserialize, Serialize};

use super::adapt::{adapter_of, check_adapters, dot, two_adapters};
use super::check;
use super::table::{block_rows, block_table};
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `dy [rows, out]`, then `adapt`'s `x`, `a`, `b`, `table`, `scales`, `named`, and `blocks i32 [blocks, 2]`, and
/// the sums so far of `da` and `db` (+0 where absent) -> `dx` like `x`, `da` like `a`, `db` like `b`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AdaptVjp {}

impl Op<10, 3> for AdaptVjp {
    const NAME: &'static str = "adapt_vjp";
    const INPUTS: [Input; 10] = [
        Input::new("dy"),
        Input::new("x"),
        Input::new("a"),
        Input::new("b"),
        Input::constant("table"),
        Input::constant("scales"),
        Input::constant("named"),
        Input::constant("blocks"),
        Input::constant("da_sum").optional(),
        Input::constant("db_sum").optional(),
    ];
    const OUTPUTS: [&'static str; 3] = ["dx", "da", "db"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(
        &self,
        [dy, x, a, b, table, scales, named, blocks, da_sum, db_sum]: [&Type; 10],
    ) -> Result<[Type; 3], ShapeError> {
        dy.expect_f32("dy")?;
        dy.expect_rank("dy", 2)?;
        check_adapters(dy, x, [a, b, table, scales, named])?;
        check::blocks(blocks, "blocks", dy)?;
        for (sum, name, matrix) in [(da_sum, "da_sum", a), (db_sum, "db_sum", b)] {
            if sum.is_present() {
                sum.expect_same(name, matrix)?;
            }
        }
        Ok([x.clone(), a.clone(), b.clone()])
    }

    fn vjp<'g>(&self, _: Vjp<'g, 10, 3>) -> Result<[Option<Value<'g>>; 10], Refusal> {
        Err(Refusal("second order through adapt_vjp"))
    }

    fn cost(&self, [dy, x, a, b, table, scales, named, blocks, _, _]: [&Type; 10]) -> Cost {
        let products = x.rows().saturating_mul(a.rows()).saturating_mul(3 * x.width() + 2 * dy.width());
        Cost::moving(products.saturating_mul(2), &[dy, x, a, b, table, scales, named, blocks, x, a, b])
    }

    fn oracle(
        &self,
        [dy, x, a, b, table, scales, named, blocks, da_sum, db_sum]: [&Array; 10],
    ) -> [Array; 3] {
        let mut dx = Array::zeros(x.shape.clone());
        let start = |sum: &Array, matrix: &Array| {
            sum.present().cloned().unwrap_or_else(|| Array::zeros(matrix.shape.clone()))
        };
        let (mut da, mut db) = (start(da_sum, a), start(db_sum, b));
        for row in block_rows(blocks).flatten() {
            let Some((ranks, scale)) = adapter_of(row, table, scales, named) else { continue };
            let g: Vec<f64> = dy.row(row).iter().map(|dy| scale * dy).collect();
            for rank in ranks {
                let u = dot(a.row(rank), x.row(row));
                let du = dot(&g, b.row(rank));
                for (dx, a) in dx.row_mut(row).iter_mut().zip(a.row(rank)) {
                    *dx += du * a;
                }
                for (da, x) in da.row_mut(rank).iter_mut().zip(x.row(row)) {
                    *da += du * x;
                }
                for (db, g) in db.row_mut(rank).iter_mut().zip(&g) {
                    *db += u * g;
                }
            }
        }
        [dx, da, db]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |sequences: &[(usize, usize)], width: usize, out: usize, named: &dyn Fn(usize) -> i32| {
            let rows = sequences.iter().map(|(rows, _)| rows).sum();
            let table = block_table(sequences);
            let mut inputs = vec![Given::normal(&[rows, out]).counted(Extent::Rows)];
            inputs.extend(two_adapters(rows, width, out, named));
            inputs.push(Given::ints(&[table.len() / 2, 2], &table).counted(Extent::RowBlocks));
            inputs.extend([Given::absent(), Given::absent()]);
            Case::new(AdaptVjp {}, inputs)
        };
        let onto = |case: Case<Self>, of_a: bool, of_b: bool| {
            let mut inputs = case.inputs;
            for (given, matrix, sum) in [(of_a, 2, 8), (of_b, 3, 9)] {
                if given {
                    inputs[sum] = Given::of(inputs[matrix].ty.clone());
                }
            }
            Case::new(AdaptVjp {}, inputs)
        };
        let two = [(150, 40), (150, 7)]; // three blocks each, the first short
        let mut turned = onto(case(&[(3, 0)], 64, 32, &|_| 0), true, true).inputs;
        turned.swap(8, 9);
        let mut wrong = case(&[(3, 0)], 64, 32, &|_| 0).inputs;
        wrong[7] = Given::ints(&[1, 3], &[0, 3, 0]).counted(Extent::RowBlocks);
        vec![
            case(&[(3, 0)], 64, 32, &|row| row as i32 - 1).note("a row without, one of each"),
            case(&two, 20, 33, &|row| (row % 3) as i32 - 1)
                .note("two sequences of three blocks, rows of all kinds mixed"),
            case(&two, 33, 7, &|row| i32::from(row < 150)).note("a sequence an adapter"),
            case(&two, 16, 17, &|row| if row < 140 { -1 } else { 0 })
                .note("blocks without a row of an adapter"),
            case(&[(70, 63)], 300, 600, &|row| (row % 2) as i32).note("widths over 256"),
            case(&[(4, 0)], 16, 16, &|_| -1).note("no row names one: all gradients are zero"),
            onto(case(&two, 20, 33, &|row| (row % 3) as i32 - 1), true, true).note("onto both sums so far"),
            onto(case(&two, 33, 7, &|row| i32::from(row < 150)), true, false).note("onto the sum of a"),
            onto(case(&[(70, 63)], 300, 600, &|row| (row % 2) as i32), false, true)
                .note("onto the sum of b, widths over 256"),
            onto(case(&[(4, 0)], 16, 16, &|_| -1), true, true).note("no row names one: the sums stay"),
            Case::refuse(AdaptVjp {}, turned, "da_sum: expected f32[8, 64], found f32[8, 32]"),
            Case::refuse(
                AdaptVjp {},
                wrong,
                "blocks: expected the block table of f32[3, 32]@rows, found i32[1, 3]@row_blocks",
            ),
        ]
    }
}
