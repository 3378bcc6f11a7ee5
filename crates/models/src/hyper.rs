//! Hyper-parameters, read from metadata and checked: every size that a table or a graph uses.

use apprentice_gguf::Gguf;

use crate::error::ModelError;
use crate::table::Dim;

/// Layers that a file may claim.
const LAYERS_MAX: u64 = 4096;
/// Any other size that a file may claim.
const SIZE_MAX: u64 = 1 << 24;

/// Hyper-parameters of a dense transformer.
#[derive(Clone, PartialEq, Debug)]
pub struct Hyper {
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a query or key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Width of the feed-forward.
    pub hidden: usize,
    /// Positions that the model was made for.
    pub context: usize,
    /// Added to the mean square of a norm.
    pub norm_eps: f32,
    /// Factor on attention scores.
    pub attention_scale: f32,
    /// Factor on embeddings; 1 for none.
    pub embedding_scale: f32,
    /// Channels of a head that rotate.
    pub rope_dims: usize,
    /// Rotations; a layer names one by index.
    pub ropes: Vec<Rope>,
    /// A layer's rotation and window.
    pub attention: Vec<LayerAttention>,
}

/// A rotary embedding: frequency `j` is `base^(-2j/rope_dims) / divisor`, further divided by the file's factors.
#[derive(Clone, PartialEq, Debug)]
pub struct Rope {
    /// Name of the derived weight that holds the frequencies.
    pub name: &'static str,
    /// Base of the powers.
    pub base: f64,
    /// Linear scaling.
    pub divisor: f64,
}

/// What differs from layer to layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayerAttention {
    /// Index into [`Hyper::ropes`].
    pub rope: usize,
    /// Keys within this distance, the own position included, are seen; `None`: all.
    pub window: Option<usize>,
}

impl Hyper {
    /// What most families share: the keys `ARCH.*` of a dense transformer with one rotation and no window.
    ///
    /// # Errors
    /// A key that is missing, of another type, or a size that cannot be.
    pub(crate) fn dense(gguf: &Gguf) -> Result<Hyper, ModelError> {
        let keys = Keys::new(gguf)?;
        let width = keys.size("embedding_length")?;
        let heads = keys.size("attention.head_count")?;
        let kv_heads = keys.size_or("attention.head_count_kv", heads)?;
        let head_dim = keys.size_or("attention.key_length", width / heads)?;
        let layers = keys.bounded("block_count", LAYERS_MAX)?;
        let rope_dims = keys.size_or("rope.dimension_count", head_dim)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(keys.wrong("attention.head_count_kv", format!("a divisor of {heads}"), kv_heads));
        }
        if !rope_dims.is_multiple_of(2) || rope_dims > head_dim {
            return Err(keys.wrong(
                "rope.dimension_count",
                format!("an even number up to {head_dim}"),
                rope_dims,
            ));
        }
        let rope = Rope {
            name: "rope.frequencies",
            base: keys.positive_or("rope.freq_base", 10_000.0)?,
            divisor: keys.linear_scaling()?,
        };
        Ok(Hyper {
            vocab: keys.vocab()?,
            width,
            layers,
            heads,
            kv_heads,
            head_dim,
            value_dim: keys.size_or("attention.value_length", head_dim)?,
            hidden: keys.size("feed_forward_length")?,
            context: keys.size("context_length")?,
            norm_eps: keys.positive("attention.layer_norm_rms_epsilon")? as f32,
            attention_scale: (1.0 / (head_dim as f64).sqrt()) as f32,
            embedding_scale: 1.0,
            rope_dims,
            ropes: vec![rope],
            attention: vec![LayerAttention { rope: 0, window: None }; layers],
        })
    }

    /// The size that a table names.
    pub fn size(&self, dim: Dim) -> usize {
        match dim {
            Dim::Vocab => self.vocab,
            Dim::Width => self.width,
            Dim::Query => self.heads * self.head_dim,
            Dim::Key => self.kv_heads * self.head_dim,
            Dim::Value => self.kv_heads * self.value_dim,
            Dim::Attended => self.heads * self.value_dim,
            Dim::Hidden => self.hidden,
            Dim::HeadDim => self.head_dim,
            Dim::RopePairs => self.rope_dims / 2,
        }
    }
}

/// Reads `ARCH.*` keys.
pub(crate) struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(gguf: &'a Gguf) -> Result<Keys<'a>, ModelError> {
        Ok(Keys { gguf, architecture: gguf.architecture()? })
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(crate) fn wrong(&self, key: &str, expected: impl ToString, found: impl ToString) -> ModelError {
        ModelError::Key { key: self.key(key), expected: expected.to_string(), found: found.to_string() }
    }

    fn bounded(&self, key: &str, limit: u64) -> Result<usize, ModelError> {
        let full = self.key(key);
        let found = self.gguf.u64(&full)?.ok_or(ModelError::KeyMissing { key: full })?;
        if found == 0 || found > limit {
            return Err(self.wrong(key, format!("1 to {limit}"), found));
        }
        Ok(found as usize) // at most SIZE_MAX
    }

    /// A size that must be there.
    pub(crate) fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.bounded(key, SIZE_MAX)
    }

    /// A size that may be absent.
    pub(crate) fn size_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        match self.size(key) {
            Err(ModelError::KeyMissing { .. }) if default > 0 => Ok(default),
            other => other,
        }
    }

    /// A positive finite number that must be there.
    pub(crate) fn positive(&self, key: &str) -> Result<f64, ModelError> {
        let full = self.key(key);
        let found = self.gguf.f64(&full)?.ok_or(ModelError::KeyMissing { key: full })?;
        if found.is_finite() && found > 0.0 {
            Ok(found)
        } else {
            Err(self.wrong(key, "a positive number", found))
        }
    }

    /// A positive finite number that may be absent.
    pub(crate) fn positive_or(&self, key: &str, default: f64) -> Result<f64, ModelError> {
        match self.positive(key) {
            Err(ModelError::KeyMissing { .. }) => Ok(default),
            other => other,
        }
    }

    /// A count that may be absent: 0 then.
    pub(crate) fn count(&self, key: &str) -> Result<u64, ModelError> {
        Ok(self.gguf.u64(&self.key(key))?.unwrap_or(0))
    }

    /// Booleans of every layer, if the file has them.
    pub(crate) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, ModelError> {
        Ok(self.gguf.bools(&self.key(key))?)
    }

    /// The divisor of linear rope scaling; other kinds are refused by name.
    fn linear_scaling(&self) -> Result<f64, ModelError> {
        match self.gguf.str(&self.key("rope.scaling.type"))? {
            None | Some("none") => Ok(1.0),
            Some("linear") => self.positive_or("rope.scaling.factor", 1.0),
            Some(other) => Err(self.wrong("rope.scaling.type", "none or linear", format!("{other:?}"))),
        }
    }

    /// Size of the vocabulary: its own key, or the number of tokens.
    fn vocab(&self) -> Result<usize, ModelError> {
        match self.size("vocab_size") {
            Err(ModelError::KeyMissing { key }) => match self.gguf.strings("tokenizer.ggml.tokens")? {
                Some(tokens) if !tokens.is_empty() => Ok(tokens.len()),
                _ => Err(ModelError::KeyMissing { key }),
            },
            other => other,
        }
    }
}
