//! Where the lines of a chat come from: a terminal with editing and history, or a script on standard input.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use apprentice_graph::ErrorKind;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::exit::Failure;

/// Entries of the history.
const HISTORY_ENTRIES: usize = 1000;
/// What a terminal shows before a line, and before one that goes on.
const PROMPT: &str = "> ";
const MORE: &str = "| ";

/// What came.
pub enum Line {
    /// A line, or several that belong together.
    Text(String),
    /// Ctrl-C, which gives up the line.
    Interrupted,
    /// Ctrl-D, or the end of the script.
    End,
}

/// Lines of a chat.
pub enum Lines {
    /// Somebody types.
    Terminal {
        /// The editor; it also takes pasted lines as one.
        editor: Box<Editor<(), FileHistory>>,
        /// Where the history is kept, if it is.
        history: Option<PathBuf>,
    },
    /// A script: no prompt is shown.
    Script {
        /// What it is read from.
        script: Box<dyn BufRead>,
        /// Lines that were read.
        number: usize,
    },
}

impl Lines {
    /// Lines from standard input.
    pub fn open(with_history: bool) -> Result<Lines, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Lines::script(io::stdin().lock()));
        }
        let config = Config::builder()
            .max_history_size(HISTORY_ENTRIES)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(|error| terminal(&error))?;
        let mut editor: Editor<(), FileHistory> =
            Editor::with_config(config.auto_add_history(true).build()).map_err(|error| terminal(&error))?;
        let history = history_file().filter(|_| with_history);
        if let Some(path) = &history {
            drop(editor.load_history(path)); // the first time there is none
        }
        Ok(Lines::Terminal { editor: Box::new(editor), history })
    }

    fn script(script: impl BufRead + 'static) -> Lines {
        Lines::Script { script: Box::new(script), number: 0 }
    }

    /// Lines that were read of a script.
    pub fn number(&self) -> usize {
        match self {
            Lines::Terminal { .. } => 0,
            Lines::Script { number, .. } => *number,
        }
    }

    /// Whether somebody types.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Lines::Terminal { .. })
    }

    /// The next line; one that ends in a backslash goes on with the one after it.
    pub fn next(&mut self) -> Result<Line, Failure> {
        let mut whole = String::new();
        loop {
            let prompt = if whole.is_empty() { PROMPT } else { MORE };
            match self.read(prompt)? {
                Line::Text(line) => match line.strip_suffix('\\') {
                    Some(line) => {
                        whole += line;
                        whole.push('\n');
                    }
                    None => return Ok(Line::Text(whole + &line)),
                },
                Line::End if !whole.is_empty() => return Ok(Line::Text(whole)),
                other => return Ok(other),
            }
        }
    }

    fn read(&mut self, prompt: &str) -> Result<Line, Failure> {
        match self {
            Lines::Terminal { editor, .. } => match editor.readline(prompt) {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(error) => Err(terminal(&error)),
            },
            Lines::Script { script, number } => {
                let mut line = String::new();
                *number += 1;
                match script.read_line(&mut line) {
                    Ok(0) => Ok(Line::End),
                    Ok(_) => Ok(Line::Text(line.trim_end_matches(['\n', '\r']).to_owned())),
                    Err(error) => Err(Failure::Refused {
                        kind: ErrorKind::Io,
                        message: format!("standard input: {error}"),
                    }),
                }
            }
        }
    }

    /// Keeps the history, if it is kept.
    pub fn close(&mut self) -> Result<(), Failure> {
        let Lines::Terminal { editor, history: Some(path) } = self else { return Ok(()) };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
        }
        editor.save_history(path).map_err(|error| terminal(&error).at(path))
    }
}

fn terminal(error: &ReadlineError) -> Failure {
    Failure::Refused { kind: ErrorKind::Io, message: format!("terminal: {error}") }
}

/// `$XDG_STATE_HOME/apprentice/chat_history`, where that is unset below `~/.local/state`; none without a home.
fn history_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join(Path::new("apprentice/chat_history")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` are the lines until the end.
    fn check(script: &'static str, expected: &[&str]) {
        let mut lines = Lines::script(script.as_bytes());
        let mut found = Vec::new();
        while let Line::Text(line) = lines.next().unwrap() {
            found.push(line);
        }
        assert_eq!(found, expected, "{script:?}");
    }

    #[test]
    fn a_script_is_lines() {
        check("", &[]);
        check("a\r\n\nb", &["a", "", "b"]);
        check("a\\\nb\\\n\nc\n", &["a\nb\n", "c"]);
        check("a\\", &["a\n"]);
    }
}
