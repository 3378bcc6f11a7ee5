//! Types of values: an element, a shape of capacities (outermost first, row-major) and, on axis 0 only, an extent: the
//! count that a run gives.

use std::fmt;

use apprentice_quant::Format;

/// What one element of a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Element {
    /// Activations, adapters, gradients.
    F32,
    /// Norms of gradients, rope frequencies.
    F64,
    /// Ids, positions, tables.
    I32,
    /// Activations as products with integer weights take them.
    I8,
    /// Pages only: values are rounded to it explicitly (`round`).
    F16,
    /// Pages only: a row of the last axis in blocks of [`PAGE_BLOCK`], the last of which may be shorter. A block is a
    /// float16 step, then an int8 for each element.
    Q8_0,
    /// A weight in the blocks of its file; the last axis is made of whole blocks.
    Weight(Format),
    /// An optional input that is not given.
    Absent,
}

/// Elements of a block of a quantised page.
pub const PAGE_BLOCK: usize = 32;

impl Element {
    /// Bytes that `count` elements of a row take, or `None` where they are not whole blocks or do not fit a `usize`.
    pub fn bytes(self, count: usize) -> Option<usize> {
        match self {
            Element::F32 | Element::I32 => count.checked_mul(4),
            Element::F64 => count.checked_mul(8),
            Element::F16 => count.checked_mul(2),
            Element::I8 => Some(count),
            Element::Q8_0 => count.div_ceil(PAGE_BLOCK).checked_mul(2)?.checked_add(count),
            Element::Weight(format) => format.row_bytes(count),
            Element::Absent => Some(0),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::F32 => f.write_str("f32"),
            Element::F64 => f.write_str("f64"),
            Element::I32 => f.write_str("i32"),
            Element::I8 => f.write_str("i8"),
            Element::F16 => f.write_str("f16"),
            Element::Q8_0 => f.write_str("q8_0"),
            Element::Weight(format) => write!(f, "weight:{format}"),
            Element::Absent => f.write_str("absent"),
        }
    }
}

/// A count that a run gives for axis 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Extent {
    /// Rows of the batch.
    Rows,
    /// Rows whose logits are wanted.
    Outputs,
    /// Rows with a label.
    Labelled,
    /// Sequences of the batch.
    Sequences,
    /// Entries of the page tables of all sequences of the batch, one table a layer group.
    Pages(u8),
    /// Adapters that rows may name.
    Adapters,
    /// Blocks of 64 positions over the rows of the batch.
    RowBlocks,
    /// Blocks of 64 positions over the labelled rows.
    LabelledBlocks,
}

/// Layer groups that a graph may have (layers with the same window, widths and cache type).
pub const LAYER_GROUPS_MAX: usize = 8;

impl Extent {
    fn index(self) -> usize {
        match self {
            Extent::Rows => 0,
            Extent::Outputs => 1,
            Extent::Labelled => 2,
            Extent::Sequences => 3,
            Extent::Adapters => 4,
            Extent::RowBlocks => 5,
            Extent::LabelledBlocks => 6,
            Extent::Pages(group) => 7 + usize::from(group) % LAYER_GROUPS_MAX,
        }
    }

    /// Every extent, for parsing.
    pub fn all() -> impl Iterator<Item = Extent> {
        let plain = [
            Extent::Rows,
            Extent::Outputs,
            Extent::Labelled,
            Extent::Sequences,
            Extent::Adapters,
            Extent::RowBlocks,
            Extent::LabelledBlocks,
        ];
        plain.into_iter().chain((0..LAYER_GROUPS_MAX as u8).map(Extent::Pages))
    }

    /// The extent of the block table over values with this extent, if sums over it are defined.
    pub fn blocks(self) -> Option<Extent> {
        match self {
            Extent::Rows => Some(Extent::RowBlocks),
            Extent::Labelled => Some(Extent::LabelledBlocks),
            _ => None,
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Rows => f.write_str("rows"),
            Extent::Outputs => f.write_str("outputs"),
            Extent::Labelled => f.write_str("labelled"),
            Extent::Sequences => f.write_str("sequences"),
            Extent::Adapters => f.write_str("adapters"),
            Extent::RowBlocks => f.write_str("row_blocks"),
            Extent::LabelledBlocks => f.write_str("labelled_blocks"),
            Extent::Pages(group) => write!(f, "pages.{group}"),
        }
    }
}

/// The counts of one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extents([usize; 7 + LAYER_GROUPS_MAX]);

impl Extents {
    /// The count of `extent`; 0 until set.
    pub fn get(&self, extent: Extent) -> usize {
        self.0[extent.index()]
    }
    /// The same counts with `extent` set to `count`.
    pub fn with(mut self, extent: Extent, count: usize) -> Extents {
        self.0[extent.index()] = count;
        self
    }
}

/// Sizes of the axes, outermost first.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Default)]
pub struct Shape(pub Vec<usize>);

