//! `apprentice train`: an adapter from a file of conversations or completions, or from one example of golden data.

use std::path::PathBuf;

use apprentice_engine::LearnerOptions;
use clap::{Args, ValueEnum};

use crate::backend::RunArgs;
use crate::commands::gradients::ExampleArgs;
use crate::exit::{Failure, Outcome};
use crate::setup::ModelArgs;

mod data;
mod example;
mod places;
mod report;

/// Train an adapter on a file of conversations or completions.
#[derive(Args)]
pub struct TrainCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Data, JSONL: {"messages": [...]} as OpenAI writes them, or {"prompt": ..., "completion": ...}.
    #[arg(short, long, value_name = "FILE", required_unless_present = "example", conflicts_with = "example")]
    data: Option<PathBuf>,
    /// The adapter learnt: a PEFT folder, or GGUF where the name ends in .gguf.
    #[arg(short, long, value_name = "DIR|FILE")]
    output: PathBuf,
    /// Data that is not trained: its loss is taken at the start and after each epoch.
    #[arg(long, value_name = "FILE", conflicts_with = "example")]
    eval: Option<PathBuf>,

    /// all: the adapter on every row, as PEFT trains. reply: on the rows of replies only, each given everything before it as
    /// the plain model reads it.
    #[arg(long, value_enum, default_value_t = ObjectiveName::All, conflicts_with = "example", help_heading = "Learning")]
    objective: ObjectiveName,
    /// How often the data is gone through.
    #[arg(long, default_value_t = 3, conflicts_with = "example", help_heading = "Learning")]
    epochs: u32,
    /// Samples of a micro-batch.
    #[arg(long, default_value_t = 4, conflicts_with = "example", help_heading = "Learning")]
    batch: usize,
    /// Micro-batches of a step: a step is one mean over batch times so many samples, however it is cut.
    #[arg(long, default_value_t = 1, conflicts_with = "example", help_heading = "Learning")]
    accumulate: usize,
    /// Learning rate at its peak [default: 0.001; with --example the example's].
    #[arg(long, value_name = "RATE", help_heading = "Learning")]
    lr: Option<f64>,
    /// Steps in which the rate rises to its peak; then it falls by half a cosine [default: a twentieth of all].
    #[arg(long, value_name = "STEPS", conflicts_with = "example", help_heading = "Learning")]
    warmup: Option<u64>,
    /// Decoupled weight decay [default: 0.01; with --example the example's].
    #[arg(long, value_name = "DECAY", help_heading = "Learning")]
    weight_decay: Option<f64>,
    /// Norm that gradients are clipped to [default: 1; with --example the example's].
    #[arg(long, alias = "clip-norm", value_name = "NORM", help_heading = "Learning")]
    clip: Option<f64>,
    /// Seed of the adapter's first values and of the order of samples.
    #[arg(long, default_value_t = 1, conflicts_with = "example", help_heading = "Learning")]
    seed: u64,
    /// Tokens that a sample may have; a longer one is refused [default: what the model has, at most 4096].
    #[arg(long, value_name = "TOKENS", conflicts_with = "example", help_heading = "Learning")]
    context: Option<usize>,

    /// Rank of the adapter.
    #[arg(long, default_value_t = 8, conflicts_with = "example", help_heading = "Adapter")]
    rank: usize,
    /// Alpha: what the adapter adds is scaled by alpha / rank [default: twice the rank; with --example what its files say].
    #[arg(long, help_heading = "Adapter")]
    alpha: Option<f32>,
    /// Where it sits: names of PEFT (q_proj, all-linear) or of GGUF (attn_q), separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "all-linear",
        conflicts_with = "example",
        help_heading = "Adapter"
    )]
    targets: Vec<String>,

    /// Write a JSON object for each step and each evaluation.
    #[arg(long, value_name = "FILE", conflicts_with = "example", help_heading = "Keeping")]
    log: Option<PathBuf>,
    /// Draw the losses as a picture.
    #[arg(long, value_name = "FILE", conflicts_with = "example", help_heading = "Keeping")]
    svg: Option<PathBuf>,
    /// What a stopped run goes on from, written after each epoch and at Ctrl-C [default: the output with .checkpoint, taken
    /// away at the end].
    #[arg(long, value_name = "FILE", conflicts_with = "example", help_heading = "Keeping")]
    checkpoint: Option<PathBuf>,
    /// Go on from the checkpoint, to the same bytes as a run that never stopped.
    #[arg(long, conflicts_with = "example", help_heading = "Keeping")]
    resume: bool,

    /// Training example of golden data, JSON: tokens, labels, objective.
    #[arg(long, value_name = "FILE", requires = "adapter", help_heading = "Golden data")]
    example: Option<PathBuf>,
    /// Adapter to begin with: a PEFT folder, a GGUF file, or safetensors.
    #[arg(long, value_name = "DIR|FILE", requires = "example", help_heading = "Golden data")]
    adapter: Option<PathBuf>,
    /// Steps; the example's, or 1, unless given.
    #[arg(long, requires = "example", help_heading = "Golden data")]
    steps: Option<usize>,

    #[command(flatten)]
    run: RunArgs,
}

/// Which gradient is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ObjectiveName {
    /// The adapter on every row.
    All,
    /// The adapter on the rows of replies.
    Reply,
}

impl TrainCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        self.check_places()?;
        match (&self.data, &self.example, &self.adapter) {
            (Some(data), _, _) => self.run_data(data),
            (None, Some(example), Some(adapter)) => {
                let (example, adapter) = (example.clone(), adapter.clone());
                self.run_example(&ExampleArgs { example, adapter, alpha: self.alpha })
            }
            _ => Err(Failure::input("--data FILE, or --example FILE and --adapter FILE, is needed")),
        }
    }

    /// Settings of the optimiser: those of flags in place of those given.
    fn optimizer(&self, options: LearnerOptions) -> Result<LearnerOptions, Failure> {
        let number = |name: &str, given: Option<f64>, holds: fn(f64) -> bool, expected: &str| match given {
            Some(value) if !holds(value) => {
                Err(Failure::input(format!("--{name} {}: expected {expected}", shown(value))))
            }
            given => Ok(given),
        };
        let rate = number("lr", self.lr, |x| (0.0..=1.0).contains(&x), "a number from 0 to 1")?;
        let decay =
            number("weight-decay", self.weight_decay, |x| (0.0..=1.0).contains(&x), "a number from 0 to 1")?;
        let clip = number("clip", self.clip, |x| x.is_finite() && x > 0.0, "a number above 0")?;
        Ok(LearnerOptions {
            learning_rate: rate.unwrap_or(options.learning_rate),
            weight_decay: decay.unwrap_or(options.weight_decay),
            clip_norm: clip.or(options.clip_norm),
            ..options
        })
    }
}

/// A number as somebody may have written it: one of three hundred digits by its power of ten.
fn shown(value: f64) -> String {
    if value.is_finite() && value.abs() >= 1e16 { format!("{value:e}") } else { value.to_string() }
}
