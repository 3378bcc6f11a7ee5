//! `apprentice run`: one prompt, one reply, written as it comes.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use apprentice_engine::{AdapterId, Engine, Named, Sampling};
use apprentice_models::AdapterRows;
use apprentice_text::{Conversation, EncodeOptions, Message, Text, TextError};
use clap::Args;

use crate::backend::{Cache, RunArgs};
use crate::commands::prompt::read_text_tables;
use crate::exit::{Failure, Outcome};
use crate::sampling::SamplingArgs;
use crate::setup::{ModelArgs, context, named, read_adapter};

/// Answer one prompt.
#[derive(Args)]
pub struct RunCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompt.
    #[arg(required_unless_present = "prompt_flag", conflicts_with = "prompt_flag")]
    prompt: Option<String>,
    /// The prompt, as a flag.
    #[arg(long = "prompt", id = "prompt_flag", value_name = "PROMPT", allow_hyphen_values = true)]
    prompt_flag: Option<String>,
    /// What the model is told before the prompt.
    #[arg(long, conflicts_with = "raw", allow_hyphen_values = true)]
    system: Option<String>,
    /// Tokens of the reply, at most.
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 256)]
    predict: usize,
    /// Continue the prompt as it is, without the chat template.
    #[arg(long)]
    raw: bool,
    /// Adapter: a PEFT folder, a GGUF file, or safetensors.
    #[arg(long, value_name = "FILE|DIR")]
    adapter: Option<PathBuf>,
    /// Alpha of the adapter, in place of what its file says.
    #[arg(long, requires = "adapter")]
    alpha: Option<f32>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl RunCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let model = self.model.open()?;
        let text = read_text_tables(model.gguf(), &self.model.model)?;
        let prompt = self.tokens(&text)?;
        let positions = context(&model, "the prompt", prompt.len(), self.predict)?;
        let adapter = match &self.adapter {
            Some(path) => Some(read_adapter(&model, path, self.alpha, self.run.force)?.0),
            None => None,
        };
        let mut engine = self.run.engine(model, positions, Cache::F16)?;
        let rows = match adapter {
            Some(adapter) => {
                let adapter = Arc::new(adapter);
                let id = engine.load_adapter(adapter.clone())?;
                reply_rows(&adapter.rows, id, &prompt)?
            }
            None => Named::Nothing,
        };
        let mut out = std::io::stdout().lock();
        let wanted =
            Wanted { prompt: &prompt, named: rows, limit: self.predict, sampling: &self.sampling.settings() };
        reply(&mut engine, &text, &wanted, &mut out)?;
        writeln!(out)?;
        out.flush()?;
        Ok(Outcome::Done)
    }

    fn tokens(&self, text: &Text) -> Result<Vec<u32>, Failure> {
        let prompt = self.prompt.as_ref().or(self.prompt_flag.as_ref());
        let prompt = prompt.ok_or_else(|| Failure::input("a prompt is needed"))?;
        let tokens = if self.raw {
            text.encode(prompt, EncodeOptions { special: true, bos: true })
        } else {
            let system = self.system.iter().map(|system| Message::new("system", system.as_str()));
            let messages = system.chain([Message::new("user", prompt.as_str())]).collect();
            text.prompt(&Conversation::new(messages)).map_err(|error| without_template(error, &self.model))?
        };
        if tokens.is_empty() { Err(Failure::input("the prompt has no tokens")) } else { Ok(tokens) }
    }
}

/// A file without a template can still be continued.
fn without_template(error: TextError, model: &ModelArgs) -> Failure {
    let hint = matches!(error, TextError::NoTemplate);
    match Failure::from(error).at(&model.model) {
        Failure::Refused { kind, message } if hint => {
            Failure::Refused { kind, message: format!("{message}; --raw continues the prompt without one") }
        }
        failure => failure,
    }
}

/// In a prompt that asks for a reply, the reply begins at its end.
pub fn reply_rows(rows: &AdapterRows, adapter: AdapterId, prompt: &[u32]) -> Result<Named, Failure> {
    let begins = Some(prompt.len()).filter(|_| *rows == AdapterRows::Reply);
    named(rows, adapter, prompt, begins)
}

/// A reply that is wanted.
pub struct Wanted<'a> {
    /// What it follows.
    pub prompt: &'a [u32],
    /// Which adapter the rows name.
    pub named: Named,
    /// Tokens, at most.
    pub limit: usize,
    /// How they are chosen.
    pub sampling: &'a Sampling,
}

/// Reads the prompt into a sequence of its own and writes the reply to `out`, whole characters as they come. Also returns
/// it.
pub fn reply(
    engine: &mut Engine,
    text: &Text,
    wanted: &Wanted<'_>,
    out: &mut dyn Write,
) -> Result<String, Failure> {
    let mut decoder = text.decoder(false);
    let mut reply = String::new();
    let mut stopped = None;
    let mut show = |piece: Result<String, TextError>| -> Result<(), Failure> {
        let piece = piece?;
        reply += &piece;
        out.write_all(piece.as_bytes())?;
        Ok(out.flush()?)
    };
    let sequence = engine.open_sequence();
    let is_end = |token| text.is_end_of_generation(token);
    let Wanted { prompt, named, limit, sampling } = *wanted;
    let generated = engine.generate(sequence, prompt, named, limit, sampling, is_end, |token| {
        let shown = show(decoder.push(token));
        stopped = shown.err();
        stopped.is_none()
    });
    engine.close_sequence(sequence)?;
    generated?;
    match stopped {
        Some(failure) => Err(failure),
        None => show(Ok(decoder.finish())).map(|()| reply),
    }
}
