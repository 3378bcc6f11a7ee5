//! `apprentice tokens`: a text as tokens.

use std::io::Write;
use std::path::PathBuf;

use apprentice_gguf::Gguf;
use clap::Args;

use crate::backend::RunArgs;
use crate::commands::prompt::{MarkArgs, read_text_tables};
use crate::exit::{Failure, Outcome};
use crate::files;
use crate::setup::ModelArgs;

/// Write the tokens of a text.
#[derive(Args)]
pub struct TokensCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Text.
    #[arg(long, allow_hyphen_values = true, required_unless_present = "file", conflicts_with = "file")]
    text: Option<String>,
    /// A file of UTF-8, one text with everything in it.
    #[arg(long)]
    file: Option<PathBuf>,
    #[command(flatten)]
    marks: MarkArgs,
    /// Write ids only, in one line, separated by spaces; otherwise a line a token, with its spelling.
    #[arg(long)]
    ids: bool,
    /// Accepted as everywhere; nothing is run.
    #[command(flatten)]
    run: RunArgs,
}

impl TokensCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let text = match (self.text, &self.file) {
            (Some(text), _) => text,
            (None, Some(path)) => files::read_text(path)?,
            (None, None) => return Err(Failure::input("--text or --file is needed")),
        };
        let gguf = Gguf::open(&self.model.model)?;
        let tables = read_text_tables(&gguf, &self.model.model)?;
        let ids = self.marks.encode(&tables, &text);
        let mut out = std::io::stdout().lock();
        if self.ids {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            writeln!(out, "{}", ids.join(" "))?;
        } else {
            for id in ids {
                writeln!(out, "{id:>8}  {:?}", tables.spelling(id).unwrap_or_default())?;
            }
        }
        out.flush()?;
        Ok(Outcome::Done)
    }
}
