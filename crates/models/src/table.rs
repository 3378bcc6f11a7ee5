//! A family's tensor table: each tensor that it may have, once.

use crate::hyper::Hyper;

/// A tensor, or one tensor a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorRow {
    /// GGUF name; of a layer's tensor what follows `blk.N.`.
    pub gguf: &'static str,
    /// PEFT module path; of a layer's tensor what follows `model.layers.N.`. Empty where adapters do not sit.
    pub peft: &'static str,
    /// Sizes, outermost first.
    pub shape: &'static [Dim],
    /// What it is for.
    pub role: Role,
    /// Whether every layer has one.
    pub per_layer: bool,
    /// Whether a file may lack it.
    pub optional: bool,
    /// Order of its rows against Hugging Face's.
    pub order: RowOrder,
}

/// What a tensor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Rows that tokens select.
    Embedding,
    /// A product; an adapter may sit on it.
    Linear,
    /// The product that gives logits; an adapter may sit on it.
    Head,
    /// Gains of a norm, float32.
    Norm,
    /// A bias, float32.
    Bias,
    /// Divisors of rotation frequencies, float32.
    RopeFactors,
}

/// A size in terms of hyper-parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dim {
    /// Vocabulary.
    Vocab,
    /// Width of the residual stream.
    Width,
    /// Query heads times head width.
    Query,
    /// Key heads times head width.
    Key,
    /// Value heads times value width.
    Value,
    /// Query heads times value width.
    Attended,
    /// Width of the feed-forward.
    Hidden,
    /// Width of a head.
    HeadDim,
    /// Pairs of channels that rotate.
    RopePairs,
}

/// Order of a tensor's rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowOrder {
    /// As in Hugging Face's class.
    Plain,
    /// Pairs interleaved within each query head: row `2j+s` of a head is Hugging Face's row `s*d/2+j`.
    RopeInterleavedQuery,
    /// The same within each key head.
    RopeInterleavedKey,
}

/// A tensor of the whole model.
pub(crate) const fn whole(gguf: &'static str, role: Role, shape: &'static [Dim]) -> TensorRow {
    TensorRow { gguf, peft: "", shape, role, per_layer: false, optional: false, order: RowOrder::Plain }
}

/// A tensor of every layer.
pub(crate) const fn layer(gguf: &'static str, role: Role, shape: &'static [Dim]) -> TensorRow {
    TensorRow { gguf, peft: "", shape, role, per_layer: true, optional: false, order: RowOrder::Plain }
}

impl TensorRow {
    /// The same tensor with its PEFT module path.
    pub(crate) const fn peft(self, peft: &'static str) -> TensorRow {
        TensorRow { peft, ..self }
    }
    /// The same tensor, which a file may lack.
    pub(crate) const fn optional(self) -> TensorRow {
        TensorRow { optional: true, ..self }
    }
    /// The same tensor with its row order.
    pub(crate) const fn order(self, order: RowOrder) -> TensorRow {
        TensorRow { order, ..self }
    }
    /// Its full GGUF name.
    pub fn name(&self, layer: usize) -> String {
        if self.per_layer { format!("blk.{layer}.{}", self.gguf) } else { self.gguf.to_owned() }
    }
    /// Its full PEFT module path, where adapters may sit.
    pub fn module(&self, layer: usize) -> Option<String> {
        match (self.peft, self.per_layer) {
            ("", _) => None,
            (path, true) => Some(format!("model.layers.{layer}.{path}")),
            (path, false) => Some(path.to_owned()),
        }
    }
    /// Its shape in a model.
    pub fn sizes(&self, hyper: &Hyper) -> Vec<usize> {
        self.shape.iter().map(|dim| hyper.size(*dim)).collect()
    }
}
