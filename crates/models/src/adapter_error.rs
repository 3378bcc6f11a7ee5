//! Why an adapter file was refused, or could not be written.

use std::io;

use apprentice_gguf::GgufError;
use apprentice_quant::{ErrorKind, QuantError};
use safetensors::SafeTensorError;

/// Why an adapter file was refused, or could not be written. [`crate::ModelError::Adapter`] adds its path.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// Any of the others, in one file of a folder.
    #[error("{file}: {error}")]
    In {
        /// The file's name.
        file: &'static str,
        /// Why.
        #[source]
        error: Box<AdapterError>,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A file that the folder should hold.
    #[error("{file}: missing")]
    FileMissing {
        /// Its name.
        file: &'static str,
    },
    /// A file that is too large to be one.
    #[error("{found} bytes, at most {limit} are read")]
    TooLarge {
        /// Its length.
        found: u64,
        /// What would be accepted.
        limit: u64,
    },
    /// A configuration that is not JSON.
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A safetensors file that is not whole or not one.
    #[error("not a whole safetensors file: {0}")]
    Safetensors(#[from] SafeTensorError),
    /// A GGUF file that is not whole or not one.
    #[error("{}", .0.cause())]
    Gguf(#[source] Box<GgufError>),
    /// A tensor whose bytes do not decode.
    #[error("tensor {tensor:?}: {source}")]
    Quant {
        /// Its name.
        tensor: String,
        /// Why.
        source: QuantError,
    },
    /// A key that must be there.
    #[error("{key}: missing")]
    KeyMissing {
        /// The key.
        key: String,
    },
    /// A key with a value that cannot be.
    #[error("{key}: expected {expected}, found {found}")]
    Key {
        /// The key.
        key: String,
        /// What would be accepted.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A kind of adapter that is not built.
    #[error("{key} = {found}: not supported")]
    Unsupported {
        /// The key that asks for it.
        key: String,
        /// Its value.
        found: String,
    },
    /// A file that does not hold its alpha.
    #[error("alpha: not in the file; it must be given (--alpha), the scale is alpha / rank")]
    AlphaMissing,
    /// An adapter of another base model.
    #[error("made for the base model {found}, this one is {expected}; it is used only when forced")]
    Base {
        /// Fingerprint of the model.
        expected: String,
        /// Fingerprint in the adapter.
        found: String,
    },
    /// A tensor that belongs to no site of the model.
    #[error("tensor {tensor:?}: matches nothing that an adapter may sit on; there are {known}")]
    Unmatched {
        /// Its name.
        tensor: String,
        /// Some names that would match.
        known: String,
    },
    /// Half a pair.
    #[error("tensor {tensor:?}: its counterpart {wanted:?} is missing")]
    Unpaired {
        /// The half that is there.
        tensor: String,
        /// The half that is not.
        wanted: String,
    },
    /// Two tensors for one place.
    #[error("tensor {tensor:?}: the same matrix as {other:?}")]
    Twice {
        /// The second.
        tensor: String,
        /// The first.
        other: String,
    },
    /// A tensor of another shape: the adapter is for another model.
    #[error("tensor {tensor:?}: expected {expected} for this model, found {found:?}")]
    Shape {
        /// Its name.
        tensor: String,
        /// What its site wants.
        expected: String,
        /// What it has.
        found: Vec<usize>,
    },
    /// A rank that is not the one said elsewhere.
    #[error("tensor {tensor:?}: expected rank {expected}, found {found}")]
    Rank {
        /// Its name.
        tensor: String,
        /// What the counterpart or the configuration says.
        expected: String,
        /// What it has.
        found: usize,
    },
    /// A tensor of elements that are not read.
    #[error("tensor {tensor:?}: expected F32, F16 or BF16, found {found}")]
    Element {
        /// Its name.
        tensor: String,
        /// Its element.
        found: String,
    },
    /// NaN or infinity.
    #[error("tensor {tensor:?} [{row}, {column}]: expected a finite number, found {found}")]
    NotFinite {
        /// Its name.
        tensor: String,
        /// Row in the file.
        row: usize,
        /// Column in the file.
        column: usize,
        /// The value.
        found: f32,
    },
    /// A file without any pair.
    #[error("holds no pair of matrices")]
    Empty,
    /// An adapter that the format cannot hold: GGUF knows one alpha.
    #[error(
        "no single float32 alpha gives the scale {scale} at rank {rank} of {site:?} and those of all other pairs; a PEFT folder can hold it"
    )]
    OneAlpha {
        /// The pair's site.
        site: String,
        /// Its scale.
        scale: f32,
        /// Its rank.
        rank: usize,
    },
}

// By hand, for the box: results that hold an error stay small.
impl From<GgufError> for AdapterError {
    fn from(error: GgufError) -> AdapterError {
        AdapterError::Gguf(Box::new(error))
    }
}

impl AdapterError {
    /// The same error, in the file of a folder.
    pub(crate) fn within(self, file: &'static str) -> AdapterError {
        AdapterError::In { file, error: Box::new(self) }
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            AdapterError::In { error, .. } => error.kind(),
            AdapterError::Io(error) if error.kind() == io::ErrorKind::NotFound => ErrorKind::Missing,
            AdapterError::Io(_) => ErrorKind::Io,
            AdapterError::FileMissing { .. }
            | AdapterError::KeyMissing { .. }
            | AdapterError::AlphaMissing => ErrorKind::Missing,
            AdapterError::TooLarge { .. } => ErrorKind::Limit,
            AdapterError::Gguf(error) => error.kind(),
            AdapterError::Quant { source, .. } => source.kind(),
            AdapterError::Unsupported { .. }
            | AdapterError::Element { .. }
            | AdapterError::OneAlpha { .. } => ErrorKind::Unsupported,
            AdapterError::Base { .. } => ErrorKind::Conflict,
            AdapterError::Json(_)
            | AdapterError::Safetensors(_)
            | AdapterError::Key { .. }
            | AdapterError::Unmatched { .. }
            | AdapterError::Unpaired { .. }
            | AdapterError::Twice { .. }
            | AdapterError::Shape { .. }
            | AdapterError::Rank { .. }
            | AdapterError::NotFinite { .. }
            | AdapterError::Empty => ErrorKind::Input,
        }
    }
}
