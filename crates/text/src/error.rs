//! Why text could not be read or written: one variant a cause, with what was expected and what was found.

use apprentice_gguf::{ErrorKind, GgufError};

/// Why a vocabulary, a chat template or a conversation was refused.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The file carries no tokeniser: `tokenizer.ggml.model` is `none` or absent.
    #[error("tokenizer.ggml.model: the file has no tokeniser (found {})", found.as_deref().unwrap_or("nothing"))]
    NoTokenizer {
        /// The model name in the file, if there is one.
        found: Option<String>,
    },
    /// A tokeniser that is not built.
    #[error("tokenizer.ggml.model: expected gpt2 or llama, found {found:?}")]
    Model {
        /// The name in the file.
        found: String,
    },
    /// A pre-tokeniser that is not built, or none where byte-level BPE needs one.
    #[error("tokenizer.ggml.pre: expected smollm or qwen2, found {}", found.as_deref().unwrap_or("nothing"))]
    PreTokenizer {
        /// The name in the file, if there is one.
        found: Option<String>,
    },
    /// A key that this tokeniser cannot do without.
    #[error("{key}: expected with tokenizer.ggml.model {model}, found nothing")]
    Missing {
        /// The metadata key.
        key: &'static str,
        /// The tokeniser that needs it.
        model: &'static str,
    },
    /// A list that must have one entry a token has another length.
    #[error("{key}: expected {expected} entries, one a token, found {found}")]
    Length {
        /// The metadata key.
        key: &'static str,
        /// Tokens of the vocabulary.
        expected: usize,
        /// Entries found.
        found: usize,
    },
    /// More entries than a 32-bit id can count.
    #[error("{key}: expected at most {limit} entries, found {found}")]
    TooMany {
        /// The metadata key.
        key: &'static str,
        /// The largest count.
        limit: usize,
        /// Entries found.
        found: usize,
    },
    /// A merge that is not two pieces with a space between them.
    #[error("tokenizer.ggml.merges[{index}]: expected two pieces separated by a space, found {found:?}")]
    Merge {
        /// Position in the list of merges.
        index: usize,
        /// The entry.
        found: String,
    },
    /// The metadata asks for a token at the start or end of a prompt and names none that exists.
    #[error("{key} is true, but {id_key} names no token")]
    NoSuchMark {
        /// The key that asks for the token.
        key: &'static str,
        /// The key that should name it.
        id_key: &'static str,
    },
    /// The texts of the special tokens could not be made searchable.
    #[error("special tokens: {count} texts of {bytes} bytes cannot be searched for")]
    SpecialTokens {
        /// Special tokens.
        count: usize,
        /// Bytes of their texts.
        bytes: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token {position}: expected an id below {vocab}, found {found}")]
    TokenId {
        /// Position in the ids given.
        position: usize,
        /// Tokens of the vocabulary.
        vocab: usize,
        /// The id.
        found: u32,
    },
    /// The file has no chat template.
    #[error("tokenizer.chat_template: the file has no chat template")]
    NoTemplate,
    /// A chat template of more bytes than are read.
    #[error("tokenizer.chat_template: expected at most {limit_bytes} bytes, found {found_bytes}")]
    TemplateSize {
        /// The largest size.
        limit_bytes: usize,
        /// The size found.
        found_bytes: usize,
    },
    /// A chat template that is not understood, or fails while it runs.
    #[error("tokenizer.chat_template, line {line}: {reason}")]
    Template {
        /// Line of the template, from 1; 0 where none is known.
        line: usize,
        /// What the template engine says.
        reason: String,
    },
    /// A chat template that works, loops or writes beyond its budget.
    #[error("tokenizer.chat_template: stopped after its {fuel} units of work")]
    TemplateFuel {
        /// Instructions, and 64-byte portions of data, that this conversation allowed.
        fuel: u64,
    },
    /// No thread could be had for a chat template.
    #[error("tokenizer.chat_template: no thread with a stack of {stack_bytes} bytes: {source}")]
    TemplateThread {
        /// The stack that was asked for.
        stack_bytes: usize,
        /// What the system says.
        source: std::io::Error,
    },
    /// The template itself refuses the conversation (`raise_exception`).
    #[error("the chat template refuses the conversation: {reason}")]
    TemplateRefused {
        /// The template's own words.
        reason: String,
    },
    /// A template that reads what its `generation` blocks have written, so that they cannot be found in its text.
    #[error("tokenizer.chat_template: what its generation blocks write is changed afterwards")]
    GenerationBlock,
    /// The tokens of a reply, or before it, depend on what follows them, so the reply is not a run of its own.
    #[error(
        "message {message}: {part} is not a prefix of the conversation: token {position}, line {line}: expected \
         {expected}, found {found}"
    )]
    Unsound {
        /// Index of the assistant message.
        message: usize,
        /// What should stand at the start of the conversation.
        part: &'static str,
        /// The first position, in tokens, at which the two differ.
        position: usize,
        /// The line of the text, from 1, in which they differ.
        line: usize,
        /// What that line should be: quoted, escaped and shortened, from the line's start on where that is near.
        expected: String,
        /// What the conversation has there.
        found: String,
    },
    /// A reply without tokens, or without a token before it.
    #[error(
        "message {message}: expected a reply of at least one token after a prompt, found tokens {start}..{end}"
    )]
    EmptyReply {
        /// Index of the assistant message.
        message: usize,
        /// First token of the reply.
        start: usize,
        /// One past its last token.
        end: usize,
    },
    /// A stop string without text, which would stop every reply before it begins.
    #[error("stop string {index}: expected text, found none")]
    EmptyStopString {
        /// Position in the list of stop strings.
        index: usize,
    },
    /// The file could not be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

impl TextError {
    /// The kind by which a caller chooses a status or an exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TextError::NoTokenizer { .. } | TextError::Missing { .. } | TextError::NoTemplate => {
                ErrorKind::Missing
            }
            TextError::Model { .. }
            | TextError::PreTokenizer { .. }
            | TextError::Template { .. }
            | TextError::GenerationBlock => ErrorKind::Unsupported,
            TextError::Length { .. }
            | TextError::Merge { .. }
            | TextError::NoSuchMark { .. }
            | TextError::TokenId { .. }
            | TextError::TemplateRefused { .. }
            | TextError::EmptyReply { .. }
            | TextError::EmptyStopString { .. } => ErrorKind::Input,
            TextError::TooMany { .. }
            | TextError::SpecialTokens { .. }
            | TextError::TemplateSize { .. }
            | TextError::TemplateFuel { .. } => ErrorKind::Limit,
            TextError::TemplateThread { .. } => ErrorKind::Io,
            TextError::Unsound { .. } => ErrorKind::Conflict,
            TextError::Gguf(error) => error.kind(),
        }
    }
}
