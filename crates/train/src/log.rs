//! The log of a run: a JSON object a line.
//!
//! A step: `step`, `epoch`, `loss`, `lr`, `norm`, `tokens` (rows learnt from), `labelled`, `seconds` since the start of the
//! command. An evaluation: `step` and `epoch` before it, `eval_loss`, `labelled`, `seconds`. All but the seconds are the same
//! to the byte however often a run is stopped and resumed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::TrainError;
use crate::files;
use crate::trainer::{Evaluation, History, Step};

/// A log that grows.
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Begins one, in place of what was there.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> Result<Log, TrainError> {
        let file = File::create(path).map_err(|error| TrainError::file(path, error))?;
        Ok(Log { path: path.to_owned(), file })
    }

    /// Goes on with one: lines of steps and evaluations that a checkpoint's run has not seen are taken out.
    ///
    /// # Errors
    /// What the system says.
    pub fn resume(path: &Path, history: &History) -> Result<Log, TrainError> {
        let failed = |error: io::Error| TrainError::file(path, error);
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        files::write(path, seen(&text, history).as_bytes()).map_err(failed)?;
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        Ok(Log { path: path.to_owned(), file })
    }

    /// Adds a step.
    ///
    /// # Errors
    /// What the system says.
    pub fn step(&mut self, step: &Step, seconds: f64) -> Result<(), TrainError> {
        self.write(&json!({
            "step": step.step,
            "epoch": step.epoch,
            "loss": step.loss,
            "lr": step.rate,
            "norm": step.norm,
            "tokens": step.rows,
            "labelled": step.labelled,
            "seconds": milliseconds(seconds),
        }))
    }

    /// Adds an evaluation.
    ///
    /// # Errors
    /// What the system says.
    pub fn evaluation(&mut self, evaluation: &Evaluation, seconds: f64) -> Result<(), TrainError> {
        self.write(&json!({
            "step": evaluation.step,
            "epoch": evaluation.epoch,
            "eval_loss": evaluation.loss,
            "labelled": evaluation.labelled,
            "seconds": milliseconds(seconds),
        }))
    }

    /// A line at a time, so that a reader never sees half of one.
    fn write(&mut self, entry: &Value) -> Result<(), TrainError> {
        let line = format!("{entry}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| TrainError::file(&self.path, error))
    }
}

fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// The lines of a log that a run has seen; what is no line of ours is left out.
fn seen(text: &str, history: &History) -> String {
    let (mut steps, mut evaluations) = (0, 0);
    let mut kept = String::new();
    for line in text.lines() {
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        let next = |found: &mut usize, count: usize| {
            let seen = *found < count;
            *found += usize::from(seen);
            seen
        };
        let keep = match (entry.get("loss"), entry.get("eval_loss")) {
            (Some(_), None) => next(&mut steps, history.losses.len()),
            (None, Some(_)) => next(&mut evaluations, history.evaluations.len()),
            _ => false,
        };
        if keep {
            kept += line;
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_past_a_checkpoint_are_taken_out() {
        let text = "{\"eval_loss\":3}\n{\"loss\":1}\n{\"loss\":2}\n{\"eval_loss\":2}\n{\"loss\":3}\n{\"lo";
        let check = |steps: usize, evaluations: usize, expected: &str| {
            let history = History { losses: vec![0.0; steps], evaluations: vec![(0, 0.0); evaluations] };
            assert_eq!(seen(text, &history), expected);
        };
        check(0, 0, "");
        check(1, 1, "{\"eval_loss\":3}\n{\"loss\":1}\n");
        check(2, 1, "{\"eval_loss\":3}\n{\"loss\":1}\n{\"loss\":2}\n");
        check(9, 9, &text[..text.len() - 4]);
    }
}
