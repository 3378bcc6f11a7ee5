//! Sums of rows by weights: `out[r] = fma(weight[r][j], values[j], out[r])`, `j` ascending, a range of `j` for each `r`.
//!
//! The chain of one element of `out` does not depend on its neighbours; vectors lie along the row, and several rows of
//! `out` share the loads of `values` where their ranges meet.

use std::ops::Range;

use crate::isa::{Isa, LANES, Task};

/// The factor of row `r` and step `j` is `data[r * row + j * step]`.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    /// The factors.
    pub data: &'a [f32],
    /// Elements from one row of `out` to the next.
    pub row: usize,
    /// Elements from one step to the next.
    pub step: usize,
}

/// Row `j` is `data[j * stride..][..width]`.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    /// The rows.
    pub data: &'a [f32],
    /// Elements from one row to the next.
    pub stride: usize,
    /// Elements of a row.
    pub width: usize,
}

/// Work for [`add_weighted`].
struct Sum<'a, 'o> {
    weights: Weights<'a>,
    values: Values<'a>,
    steps: &'a [Range<usize>],
    out: &'o mut [f32],
    out_stride: usize,
}

/// Adds `sum over j in steps[r] of weight[r][j] * values[j]` to `out[r * out_stride..][..width]`, one fused chain.
///
/// A function of its own in the machine code, so that its callers share it.
///
/// # Panics
/// If a slice ends too early.
#[inline(always)]
pub(crate) fn add_weighted<I: Isa>(
    isa: I,
    weights: Weights,
    values: Values,
    steps: &[Range<usize>],
    out: &mut [f32],
    out_stride: usize,
) {
    isa.run(Sum { weights, values, steps, out, out_stride });
}

impl Task for Sum<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Sum { weights, values, steps, out, out_stride } = self;
        let mut row = 0;
        while row < steps.len() {
            let height = if I::REGISTERS >= 32 {
                4
            } else if I::REGISTERS >= 8 {
                2
            } else {
                1
            };
            let (mut start, mut end) = (0, usize::MAX);
            let group = &steps[row..(row + height).min(steps.len())];
            for steps in group {
                start = start.max(steps.start);
                end = end.min(steps.end);
            }
            if group.len() < height || start >= end {
                (start, end) = (usize::MAX, usize::MAX); // nothing together
            }
            // Each alone up to where all begin, then all of them, then each to its own end.
            single(isa, weights, values, row, group, 0..start, out, out_stride);
            if start < end {
                let shared = start..end;
                if I::REGISTERS >= 32 {
                    across::<I, 4, 4>(isa, weights, values, row, shared, out, out_stride);
                } else if I::REGISTERS >= 8 {
                    across::<I, 2, 2>(isa, weights, values, row, shared, out, out_stride);
                } else {
                    across::<I, 1, 1>(isa, weights, values, row, shared, out, out_stride);
                }
                single(isa, weights, values, row, group, end..usize::MAX, out, out_stride);
            }
            row += group.len();
        }
    }
}

/// Rows from `first`, each by itself, over what `part` leaves of its steps.
#[allow(clippy::too_many_arguments)] // as `tile`
#[inline(always)]
fn single<I: Isa>(
    isa: I,
    weights: Weights,
    values: Values,
    first: usize,
    steps: &[Range<usize>],
    part: Range<usize>,
    out: &mut [f32],
    out_stride: usize,
) {
    for (row, steps) in steps.iter().enumerate() {
        let steps = steps.start.max(part.start)..steps.end.min(part.end);
        if !steps.is_empty() {
            isa.run(Row { weights, values, row: first + row, steps, out, out_stride });
        }
    }
}

/// One row of a [`Sum`].
struct Row<'a, 'o> {
    weights: Weights<'a>,
    values: Values<'a>,
    row: usize,
    steps: Range<usize>,
    out: &'o mut [f32],
    out_stride: usize,
}

impl Task for Row<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Row { weights, values, row, steps, out, out_stride } = self;
        if I::REGISTERS >= 8 {
            across::<I, 1, 4>(isa, weights, values, row, steps, out, out_stride);
        } else {
            across::<I, 1, 1>(isa, weights, values, row, steps, out, out_stride);
        }
    }
}

