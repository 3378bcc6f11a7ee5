//! `apprentice train`: steps of AdamW on one example, and the adapter that they give.

use std::io::Write;
use std::path::PathBuf;

use apprentice_check::{Objective, Rehearsal};
use apprentice_engine::LearnerOptions;
use apprentice_models::{AdapterRows, adapter_file};
use clap::Args;

use crate::backend::{Cache, RunArgs};
use crate::commands::gradients::ExampleArgs;
use crate::exit::{Failure, Outcome};
use crate::setup::ModelArgs;

/// Train an adapter on an example.
#[derive(Args)]
pub struct TrainCommand {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    lesson: ExampleArgs,
    /// Steps; the example's, or 1, unless given.
    #[arg(long)]
    steps: Option<usize>,
    /// Learning rate, in place of the example's.
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// Decoupled weight decay, in place of the example's.
    #[arg(long, value_name = "DECAY")]
    weight_decay: Option<f64>,
    /// Norm that gradients are clipped to, in place of the example's.
    #[arg(long, value_name = "NORM")]
    clip_norm: Option<f64>,
    /// The adapter learnt: a PEFT folder, or GGUF where the name ends in .gguf.
    #[arg(short, long, value_name = "DIR|FILE")]
    output: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

impl TrainCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let model = self.model.open()?;
        let (example, mut adapter, _, positions) = self.lesson.read(&model, self.run.force)?;
        let options = self.options(example.learner_options(LearnerOptions::default()))?;
        adapter.rows = rows(&adapter.rows, example.objective)?;
        adapter_file::check_output(&model, &adapter, &self.output)?; // before the steps, not after them
        let mut engine = self.run.exact_engine(model, positions, Cache::F16)?;
        let mut learner = engine.start_learner(&adapter, options)?;
        let rehearsal = Rehearsal::new(&mut engine, &example).map_err(|error| self.lesson.failed(error))?;
        let spans = rehearsal.spans();
        let mut out = std::io::stdout().lock();
        for step in 1..=self.steps.or(example.steps).unwrap_or(1) {
            let found = engine.learn(&mut learner, &spans).map_err(|error| self.lesson.failed(error))?;
            writeln!(out, "step {step} loss {:.9} norm {:.9}", found.loss, found.norm)?;
            out.flush()?;
        }
        adapter_file::write(engine.model(), &engine.learnt(&learner)?, &self.output)?;
        Ok(Outcome::Done)
    }

    fn options(&self, options: LearnerOptions) -> Result<LearnerOptions, Failure> {
        let number = |name: &str, given: Option<f64>, zero: bool| match given {
            Some(value) if !value.is_finite() || value < 0.0 || value == 0.0 && !zero => {
                let expected = if zero { "a number of at least 0" } else { "a number above 0" };
                Err(Failure::input(format!("--{name} {value}: expected {expected}")))
            }
            given => Ok(given),
        };
        Ok(LearnerOptions {
            learning_rate: number("lr", self.lr, true)?.unwrap_or(options.learning_rate),
            weight_decay: number("weight-decay", self.weight_decay, true)?.unwrap_or(options.weight_decay),
            clip_norm: number("clip-norm", self.clip_norm, false)?.or(options.clip_norm),
            ..options
        })
    }
}

/// The rows that the objective trains are the rows that the adapter is for.
fn rows(given: &AdapterRows, objective: Objective) -> Result<AdapterRows, Failure> {
    match (given, objective) {
        (AdapterRows::Invocation(_), _) => Err(Failure::unsupported(
            "training an adapter with invocation tokens is not built; all and reply are",
        )),
        (_, Objective::All) => Ok(AdapterRows::All),
        (_, Objective::Reply) => Ok(AdapterRows::Reply),
    }
}
