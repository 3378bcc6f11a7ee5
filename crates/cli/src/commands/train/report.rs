//! What a run shows while it goes on: a bar in a terminal, else lines; and what it keeps.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use apprentice_engine::{Engine, readable};
use apprentice_train::{Checkpoint, Evaluation, Identity, Log, Observer, Step, TrainError, Trainer};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupt::Interrupt;

/// Where and as what a run is kept.
pub struct Keep {
    /// The checkpoint.
    pub path: PathBuf,
    /// What a run must be the same in to go on from it.
    pub identity: Identity,
    /// The time that a chat template writes.
    pub unix_seconds: u64,
}

/// Shows and keeps.
pub struct Report {
    interrupt: Interrupt,
    log: Option<Log>,
    keep: Keep,
    begun: Instant,
    bar: Option<ProgressBar>,
    /// When a line was last written, where there is no bar.
    written: Instant,
    memory: String,
    steps: u64,
    epochs: u32,
    /// Steps and rows of this command.
    own: (u64, usize),
}

/// Lines that are not the end of an epoch are so far apart.
const LINES_APART: Duration = Duration::from_secs(5);

impl Report {
    /// For a run that is about to go on. `memory_bytes` is what it takes.
    pub fn new(
        interrupt: Interrupt,
        log: Option<Log>,
        keep: Keep,
        trainer: &Trainer<'_>,
        memory_bytes: u64,
    ) -> Report {
        let steps = trainer.steps().schedule.steps;
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
            // A template that is ours; where it did not parse the default bar would do.
            if let Ok(style) = ProgressStyle::with_template("{bar:30} step {pos}/{len} {msg} ETA {eta}") {
                bar.set_style(style);
            }
            bar.set_position(trainer.taken());
            bar.reset_eta();
            bar
        });
        let now = Instant::now();
        Report {
            interrupt,
            log,
            keep,
            begun: now,
            bar,
            written: now,
            memory: readable(memory_bytes),
            steps,
            epochs: trainer.settings().epochs,
            own: (0, 0),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Writes a checkpoint.
    pub fn keep_now(&self, engine: &Engine, trainer: &Trainer<'_>) -> Result<(), TrainError> {
        let Keep { path, identity, unix_seconds } = &self.keep;
        Checkpoint::take(engine, trainer, identity.clone(), *unix_seconds)?.write(path)
    }

    fn line(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
        self.written = Instant::now();
    }
}

impl Observer for Report {
    fn stop(&self) -> bool {
        self.interrupt.came()
    }

    fn stepped(&mut self, step: &Step) -> Result<(), TrainError> {
        let seconds = self.begun.elapsed().as_secs_f64();
        if let Some(log) = &mut self.log {
            log.step(step, seconds)?;
        }
        self.own = (self.own.0 + 1, self.own.1 + step.rows);
        let rate = self.own.1 as f64 / seconds.max(1e-9);
        let shown = format!("loss {:.4}, {rate:.0} tokens/s, {}", step.loss, self.memory);
        match &self.bar {
            Some(bar) => {
                bar.set_message(format!("epoch {}/{} {shown}", step.epoch, self.epochs));
                bar.set_position(step.step);
            }
            None if step.step == self.steps || self.written.elapsed() >= LINES_APART => {
                let left = (self.steps - step.step) as f64 * seconds / self.own.0 as f64;
                let (Step { step, epoch, .. }, all, epochs) = (step, self.steps, self.epochs);
                self.line(&format!("epoch {epoch}/{epochs} step {step}/{all} {shown}, ETA {left:.0} s"));
            }
            None => {}
        }
        Ok(())
    }

    fn evaluated(&mut self, evaluation: &Evaluation) -> Result<(), TrainError> {
        let seconds = self.begun.elapsed().as_secs_f64();
        if let Some(log) = &mut self.log {
            log.evaluation(evaluation, seconds)?;
        }
        self.line(&format!(
            "epoch {}/{} held-out loss {:.4}",
            evaluation.epoch, self.epochs, evaluation.loss
        ));
        Ok(())
    }

    fn keep(&mut self, engine: &Engine, trainer: &Trainer<'_>) -> Result<(), TrainError> {
        self.keep_now(engine, trainer)
    }
}
