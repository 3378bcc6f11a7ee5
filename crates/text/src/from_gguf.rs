//! The tokeniser's metadata of a GGUF file.

use apprentice_gguf::Gguf;

use crate::error::TextError;
use crate::text::Text;
use crate::vocabulary::{TokenKind, Vocabulary};

impl Text {
    /// Reads the tokeniser and the chat template of a file.
    ///
    /// # Errors
    /// [`TextError::NoTokenizer`] if the file has none, so that a caller who needs only ids can go on;
    /// [`TextError::Gguf`] for a key of another type; otherwise as [`Text::new`].
    pub fn from_gguf(file: &Gguf) -> Result<Text, TextError> {
        Text::new(Vocabulary::from_gguf(file)?)
    }
}

impl Vocabulary {
    /// Reads the keys `tokenizer.ggml.*` and `tokenizer.chat_template` as they are.
    ///
    /// # Errors
    /// [`TextError::NoTokenizer`] if there is no `tokenizer.ggml.model`, or it is `none`; [`TextError::Gguf`] for a
    /// key of another type.
    pub fn from_gguf(file: &Gguf) -> Result<Vocabulary, TextError> {
        let model = match file.str("tokenizer.ggml.model")? {
            Some(model) if model != "none" => model.to_string(),
            found => return Err(TextError::NoTokenizer { found: found.map(String::from) }),
        };
        let owned =
            |texts: Option<Vec<&str>>| texts.unwrap_or_default().into_iter().map(String::from).collect();
        let kinds = file.i64s("tokenizer.ggml.token_type")?.unwrap_or_default();
        Ok(Vocabulary {
            model,
            pre: file.str("tokenizer.ggml.pre")?.map(String::from),
            tokens: owned(file.strings("tokenizer.ggml.tokens")?),
            kinds: kinds.into_iter().map(TokenKind::from_gguf).collect(),
            scores: file.f32s("tokenizer.ggml.scores")?.unwrap_or_default(),
            merges: owned(file.strings("tokenizer.ggml.merges")?),
            bos: file.u32("tokenizer.ggml.bos_token_id")?,
            eos: file.u32("tokenizer.ggml.eos_token_id")?,
            eot: file.u32("tokenizer.ggml.eot_token_id")?,
            eom: file.u32("tokenizer.ggml.eom_token_id")?,
            unknown: file.u32("tokenizer.ggml.unknown_token_id")?,
            add_bos: file.bool("tokenizer.ggml.add_bos_token")?,
            add_eos: file.bool("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: file.bool("tokenizer.ggml.add_space_prefix")?,
            chat_template: file.str("tokenizer.chat_template")?.map(String::from),
        })
    }
}
