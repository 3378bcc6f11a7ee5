//! Tiny random model files of any family: metadata from a few sizes, tensors from the family's own table, so that a new
//! family has them at once.

use std::path::Path;

use apprentice_gguf::{Gguf, GgufError, Value, Writer};
use apprentice_models::{Hyper, ModelError, Role, TensorRow, list};
use apprentice_quant::{Format, QuantError};

use crate::blocks::random_blocks;
use crate::random::Random;

/// What a file is made of. Same options, same bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct TinyOptions {
    /// `general.architecture`.
    pub architecture: String,
    /// Blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head, even.
    pub head_dim: usize,
    /// Width of the residual stream. Like `heads * head_dim` and `hidden` whole blocks of `format`.
    pub width: usize,
    /// Width of the feed-forward.
    pub hidden: usize,
    /// Tokens.
    pub vocab: usize,
    /// Window of the sliding layers, of families that have such: the first and every other one.
    pub window: Option<usize>,
    /// Format of embeddings, linears and head.
    pub format: Format,
    /// Whether tensors that a file may lack are there: a head of its own, biases, divisors of rotation frequencies.
    pub optional: bool,
    /// Seed of all numbers.
    pub seed: u64,
}

/// Why there is no such file.
#[derive(Debug, thiserror::Error)]
pub enum TinyError {
    /// No family has this name, or it refuses the sizes.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The writer refuses.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A tensor whose rows are no whole blocks.
    #[error("tensor {name:?}: {reason}")]
    Tensor {
        /// Its name.
        name: String,
        /// What the format says.
        reason: QuantError,
    },
}

impl TinyOptions {
    /// Two layers over 64 channels, two heads on one key head of 32, 96 tokens: the smallest sizes that every format of
    /// blocks of 32 fills.
    pub fn small(architecture: &str, format: Format, seed: u64) -> TinyOptions {
        TinyOptions {
            architecture: architecture.to_owned(),
            layers: 2,
            heads: 2,
            kv_heads: 1,
            head_dim: 32,
            width: 64,
            hidden: 96,
            vocab: 96,
            window: Some(20),
            format,
            optional: true,
            seed,
        }
    }

    /// The same with every width 256: for formats with blocks of 256.
    pub fn wide(architecture: &str, format: Format, seed: u64) -> TinyOptions {
        let small = TinyOptions::small(architecture, format, seed);
        TinyOptions { heads: 4, kv_heads: 2, head_dim: 64, width: 256, hidden: 256, ..small }
    }
}

/// Writes the file at `path`.
///
/// # Errors
/// A family that is not built, sizes that it or the format refuses, a path that cannot be written.
pub fn write(path: &Path, options: &TinyOptions) -> Result<(), TinyError> {
    Ok(writer(options)?.write(path)?)
}

/// The bytes of the file.
///
/// # Errors
/// A family that is not built, sizes that it or the format refuses.
pub fn bytes(options: &TinyOptions) -> Result<Vec<u8>, TinyError> {
    let mut bytes = Vec::new();
    writer(options)?.write_to(&mut bytes)?;
    Ok(bytes)
}

fn writer(options: &TinyOptions) -> Result<Writer<'static>, TinyError> {
    let family = list::family(&options.architecture).ok_or_else(|| ModelError::Architecture {
        found: options.architecture.clone(),
        known: list::FAMILIES.iter().map(|family| family.architecture).collect::<Vec<_>>().join(", "),
    })?;
    let mut writer = Writer::new();
    for (key, value) in metadata(options) {
        writer.set(&key, value)?;
    }
    // The family reads the metadata back: its table speaks of its own hyper-parameters.
    let mut header = Vec::new();
    writer.write_to(&mut header)?;
    let hyper = (family.hyper)(&Gguf::from_bytes(header)?)?;
    let mut random = Random::new(options.seed);
    for row in family.tensors.iter().filter(|row| options.optional || !row.optional) {
        for layer in 0..if row.per_layer { options.layers } else { 1 } {
            add(&mut writer, row, layer, &hyper, options.format, &mut random)?;
        }
    }
    Ok(writer)
}

fn metadata(options: &TinyOptions) -> Vec<(String, Value)> {
    let size = |value: usize| Value::from(value as u32);
    let own = |key: &str| format!("{}.{key}", options.architecture);
    let mut all = vec![
        ("general.architecture".to_owned(), options.architecture.as_str().into()),
        ("general.name".to_owned(), "tiny".into()),
        (own("block_count"), size(options.layers)),
        (own("context_length"), size(4096)),
        (own("embedding_length"), size(options.width)),
        (own("feed_forward_length"), size(options.hidden)),
        (own("attention.head_count"), size(options.heads)),
        (own("attention.head_count_kv"), size(options.kv_heads)),
        (own("attention.key_length"), size(options.head_dim)),
        (own("attention.value_length"), size(options.head_dim)),
        (own("attention.layer_norm_rms_epsilon"), 1e-5f32.into()),
        (own("rope.dimension_count"), size(options.head_dim)),
        (own("rope.freq_base"), 10_000f32.into()),
        (own("vocab_size"), size(options.vocab)),
    ];
    if let Some(window) = options.window {
        let sliding: Vec<bool> = (0..options.layers).map(|layer| layer % 2 == 0).collect();
        all.push((own("attention.sliding_window"), size(window)));
        all.push((own("attention.sliding_window_pattern"), sliding.into()));
    }
    all
}

fn add(
    writer: &mut Writer<'static>,
    row: &TensorRow,
    layer: usize,
    hyper: &Hyper,
    format: Format,
    random: &mut Random,
) -> Result<(), TinyError> {
    let (name, sizes) = (row.name(layer), row.sizes(hyper));
    let count = sizes.iter().product();
    let floats = |values: Vec<f32>| values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    let (format, bytes) = match row.role {
        Role::Embedding | Role::Linear | Role::Head => {
            let deviation = (sizes[1] as f64).powf(-0.5);
            let blocks = random_blocks(format, sizes[0], sizes[1], deviation, random);
            (format, blocks.map_err(|reason| TinyError::Tensor { name: name.clone(), reason })?)
        }
        Role::Norm => {
            let gains = random.normals(count, 0.2).into_iter().map(|value| 1.0 + value);
            (Format::F32, floats(gains.collect()))
        }
        Role::Bias => (Format::F32, floats(random.normals(count, 0.2))),
        Role::RopeFactors => {
            let divisors = random.normals(count, 1.0).into_iter().map(|value| 1.0 + value.abs());
            (Format::F32, floats(divisors.collect()))
        }
    };
    Ok(writer.tensor(&name, &sizes, format, bytes)?)
}
