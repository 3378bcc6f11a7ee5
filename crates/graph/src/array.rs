//! The small float64 array on which ops say what they mean: row-major, outermost axis first, sizes as a run has them.

/// A float64 array. Integers and every file format are held as the float64 of the same value.
#[derive(Clone, PartialEq, Debug)]
pub struct Array {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub data: Vec<f64>,
    present: bool,
}

impl Array {
    /// An array of `shape` with these elements. Their number is the caller's promise.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<f64>) -> Array {
        let shape = shape.into();
        assert_eq!(
            shape.iter().product::<usize>(),
            data.len(),
            "an array has as many elements as its shape {shape:?}"
        );
        Array { shape, data, present: true }
    }
    /// Zeros of `shape`.
    pub fn zeros(shape: impl Into<Vec<usize>>) -> Array {
        let shape = shape.into();
        let count = shape.iter().product();
        Array { shape, data: vec![0.0; count], present: true }
    }
    /// What stands for an optional input that is not given.
    pub fn absent() -> Array {
        Array { shape: vec![0], data: Vec::new(), present: false }
    }
    /// The array, unless it stands for an absent input.
    pub fn present(&self) -> Option<&Array> {
        self.present.then_some(self)
    }
    /// Size of axis 0; 1 for a scalar.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }
    /// Size of the last axis; 1 for a scalar.
    pub fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }
    /// Elements of a row (all axes but the first).
    pub fn row_count(&self) -> usize {
        self.shape.iter().skip(1).product()
    }
    /// Row `index` of axis 0.
    pub fn row(&self, index: usize) -> &[f64] {
        let count = self.row_count();
        &self.data[index * count..(index + 1) * count]
    }
    /// Row `index` of axis 0, to be written.
    pub fn row_mut(&mut self, index: usize) -> &mut [f64] {
        let count = self.row_count();
        &mut self.data[index * count..(index + 1) * count]
    }
    /// Element `index` read as an integer, as ids and tables are.
    pub fn int(&self, index: usize) -> i64 {
        self.data[index] as i64
    }
    /// The same shape with every element mapped.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Array {
        Array::new(self.shape.clone(), self.data.iter().map(|v| f(*v)).collect())
    }
    /// The same shape with every vector of the last axis mapped to one of the same length.
    pub fn map_last(&self, f: impl Fn(&[f64]) -> Vec<f64>) -> Array {
        let width = self.width().max(1);
        Array::new(self.shape.clone(), self.data.chunks(width).flat_map(f).collect())
    }
    /// The same elements under another shape.
    pub fn reshaped(&self, shape: impl Into<Vec<usize>>) -> Array {
        Array::new(shape, self.data.clone())
    }
}
