//! Text that becomes tokens: `--tokens 1,2,3`, or `--text` with what is read in it and added to it.

use std::path::Path;

use apprentice_gguf::Gguf;
use apprentice_text::{EncodeOptions, Text};
use clap::Args;

use crate::exit::Failure;

/// Tokens, or text.
#[derive(Args, Clone, Debug)]
pub struct PromptArgs {
    /// Token ids, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "IDS",
        conflicts_with = "text",
        required_unless_present = "text"
    )]
    tokens: Option<Vec<u32>>,
    /// Text; nothing is added to it.
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    #[command(flatten)]
    marks: MarkArgs,
}

/// What is read in a text, and added to it.
#[derive(Args, Clone, Copy, Debug)]
pub struct MarkArgs {
    /// Read text such as <|im_start|> as the special token of that text.
    #[arg(long)]
    special: bool,
    /// Add what the metadata asks for at the start of a whole prompt; it may be nothing.
    #[arg(long)]
    bos: bool,
}

impl MarkArgs {
    /// The ids of `text`.
    pub fn encode(&self, encoder: &Text, text: &str) -> Vec<u32> {
        encoder.encode(text, EncodeOptions { special: self.special, bos: self.bos })
    }
}

impl PromptArgs {
    /// The ids; the file's tokeniser is read only where there is text.
    pub fn ids(&self, gguf: &Gguf, path: &Path) -> Result<Vec<u32>, Failure> {
        match (&self.tokens, &self.text) {
            (Some(tokens), _) => Ok(tokens.clone()),
            (None, Some(text)) => Ok(self.marks.encode(&read_text_tables(gguf, path)?, text)),
            (None, None) => Err(Failure::input("--tokens or --text is needed")),
        }
    }
}

/// The tokeniser and template of a file.
pub fn read_text_tables(gguf: &Gguf, path: &Path) -> Result<Text, Failure> {
    Text::from_gguf(gguf).map_err(|error| Failure::from(error).at(path))
}
