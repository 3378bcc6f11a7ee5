//! Adapter tensors in safetensors files, under PEFT's names or GGUF's.
//!
//! Such a file does not say its alpha, unless its metadata does (`lora_alpha` or `alpha`).

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use apprentice_quant::Format;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

use crate::adapter::{Adapter, AdapterRows};
use crate::adapter_error::AdapterError;
use crate::adapter_file::ReadOptions;
use crate::adapter_names::{AdapterNaming, Scheme};
use crate::adapter_pairs::{Laid, Matched, Stored, pair_up};
use crate::atomic;
use crate::model::Model;

/// Metadata keys of alpha.
const ALPHA_KEYS: [&str; 2] = ["lora_alpha", "alpha"];
/// Largest file that is read.
pub(crate) const BYTES_MAX: u64 = 8 << 30;

/// Reads a file that stands alone: scale `alpha / rank`, on every row.
pub(crate) fn read(
    model: &Model,
    path: &Path,
    options: &ReadOptions,
) -> Result<(Adapter, AdapterNaming), AdapterError> {
    let bytes = read_bytes(path, BYTES_MAX)?;
    let alpha = match options.alpha {
        Some(alpha) => f64::from(alpha),
        None => stated_alpha(&bytes)?.ok_or(AdapterError::AlphaMissing)?,
    };
    let matched = parse(model, None, &bytes)?;
    let naming = matched.iter().map(|pair| pair.names.clone()).collect();
    let pairs = matched.into_iter().map(|pair| {
        let scale = (alpha / pair.rank as f64) as f32;
        pair.at(scale)
    });
    let adapter = Adapter { pairs: pairs.collect(), rows: AdapterRows::All };
    Ok((adapter, AdapterNaming { pairs: naming, names_base: false }))
}

/// The pairs of a safetensors file named by `scheme`, or by the scheme that its names show.
pub(crate) fn parse(
    model: &Model,
    scheme: Option<Scheme>,
    bytes: &[u8],
) -> Result<Vec<Matched>, AdapterError> {
    let parsed = SafeTensors::deserialize(bytes)?;
    let mut views = parsed.tensors();
    views.sort_by(|(left, _), (right, _)| left.cmp(right)); // the first complaint is the same every time
    let scheme = scheme.unwrap_or_else(|| Scheme::of(views.iter().map(|(name, _)| name.as_str())));
    let stored = views.iter().map(|(name, view)| {
        let format = match view.dtype() {
            Dtype::F32 => Format::F32,
            Dtype::F16 => Format::F16,
            Dtype::BF16 => Format::BF16,
            other => return Err(AdapterError::Element { tensor: name.clone(), found: other.to_string() }),
        };
        Ok(Stored { name, shape: view.shape().to_vec(), format, bytes: view.data() })
    });
    pair_up(model, scheme, &stored.collect::<Result<Vec<_>, _>>()?)
}

/// Writes pairs under their names, float32.
pub(crate) fn write(model: &Model, pairs: &[Laid], path: &Path) -> Result<(), AdapterError> {
    let mut views = Vec::with_capacity(2 * pairs.len());
    for pair in pairs {
        let site = &model.sites()[pair.names.site];
        let a = TensorView::new(Dtype::F32, vec![pair.rank, site.input], &pair.a)?;
        let b = TensorView::new(Dtype::F32, vec![site.output, pair.rank], &pair.b)?;
        views.extend([(&pair.names.a, a), (&pair.names.b, b)]);
    }
    // Libraries that read such files ask for the format of the framework that wrote them.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = serialize(views, Some(metadata))?;
    Ok(atomic::write(path, &bytes)?)
}

/// A whole file of at most `limit` bytes.
pub(crate) fn read_bytes(path: &Path, limit: u64) -> Result<Vec<u8>, AdapterError> {
    let found = fs::metadata(path)?.len();
    if found > limit {
        return Err(AdapterError::TooLarge { found, limit });
    }
    Ok(fs::read(path)?)
}

fn stated_alpha(bytes: &[u8]) -> Result<Option<f64>, AdapterError> {
    let (_, metadata) = SafeTensors::read_metadata(bytes)?;
    let Some(entries) = metadata.metadata() else { return Ok(None) };
    let Some((key, text)) = ALPHA_KEYS.iter().find_map(|key| Some((*key, entries.get(*key)?))) else {
        return Ok(None);
    };
    match text.parse::<f64>() {
        Ok(alpha) if alpha.is_finite() && alpha != 0.0 => Ok(Some(alpha)),
        _ => Err(AdapterError::Key {
            key: format!("metadata {key}"),
            expected: "a finite number other than 0".to_owned(),
            found: format!("{text:?}"),
        }),
    }
}
