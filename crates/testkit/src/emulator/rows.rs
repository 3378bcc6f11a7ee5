//! Rows of activations.

/// `[rows, width]`, row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Numbers of a row.
    pub width: usize,
    /// All numbers.
    pub values: Vec<f32>,
}

impl Rows {
    /// `count` rows of +0.
    pub fn zeros(count: usize, width: usize) -> Rows {
        Rows { width, values: vec![0.0; count * width] }
    }

    /// One row made of another, each.
    pub fn each(&self, row: impl FnMut(&[f32]) -> Vec<f32>) -> Rows {
        let rows: Vec<Vec<f32>> = self.iter().map(row).collect();
        Rows { width: rows.first().map_or(0, Vec::len), values: rows.concat() }
    }

    /// The same numbers in rows of another width: heads of rows, or rows of heads.
    pub fn cut(mut self, width: usize) -> Rows {
        assert!(self.values.len().is_multiple_of(width), "rows of whole heads");
        self.width = width;
        self
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..(index + 1) * self.width]
    }

    /// Row `index`, to be changed.
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.values[index * self.width..(index + 1) * self.width]
    }

    /// Row after row.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// Each number by itself.
    pub fn map(&self, f: impl Fn(f32) -> f32) -> Rows {
        Rows { width: self.width, values: self.values.iter().map(|value| f(*value)).collect() }
    }

    /// Two numbers at a time.
    pub fn zip(&self, other: &Rows, f: impl Fn(f32, f32) -> f32) -> Rows {
        assert_eq!((self.width, self.values.len()), (other.width, other.values.len()), "rows of one shape");
        let values = self.values.iter().zip(&other.values).map(|(a, b)| f(*a, *b)).collect();
        Rows { width: self.width, values }
    }

    /// The sum, one rounded addition each.
    pub fn plus(&self, other: &Rows) -> Rows {
        self.zip(other, |a, b| a + b)
    }

    /// The product, rounded.
    pub fn times(&self, other: &Rows) -> Rows {
        self.zip(other, |a, b| a * b)
    }

    /// Some of the rows.
    pub fn select(&self, rows: &[usize]) -> Rows {
        Rows { width: self.width, values: rows.iter().flat_map(|row| self.row(*row).to_vec()).collect() }
    }
}
