//! How a command ends: exit codes, and the one line on standard error where it was refused.
//!
//! 0 done, 1 a check missed its bound, 2 refused, 130 interrupted.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use apprentice_check::CheckError;
use apprentice_cpu::CpuError;
use apprentice_engine::EngineError;
use apprentice_gguf::GgufError;
use apprentice_graph::ErrorKind;
use apprentice_models::ModelError;
use apprentice_text::TextError;
use apprentice_train::TrainError;
use clap::error::ErrorKind as Misread;

/// The code of a command that was interrupted.
pub const INTERRUPTED: u8 = 130;

/// How a command that was carried out ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As asked.
    Done,
    /// A bound was missed.
    Missed,
    /// Ended early by Ctrl-C, with what there was until then.
    Interrupted,
}

/// Why a command was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Something in the way.
    Refused {
        /// What kind of thing.
        kind: ErrorKind,
        /// What there is to say, in one line.
        message: String,
    },
    /// Whoever read the output has gone; nothing is wrong.
    OutputClosed,
}

impl Failure {
    /// Input that cannot be.
    pub fn input(message: impl Into<String>) -> Failure {
        Failure::Refused { kind: ErrorKind::Input, message: message.into() }
    }
    /// A limit that would be passed.
    pub fn limit(message: impl Into<String>) -> Failure {
        Failure::Refused { kind: ErrorKind::Limit, message: message.into() }
    }
    /// Something that is not built.
    pub fn unsupported(message: impl Into<String>) -> Failure {
        Failure::Refused { kind: ErrorKind::Unsupported, message: message.into() }
    }
    /// Ctrl-C, where there is nothing to show for it.
    pub fn interrupted() -> Failure {
        Failure::Refused { kind: ErrorKind::Cancelled, message: "interrupted".to_owned() }
    }
    /// A file that the system did not read or write.
    pub fn file(path: &Path, error: &io::Error) -> Failure {
        let kind = if error.kind() == io::ErrorKind::NotFound { ErrorKind::Missing } else { ErrorKind::Io };
        Failure::Refused { kind, message: format!("{}: {error}", path.display()) }
    }
    /// The same, and the file that it was about.
    pub fn at(self, path: &Path) -> Failure {
        match self {
            Failure::Refused { kind, message } => {
                let path = path.display().to_string();
                let message = if message.starts_with(&path) { message } else { format!("{path}: {message}") };
                Failure::Refused { kind, message }
            }
            Failure::OutputClosed => Failure::OutputClosed,
        }
    }
}

/// Says why, if there is a why, and gives the code.
pub fn finish(result: Result<Outcome, Failure>) -> ExitCode {
    match result {
        Ok(Outcome::Done) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Ok(Outcome::Missed) => ExitCode::from(1),
        Ok(Outcome::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(Failure::Refused { kind, message }) => {
            eprintln!("{}", error_line(&message));
            ExitCode::from(code(kind))
        }
    }
}

/// Says why a command line was not understood, in one line as of every refusal; help and version are written as they are.
pub fn misread(error: &clap::Error) -> ExitCode {
    match error.kind() {
        Misread::DisplayHelp
        | Misread::DisplayVersion
        | Misread::DisplayHelpOnMissingArgumentOrSubcommand => drop(error.print()), // a closed output is no failure
        _ => eprintln!("{}", misread_line(&error.render().to_string())),
    }
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// The first part of what clap writes, before the usage: the error, what is missing or possible, and a tip.
fn misread_line(rendered: &str) -> String {
    let mut line = String::new();
    for part in rendered.lines().map(str::trim) {
        if part.starts_with("Usage:") || part.starts_with("For more information") {
            break;
        }
        // Which flags were meant, and never how a flag's name becomes a value.
        let separator = if part.starts_with("tip:") { "; " } else { " " };
        if !part.is_empty() && !part.starts_with("tip: to pass") {
            line += if line.is_empty() { "" } else { separator };
            line += part;
        }
    }
    one_line(&line)
}

/// The line that says why something was refused.
pub fn error_line(message: &str) -> String {
    format!("error: {}", one_line(message))
}

fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Input
        | ErrorKind::Missing
        | ErrorKind::Conflict
        | ErrorKind::Limit
        | ErrorKind::Unsupported
        | ErrorKind::Io => 2,
        ErrorKind::Cancelled => INTERRUPTED,
    }
}

/// Control characters, which a message may quote from a file, are escaped.
fn one_line(message: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    message.chars().map(escaped).collect()
}

macro_rules! refused {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::Refused { kind: error.kind(), message: error.to_string() }
            }
        })*
    };
}

refused!(CheckError, CpuError, EngineError, GgufError, ModelError, TextError, TrainError);

/// An error of standard output; files go through [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Refused { kind: ErrorKind::Io, message: format!("standard output: {error}") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(one_line("a \"name\" with\na line\u{1b}[0m"), "a \"name\" with\\na line\\u{1b}[0m");
    }

    #[test]
    fn a_command_line_is_refused_in_one_line() {
        let check = |rendered: &str, expected: &str| assert_eq!(misread_line(rendered), expected);
        check(
            "error: the following required arguments were not provided:\n  --model <FILE>\n  --data <FILE>\n\nUsage: x\n",
            "error: the following required arguments were not provided: --model <FILE> --data <FILE>",
        );
        check(
            "error: invalid value 'q4' for '--numerics <N>'\n  [possible values: f32, q8]\n\n  tip: a similar value exists: \
             'q8'\n\nFor more information, try '--help'.\n",
            "error: invalid value 'q4' for '--numerics <N>' [possible values: f32, q8]; tip: a similar value exists: 'q8'",
        );
        check(
            "error: unexpected argument '-x' found\n\n  tip: to pass '-x' as a value, use '-- -x'\n\nUsage: x\n",
            "error: unexpected argument '-x' found",
        );
    }

    #[test]
    fn a_path_stands_once() {
        let at = |message: &str| Failure::input(message).at(Path::new("m.gguf"));
        assert_eq!(at("wrong"), Failure::input("m.gguf: wrong"));
        assert_eq!(at("m.gguf: wrong"), Failure::input("m.gguf: wrong"));
    }
}
