//! Where a run reads and writes: no file serves for two things, and what is written can be, which is found out before the
//! first step and not after the last.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use super::TrainCommand;
use crate::exit::Failure;
use crate::files::{apart, check_place};

impl TrainCommand {
    /// Refuses places that cannot be. Nothing is left behind.
    pub(super) fn check_places(&self) -> Result<(), Failure> {
        let checkpoint = self.data.is_some().then(|| self.checkpoint_path());
        let mut read = vec![("--model", self.model.model.as_path())];
        read.extend(given("--data", &self.data));
        read.extend(given("--eval", &self.eval));
        read.extend(given("--example", &self.example));
        // The output may be the adapter that was begun with, which is read whole before.
        let mut written = vec![("--output", self.output.as_path())];
        written.extend(given("--checkpoint", &checkpoint));
        written.extend(given("--log", &self.log));
        written.extend(given("--svg", &self.svg));
        apart(&read, &written)?;

        check_output(&self.output)?;
        checkpoint.iter().chain(&self.svg).try_for_each(|path| check_place(path))?;
        self.log.as_deref().map_or(Ok(()), check_log)
    }
}

/// A flag with its path, if it was given.
fn given<'a>(flag: &'static str, path: &'a Option<PathBuf>) -> Option<(&'static str, &'a Path)> {
    path.as_deref().map(|path| (flag, path))
}

/// A GGUF file, or a folder that is there or can be made.
fn check_output(output: &Path) -> Result<(), Failure> {
    let is_gguf = output.extension().is_some_and(|end| end == "gguf");
    match (is_gguf, output.is_dir(), output.exists()) {
        (false, true, _) => check_place(&output.join("adapter_config.json")),
        (false, false, true) => {
            let path = output.display();
            Err(Failure::input(format!(
                "{path}: expected a folder or a name that ends in .gguf, found a file"
            )))
        }
        _ => check_place(output),
    }
}

/// A log is written as it grows, so it may be a pipe or a terminal too.
fn check_log(path: &Path) -> Result<(), Failure> {
    if !path.exists() {
        return check_place(path);
    }
    OpenOptions::new().append(true).open(path).map(drop).map_err(|error| Failure::file(path, &error))
}
