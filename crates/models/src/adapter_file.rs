//! Adapters read from files and written to them: a PEFT folder, a GGUF file, or bare safetensors.
//!
//! Values are in the order of the model's file here and in the order of each format there; alpha of a file becomes a
//! scale a pair, and back.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use apprentice_gguf::GgufError;

use crate::adapter::{Adapter, AdapterRows, Pair};
use crate::adapter_error::AdapterError;
use crate::adapter_names::AdapterNaming;
use crate::adapter_pairs::lay;
use crate::error::ModelError;
use crate::model::Model;
use crate::{adapter_gguf, adapter_peft, adapter_safetensors};

/// Key for the rows that an adapter is for.
pub(crate) const ROWS_KEY: &str = "apprentice.rows";
/// Key for the fingerprint of the base model.
pub(crate) const BASE_KEY: &str = "apprentice.base";

/// What the reader of a file is told beside its path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ReadOptions {
    /// Alpha, in place of what the file says. Bare safetensors need it unless their metadata holds one.
    pub alpha: Option<f32>,
    /// Whether an adapter of another base model is used all the same.
    pub force: bool,
}

/// Two matrices at a site, values or gradients, in the order of the model's file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Matrices<'a> {
    /// Index into [`Model::sites`].
    pub site: usize,
    /// `[rank, in]`.
    pub a: &'a [f32],
    /// `[rank, out]`.
    pub b: &'a [f32],
}

impl<'a> From<&'a Pair> for Matrices<'a> {
    fn from(pair: &'a Pair) -> Matrices<'a> {
        Matrices { site: pair.site, a: &pair.a, b: &pair.b }
    }
}

/// Reads the adapter at `path`: a folder is PEFT's, a file is GGUF or safetensors. Also returns what it calls its tensors.
///
/// # Errors
/// [`ModelError::Adapter`]: a file that is missing, not whole or not of its format; an adapter of another kind, another
/// base model or another shape; a tensor that matches nothing, lacks its counterpart or holds NaN or infinity; no alpha.
pub fn read(
    model: &Model,
    path: &Path,
    options: &ReadOptions,
) -> Result<(Adapter, AdapterNaming), ModelError> {
    let read = || {
        check_given(options)?;
        let read = if path.is_dir() {
            adapter_peft::read(model, path, options)?
        } else if is_gguf(path)? {
            adapter_gguf::read(model, path, options)?
        } else {
            adapter_safetensors::read(model, path, options)?
        };
        check_scales(&read.0)?;
        Ok(read)
    };
    read().map_err(|error| ModelError::adapter(path, error))
}

/// Writes an adapter to `path`: GGUF where the name ends in `.gguf`, else a PEFT folder. Each file is there whole or not
/// at all.
///
/// # Errors
/// [`ModelError::Adapter`] where the system fails, where GGUF cannot hold the scales, or without pairs;
/// [`ModelError::Setting`] for the name of a file of another kind.
pub fn write(model: &Model, adapter: &Adapter, path: &Path) -> Result<(), ModelError> {
    check_output(model, adapter, path)?;
    let written = if is_gguf_name(path) {
        adapter_gguf::write(model, adapter, path)
    } else {
        adapter_peft::write(model, adapter, path)
    };
    written.map_err(|error| ModelError::adapter(path, error))
}

/// Refuses what [`write()`] would refuse by the name of the file and the scales of the adapter, before anything is trained.
///
/// # Errors
/// As [`write()`], but for what the system says.
pub fn check_output(model: &Model, adapter: &Adapter, path: &Path) -> Result<(), ModelError> {
    let refused = match path.extension().and_then(|end| end.to_str()) {
        Some("safetensors" | "json" | "bin") => {
            return Err(ModelError::Setting {
                name: "output",
                expected: "a folder or a name that ends in .gguf".to_owned(),
                found: path.display().to_string(),
            });
        }
        _ if adapter.pairs.is_empty() => Err(AdapterError::Empty),
        _ if is_gguf_name(path) => adapter_gguf::alpha_of(model, adapter).map(|_| ()),
        _ => Ok(()),
    };
    refused.map_err(|error| ModelError::adapter(path, error))
}

fn is_gguf_name(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "gguf")
}

/// Writes matrices to a safetensors file under the names and in the row order of `naming`: an adapter's values, or
/// gradients named as the adapter is.
///
/// # Errors
/// [`ModelError::Adapter`] where the system fails.
///
/// # Panics
/// If `naming` has no names for a site, or a slice is not `[rank, in]` and `[rank, out]` of it.
pub fn write_safetensors<'a>(
    model: &Model,
    naming: &AdapterNaming,
    matrices: impl IntoIterator<Item = Matrices<'a>>,
    path: &Path,
) -> Result<(), ModelError> {
    let laid = matrices.into_iter().map(|matrices| {
        let names = naming.pairs.iter().find(|names| names.site == matrices.site);
        let names = names.expect("every matrix is of a pair that the naming names");
        lay(model, names, matrices.a, matrices.b)
    });
    adapter_safetensors::write(model, &laid.collect::<Vec<_>>(), path)
        .map_err(|error| ModelError::adapter(path, error))
}

/// Refuses an adapter that names another base model.
pub(crate) fn check_base(
    model: &Model,
    found: Option<&str>,
    options: &ReadOptions,
) -> Result<(), AdapterError> {
    let Some(found) = found.filter(|_| !options.force) else { return Ok(()) };
    let expected = model.gguf().fingerprint();
    if found == expected { Ok(()) } else { Err(AdapterError::Base { expected, found: found.to_owned() }) }
}

/// Value of [`ROWS_KEY`]; what the field has a key for has none of ours.
pub(crate) fn rows_name(rows: &AdapterRows) -> Option<&'static str> {
    match rows {
        AdapterRows::All => Some("all"),
        AdapterRows::Reply => Some("reply"),
        AdapterRows::Invocation(_) => None,
    }
}

/// Rows by the value of [`ROWS_KEY`].
pub(crate) fn rows_from_name(name: &str) -> Result<AdapterRows, AdapterError> {
    match name {
        "all" => Ok(AdapterRows::All),
        "reply" => Ok(AdapterRows::Reply),
        other => Err(AdapterError::Key {
            key: ROWS_KEY.to_owned(),
            expected: "\"all\" or \"reply\"".to_owned(),
            found: format!("{other:?}"),
        }),
    }
}

fn check_given(options: &ReadOptions) -> Result<(), AdapterError> {
    match options.alpha {
        Some(alpha) if alpha == 0.0 || !alpha.is_finite() => Err(AdapterError::Key {
            key: "alpha".to_owned(),
            expected: "a finite number other than 0".to_owned(),
            found: alpha.to_string(),
        }),
        _ => Ok(()),
    }
}

/// An alpha that a float64 holds may give a scale that a float32 does not.
fn check_scales(adapter: &Adapter) -> Result<(), AdapterError> {
    match adapter.pairs.iter().find(|pair| !pair.scale.is_finite() || pair.scale == 0.0) {
        None => Ok(()),
        Some(pair) => Err(AdapterError::Key {
            key: "alpha / rank".to_owned(),
            expected: "a float32 other than 0".to_owned(),
            found: pair.scale.to_string(),
        }),
    }
}

/// By name, else by the first bytes.
fn is_gguf(path: &Path) -> Result<bool, AdapterError> {
    if !fs::metadata(path)?.is_file() {
        return Err(GgufError::NotAFile.into());
    }
    if path.extension().is_some_and(|end| end == "gguf") {
        return Ok(true);
    }
    let mut magic = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut magic)?;
    Ok(magic == b"GGUF")
}