impl Shape {
    /// Elements in all, or `None` where the product does not fit a `usize`.
    pub fn count(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
    }
    /// Size of the last axis; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }
    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Shape {
        Shape(sizes.to_vec())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Shape {
        Shape(sizes.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, size) in self.0.iter().enumerate() {
            if axis > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{size}")?;
        }
        f.write_str("]")
    }
}

/// Type of a value.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Type {
    /// What an element is.
    pub element: Element,
    /// Capacities, outermost first.
    pub shape: Shape,
    /// What a run counts on axis 0, if anything.
    pub extent: Option<Extent>,
}

impl Type {
    /// A type without extent.
    pub fn new(element: Element, shape: impl Into<Shape>) -> Type {
        Type { element, shape: shape.into(), extent: None }
    }
    /// float32 of `shape`.
    pub fn f32(shape: impl Into<Shape>) -> Type {
        Type::new(Element::F32, shape)
    }
    /// float64 of `shape`.
    pub fn f64(shape: impl Into<Shape>) -> Type {
        Type::new(Element::F64, shape)
    }
    /// int32 of `shape`.
    pub fn i32(shape: impl Into<Shape>) -> Type {
        Type::new(Element::I32, shape)
    }
    /// The type of an optional input that is not given.
    pub fn absent() -> Type {
        Type::new(Element::Absent, [])
    }
    /// The same type with `extent` on axis 0.
    pub fn counted(mut self, extent: Extent) -> Type {
        self.extent = Some(extent);
        self
    }
    /// The same element and extent with another shape.
    pub fn shaped(&self, shape: impl Into<Shape>) -> Type {
        Type { element: self.element, shape: shape.into(), extent: self.extent }
    }
    /// The same shape and extent with another element.
    pub fn of(&self, element: Element) -> Type {
        Type { element, shape: self.shape.clone(), extent: self.extent }
    }
    /// Whether the input is given.
    pub fn is_present(&self) -> bool {
        self.element != Element::Absent
    }
    /// Size of axis 0 (its capacity); 1 for a scalar.
    pub fn rows(&self) -> usize {
        self.shape.0.first().copied().unwrap_or(1)
    }
    /// Size of the last axis.
    pub fn width(&self) -> usize {
        self.shape.last()
    }
    /// Elements of one row: the product of all axes but the first; `usize::MAX` where it does not fit.
    pub fn row_count(&self) -> usize {
        self.shape.0.iter().skip(1).fold(1, |product, size| product.saturating_mul(*size))
    }
    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }
    /// Bytes at full capacity, or `None` where they are not whole blocks or do not fit a `usize`.
    pub fn bytes(&self) -> Option<usize> {
        let rows = self.shape.0.iter().rev().skip(1).try_fold(1usize, |p, s| p.checked_mul(*s))?;
        self.element.bytes(self.width())?.checked_mul(rows)
    }
    /// Bytes of one cell of a store: of a row of axis 0. `None` where they do not fit a `usize`.
    pub fn cell_bytes(&self) -> Option<usize> {
        self.shaped(self.shape.0.get(1..).unwrap_or_default()).bytes()
    }

    /// Requires this shape.
    pub fn expect(&self, input: &'static str, shape: &[usize]) -> Result<(), ShapeError> {
        if self.shape.0 == shape {
            return Ok(());
        }
        Err(ShapeError::new(input, Shape::from(shape), &self.shape))
    }
    /// Requires this number of axes.
    pub fn expect_rank(&self, input: &'static str, rank: usize) -> Result<(), ShapeError> {
        if self.rank() == rank {
            return Ok(());
        }
        Err(ShapeError::new(input, format!("{rank} axes"), &self.shape))
    }
    /// Requires this element.
    pub fn expect_element(&self, input: &'static str, element: Element) -> Result<(), ShapeError> {
        if self.element == element {
            return Ok(());
        }
        Err(ShapeError::new(input, element, self))
    }
    /// Requires float32.
    pub fn expect_f32(&self, input: &'static str) -> Result<(), ShapeError> {
        self.expect_element(input, Element::F32)
    }
    /// Requires the same element, shape and extent as `other`.
    pub fn expect_same(&self, input: &'static str, other: &Type) -> Result<(), ShapeError> {
        if self == other {
            return Ok(());
        }
        Err(ShapeError::new(input, other, self))
    }
    /// Requires the same extent and capacity of axis 0 as `other`.
    pub fn expect_rows_of(&self, input: &'static str, other: &Type) -> Result<(), ShapeError> {
        if self.rank() > 0 && other.rank() > 0 && self.rows() == other.rows() && self.extent == other.extent {
            return Ok(());
        }
        Err(ShapeError::new(input, format!("the rows of {other}"), self))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.element, self.shape)?;
        match self.extent {
            Some(extent) => write!(f, "@{extent}"),
            None => Ok(()),
        }
    }
}

/// Why an op refuses its inputs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}: expected {expected}, found {found}")]
pub struct ShapeError {
    /// Input or attribute that is wrong.
    pub what: &'static str,
    /// What would have been accepted.
    pub expected: String,
    /// What was given.
    pub found: String,
}

impl ShapeError {
    /// An error about input or attribute `what`.
    pub fn new(what: &'static str, expected: impl fmt::Display, found: impl fmt::Display) -> ShapeError {
        ShapeError { what, expected: expected.to_string(), found: found.to_string() }
    }
}
