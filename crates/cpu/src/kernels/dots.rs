//! Many dot16 at once: `out[r][c] = dot16(row r, column c)` of a matrix whose columns lie side by side.
//!
//! A vector holds sixteen *columns*, so each of dot16's sixteen accumulators is a vector of its own and the tree adds
//! whole vectors: no lane ever meets its neighbour. Accumulators are made one after another in the order in which the
//! tree consumes them, so four partial sums wait at most. The bits are those of [`dot16`](crate::isa::dot16).

use std::ops::Range;

use crate::isa::{Isa, LANES, Task};

/// The accumulators, ordered so that the tree adds neighbours: `(0 + 8) + (4 + 12)`, `(2 + 10) + (6 + 14)`, ...
const ORDER: [usize; LANES] = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15];
/// Sums of the tree that wait for their partner at the same time.
const DEPTH: usize = LANES.ilog2() as usize;

/// The columns of a matrix, side by side: element `i` of column `c` is `data[i * stride + c]`.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    /// The matrix, `[depth, stride]`, whose last row may be shorter.
    pub data: &'a [f32],
    /// Elements from one row to the next.
    pub stride: usize,
    /// Elements of a column.
    pub depth: usize,
}

/// Rows of equal length that may lie apart: `outer` elements from one group of `together` rows to the next, `inner`
/// elements from one row of a group to its neighbour.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// Begins with the first element of row 0.
    pub data: &'a [f32],
    /// Rows of a group.
    pub together: usize,
    /// Elements between groups.
    pub outer: usize,
    /// Elements between rows of a group.
    pub inner: usize,
}

impl<'a> Rows<'a> {
    /// Rows that follow each other.
    pub fn flat(data: &'a [f32], width: usize) -> Self {
        Rows { data, together: 1, outer: width, inner: 0 }
    }

    /// The first `width` elements of row `index`.
    #[inline(always)]
    pub fn row(&self, index: usize, width: usize) -> &'a [f32] {
        &self.data[index / self.together * self.outer + index % self.together * self.inner..][..width]
    }
}

/// Work for [`dots`].
struct Dots<'a, 'o> {
    rows: Rows<'a>,
    picked: Range<usize>,
    matrix: Columns<'a>,
    columns: Range<usize>,
    out: &'o mut [f32],
    out_stride: usize,
}

/// `out[(r - picked.start) * out_stride + c] = dot16(row r, column c)` for the picked rows and `c` in `columns`.
///
/// A function of its own in the machine code, so that its callers share it.
///
/// # Panics
/// If a row is shorter than a column, or `matrix` or `out` end too early.
#[inline(always)]
pub(crate) fn dots<I: Isa>(
    isa: I,
    rows: Rows,
    picked: Range<usize>,
    matrix: Columns,
    columns: Range<usize>,
    out: &mut [f32],
    out_stride: usize,
) {
    if columns.is_empty() || picked.is_empty() {
        return;
    }
    assert!(matrix.depth == 0 || (matrix.depth - 1) * matrix.stride + columns.end <= matrix.data.len());
    assert!((picked.len() - 1) * out_stride + columns.end <= out.len());
    isa.run(Dots { rows, picked, matrix, columns, out, out_stride });
}

impl Task for Dots<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Dots { rows, picked, matrix, columns, out, out_stride } = self;
        let mut done = 0;
        let count = picked.len();
        if I::REGISTERS >= 32 {
            while done + 4 <= count {
                let first = picked.start + done;
                across::<I, 4, 4>(
                    isa,
                    rows,
                    first,
                    matrix,
                    columns.clone(),
                    &mut out[done * out_stride..],
                    out_stride,
                );
                done += 4;
            }
        } else if I::REGISTERS >= 8 {
            while done + 2 <= count {
                let first = picked.start + done;
                across::<I, 2, 2>(
                    isa,
                    rows,
                    first,
                    matrix,
                    columns.clone(),
                    &mut out[done * out_stride..],
                    out_stride,
                );
                done += 2;
            }
        }
        while done < count {
            let (first, out) = (picked.start + done, &mut out[done * out_stride..]);
            if I::REGISTERS >= 8 {
                across::<I, 1, 4>(isa, rows, first, matrix, columns.clone(), out, out_stride);
            } else {
                across::<I, 1, 1>(isa, rows, first, matrix, columns.clone(), out, out_stride);
            }
            done += 1;
        }
    }
}

/// `HEIGHT` rows from `first` against all columns, `WIDTH` vectors at a time.
#[inline(always)]
fn across<I: Isa, const HEIGHT: usize, const WIDTH: usize>(
    isa: I,
    rows: Rows,
    first: usize,
    matrix: Columns,
    columns: Range<usize>,
    out: &mut [f32],
    out_stride: usize,
) {
    let mut taken: [&[f32]; HEIGHT] = [&[]; HEIGHT];
    for (index, row) in taken.iter_mut().enumerate() {
        *row = rows.row(first + index, matrix.depth);
    }
    let mut column = columns.start;
    while column + WIDTH * LANES <= columns.end {
        tile::<I, HEIGHT, WIDTH>(isa, &taken, matrix, column, LANES, out, out_stride);
        column += WIDTH * LANES;
    }
    while column < columns.end {
        let lanes = LANES.min(columns.end - column);
        tile::<I, HEIGHT, 1>(isa, &taken, matrix, column, lanes, out, out_stride);
        column += lanes;
    }
}

