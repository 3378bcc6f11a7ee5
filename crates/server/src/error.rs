//! Why a server does not start.

use std::io;
use std::path::PathBuf;

use apprentice_engine::{EngineError, ErrorKind};
use apprentice_models::ModelError;

/// Why a server does not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address that cannot be listened on.
    #[error("{address}: {error}")]
    Address {
        /// The address.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// A setting that cannot be.
    #[error("{setting}: expected {expected}, found {found}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What would be accepted.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// A folder or file of adapters that cannot be read.
    #[error("{}: {error}", path.display())]
    Adapters {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// An adapter whose file is not named as an adapter may be.
    #[error("{}: the name of an adapter has 1 to 64 letters, digits, '.', '_' or '-', and does not begin with '.'", path.display())]
    AdapterName {
        /// The file.
        path: PathBuf,
    },
    /// Two adapters of one name.
    #[error("{}: another adapter is called {name:?} too", path.display())]
    AdapterTwice {
        /// The second file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// What the system does not give: a thread, a signal.
    #[error("{what}: {error}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What it says.
        error: io::Error,
    },
    /// An adapter that is not read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An adapter that is not loaded.
    #[error(transparent)]
    Engine(Box<EngineError>),
}

impl From<EngineError> for ServerError {
    fn from(error: EngineError) -> ServerError {
        ServerError::Engine(Box::new(error))
    }
}

impl ServerError {
    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ServerError::Setting { .. } | ServerError::AdapterName { .. } => ErrorKind::Input,
            ServerError::AdapterTwice { .. } => ErrorKind::Conflict,
            ServerError::Address { .. } | ServerError::Adapters { .. } | ServerError::System { .. } => {
                ErrorKind::Io
            }
            ServerError::Model(error) => error.kind(),
            ServerError::Engine(error) => error.kind(),
        }
    }
}
