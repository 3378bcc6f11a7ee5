//! Calling the binary, and what it answers.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Backends and levels that every tiny test runs on.
pub const EVERYWHERE: [&[&str]; 4] = [
    &["--backend", "interpreter"],
    &["--cpu-level", "scalar"],
    &["--cpu-level", "avx2"],
    &["--cpu-level", "avx512"],
];

/// Characters of a call that a failure shows.
const CALL_SHOWN: usize = 600;

/// What a call gave.
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
    pub call: String,
}

/// Calls `apprentice` with these arguments.
pub fn apprentice<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Answer {
    apprentice_with(arguments, "")
}

/// The same, with text on standard input.
pub fn apprentice_with<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, input: &str) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apprentice"));
    command.args(arguments).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    // A program that ends early reads no more of it.
    drop(child.stdin.take().expect("a pipe").write_all(input.as_bytes()));
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the binary ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (out, err) = (text(stdout), text(stderr));
    Answer {
        code: status.code().unwrap_or(-1),
        out,
        err,
        call: format!("{command:?}").chars().take(CALL_SHOWN).collect(),
    }
}

/// Words of a command line, then paths and further words: `words("logits -m", [..])` reads better than a list of strings.
pub fn call(line: &str, more: &[&dyn AsRef<OsStr>]) -> Answer {
    call_with(line, more, "")
}

/// The same, with text on standard input.
pub fn call_with(line: &str, more: &[&dyn AsRef<OsStr>], input: &str) -> Answer {
    let mut more = more.iter();
    let words = line.split_whitespace().map(|word| match word {
        "{}" => AsRef::<OsStr>::as_ref(*more.next().expect("an argument for each {}")).to_owned(),
        word => OsStr::new(word).to_owned(),
    });
    apprentice_with(words.collect::<Vec<_>>(), input)
}

impl Answer {
    /// The answer, which must be a success.
    #[track_caller]
    pub fn done(self) -> Answer {
        self.ended(0)
    }

    /// The answer, which must have ended with this code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Answer {
        assert_eq!(self.code, code, "{}\n{}\n{}", self.call, self.out, self.err);
        self
    }

    /// A refusal: code 2 and one clear line that holds `expected`.
    #[track_caller]
    pub fn refused(self, expected: &str) {
        let answer = self.ended(2);
        let lines: Vec<&str> = answer.err.lines().collect();
        assert_eq!(lines.len(), 1, "{}\nexpected one line, found:\n{}", answer.call, answer.err);
        assert!(
            lines[0].starts_with("error: ") && lines[0].contains(expected),
            "{}\n{}",
            answer.call,
            answer.err
        );
    }

    /// Whether this machine lacks the level that was asked for; it was then refused by name.
    pub fn lacks_level(&self) -> bool {
        let lacks = self.code == 2 && self.err.contains("this machine lacks");
        if lacks {
            eprintln!("not tested here: {}", self.err.trim());
        }
        lacks
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.call, self.out))
    }
}

/// A file of the golden data.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}
