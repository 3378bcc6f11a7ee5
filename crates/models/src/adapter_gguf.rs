//! GGUF adapters: `general.type` "adapter", `adapter.type` "lora", one `adapter.lora.alpha` for all pairs, scale
//! `alpha / rank`.
//!
//! `adapter.alora.invocation_tokens` has the field's meaning. Keys of our own: `apprentice.rows` ("all", "reply") and
//! `apprentice.base`, the fingerprint of the base model. Source: the description of GGUF LoRA adapters of llama.cpp.

use std::path::Path;

use apprentice_gguf::{Array, Gguf, Value, Writer};
use apprentice_quant::Format;

use crate::adapter::{Adapter, AdapterRows};
use crate::adapter_error::AdapterError;
use crate::adapter_file::{BASE_KEY, ROWS_KEY, ReadOptions, check_base, rows_from_name, rows_name};
use crate::adapter_names::{AdapterNaming, Scheme};
use crate::adapter_pairs::{Stored, lay, pair_up};
use crate::alpha::common_alpha;
use crate::model::Model;

const ARCHITECTURE_KEY: &str = "general.architecture";
const TYPE_KEY: &str = "general.type";
const KIND_KEY: &str = "adapter.type";
const ALPHA_KEY: &str = "adapter.lora.alpha";
const INVOCATION_KEY: &str = "adapter.alora.invocation_tokens";

/// Reads a file.
pub(crate) fn read(
    model: &Model,
    path: &Path,
    options: &ReadOptions,
) -> Result<(Adapter, AdapterNaming), AdapterError> {
    let gguf = Gguf::open(path)?;
    expect(&gguf, TYPE_KEY, "adapter")?;
    expect(&gguf, KIND_KEY, "lora")?;
    expect(&gguf, ARCHITECTURE_KEY, model.family().architecture)?;
    let base = gguf.str(BASE_KEY)?;
    check_base(model, base, options)?;
    let alpha = match options.alpha {
        Some(alpha) => alpha,
        None => stated_alpha(&gguf)?,
    };
    let rows = rows(&gguf)?;
    let stored = gguf.tensors().iter().map(|tensor| Stored {
        name: &tensor.name,
        shape: tensor.shape.clone(),
        format: tensor.format,
        bytes: gguf.bytes(tensor),
    });
    let matched = pair_up(model, Scheme::Gguf, &stored.collect::<Vec<_>>())?;
    let naming = matched.iter().map(|pair| pair.names.clone()).collect();
    let pairs = matched.into_iter().map(|pair| {
        let scale = (f64::from(alpha) / pair.rank as f64) as f32;
        pair.at(scale)
    });
    let adapter = Adapter { pairs: pairs.collect(), rows };
    Ok((adapter, AdapterNaming { pairs: naming, names_base: base.is_some() }))
}

/// Writes a file, float32.
pub(crate) fn write(model: &Model, adapter: &Adapter, path: &Path) -> Result<(), AdapterError> {
    let naming = AdapterNaming::gguf(model, &adapter.sites());
    let mut writer = Writer::new();
    writer.set(ARCHITECTURE_KEY, model.family().architecture)?;
    writer.set(TYPE_KEY, "adapter")?;
    writer.set(KIND_KEY, "lora")?;
    writer.set(ALPHA_KEY, alpha_of(model, adapter)?)?;
    match &adapter.rows {
        AdapterRows::Invocation(tokens) => {
            writer.set(INVOCATION_KEY, Value::Array(Array::U32(tokens.clone())))?;
        }
        AdapterRows::All | AdapterRows::Reply => {}
    }
    if let Some(rows) = rows_name(&adapter.rows) {
        writer.set(ROWS_KEY, rows)?;
    }
    writer.set(BASE_KEY, model.gguf().fingerprint())?;
    for (pair, names) in adapter.pairs.iter().zip(&naming.pairs) {
        let site = &model.sites()[pair.site];
        let laid = lay(model, names, &pair.a, &pair.b);
        writer.tensor(&names.a, &[pair.rank, site.input], Format::F32, laid.a)?;
        writer.tensor(&names.b, &[site.output, pair.rank], Format::F32, laid.b)?;
    }
    Ok(writer.write(path)?)
}

/// The one alpha that gives all scales.
pub(crate) fn alpha_of(model: &Model, adapter: &Adapter) -> Result<f32, AdapterError> {
    let first = adapter.pairs.first().ok_or(AdapterError::Empty)?;
    let scales = adapter.pairs.iter().map(|pair| (pair.scale, pair.rank));
    common_alpha(scales).ok_or_else(|| {
        let site = model.sites()[first.site].name.clone();
        AdapterError::OneAlpha { site, scale: first.scale, rank: first.rank }
    })
}

fn stated_alpha(gguf: &Gguf) -> Result<f32, AdapterError> {
    match gguf.f32(ALPHA_KEY)? {
        None => Err(AdapterError::AlphaMissing),
        Some(alpha) if alpha.is_finite() && alpha != 0.0 => Ok(alpha),
        Some(alpha) => Err(AdapterError::Key {
            key: ALPHA_KEY.to_owned(),
            expected: "a finite number other than 0".to_owned(),
            found: alpha.to_string(),
        }),
    }
}

fn rows(gguf: &Gguf) -> Result<AdapterRows, AdapterError> {
    if let Some(name) = gguf.str(ROWS_KEY)? {
        return rows_from_name(name);
    }
    let Some(tokens) = gguf.u64s(INVOCATION_KEY)?.filter(|tokens| !tokens.is_empty()) else {
        return Ok(AdapterRows::All);
    };
    let token = |token: u64| {
        u32::try_from(token).map_err(|_| AdapterError::Key {
            key: INVOCATION_KEY.to_owned(),
            expected: "token ids".to_owned(),
            found: token.to_string(),
        })
    };
    Ok(AdapterRows::Invocation(tokens.into_iter().map(token).collect::<Result<_, _>>()?))
}

/// Refuses a file in which `key` is not `expected`.
fn expect(gguf: &Gguf, key: &str, expected: &str) -> Result<(), AdapterError> {
    match gguf.str(key)? {
        None => Err(AdapterError::KeyMissing { key: key.to_owned() }),
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(AdapterError::Key {
            key: key.to_owned(),
            expected: format!("{expected:?}"),
            found: format!("{found:?}"),
        }),
    }
}
