//! Training on one example with its tokens given: what golden data is compared with.

use std::io::Write;

use apprentice_check::{Objective, Rehearsal};
use apprentice_engine::LearnerOptions;
use apprentice_models::{AdapterRows, adapter_file};

use super::TrainCommand;
use crate::backend::Cache;
use crate::commands::gradients::ExampleArgs;
use crate::exit::{Failure, Outcome};

impl TrainCommand {
    /// Takes steps on the example's rows, all in one.
    pub(super) fn run_example(&self, lesson: &ExampleArgs) -> Result<Outcome, Failure> {
        let model = self.model.open()?;
        let (example, mut adapter, _, positions) = lesson.read(&model, self.run.force)?;
        let options = self.optimizer(example.learner_options(LearnerOptions::default()))?;
        adapter.rows = rows(&adapter.rows, example.objective)?;
        adapter_file::check_output(&model, &adapter, &self.output)?; // before the steps, not after them
        let mut engine = self.run.exact_engine(model, positions, Cache::F16)?;
        let mut learner = engine.start_learner(&adapter, options)?;
        let rehearsal = Rehearsal::new(&mut engine, &example).map_err(|error| lesson.failed(error))?;
        let spans = rehearsal.spans();
        let mut out = std::io::stdout().lock();
        for step in 1..=self.steps.or(example.steps).unwrap_or(1) {
            let found = engine.learn(&mut learner, &spans).map_err(|error| lesson.failed(error))?;
            writeln!(out, "step {step} loss {:.9} norm {:.9}", found.loss, found.norm)?;
            out.flush()?;
        }
        adapter_file::write(engine.model(), &engine.learnt(&learner)?, &self.output)?;
        Ok(Outcome::Done)
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