/// `HEIGHT` rows against `WIDTH` vectors of columns from `column`; `lanes` is sixteen but for a last vector by itself.
#[inline(always)]
fn tile<I: Isa, const HEIGHT: usize, const WIDTH: usize>(
    isa: I,
    rows: &[&[f32]; HEIGHT],
    matrix: Columns,
    column: usize,
    lanes: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    let depth = matrix.depth;
    assert!(
        depth == 0 || (depth - 1) * matrix.stride + column + (WIDTH - 1) * LANES + lanes <= matrix.data.len()
    );
    assert!(rows.iter().all(|row| row.len() == depth));
    let zero = [[isa.zero(); WIDTH]; HEIGHT];
    let mut waiting = [zero; DEPTH];
    let mut sums = zero;
    for (step, first) in ORDER.into_iter().enumerate() {
        sums = zero;
        let mut index = first;
        while index < depth {
            let start = index * matrix.stride + column;
            let mut values = [isa.zero(); WIDTH];
            for (part, value) in values.iter_mut().enumerate() {
                *value = if lanes == LANES {
                    // SAFETY: the first assertion above, for the last row of the matrix, covers every earlier one.
                    unsafe { isa.load_at(matrix.data.as_ptr().add(start + part * LANES)) }
                } else {
                    isa.load_partial(&matrix.data[start..start + lanes])
                };
            }
            for (row, sums) in rows.iter().zip(&mut sums) {
                // SAFETY: `index` is below `depth`, which is the length of each row by the second assertion above.
                let factor = isa.splat(unsafe { *row.get_unchecked(index) });
                for (value, sum) in values.iter().zip(sums) {
                    *sum = isa.fma(factor, *value, *sum);
                }
            }
            index += LANES;
        }
        let mut level = 0;
        while step >> level & 1 == 1 {
            add(isa, &waiting[level], &mut sums);
            level += 1;
        }
        if level < DEPTH {
            waiting[level] = sums;
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (part, sum) in sums.iter().enumerate() {
            let target = &mut out[row * out_stride + column + part * LANES..][..lanes];
            if lanes == LANES {
                // SAFETY: the slice of the line above has sixteen elements.
                unsafe { isa.store_at(target.as_mut_ptr(), *sum) };
            } else {
                isa.store_partial(target, *sum);
            }
        }
    }
}

/// `right = left + right`.
#[inline(always)]
fn add<I: Isa, const HEIGHT: usize, const WIDTH: usize>(
    isa: I,
    left: &[[I::V; WIDTH]; HEIGHT],
    right: &mut [[I::V; WIDTH]; HEIGHT],
) {
    for (left, right) in left.iter().zip(right) {
        for (left, right) in left.iter().zip(right) {
            *right = isa.add(*left, *right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;
    use crate::kernels::suite::{Numbers, dot16, same};

    struct Product<'a>(Rows<'a>, usize, Columns<'a>, Range<usize>, &'a mut [f32]);

    impl Task for Product<'_> {
        type Output = ();
        #[inline(always)]
        fn run<I: Isa>(self, isa: I) {
            let stride = self.2.stride + 3;
            dots(isa, self.0, 0..self.1, self.2, self.3, self.4, stride);
        }
    }

    #[test]
    fn bits_are_those_of_dot16() {
        for (seed, (rows, columns, depth)) in
            [(1, 1, 1), (3, 7, 8), (4, 16, 16), (5, 64, 64), (9, 150, 100), (6, 80, 0), (2, 33, 37)]
                .into_iter()
                .enumerate()
        {
            let mut numbers = Numbers::new(seed as u64 + 1);
            // Products below the denormals leave -0 in a lane; it must meet the same zeros as in dot16.
            let tiny =
                |values: Vec<f32>| values.into_iter().map(|v| if v < -0.5 { v * 1e-30 } else { v }).collect();
            let a: Vec<f32> =
                if seed % 2 == 0 { numbers.hard(rows * depth) } else { numbers.normal(rows * depth) };
            let a: Vec<f32> = tiny(a);
            let matrix: Vec<f32> = tiny(numbers.normal(depth * columns));
            let part = columns / 5..columns;
            for level in Level::all() {
                let mut out = vec![f32::NAN; rows * (columns + 3)];
                let matrix = Columns { data: &matrix, stride: columns, depth };
                level.run(Product(Rows::flat(&a, depth), rows, matrix, part.clone(), &mut out));
                for row in 0..rows {
                    for column in part.clone() {
                        let other: Vec<f32> =
                            (0..depth).map(|at| matrix.data[at * columns + column]).collect();
                        let expected = dot16(&a[row * depth..][..depth], &other);
                        let found = out[row * (columns + 3) + column];
                        assert!(
                            same(found, expected),
                            "{level}, case {seed}, {row} {column}: {found:e} {expected:e}"
                        );
                    }
                }
            }
        }
    }
}
