//! Why a model, an adapter or a request for one was refused.

use std::path::{Path, PathBuf};

use apprentice_gguf::GgufError;
use apprentice_graph::{ErrorKind, GraphError};

use crate::adapter_error::AdapterError;

/// Why a model, an adapter or a request for one was refused.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A family that is not built.
    #[error("architecture {found:?} is not supported; supported are {known}")]
    Architecture {
        /// What the file names.
        found: String,
        /// The families of [`crate::list`].
        known: String,
    },
    /// A variant of a family that is not built.
    #[error("architecture {architecture:?} with {variant} is not supported")]
    Variant {
        /// The family.
        architecture: &'static str,
        /// What the file has that is not built.
        variant: String,
    },
    /// A hyper-parameter that is missing.
    #[error("metadata {key:?}: missing")]
    KeyMissing {
        /// The key.
        key: String,
    },
    /// A hyper-parameter with a value that cannot be.
    #[error("metadata {key:?}: expected {expected}, found {found}")]
    Key {
        /// The key.
        key: String,
        /// What would be accepted.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A tensor that the family needs.
    #[error("tensor {name:?}: missing")]
    TensorMissing {
        /// Its name.
        name: String,
    },
    /// A tensor that the family does not know.
    #[error("tensor {name:?}: unknown to architecture {architecture:?}")]
    TensorUnknown {
        /// Its name.
        name: String,
        /// The family.
        architecture: &'static str,
    },
    /// A tensor of another shape or element than the family wants.
    #[error("tensor {name:?}: expected {expected}, found {found}")]
    Tensor {
        /// Its name.
        name: String,
        /// What the family wants.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// The graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An adapter file.
    #[error("adapter {path:?}: {error}")]
    Adapter {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        error: AdapterError,
    },
    /// A target that names no site.
    #[error("target {found:?}: names nothing that an adapter may sit on; there are {known}")]
    Target {
        /// The target.
        found: String,
        /// What would name something.
        known: String,
    },
    /// A setting of a new adapter.
    #[error("{name}: expected {expected}, found {found}")]
    Setting {
        /// Which.
        name: &'static str,
        /// What would be accepted.
        expected: String,
        /// What was given.
        found: String,
    },
}

impl ModelError {
    /// What is wrong with the adapter at `path`.
    pub(crate) fn adapter(path: &Path, error: AdapterError) -> ModelError {
        ModelError::Adapter { path: path.to_owned(), error }
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ModelError::Gguf(error) => error.kind(),
            ModelError::Architecture { .. } | ModelError::Variant { .. } => ErrorKind::Unsupported,
            ModelError::KeyMissing { .. } | ModelError::TensorMissing { .. } => ErrorKind::Missing,
            ModelError::Key { .. }
            | ModelError::TensorUnknown { .. }
            | ModelError::Tensor { .. }
            | ModelError::Target { .. }
            | ModelError::Setting { .. } => ErrorKind::Input,
            ModelError::Adapter { error, .. } => error.kind(),
            ModelError::Graph(error) => error.kind(),
        }
    }
}
