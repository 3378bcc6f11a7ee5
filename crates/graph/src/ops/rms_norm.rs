//! RMS norm: `y = x * r * gain`, `r = (mean(x^2) + eps)^(-1/2)` over the last axis.
//!
//! Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4.

use serde::{Deserialize, Serialize};

use super::check;
use crate::array::Array;
use crate::build::Value;
use crate::op::{Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{Extent, ShapeError, Type};

/// `x [.., width]`, `gain [width]` -> `[.., width]`. `eps` is added to the mean square.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f32,
}

impl Op<2, 1> for RmsNorm {
    const NAME: &'static str = "rms_norm";
    const INPUTS: [Input; 2] = [Input::new("x"), Input::new("gain")];
    const OUTPUTS: [&'static str; 1] = ["y"];
    const TOLERANCE: Tolerance = Tolerance::Rounding;
    const STORAGE: Storage = Storage::InPlace(0);

    fn shape(&self, [x, gain]: [&Type; 2]) -> Result<[Type; 1], ShapeError> {
        x.expect_f32("x")?;
        gain.expect_f32("gain")?;
        gain.expect("gain", &[x.width()])?;
        check::finite("eps", self.eps)?;
        Ok([x.clone()])
    }

    /// With `h = dy * gain`: `dx = r h - r^3 x mean(h x)`, `dgain = sum over rows of dy x r`.
    fn vjp<'g>(&self, v: Vjp<'g, 2, 1>) -> Result<[Option<Value<'g>>; 2], Refusal> {
        let ([x, gain], [Some(dy)]) = (v.inputs, v.cotangents) else { return Ok([None, None]) };
        let width = x.width() as f32;
        let r = x.dot(x).divide(width).offset(self.eps).rsqrt(); // the forward's own dot: the same bits
        let dx = v.wanted[0].then(|| {
            let h = dy * gain;
            let pull = (h.dot(x).divide(width) * r * r * r).scale(-1.0);
            h * r + x * pull
        });
        let dgain = v.wanted[1].then(|| (dy * x * r).sum_rows());
        Ok([dx, dgain])
    }

    fn cost(&self, [x, _]: [&Type; 2]) -> Cost {
        Cost::elementwise(x, 4, 2)
    }

    fn oracle(&self, [x, gain]: [&Array; 2]) -> [Array; 1] {
        [x.map_last(|row| {
            let mean_square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
            let r = (mean_square + f64::from(self.eps)).sqrt().recip();
            row.iter().zip(&gain.data).map(|(v, g)| v * r * g).collect()
        })]
    }

    fn cases() -> Vec<Case<Self>> {
        let op = || RmsNorm { eps: 1e-5 };
        let rows = |shape: &[usize]| Given::normal(shape).counted(Extent::Rows);
        vec![
            Case::new(op(), vec![rows(&[3, 64]), Given::normal(&[64])]),
            Case::new(op(), vec![rows(&[5, 2, 33]), Given::normal(&[33])])
                .note("a width that is no multiple of 16"),
            Case::new(RmsNorm { eps: 1e-2 }, vec![rows(&[2, 1]), Given::normal(&[1])]).note("one element"),
            Case::new(op(), vec![rows(&[2, 32]).filled(Fill::Normal(1e-3)), Given::normal(&[32])])
                .note("eps matters as much as the values"),
            Case::refuse(op(), vec![rows(&[3, 64]), Given::normal(&[63])], "gain: expected [64], found [63]"),
            Case::refuse(
                RmsNorm { eps: f32::NAN },
                vec![rows(&[3, 64]), Given::normal(&[64])],
                "eps: expected a finite number, found NaN",
            ),
        ]
    }
}
