//! Training on a file: everything is checked and the memory is known before the first step.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use apprentice_engine::{Engine, LearnerOptions, LearnerShape, MicroBatch, Objective, Options, Workload};
use apprentice_models::{Adapter, AdapterRows, Model, adapter_file, targets};
use apprentice_train::{
    Checkpoint, Curve, Dataset, Ending, Identity, Log, SampleRules, Settings, Trainer, largest_step, train,
};

use super::report::{Keep, Report};
use super::{ObjectiveName, TrainCommand};
use crate::backend::{Cache, Numerics};
use crate::commands::prompt::read_text_tables;
use crate::exit::{Failure, Outcome};
use crate::files::NewFile;
use crate::interrupt::Interrupt;

/// Learning rate at its peak: LoRA takes ten times what all weights would.
const LEARNING_RATE: f64 = 1e-3;
/// Columns and lines of the curve in a terminal.
const CURVE: (usize, usize) = (64, 8);

/// What a run is made of, all of it checked.
struct Prepared {
    model: Model,
    options: Options,
    data: Dataset,
    eval: Option<Dataset>,
    settings: Settings,
    adapter: Adapter,
    identity: Identity,
    unix_seconds: u64,
    checkpoint: Option<Checkpoint>,
}

impl TrainCommand {
    /// Trains on the samples of a file.
    pub(super) fn run_data(&self, data: &Path) -> Result<Outcome, Failure> {
        let ready = self.prepare(data)?;
        let learner = LearnerShape::of(&ready.adapter);
        let sets = || std::iter::once(&ready.data).chain(&ready.eval);
        let shape = largest_step(sets(), &ready.settings, &learner, ready.model.hyper().vocab);
        let work = Workload {
            serving: ready.settings.objective == Objective::Reply,
            learners: vec![learner],
            steps: vec![shape.clone()],
            ..Workload::default()
        };
        let account = self.run.afford(&ready.model, &ready.options, &work)?;
        eprintln!("memory {account}");

        let interrupt = Interrupt::listen()?;
        let backend = self.run.backend(&ready.model)?;
        let mut engine = Engine::new(ready.model, backend, ready.options)?;
        let (data, settings, adapter) = (&ready.data, ready.settings, &ready.adapter);
        let mut trainer = match &ready.checkpoint {
            Some(checkpoint) => Trainer::resume(&mut engine, data, settings, adapter, checkpoint)?,
            None => Trainer::start(&mut engine, data, settings, adapter)?,
        };
        trainer.reserve(&mut engine, &shape, ready.eval.is_some())?;
        let log = match (&self.log, &ready.checkpoint) {
            (Some(path), Some(checkpoint)) => Some(Log::resume(path, &checkpoint.history)?),
            (Some(path), None) => Some(Log::create(path)?),
            (None, _) => None,
        };
        let path = self.checkpoint_path();
        let keep = Keep { path: path.clone(), identity: ready.identity, unix_seconds: ready.unix_seconds };
        let mut report = Report::new(interrupt, log, keep, &trainer, account.total());
        let ending = train(&mut engine, &mut trainer, ready.eval.as_ref(), &mut report);
        report.finish();
        let ending = ending?;

        adapter_file::write(engine.model(), &trainer.adapter(&engine)?, &self.output)?;
        self.show(&trainer)?;
        match ending {
            Ending::Stopped => {
                let (taken, all) = (trainer.taken(), trainer.steps().schedule.steps);
                eprintln!("stopped after step {taken} of {all}; --resume goes on from {}", path.display());
                Ok(Outcome::Interrupted)
            }
            Ending::Complete => {
                match self.checkpoint {
                    Some(_) => report.keep_now(&engine, &trainer)?,
                    None if path.exists() => {
                        fs::remove_file(&path).map_err(|error| Failure::file(&path, &error))?;
                    }
                    None => {}
                }
                Ok(Outcome::Done)
            }
        }
    }

