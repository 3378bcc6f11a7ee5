//! Requirements that several ops share. Each error names the input or attribute that breaks it.

use crate::types::{Element, Extent, ShapeError, Type};

/// Requires an attribute to be a finite number: a model file may hold any bits.
pub(super) fn finite(attribute: &'static str, value: f32) -> Result<(), ShapeError> {
    if value.is_finite() {
        return Ok(());
    }
    Err(ShapeError::new(attribute, "a finite number", value))
}

/// Requires at least this number of axes.
pub(super) fn axes(ty: &Type, input: &'static str, least: usize) -> Result<(), ShapeError> {
    if ty.rank() >= least {
        return Ok(());
    }
    Err(ShapeError::new(input, format!("at least {least} axes"), &ty.shape))
}

/// Requires int32 with one axis.
pub(super) fn index(ty: &Type, input: &'static str) -> Result<(), ShapeError> {
    ty.expect_element(input, Element::I32)?;
    ty.expect_rank(input, 1)
}

/// Requires a matrix in the blocks of its file, its rows whole blocks.
pub(super) fn weight(ty: &Type, input: &'static str) -> Result<(), ShapeError> {
    if !matches!(ty.element, Element::Weight(_)) || ty.extent.is_some() {
        return Err(ShapeError::new(input, "a weight", ty));
    }
    ty.expect_rank(input, 2)?;
    if ty.bytes().is_none() {
        return Err(ShapeError::new(input, "rows of whole blocks", ty));
    }
    Ok(())
}

/// Requires float32 of this shape, without an extent.
pub(super) fn plain(ty: &Type, input: &'static str, shape: &[usize]) -> Result<(), ShapeError> {
    ty.expect_same(input, &Type::f32(shape))
}

/// Requires the int32 block table `[blocks, 2]` for sums over the rows of `of`.
pub(super) fn blocks(ty: &Type, input: &'static str, of: &Type) -> Result<(), ShapeError> {
    let extent = of.extent.and_then(Extent::blocks);
    if ty.element == Element::I32 && ty.rank() == 2 && ty.width() == 2 && ty.extent == extent {
        return Ok(());
    }
    Err(ShapeError::new(input, format!("the block table of {of}"), ty))
}
