//! A data set: a JSONL file, all of it read and checked.
//!
//! A line is a sample ([`crate::record`]); a byte order mark, CRLF and blank lines are let pass. The first line that cannot
//! be trained refuses the whole file, by its number.

use std::fs;
use std::path::{Path, PathBuf};

use apprentice_text::Text;
use sha2::{Digest, Sha256};

use crate::error::{LineError, TrainError};
use crate::record::Record;
use crate::sample::{Sample, SampleRules};

/// Samples of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dataset {
    /// The file.
    pub path: PathBuf,
    /// In the order of its lines; at least one.
    pub samples: Vec<Sample>,
}

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 64 << 20;
/// The mark that some editors begin a file with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Dataset {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// A file that cannot be read, is too large or has no sample; the first line that cannot be trained.
    pub fn read(path: &Path, text: &Text, rules: &SampleRules) -> Result<Dataset, TrainError> {
        let found = fs::metadata(path).map_err(|error| TrainError::file(path, error))?.len();
        if found > FILE_BYTES_MAX {
            return Err(TrainError::Size { path: path.to_owned(), found, limit: FILE_BYTES_MAX });
        }
        let bytes = fs::read(path).map_err(|error| TrainError::file(path, error))?;
        Dataset::parse(path, &bytes, text, rules)
    }

    /// The same of a file's bytes; `path` is for messages.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    pub fn parse(path: &Path, bytes: &[u8], text: &Text, rules: &SampleRules) -> Result<Dataset, TrainError> {
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let mut samples = Vec::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let number = index + 1;
            let sample = sample(text, rules, number, line);
            samples.push(sample.map_err(|error| TrainError::Line {
                path: path.to_owned(),
                line: number,
                error: Box::new(error),
            })?);
        }
        if samples.is_empty() {
            return Err(TrainError::Empty { path: path.to_owned() });
        }
        Ok(Dataset { path: path.to_owned(), samples })
    }

    /// Tokens of the longest sample.
    pub fn longest(&self) -> usize {
        self.samples.iter().map(|sample| sample.tokens.len()).max().unwrap_or(0)
    }

    /// Rows that are learnt from in an epoch.
    pub fn rows(&self) -> usize {
        self.samples.iter().map(Sample::rows).sum()
    }

    /// Rows with a label.
    pub fn labelled(&self) -> usize {
        self.samples.iter().map(Sample::labelled).sum()
    }

    /// SHA-256, in hexadecimal, of what is learnt: tokens, labels and spans, not of the file's bytes.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for sample in &self.samples {
            hash.update((sample.tokens.len() as u64).to_le_bytes());
            for (token, label) in sample.tokens.iter().zip(&sample.labels) {
                hash.update(token.to_le_bytes());
                hash.update(label.to_le_bytes());
            }
            hash.update((sample.spans.len() as u64).to_le_bytes());
            for rows in &sample.spans {
                hash.update((rows.start as u64).to_le_bytes());
                hash.update((rows.end as u64).to_le_bytes());
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn sample(text: &Text, rules: &SampleRules, number: usize, line: &[u8]) -> Result<Sample, LineError> {
    let (found, limit) = (line.len(), LINE_BYTES_MAX);
    if found > limit {
        return Err(LineError::Size { found, limit });
    }
    let line = str::from_utf8(line).map_err(|error| LineError::Utf8 { at: error.valid_up_to() })?;
    Sample::new(text, rules, number, Record::parse(line)?)
}
