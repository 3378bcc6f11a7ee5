//! Why a check could not be made. A bound that was missed is no error: it stands in the report.

use std::io;
use std::path::{Path, PathBuf};

use apprentice_engine::EngineError;
use apprentice_graph::ErrorKind;
use apprentice_models::ModelError;
use apprentice_quant::QuantError;

use crate::example::ExampleError;
use crate::npy::NpyError;

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A file or folder that could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that is not what it should be.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What would be accepted.
        expected: String,
        /// What it holds.
        found: String,
    },
    /// A file that is not JSON of the right form.
    #[error("{}: {source}", path.display())]
    Json {
        /// Which.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// An array file.
    #[error("{}: {error}", path.display())]
    Npy {
        /// Which.
        path: PathBuf,
        /// Why.
        error: NpyError,
    },
    /// A training example.
    #[error("{}: {error}", path.display())]
    Example {
        /// Which.
        path: PathBuf,
        /// Why.
        error: ExampleError,
    },
    /// Blocks of a format.
    #[error("{}: {error}", path.display())]
    Quant {
        /// Which.
        path: PathBuf,
        /// Why.
        error: QuantError,
    },
    /// The golden data are of another model.
    #[error("{}: made with the model of SHA-256 {expected}, this one has {found}", path.display())]
    OtherModel {
        /// The golden file.
        path: PathBuf,
        /// The model that it was made with.
        expected: String,
        /// The model given.
        found: String,
    },
    /// A folder without any of the files that are checked.
    #[error("{}: holds nothing to check; expected {expected}", path.display())]
    Nothing {
        /// The folder.
        path: PathBuf,
        /// What would be checked.
        expected: &'static str,
    },
    /// More positions than the model was made for.
    #[error("{}: {found} tokens, the context of the model has {limit}", path.display())]
    Context {
        /// The golden file.
        path: PathBuf,
        /// Its tokens.
        found: usize,
        /// Positions of the model.
        limit: usize,
    },
    /// A model.
    #[error("{}", located(path, error))]
    Model {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Box<ModelError>,
    },
    /// An adapter for the model.
    #[error(transparent)]
    Adapter(Box<ModelError>),
    /// The engine.
    #[error(transparent)]
    Engine(Box<EngineError>),
    /// The caller's bench refused.
    #[error("{message}")]
    Bench {
        /// What kind of error it was.
        kind: ErrorKind,
        /// What it said.
        message: String,
    },
}

impl CheckError {
    /// A model that was refused.
    pub fn model(path: &Path, error: ModelError) -> CheckError {
        CheckError::Model { path: path.to_owned(), error: Box::new(error) }
    }

    /// An adapter that was refused.
    pub fn adapter(error: ModelError) -> CheckError {
        CheckError::Adapter(Box::new(error))
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CheckError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorKind::Missing,
            CheckError::Io { .. } => ErrorKind::Io,
            CheckError::Content { .. }
            | CheckError::Json { .. }
            | CheckError::Npy { .. }
            | CheckError::Quant { .. } => ErrorKind::Input,
            CheckError::Example { error, .. } => error.kind(),
            CheckError::OtherModel { .. } => ErrorKind::Conflict,
            CheckError::Nothing { .. } => ErrorKind::Missing,
            CheckError::Context { .. } => ErrorKind::Limit,
            CheckError::Model { error, .. } | CheckError::Adapter(error) => error.kind(),
            CheckError::Engine(error) => error.kind(),
            CheckError::Bench { kind, .. } => *kind,
        }
    }
}

impl From<EngineError> for CheckError {
    fn from(error: EngineError) -> CheckError {
        CheckError::Engine(Box::new(error))
    }
}

/// Errors of the file format mostly say which file it was; others do not.
fn located(path: &Path, error: &ModelError) -> String {
    let (path, error) = (path.display().to_string(), error.to_string());
    if error.starts_with(&path) { error } else { format!("{path}: {error}") }
}
