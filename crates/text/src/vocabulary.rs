//! What a model file says about its text, as plain data.

/// The tokeniser's part of a model file. Lists have one entry a token unless said otherwise.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: `gpt2` for byte-level BPE, `llama` for SentencePiece BPE.
    pub model: String,
    /// `tokenizer.ggml.pre`: how byte-level BPE cuts text into words.
    pub pre: Option<String>,
    /// The text of each token. A token's id is its index.
    pub tokens: Vec<String>,
    /// What each token is; empty means that all are normal.
    pub kinds: Vec<TokenKind>,
    /// SentencePiece: the higher a token's score, the sooner it is merged; empty means that all are 0.
    pub scores: Vec<f32>,
    /// Byte-level BPE: pairs of pieces separated by a space, the first merged soonest. Any length.
    pub merges: Vec<String>,
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message.
    pub eom: Option<u32>,
    /// What stands for a byte that has no token (SentencePiece).
    pub unknown: Option<u32>,
    /// Whether a whole prompt begins with [`Vocabulary::bos`]; by default only SentencePiece's do.
    pub add_bos: Option<bool>,
    /// Whether a whole prompt ends with [`Vocabulary::eos`]; false by default.
    pub add_eos: Option<bool>,
    /// SentencePiece: whether text gets a space before its first word; true by default.
    pub add_space_prefix: Option<bool>,
    /// The chat template, in Jinja.
    pub chat_template: Option<String>,
}

/// What a token is, as `tokenizer.ggml.token_type` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// No known kind; it is written as nothing.
    Undefined,
    /// A piece of text.
    Normal,
    /// The stand-in for what has no token.
    Unknown,
    /// A mark of the conversation's structure: read from text only where special tokens are, written only on request.
    Control,
    /// Text that is a token wherever it stands, before anything else is cut.
    UserDefined,
    /// A place in the table that nothing uses; it is written as nothing.
    Unused,
    /// One byte, as `<0x41>`.
    Byte,
}

impl TokenKind {
    /// The kind of GGUF's number; an unknown number is [`TokenKind::Undefined`].
    pub fn from_gguf(number: i64) -> TokenKind {
        match number {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => TokenKind::Undefined,
        }
    }
}
