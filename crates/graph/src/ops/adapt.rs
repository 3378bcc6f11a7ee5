//! Low-rank adapters on the rows that name one: `y' = y + scale * B A x` with the matrices of the row's own adapter.
//!
//! The matrices of all adapters of a batch stand below one another, one row a rank: `A [rank_rows, in]` and `B`
//! transposed, `[rank_rows, out]`. Adapter `k` has the `rank` rows from `first`, `table[k] = (first, rank)`. Three
//! roundings: `u = A x`, then `B u`, then its product with the scale, which is added. Rows are selected, never masked: a
//! row that names no adapter keeps its bytes, -0 and infinities included.
//!
//! Source: Hu et al. 2021, "LoRA", eq. 3.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::check;
use super::table::at;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::ops::AdaptVjp;
use crate::types::{Element, Extent, ShapeError, Type};

/// `y [rows, out]`, `x [rows, in]`, `a [rank_rows, in]`, `b [rank_rows, out]`, `table i32 [adapters, 2]` (first rank row,
/// rank), `scales [adapters]`, `named i32 [rows]` (an entry of the table, or -1) -> `[rows, out]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Adapt {}

impl Op<7, 1> for Adapt {
    const NAME: &'static str = "adapt";
    const INPUTS: [Input; 7] = [
        Input::new("y"),
        Input::new("x"),
        Input::new("a"),
        Input::new("b"),
        Input::constant("table"),
        Input::constant("scales"),
        Input::constant("named"),
    ];
    const OUTPUTS: [&'static str; 1] = ["adapted"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [y, x, a, b, table, scales, named]: [&Type; 7]) -> Result<[Type; 1], ShapeError> {
        y.expect_f32("y")?;
        y.expect_rank("y", 2)?;
        check_adapters(y, x, [a, b, table, scales, named])?;
        Ok([y.clone()])
    }

    /// `dy` passes to `y` as it is; `dx`, `da` and `db` are those of `adapt_vjp`.
    fn vjp<'g>(&self, v: Vjp<'g, 7, 1>) -> Result<[Option<Value<'g>>; 7], Refusal> {
        let mut gradients = [None; 7];
        let ([_, x, a, b, table, scales, named], [Some(dy)]) = (v.inputs, v.cotangents) else {
            return Ok(gradients);
        };
        gradients[0] = Some(dy);
        if v.wanted[1..4].contains(&true) {
            let builder = dy.builder();
            let blocks = builder.blocks(dy);
            let [_, _, da, db, ..] = v.sums;
            let inputs = [dy, x, a, b, table, scales, named, blocks, da, db];
            let [dx, da, db] = builder.push(AdaptVjp {}, inputs);
            for (slot, gradient) in [(1, dx), (2, da), (3, db)] {
                gradients[slot] = v.wanted[slot].then_some(gradient);
            }
        }
        Ok(gradients)
    }

    fn cost(&self, [y, x, a, b, table, scales, named]: [&Type; 7]) -> Cost {
        let products = x.rows().saturating_mul(a.rows()).saturating_mul(x.width() + y.width());
        Cost::moving(products.saturating_mul(2), &[y, x, a, b, table, scales, named, y])
    }

    fn oracle(&self, [y, x, a, b, table, scales, named]: [&Array; 7]) -> [Array; 1] {
        let mut adapted = y.clone();
        for row in 0..y.rows() {
            let Some((ranks, scale)) = adapter_of(row, table, scales, named) else { continue };
            let mut product = vec![0.0; y.width()];
            for rank in ranks {
                let u = dot(a.row(rank), x.row(row));
                for (sum, b) in product.iter_mut().zip(b.row(rank)) {
                    *sum += b * u;
                }
            }
            for (y, product) in adapted.row_mut(row).iter_mut().zip(product) {
                *y += scale * product;
            }
        }
        [adapted]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |rows: usize, width: usize, out: usize, named: &dyn Fn(usize) -> i32| {
            let mut inputs = vec![Given::normal(&[rows, out]).counted(Extent::Rows)];
            inputs.extend(two_adapters(rows, width, out, named));
            Case::new(Adapt {}, inputs)
        };
        let mut no_scale = case(3, 64, 32, &|_| 0).inputs;
        no_scale[5] = Given::normal(&[3]).counted(Extent::Adapters);
        let mut short_b = case(3, 64, 32, &|_| 0).inputs;
        short_b[3] = Given::normal(&[7, 32]);
        vec![
            case(3, 64, 32, &|row| row as i32 - 1).note("a row without, one of each"),
            case(300, 20, 33, &|row| (row % 3) as i32 - 1)
                .note("rows across blocks, widths no multiples of 16"),
            case(70, 33, 7, &|row| i32::from(row < 40)).note("every row names one"),
            case(4, 16, 300, &|_| -1).note("no row names one"),
            case(5, 96, 300, &|row| [-1, 1, 1, -1, 0][row]).note("more than 256 results"),
            Case::refuse(Adapt {}, no_scale, "scales: expected f32[2]@adapters, found f32[3]@adapters"),
            Case::refuse(Adapt {}, short_b, "b: expected f32[8, 32], found f32[7, 32]"),
        ]
    }
}

/// Requires `x`, the matrices and the tables to fit `y [rows, out]`.
pub(super) fn check_adapters(
    y: &Type,
    x: &Type,
    [a, b, table, scales, named]: [&Type; 5],
) -> Result<(), ShapeError> {
    x.expect_f32("x")?;
    x.expect_rank("x", 2)?;
    x.expect_rows_of("x", y)?;
    a.expect_rank("a", 2)?;
    check::plain(a, "a", &[a.rows(), x.width()])?;
    check::plain(b, "b", &[a.rows(), y.width()])?;
    table.expect_element("table", Element::I32)?;
    table.expect("table", &[table.rows(), 2])?;
    scales.expect_same("scales", &Type { element: Element::F32, ..table.shaped([table.rows()]) })?;
    check::index(named, "named")?;
    named.expect_rows_of("named", y)
}

/// Rank rows and scale of the adapter that a row names.
pub(super) fn adapter_of(
    row: usize,
    table: &Array,
    scales: &Array,
    named: &Array,
) -> Option<(Range<usize>, f64)> {
    let adapter = usize::try_from(named.int(row)).ok()?;
    let first = at(table, 2 * adapter);
    Some((first..first + at(table, 2 * adapter + 1), scales.data[adapter]))
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `x`, the matrices of two adapters of rank 2 and 5 with an unused rank row between them, their tables and the names.
pub(super) fn two_adapters(
    rows: usize,
    width: usize,
    out: usize,
    named: &dyn Fn(usize) -> i32,
) -> Vec<Given> {
    let names: Vec<i32> = (0..rows).map(named).collect();
    vec![
        Given::normal(&[rows, width]).counted(Extent::Rows),
        Given::normal(&[8, width]),
        Given::normal(&[8, out]),
        Given::ints(&[2, 2], &[0, 2, 3, 5]).counted(Extent::Adapters),
        Given::normal(&[2]).counted(Extent::Adapters).filled(Fill::Values(vec![2.0, -0.75])),
        Given::ints(&[rows], &names).counted(Extent::Rows),
    ]
}
