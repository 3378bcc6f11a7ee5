//! `apprentice run`: one prompt, one reply, written as it comes.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use apprentice_engine::{LOGPROBS_MAX, Logprobs, Named};
use apprentice_text::{Conversation, EncodeOptions, Message, StopStrings, Text, TextError};
use clap::Args;
use serde_json::{Value, json};

use crate::backend::{Cache, RunArgs};
use crate::commands::prompt::read_text_tables;
use crate::exit::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::reply::{Reply, ReplyEnd, Stepper, Wanted, named_by_reply};
use crate::sampling::SamplingArgs;
use crate::setup::{ModelArgs, context, read_adapter};

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
    /// Ends the reply, and is no part of it; may be given again.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// In place of the reply, write a line of JSON for each token, with its log probability and so many likeliest tokens.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=LOGPROBS_MAX as u64))]
    logprobs: Option<u64>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl RunCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let stop = StopStrings::new(&self.stop)?;
        let model = self.model.open()?;
        let text = read_text_tables(model.gguf(), &self.model.model)?;
        let prompt = self.tokens(&text)?;
        let positions = context(&model, "the prompt", prompt.len(), self.predict)?;
        let adapter = match &self.adapter {
            Some(path) => Some(read_adapter(&model, path, self.alpha, self.run.force)?.0),
            None => None,
        };
        let interrupt = Interrupt::listen()?;
        let mut engine = self.run.engine(model, positions, Cache::F16)?;
        let named = match adapter {
            Some(adapter) => {
                let adapter = Arc::new(adapter);
                let id = engine.load_adapter(adapter.clone())?;
                named_by_reply(&adapter.rows, id, &prompt).ok_or_else(|| {
                    Failure::input("the adapter's invocation tokens do not occur in the prompt")
                })?
            }
            None => Named::Nothing,
        };
        let mut out = std::io::stdout().lock();
        let wanted = Wanted {
            prompt: &prompt,
            named,
            limit: self.predict,
            sampling: &self.sampling.settings(),
            stop: &stop,
            logprobs: self.logprobs.map(|count| count as usize), // at most LOGPROBS_MAX
        };
        let mut stepper = Stepper { engine: &mut engine, interrupt: &interrupt };
        let reply = match self.logprobs {
            None => {
                let reply = stepper.reply(&text, &wanted, &mut out)?;
                writeln!(out)?;
                reply
            }
            Some(_) => {
                let reply = stepper.reply(&text, &wanted, &mut std::io::sink())?;
                write_tokens(&text, &reply, &mut out)?;
                reply
            }
        };
        out.flush()?;
        Ok(if reply.end == ReplyEnd::Interrupted { Outcome::Interrupted } else { Outcome::Done })
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

/// A line a token: `{"token": 12, "text": " a", "logprob": -0.5, "top": [{"token": 12, "text": " a", "logprob": -0.5}]}`.
fn write_tokens(text: &Text, reply: &Reply, out: &mut dyn Write) -> Result<(), Failure> {
    let entry = |token: u32, logprob: f32| -> Result<Value, Failure> {
        Ok(json!({ "token": token, "text": text.decode(&[token], true)?, "logprob": logprob }))
    };
    for (token, logprobs) in &reply.tokens {
        let Some(Logprobs { chosen, top }) = logprobs else { continue };
        let mut line = entry(*token, *chosen)?;
        line["top"] = top.iter().map(|(token, logprob)| entry(*token, *logprob)).collect::<Result<_, _>>()?;
        writeln!(out, "{line}")?;
    }
    Ok(())
}
