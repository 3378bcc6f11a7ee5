//! Elementwise ops: `y = f(x)`, and `y = f(a, b)` where `b` may be shared by rows or by columns.
//!
//! The first operand is `None` where it lies in `y` already; otherwise a unit copies its part while it is in the cache.
//! A unit is a number of elements or rows that follows from the shape.

use std::ops::Range;

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::{Kernel, UNIT_ELEMENTS, rows_of_a_unit, unit_rows};

/// A function of one element, on sixteen lanes.
pub trait Function: Copy + Sync {
    /// `f(x)` a lane.
    fn apply<I: Isa>(self, isa: I, x: I::V) -> I::V;
}

/// A function of two elements, on sixteen lanes.
pub trait Pair: Copy + Sync {
    /// `f(a, b)` a lane.
    fn apply<I: Isa>(self, isa: I, a: I::V, b: I::V) -> I::V;
}

/// `y = f(x)`, an element each.
pub struct Map<'a, F> {
    /// `f`.
    pub function: F,
    /// As many elements as `y`, or `None` where they lie in `y`.
    pub x: Option<&'a [f32]>,
    /// The result.
    pub y: Disjoint<'a, f32>,
}

impl<F: Function> Kernel for Map<'_, F> {
    fn units(&self) -> usize {
        self.y.len().div_ceil(UNIT_ELEMENTS)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let range = unit * UNIT_ELEMENTS..((unit + 1) * UNIT_ELEMENTS).min(self.y.len());
        // SAFETY: units are ranges that follow each other.
        let y = unsafe { take(&self.y, self.x, range) };
        let (whole, rest) = y.as_chunks_mut::<LANES>();
        for y in whole {
            let value = self.function.apply(isa, isa.load(y));
            isa.store(y, value);
        }
        if !rest.is_empty() {
            let value = self.function.apply(isa, isa.load_partial(rest));
            isa.store_partial(rest, value);
        }
    }
}

/// The second operand of a [`Zip`], whose first is `[rows, width]`.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// `[rows, width]`.
    Each(&'a [f32]),
    /// `[width]`, the same for all rows.
    Columns(&'a [f32]),
    /// `[rows, 1]`, the same for all columns.
    Rows(&'a [f32]),
    /// `[1]`.
    One(&'a [f32]),
}

/// `y = f(a, b)`, an element each, with `b` spread over the shape of `a`.
pub struct Zip<'a, F> {
    /// `f`.
    pub function: F,
    /// Elements of the last axis.
    pub width: usize,
    /// `[rows, width]`, or `None` where it lies in `y`.
    pub a: Option<&'a [f32]>,
    /// The other operand.
    pub b: Operand<'a>,
    /// `[rows, width]`.
    pub y: Disjoint<'a, f32>,
}

impl<F: Pair> Kernel for Zip<'_, F> {
    fn units(&self) -> usize {
        (self.y.len() / self.width.max(1)).div_ceil(rows_of_a_unit(self.width))
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        for row in unit_rows(unit, self.width, self.y.len() / self.width) {
            let range = row * self.width..(row + 1) * self.width;
            // SAFETY: each row belongs to one unit, which takes it once.
            let y = unsafe { take(&self.y, self.a, range.clone()) };
            match self.b {
                Operand::Each(b) => each(isa, self.function, y, &b[range]),
                Operand::Columns(b) => each(isa, self.function, y, b),
                Operand::Rows(b) => one(isa, self.function, y, b[row]),
                Operand::One(b) => one(isa, self.function, y, b[0]),
            }
        }
    }
}

/// `range` of `y`, holding the first operand.
///
/// # Safety
/// As [`Disjoint::range`].
#[inline(always)]
pub(crate) unsafe fn take<'a>(
    y: &Disjoint<'a, f32>,
    source: Option<&[f32]>,
    range: Range<usize>,
) -> &'a mut [f32] {
    // SAFETY: the caller's promise.
    let y = unsafe { y.range(range.clone()) };
    if let Some(source) = source {
        y.copy_from_slice(&source[range]);
    }
    y
}

/// `y[index] = value`.
///
/// # Safety
/// As [`Disjoint::range`].
#[inline(always)]
pub(crate) unsafe fn put<T>(y: &Disjoint<T>, index: usize, value: T) {
    // SAFETY: the caller's promise.
    let y = unsafe { y.range(index..index + 1) };
    y[0] = value;
}

#[inline(always)]
fn each<I: Isa, F: Pair>(isa: I, function: F, y: &mut [f32], b: &[f32]) {
    assert_eq!(y.len(), b.len(), "two operands of an elementwise op");
    let ((y, y_rest), (b, b_rest)) = (y.as_chunks_mut::<LANES>(), b.as_chunks::<LANES>());
    for (y, b) in y.iter_mut().zip(b) {
        let value = function.apply(isa, isa.load(y), isa.load(b));
        isa.store(y, value);
    }
    if !y_rest.is_empty() {
        let value = function.apply(isa, isa.load_partial(y_rest), isa.load_partial(b_rest));
        isa.store_partial(y_rest, value);
    }
}

#[inline(always)]
fn one<I: Isa, F: Pair>(isa: I, function: F, y: &mut [f32], b: f32) {
    let b = isa.splat(b);
    let (y, rest) = y.as_chunks_mut::<LANES>();
    for y in y {
        let value = function.apply(isa, isa.load(y), b);
        isa.store(y, value);
    }
    if !rest.is_empty() {
        let value = function.apply(isa, isa.load_partial(rest), b);
        isa.store_partial(rest, value);
    }
}
