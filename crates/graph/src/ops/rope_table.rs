//! Rotary angles of rows: `table[r, j] = scale * (cos, sin)(position[r] * frequency[j])`.
//!
//! The angle is a float64 product, reduced and turned into sine and cosine by our own float64 functions, then rounded to
//! float32 once: no table of the machine's library enters a result. `scale` is 1 but for schemes that stretch the context.
//!
//! Source: Su et al. 2021, "RoFormer", eq. 34; Peng et al. 2023, "YaRN", section 3.4 for the scale.

use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Tolerance, Vjp};
use crate::types::{Element, Extent, ShapeError, Type};

/// `positions i32 [rows]`, `frequencies f64 [pairs]` (radians a position) -> `[rows, pairs, 2]`, each (cosine, sine).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RopeTable {
    /// Factor on cosine and sine.
    pub scale: f32,
}

impl Op<2, 1> for RopeTable {
    const NAME: &'static str = "rope_table";
    const INPUTS: [Input; 2] = [Input::constant("positions"), Input::constant("frequencies")];
    const OUTPUTS: [&'static str; 1] = ["table"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;

    fn shape(&self, [positions, frequencies]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        check::index(positions, "positions")?;
        frequencies.expect_same("frequencies", &Type::f64([frequencies.width()]))?;
        check::finite("scale", self.scale)?;
        let pairs = frequencies.width();
        Ok([positions.of(Element::F32).shaped([positions.rows(), pairs, 2])])
    }

    /// Positions and frequencies have no gradient.
    fn vjp<'g>(&self, _: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        Ok([None, None])
    }

    fn cost(&self, [positions, frequencies]: [&Type; 2]) -> Cost {
        let angles = positions.rows().saturating_mul(frequencies.width());
        Cost::new(angles.saturating_mul(60), angles.saturating_mul(8))
    }

    fn oracle(&self, [positions, frequencies]: [&Array; 2]) -> [Array; 1] {
        let scale = f64::from(self.scale);
        let angles = positions.data.iter().flat_map(|p| frequencies.data.iter().map(move |f| p * f));
        let data = angles.flat_map(|angle| [scale * angle.cos(), scale * angle.sin()]).collect();
        [Array::new([positions.rows(), frequencies.rows(), 2], data)]
    }

    fn cases() -> Vec<Case<Self>> {
        let case = |positions: &[i32], pairs: usize, base: f64, scale: f32| {
            let frequencies = (0..pairs).map(|pair| base.powf(-(pair as f64) / pairs as f64)).collect();
            let positions = Given::ints(&[positions.len()], positions).counted(Extent::Rows);
            let frequencies = Given::of(Type::f64([pairs])).filled(Fill::Values(frequencies));
            Case::new(RopeTable { scale }, vec![positions, frequencies])
        };
        let long: Vec<i32> = (60..130).collect();
        vec![
            case(&[0, 1, 2, 63, 64], 32, 1e4, 1.0),
            case(&long, 10, 1e5, 1.0).note("rows across a block of 64"),
            case(&[131_071, 7, 1_000_000], 32, 1e6, 1.0).note("far positions, in no order"),
            case(&[3, 4], 5, 1e4, 1.1875).note("a scale"),
            Case::refuse(
                RopeTable { scale: 1.0 },
                vec![Given::ints(&[1], &[0]).counted(Extent::Rows), Given::normal(&[32])],
                "frequencies: expected f64[32], found f32[32]",
            ),
            Case::refuse(
                RopeTable { scale: f32::INFINITY },
                vec![Given::ints(&[1], &[0]), Given::of(Type::f64([2]))],
                "scale: expected a finite number, found inf",
            ),
        ]
    }
}
