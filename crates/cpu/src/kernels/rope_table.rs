//! Cosines and sines of rotary angles: `angle = position * frequency` in f64, reduced there; cosine and sine rounded to
//! f32, then times `scale`.

use apprentice_graph::real::sin_cos;

use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::kernels::Kernel;

/// Rows of a unit.
const UNIT: usize = 8;

/// `positions [rows]`, `frequencies [pairs]` -> `table [rows, pairs, 2]`: cosine and sine.
pub struct RopeTable<'a> {
    /// Factor on both.
    pub scale: f32,
    /// `[rows]`.
    pub positions: &'a [i32],
    /// `[pairs]`: radians a position.
    pub frequencies: &'a [f64],
    /// `[rows, pairs, 2]`.
    pub table: Disjoint<'a, f32>,
}

impl Kernel for RopeTable<'_> {
    fn units(&self) -> usize {
        self.positions.len().div_ceil(UNIT)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, _: I, unit: usize, _: &mut [f32]) {
        let rows = unit * UNIT..((unit + 1) * UNIT).min(self.positions.len());
        let width = 2 * self.frequencies.len();
        // SAFETY: units are ranges of rows that follow each other.
        let table = unsafe { self.table.range(rows.start * width..rows.end * width) };
        for (position, row) in self.positions[rows].iter().zip(table.chunks_mut(width.max(1))) {
            for (frequency, turned) in self.frequencies.iter().zip(row.as_chunks_mut::<2>().0) {
                let (sine, cosine) = sin_cos(f64::from(*position) * frequency);
                *turned = [cosine as f32 * self.scale, sine as f32 * self.scale];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;
    use crate::kernels::run_all;
    use crate::kernels::suite::{Wanted, check};

    const POSITIONS: [i32; 11] = [0, 1, 2, 63, 64, 1000, 4095, 32_767, 131_071, 1_000_000, 7];
    const FREQUENCIES: [f64; 3] = [1.0, 0.074_989_420_933_245_58, 1e-4];

    #[test]
    fn within_rounding_of_the_library_s_sine() {
        let mut table = [f32::NAN; POSITIONS.len() * FREQUENCIES.len() * 2];
        let (positions, frequencies) = (&POSITIONS, &FREQUENCIES);
        run_all(
            Level::detect().unwrap(),
            &RopeTable { scale: 1.0, positions, frequencies, table: Disjoint::new(&mut table) },
        );
        for (at, found) in table.chunks(2).enumerate() {
            let angle = f64::from(POSITIONS[at / FREQUENCIES.len()]) * FREQUENCIES[at % FREQUENCIES.len()];
            for (found, truth) in found.iter().zip([angle.cos(), angle.sin()]) {
                assert!(
                    (f64::from(*found) - truth).abs() <= 6.0e-8,
                    "angle {angle}: {found} against {truth}"
                );
            }
        }
    }

    #[test]
    fn every_level_scales_after_rounding() {
        let angles = POSITIONS.iter().flat_map(|p| FREQUENCIES.iter().map(move |f| f64::from(*p) * f));
        let expected: Vec<f32> = angles
            .flat_map(|angle| {
                let (sine, cosine) = sin_cos(angle);
                [cosine as f32 * 1.1, sine as f32 * 1.1]
            })
            .collect();
        check(1, &[Wanted::new(&expected)], |outs, run| {
            run.all(&RopeTable {
                scale: 1.1,
                positions: &POSITIONS,
                frequencies: &FREQUENCIES,
                table: outs[0],
            });
        });
    }
}
