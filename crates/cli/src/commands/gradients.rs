//! `apprentice gradients`: loss and gradient of an adapter on an example; the example's own objective decides.

use std::io::Write;
use std::path::PathBuf;

use apprentice_check::{Example, Rehearsal};
use apprentice_engine::LearnerOptions;
use apprentice_models::adapter_file::{self, Matrices};
use apprentice_models::{Adapter, AdapterError, AdapterNaming, Model, ModelError};
use clap::Args;

use crate::backend::{Cache, RunArgs};
use crate::exit::{Failure, Outcome};
use crate::files::apart;
use crate::setup::{ModelArgs, context};

/// Write the gradient of an adapter on an example.
#[derive(Args)]
pub struct GradientsCommand {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    lesson: ExampleArgs,
    /// The gradients before clipping, a safetensors file whose tensors are called as the adapter's are.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

/// An example and the adapter that it is learnt by.
#[derive(Args, Clone, Debug)]
pub struct ExampleArgs {
    /// Training example, JSON: tokens, labels, objective.
    #[arg(long, value_name = "FILE")]
    pub example: PathBuf,
    /// Adapter: a PEFT folder, a GGUF file, or safetensors.
    #[arg(long, value_name = "DIR|FILE")]
    pub adapter: PathBuf,
    /// Alpha of the adapter, in place of what its file says. Where that says nothing, the example's is taken.
    #[arg(long)]
    pub alpha: Option<f32>,
}

impl ExampleArgs {
    /// Reads both for a model; also the positions that the example needs.
    pub fn read(
        &self,
        model: &Model,
        force: bool,
    ) -> Result<(Example, Adapter, AdapterNaming, usize), Failure> {
        let example = Example::read(&self.example)?;
        let what = self.example.display().to_string();
        let positions = context(model, &what, example.tokens.len(), 0)?;
        let (adapter, naming) = self.read_adapter(model, example.alpha, force)?;
        Ok((example, adapter, naming, positions))
    }

    fn read_adapter(
        &self,
        model: &Model,
        example_alpha: Option<f32>,
        force: bool,
    ) -> Result<(Adapter, AdapterNaming), Failure> {
        let read =
            |alpha| adapter_file::read(model, &self.adapter, &adapter_file::ReadOptions { alpha, force });
        let found = match read(self.alpha) {
            Err(ModelError::Adapter { error: AdapterError::AlphaMissing, .. }) if example_alpha.is_some() => {
                read(example_alpha)
            }
            found => found,
        };
        Ok(found?)
    }

    /// An error of learning from the example, and which file that was.
    pub fn failed(&self, error: impl Into<Failure>) -> Failure {
        error.into().at(&self.example)
    }
}

impl GradientsCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let read = [self.model.model.as_path(), &self.lesson.example, &self.lesson.adapter];
        apart(
            &["--model", "--example", "--adapter"].into_iter().zip(read).collect::<Vec<_>>(),
            &[("--out", &self.out)],
        )?;
        let model = self.model.open()?;
        let (example, adapter, naming, positions) = self.lesson.read(&model, self.run.force)?;
        let mut engine = self.run.exact_engine(model, positions, Cache::F32)?;
        let mut learner = engine.start_learner(&adapter, LearnerOptions::default())?;
        let rehearsal = Rehearsal::new(&mut engine, &example).map_err(|error| self.lesson.failed(error))?;
        let found =
            engine.gradients(&mut learner, &rehearsal.spans()).map_err(|error| self.lesson.failed(error))?;
        let gradients = engine.read_gradients(&learner)?;
        let matrices = gradients.iter().map(Matrices::from);
        adapter_file::write_safetensors(engine.model(), &naming, matrices, &self.out)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "loss {:.9} norm {:.9} labelled {}", found.loss, found.norm, found.labelled)?;
        out.flush()?;
        Ok(Outcome::Done)
    }
}