    /// Reads and checks everything. Nothing is written.
    fn prepare(&self, data: &Path) -> Result<Prepared, Failure> {
        let settings = self.settings()?;
        let model = self.model.open()?;
        let text = read_text_tables(model.gguf(), &self.model.model)?;
        let path = self.checkpoint_path();
        let checkpoint = if self.resume { Some(Checkpoint::read(&path)?) } else { None };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let unix_seconds = checkpoint.as_ref().map_or(now, |checkpoint| checkpoint.unix_seconds);
        let context = self.context(&model)?;
        let rules = SampleRules { objective: settings.objective, context, unix_seconds };
        let sites = targets::resolve(&model, &self.targets)?;
        let rows = match settings.objective {
            Objective::All => AdapterRows::All,
            Objective::Reply => AdapterRows::Reply,
        };
        let alpha = self.alpha.unwrap_or(2.0 * self.rank as f32);
        let adapter = Adapter::fresh(&model, &sites, self.rank, alpha, rows, self.seed)?;
        adapter_file::check_output(&model, &adapter, &self.output)?;
        let data = Dataset::read(data, &text, &rules)?;
        let eval = self.eval.as_deref().map(|path| Dataset::read(path, &text, &rules)).transpose()?;
        settings.steps(&data)?;
        let longest = data.longest().max(eval.as_ref().map_or(0, Dataset::longest));
        let sequences = match settings.objective {
            Objective::All => 1,
            Objective::Reply => {
                let samples = data.samples.len().max(eval.as_ref().map_or(0, |eval| eval.samples.len()));
                settings.batch.min(samples)
            }
        };
        let options = self.run.options(longest.max(1), sequences, Cache::F16, Numerics::Q8);
        let identity = Identity::default()
            .with("model", model.gguf().fingerprint())
            .with("data", data.fingerprint())
            .with_settings(&settings)
            .with("rank", self.rank)
            .with("alpha", alpha)
            .with("targets", format!("{sites:?}"))
            .with("numerics", format!("{:?}", options.numerics).to_lowercase())
            .with("cache", options.cache)
            .with("backend", format!("{:?}", self.run.backend).to_lowercase());
        if let Some(checkpoint) = &checkpoint {
            checkpoint.check(&path, &identity)?;
        }
        Ok(Prepared { model, options, data, eval, settings, adapter, identity, unix_seconds, checkpoint })
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let defaults = LearnerOptions { learning_rate: LEARNING_RATE, ..LearnerOptions::default() };
        Ok(Settings {
            objective: match self.objective {
                ObjectiveName::All => Objective::All,
                ObjectiveName::Reply => Objective::Reply,
            },
            epochs: self.epochs,
            batch: self.batch,
            accumulate: self.accumulate,
            warmup: self.warmup,
            seed: self.seed,
            optimizer: self.optimizer(defaults)?,
        })
    }

    fn context(&self, model: &Model) -> Result<usize, Failure> {
        let limit = model.hyper().context;
        match self.context {
            None => Ok(limit.min(MicroBatch::default().rows)),
            Some(tokens) if (1..=limit).contains(&tokens) => Ok(tokens),
            Some(tokens) => {
                Err(Failure::input(format!("--context {tokens}: expected 1 to {limit}, which the model has")))
            }
        }
    }

    pub(super) fn checkpoint_path(&self) -> PathBuf {
        self.checkpoint.clone().unwrap_or_else(|| {
            let mut name = self.output.file_name().unwrap_or_default().to_owned();
            name.push(".checkpoint");
            self.output.with_file_name(name)
        })
    }

    /// The curve and what it came to, on standard output; the picture in its file.
    fn show(&self, trainer: &Trainer<'_>) -> Result<(), Failure> {
        let history = trainer.history();
        let curve = Curve::new(history);
        if let Some(path) = &self.svg {
            let mut file = NewFile::create(path)?;
            file.write(curve.svg().as_bytes())?;
            file.finish()?;
        }
        let mut out = io::stdout().lock();
        for line in curve.lines(CURVE.0, CURVE.1) {
            writeln!(out, "{line}")?;
        }
        if let (Some(first), Some(last)) = (history.losses.first(), history.last_epoch(trainer.steps())) {
            writeln!(out, "training loss {first:.4} in the first step, {last:.4} over the last epoch")?;
        }
        if let (Some((_, first)), Some((_, last))) = (history.evaluations.first(), history.evaluations.last())
        {
            writeln!(out, "held-out loss {first:.4} at the start, {last:.4} at the end")?;
        }
        writeln!(out, "{}", self.output.display())?;
        Ok(out.flush()?)
    }
}
