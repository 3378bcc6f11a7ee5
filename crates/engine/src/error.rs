//! Why the engine refused a call. Nothing has changed then.

use apprentice_graph::{BackendError, ErrorKind, GraphError};
use apprentice_models::ModelError;

/// Why a call was refused.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A sequence that is not open.
    #[error("sequence {0}: not open")]
    Sequence(u32),
    /// A sequence that stands twice in one batch.
    #[error("sequence {0}: stands twice in the batch")]
    SequenceTwice(u32),
    /// An adapter that is not loaded.
    #[error("adapter {0}: not loaded")]
    Adapter(u32),
    /// An adapter in training that is not known.
    #[error("adapter in training {0}: not known")]
    Live(u32),
    /// An adapter in training that cannot be touched now.
    #[error("adapter in training {adapter}: in use")]
    Busy {
        /// Its handle.
        adapter: u32,
    },
    /// A token outside the vocabulary.
    #[error("token {token} at index {index}: the vocabulary has {vocab}")]
    Token {
        /// The id.
        token: i64,
        /// Where among the tokens of the call.
        index: usize,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// More positions than a sequence may have.
    #[error("{found} positions: the context has {limit}")]
    Context {
        /// Positions that would be needed.
        found: usize,
        /// Positions that a sequence may have.
        limit: usize,
    },
    /// More of something than there is room for.
    #[error("{what}: {found}, room for {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Nothing to do: no rows, no labelled row, no adapter pair.
    #[error("{what}: nothing is given")]
    Empty {
        /// What is missing.
        what: &'static str,
    },
    /// Lists that must have the same length.
    #[error("{what}: expected {expected} as {of} has, found {found}")]
    Length {
        /// The list.
        what: &'static str,
        /// Length wanted.
        expected: usize,
        /// The list that gives the length.
        of: &'static str,
        /// Length given.
        found: usize,
    },
    /// A span that cannot be learnt from where it stands.
    #[error("span at position {position}: {reason}")]
    Span {
        /// Position of its first row.
        position: usize,
        /// Why.
        reason: &'static str,
    },
    /// A pair of an adapter that does not fit its site.
    #[error("adapter at {site:?}: expected {expected}, found {found}")]
    Pair {
        /// Name of the site, or its index.
        site: String,
        /// What fits.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A setting out of its range.
    #[error("{setting}: expected {expected}, found {found}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What would be accepted.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// A loss or gradient that is not finite; nothing was updated.
    #[error("{tensor}: not finite; nothing was updated")]
    NotFinite {
        /// The first such tensor.
        tensor: String,
    },
    /// Logits that are not finite; the batch was not taken.
    #[error("logits of output row {row}: not finite")]
    Logits {
        /// Index among the output rows of the call.
        row: usize,
    },
    /// The model.
    #[error(transparent)]
    Model(Box<ModelError>),
    /// The backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A graph of the engine's own.
    #[error(transparent)]
    Graph(Box<GraphError>),
}

impl From<GraphError> for EngineError {
    fn from(error: GraphError) -> EngineError {
        EngineError::Graph(Box::new(error))
    }
}

impl From<ModelError> for EngineError {
    fn from(error: ModelError) -> EngineError {
        EngineError::Model(Box::new(error))
    }
}

impl EngineError {
    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            EngineError::Sequence(_) | EngineError::Adapter(_) | EngineError::Live(_) => ErrorKind::Missing,
            EngineError::SequenceTwice(_) | EngineError::Busy { .. } => ErrorKind::Conflict,
            EngineError::Token { .. }
            | EngineError::Empty { .. }
            | EngineError::Length { .. }
            | EngineError::Span { .. }
            | EngineError::Pair { .. }
            | EngineError::Setting { .. }
            | EngineError::Logits { .. }
            | EngineError::NotFinite { .. } => ErrorKind::Input,
            EngineError::Context { .. } | EngineError::Limit { .. } => ErrorKind::Limit,
            EngineError::Model(error) => error.kind(),
            EngineError::Backend(error) => error.kind(),
            EngineError::Graph(error) => error.kind(),
        }
    }

    /// The same error for each of several jobs that failed together.
    pub(crate) fn shared(self) -> impl Fn() -> EngineError {
        let common = match self {
            EngineError::Backend(error) => error,
            EngineError::Graph(error) => BackendError::Graph(*error),
            other => BackendError::Failed { what: format!("a batch ({other})") },
        };
        move || EngineError::Backend(common.clone())
    }
}