/// `HEIGHT` rows from `first` with the same steps, `WIDTH` vectors of the row at a time.
#[inline(always)]
fn across<I: Isa, const HEIGHT: usize, const WIDTH: usize>(
    isa: I,
    weights: Weights,
    values: Values,
    first: usize,
    steps: Range<usize>,
    out: &mut [f32],
    out_stride: usize,
) {
    if steps.is_empty() {
        return;
    }
    let mut column = 0;
    while column + WIDTH * LANES <= values.width {
        tile::<I, HEIGHT, WIDTH>(isa, weights, values, first, steps.clone(), column, LANES, out, out_stride);
        column += WIDTH * LANES;
    }
    while column < values.width {
        let lanes = LANES.min(values.width - column);
        tile::<I, HEIGHT, 1>(isa, weights, values, first, steps.clone(), column, lanes, out, out_stride);
        column += lanes;
    }
}

/// `HEIGHT` rows and `WIDTH` vectors from `column`; `lanes` is sixteen but for a last vector by itself.
#[allow(clippy::too_many_arguments)] // the one place where the loops meet
#[inline(always)]
fn tile<I: Isa, const HEIGHT: usize, const WIDTH: usize>(
    isa: I,
    weights: Weights,
    values: Values,
    first: usize,
    steps: Range<usize>,
    column: usize,
    lanes: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    let last = steps.end - 1; // the caller has at least one step
    assert!((first + HEIGHT - 1) * weights.row + last * weights.step < weights.data.len());
    assert!(last * values.stride + column + (WIDTH - 1) * LANES + lanes <= values.data.len());
    let mut sums = [[isa.zero(); WIDTH]; HEIGHT];
    for (row, sums) in sums.iter_mut().enumerate() {
        for (part, sum) in sums.iter_mut().enumerate() {
            *sum = isa.load_partial(&out[(first + row) * out_stride + column + part * LANES..][..lanes]);
        }
    }
    for step in steps {
        let mut taken = [isa.zero(); WIDTH];
        for (part, value) in taken.iter_mut().enumerate() {
            let start = step * values.stride + column + part * LANES;
            *value = if lanes == LANES {
                // SAFETY: the second assertion above, for the last step, covers every earlier one.
                unsafe { isa.load_at(values.data.as_ptr().add(start)) }
            } else {
                isa.load_partial(&values.data[start..start + lanes])
            };
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the first assertion above, for the last row and step, covers every earlier one.
            let weight =
                unsafe { *weights.data.get_unchecked((first + row) * weights.row + step * weights.step) };
            let weight = isa.splat(weight);
            for (value, sum) in taken.iter().zip(sums) {
                *sum = isa.fma(weight, *value, *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (part, sum) in sums.iter().enumerate() {
            isa.store_partial(&mut out[(first + row) * out_stride + column + part * LANES..][..lanes], *sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;
    use crate::kernels::suite::{Numbers, fma, same};

    struct Added<'a>(Weights<'a>, Values<'a>, &'a [Range<usize>], &'a mut [f32], usize);

    impl Task for Added<'_> {
        type Output = ();
        #[inline(always)]
        fn run<I: Isa>(self, isa: I) {
            add_weighted(isa, self.0, self.1, self.2, self.3, self.4);
        }
    }

    #[test]
    fn chains_ascend_over_each_row_s_own_steps() {
        for (seed, (rows, steps, width)) in
            [(1, 1, 1), (4, 9, 64), (7, 20, 50), (10, 64, 130), (3, 5, 15)].into_iter().enumerate()
        {
            let mut numbers = Numbers::new(seed as u64 + 1);
            let weights = numbers.hard(rows * steps);
            let values = numbers.hard(steps * (width + 2));
            let start = numbers.normal(rows * (width + 1));
            let ranges: Vec<Range<usize>> = (0..rows)
                .map(|_| {
                    let (a, b) = (numbers.below(steps + 1), numbers.below(steps + 1));
                    a.min(b)..a.max(b)
                })
                .collect();
            for (row, step) in [(steps, 1), (1, rows)] {
                let mut expected = start.clone();
                for (r, range) in ranges.iter().enumerate() {
                    for j in range.clone() {
                        for c in 0..width {
                            let out = &mut expected[r * (width + 1) + c];
                            *out = fma(weights[r * row + j * step], values[j * (width + 2) + c], *out);
                        }
                    }
                }
                for level in Level::all() {
                    let mut out = start.clone();
                    let weights = Weights { data: &weights, row, step };
                    let values = Values { data: &values, stride: width + 2, width };
                    level.run(Added(weights, values, &ranges, &mut out, width + 1));
                    let wrong = out.iter().zip(&expected).position(|(a, b)| !same(*a, *b));
                    assert_eq!(wrong, None, "{level}, case {seed}");
                }
            }
        }
    }
}
