//! Why something cannot be trained, resumed or written: one variant a cause, with what was expected and what was found.

use std::io;
use std::path::{Path, PathBuf};

use apprentice_engine::{EngineError, ErrorKind};
use apprentice_text::TextError;

/// Why a run was refused, or ended.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A file that the system did not read or write.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file of more bytes than are read.
    #[error("{}: {found} bytes, at most {limit} are read", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        found: u64,
        /// The most that are read.
        limit: u64,
    },
    /// A line that cannot be trained.
    #[error("{}:{line}: {error}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Why.
        error: Box<LineError>,
    },
    /// A file without a sample.
    #[error("{}: expected at least one line with a sample, found none", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A setting that cannot be.
    #[error("{name}: expected {expected}, found {found}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// What would be accepted.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A checkpoint that cannot be gone on from.
    #[error("{}: {error}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Why.
        error: CheckpointError,
    },
    /// The engine.
    #[error(transparent)]
    Engine(Box<EngineError>),
}

impl From<EngineError> for TrainError {
    fn from(error: EngineError) -> TrainError {
        TrainError::Engine(Box::new(error))
    }
}

/// Why a line cannot be trained.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Bytes that are no text.
    #[error("expected UTF-8 text, found another byte at {at}")]
    Utf8 {
        /// Where in the line.
        at: usize,
    },
    /// A line of more bytes than are read.
    #[error("{found} bytes, a line has at most {limit}")]
    Size {
        /// Its bytes.
        found: usize,
        /// The most that are read.
        limit: usize,
    },
    /// No JSON.
    #[error("expected JSON, found {reason}")]
    Json {
        /// What the parser says.
        reason: String,
    },
    /// A key or a value that cannot be.
    #[error("{place}: expected {expected}, found {found}")]
    Value {
        /// Where: a path of keys and indices.
        place: String,
        /// What would be accepted.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A key whose meaning is not built.
    #[error("{place}: not supported")]
    Unsupported {
        /// Where.
        place: String,
    },
    /// A conversation in which the assistant says nothing.
    #[error("messages: expected at least one of the assistant, found none")]
    NoReply,
    /// Nothing to learn from.
    #[error("all labels are masked: {reason}")]
    Masked {
        /// What masks them.
        reason: &'static str,
    },
    /// A reply without anything before it.
    #[error("nothing comes before the completion, so no row predicts its first token")]
    AtStart,
    /// The tokens of a prompt depend on what follows it.
    #[error(
        "the prompt's tokens change when the completion follows them, from token {position} on: end the prompt before the \
         space, and begin the completion with it"
    )]
    Border {
        /// The first token that differs.
        position: usize,
    },
    /// More tokens than the context has.
    #[error("{found} tokens, the context has {limit}")]
    Context {
        /// Tokens of the sample.
        found: usize,
        /// Positions.
        limit: usize,
    },
    /// More rows than one graph takes.
    #[error("{found} {what} in one span, room for {limit}")]
    Span {
        /// `rows`, or `bytes of logits`.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A model that no token ends a reply of.
    #[error("the model's vocabulary names no token that ends a text")]
    NoEnd,
    /// The chat template or the tokeniser.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// Why a checkpoint cannot be gone on from.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Not a whole file of the format.
    #[error("no checkpoint: {reason}")]
    Format {
        /// What is wrong.
        reason: String,
    },
    /// A run of other settings.
    #[error("{name}: the run that was stopped has {expected}, this one {found}")]
    Other {
        /// Which setting.
        name: String,
        /// Of the checkpoint.
        expected: String,
        /// Of this run.
        found: String,
    },
}

impl TrainError {
    /// An error of the system about a file.
    pub fn file(path: &Path, source: io::Error) -> TrainError {
        TrainError::File { path: path.to_owned(), source }
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TrainError::File { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorKind::Missing,
            TrainError::File { .. } => ErrorKind::Io,
            TrainError::Size { .. } => ErrorKind::Limit,
            TrainError::Line { error, .. } => error.kind(),
            TrainError::Empty { .. } | TrainError::Setting { .. } => ErrorKind::Input,
            TrainError::Checkpoint { error: CheckpointError::Format { .. }, .. } => ErrorKind::Input,
            TrainError::Checkpoint { error: CheckpointError::Other { .. }, .. } => ErrorKind::Conflict,
            TrainError::Engine(error) => error.kind(),
        }
    }
}

impl LineError {
    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            LineError::Utf8 { .. }
            | LineError::Json { .. }
            | LineError::Value { .. }
            | LineError::NoReply
            | LineError::Masked { .. }
            | LineError::AtStart => ErrorKind::Input,
            LineError::Size { .. } | LineError::Context { .. } | LineError::Span { .. } => ErrorKind::Limit,
            LineError::Unsupported { .. } => ErrorKind::Unsupported,
            LineError::Border { .. } => ErrorKind::Conflict,
            LineError::NoEnd => ErrorKind::Missing,
            LineError::Text(error) => error.kind(),
        }
    }
}
