//! Tensors of the model's file, and products with them.

use std::cell::Cell;

use apprentice_models::Model;

use super::Numerics;
use super::format::{blocks, values};
use super::q8;
use super::rows::Rows;
use super::scalar::{dot16, segmented};

/// The tensors of a model.
pub struct Weights<'m> {
    model: &'m Model,
    numerics: Numerics,
    rounded: Cell<u64>,
}

impl<'m> Weights<'m> {
    /// Those of `model`.
    pub fn new(model: &'m Model, numerics: Numerics) -> Weights<'m> {
        Weights { model, numerics, rounded: Cell::new(0) }
    }

    /// Rows of activations that a product took rounded, and not as they were.
    pub fn rounded_rows(&self) -> u64 {
        self.rounded.get()
    }

    /// Whether the file has a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.model.gguf().tensor(name).is_some()
    }

    /// All values of a tensor of one axis; `None` where the file has none.
    pub fn vector(&self, name: &str) -> Option<Vec<f32>> {
        let gguf = self.model.gguf();
        gguf.tensor(name).map(|tensor| values(tensor.format, gguf.bytes(tensor)))
    }

    /// Rows of a tensor by index, decoded.
    pub fn rows(&self, name: &str, indices: &[u32]) -> Rows {
        let matrix = self.matrix(name);
        let values = indices.iter().flat_map(|index| values(matrix.format, matrix.row(*index as usize)));
        Rows { width: matrix.width, values: values.collect() }
    }

    /// `x W^T`: a dot product an output, with activations rounded where the numerics say so and the weight is in blocks.
    pub fn product(&self, name: &str, x: &Rows) -> Rows {
        let matrix = self.matrix(name);
        assert_eq!(matrix.width, x.width, "{name}: width of the input");
        let quantised: Vec<_> = match self.numerics {
            Numerics::F32 => Vec::new(),
            Numerics::Q8 if blocks(matrix.format, &[]).is_none() => Vec::new(),
            Numerics::Q8 => x.iter().map(q8::quantise).collect(),
        };
        let rounded = x.iter().zip(&quantised).filter(|(row, blocks)| q8::is_rounded(row, blocks)).count();
        self.rounded.set(self.rounded.get() + rounded as u64);
        let mut y = Rows::zeros(x.count(), matrix.rows);
        for output in 0..matrix.rows {
            let bytes = matrix.row(output);
            match blocks(matrix.format, bytes).filter(|_| !quantised.is_empty()) {
                Some(weights) => {
                    for (row, x) in quantised.iter().enumerate() {
                        y.row_mut(row)[output] = q8::product(&weights, x);
                    }
                }
                None => {
                    let weights = values(matrix.format, bytes);
                    for (row, x) in x.iter().enumerate() {
                        y.row_mut(row)[output] = dot16(&weights, x);
                    }
                }
            }
        }
        y
    }

    /// `dy W`: chains over segments of the outputs, whatever the numerics.
    pub fn product_vjp(&self, name: &str, dy: &Rows) -> Rows {
        let matrix = self.matrix(name);
        let weights: Vec<Vec<f32>> =
            (0..matrix.rows).map(|output| values(matrix.format, matrix.row(output))).collect();
        dy.each(|dy| {
            let input = |i: usize| segmented(weights.len(), |output| (dy[output], weights[output][i]));
            (0..matrix.width).map(input).collect()
        })
    }

    fn matrix(&self, name: &str) -> Matrix<'m> {
        let gguf = self.model.gguf();
        let tensor = gguf.tensor(name).unwrap_or_else(|| panic!("no tensor {name:?}"));
        let (rows, width) = (tensor.shape[0], tensor.shape[1]);
        Matrix { format: tensor.format, bytes: gguf.bytes(tensor), rows, width }
    }
}

struct Matrix<'m> {
    format: apprentice_quant::Format,
    bytes: &'m [u8],
    rows: usize,
    width: usize,
}

impl<'m> Matrix<'m> {
    fn row(&self, index: usize) -> &'m [u8] {
        let size = self.bytes.len() / self.rows;
        &self.bytes[index * size..(index + 1) * size]
    }
}
