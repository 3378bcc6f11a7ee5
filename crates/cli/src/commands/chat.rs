//! `apprentice chat`: a conversation in which the model is taught.
//!
//! In a terminal lines are edited and remembered. Where standard input is something else it is a script, a line a message
//! or order: replies go to standard output, and the first line that is refused ends it with code 2.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use apprentice_engine::TEACHING_STEPS;
use apprentice_text::{StopStrings, TextError};
use clap::Args;

use crate::backend::{Cache, RunArgs};
use crate::commands::prompt::read_text_tables;
use crate::exit::{Failure, Outcome, error_line};
use crate::interrupt::Interrupt;
use crate::sampling::SamplingArgs;
use crate::setup::{ModelArgs, read_adapter};
use adapters::Adapters;
use lines::{Line, Lines};
use session::{Next, Session, Settings};

mod adapters;
mod lines;
mod order;
mod session;

/// Positions of a conversation unless they are given, where the model has so many.
const CONTEXT: usize = 4096;
/// Steps that a lesson may have.
const STEPS_MAX: u64 = 1000;

/// Talk with a model, and teach it.
#[derive(Args)]
pub struct ChatCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// What the model is told before everything else.
    #[arg(long, allow_hyphen_values = true)]
    system: Option<String>,
    /// Adapter: a PEFT folder, a GGUF file, or safetensors; may be given again. The first is on, and is taught.
    #[arg(long, value_name = "FILE|DIR")]
    adapter: Vec<PathBuf>,
    /// Alpha of the adapters, in place of what their files say.
    #[arg(long, requires = "adapter")]
    alpha: Option<f32>,
    /// Tokens of a reply, at most.
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 512)]
    predict: usize,
    /// Tokens of the conversation, at most; 4096 or what the model has, unless given.
    #[arg(short = 'c', long, value_name = "TOKENS")]
    ctx_size: Option<usize>,
    /// Ends a reply, and is no part of it; may be given again.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Steps of a lesson.
    #[arg(long, default_value_t = TEACHING_STEPS as u64, value_parser = clap::value_parser!(u64).range(1..=STEPS_MAX))]
    steps: u64,
    /// Learning rate of a lesson.
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// Do not keep what is typed for the next chat.
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl ChatCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        let mut session = self.open()?;
        let mut lines = Lines::open(!self.no_history)?;
        if lines.is_terminal() {
            let name = self.model.model.file_stem().unwrap_or_default().to_string_lossy();
            let context = session.settings.context;
            eprintln!(
                "{name}, {context} tokens of context. /help shows what else there is to say; Ctrl-D leaves."
            );
        }
        let ended = talk(&mut session, &mut lines, &mut io::stdout().lock());
        let closed = lines.close(); // the history is kept whatever happened
        let outcome = ended?;
        closed.map(|()| outcome)
    }

    fn open(&self) -> Result<Session, Failure> {
        self.run.check()?;
        let stop = StopStrings::new(&self.stop)?;
        if let Some(rate) = self.lr.filter(|rate| !rate.is_finite() || *rate <= 0.0) {
            return Err(Failure::input(format!("--lr {rate}: expected a number above 0")));
        }
        let model = self.model.open()?;
        let text = read_text_tables(model.gguf(), &self.model.model)?;
        if !text.has_template() {
            return Err(Failure::from(TextError::NoTemplate).at(&self.model.model));
        }
        let context = self.context(model.hyper().context)?;
        let adapters = self.adapter.iter().map(|path| {
            let (adapter, _) = read_adapter(&model, path, self.alpha, self.run.force)?;
            Ok((adapter_name(path), adapter))
        });
        let adapters = adapters.collect::<Result<Vec<_>, Failure>>()?;
        let interrupt = Interrupt::listen()?;
        let engine = self.run.engine(model, context, Cache::F16)?;
        let settings = Settings {
            model: self.model.model.clone(),
            context,
            predict: self.predict,
            sampling: self.sampling.settings(),
            stop,
            steps: self.steps as usize, // at most STEPS_MAX
            learning_rate: self.lr,
        };
        let mut session = Session {
            engine,
            text,
            interrupt,
            settings,
            system: self.system.clone(),
            adapters: Adapters::default(),
            messages: Vec::new(),
            replaced: Vec::new(),
            replies: 0,
        };
        for (name, adapter) in adapters {
            session.adapters.add(&mut session.engine, &name, adapter)?;
        }
        Ok(session)
    }

    fn context(&self, limit: usize) -> Result<usize, Failure> {
        match self.ctx_size {
            None => Ok(CONTEXT.min(limit)),
            Some(0) => Err(Failure::input("--ctx-size 0: expected at least 1")),
            Some(size) if size > limit => {
                Err(Failure::limit(format!("--ctx-size {size}: the context of the model has {limit}")))
            }
            Some(size) => Ok(size),
        }
    }
}

/// Does what lines say until they end.
fn talk(session: &mut Session, lines: &mut Lines, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let (typed, mut warned) = (lines.is_terminal(), false);
    let outcome = loop {
        let next = match lines.next()? {
            Line::Text(line) => match session.line(&line, out) {
                Err(Failure::Refused { message, .. }) if typed => {
                    eprintln!("{}", error_line(&message));
                    Next::Line
                }
                Err(failure) => break Err(at_line(failure, lines.number())),
                Ok(next) => next,
            },
            Line::Interrupted => {
                eprintln!("Ctrl-D leaves.");
                Next::Line
            }
            Line::End => Next::End,
        };
        match (next, session.hint()) {
            (Next::End, Some(hint)) if typed && !warned => {
                eprintln!("{hint}; once more to leave");
                warned = true;
                continue;
            }
            (Next::End, _) => break Ok(Outcome::Done),
            (Next::Interrupted, _) if !typed => break Ok(Outcome::Interrupted),
            (Next::Interrupted | Next::Line, _) => warned = false,
        }
    };
    if let Some(hint) = session.hint().filter(|_| !typed) {
        eprintln!("{hint}");
    }
    outcome
}

/// Which line of a script was refused.
fn at_line(failure: Failure, line: usize) -> Failure {
    match failure {
        Failure::Refused { kind, message } => {
            Failure::Refused { kind, message: format!("line {line}: {message}") }
        }
        Failure::OutputClosed => Failure::OutputClosed,
    }
}

/// What an adapter is called: its file without ending.
fn adapter_name(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
