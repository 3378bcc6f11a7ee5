//! Reading files whole, within a size, and the SHA-256 by which models are named.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::error::CheckError;

/// Largest golden file that is read whole, in bytes.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes that a hash reads at a time.
const PIECE_BYTES: usize = 1 << 20;

/// SHA-256 of a file, in hexadecimal.
pub fn sha256(path: &Path) -> Result<String, CheckError> {
    let failed = |source| CheckError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let (mut digest, mut piece) = (Sha256::new(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => break,
            count => digest.update(&piece[..count]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All bytes of a file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, CheckError> {
    let failed = |source| CheckError::Io { path: path.to_owned(), source };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > BYTES_MAX {
        let (expected, found) = (format!("at most {BYTES_MAX} bytes"), format!("{length}"));
        return Err(CheckError::Content { path: path.to_owned(), expected, found });
    }
    fs::read(path).map_err(failed)
}

/// A JSON file of a known form.
pub(crate) fn json<T: DeserializeOwned>(path: &Path) -> Result<T, CheckError> {
    serde_json::from_slice(&bytes(path)?).map_err(|source| CheckError::Json { path: path.to_owned(), source })
}

/// Files of a folder with this extension, by name; none where the folder is not there.
pub(crate) fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, CheckError> {
    let failed = |source| CheckError::Io { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.is_file() && path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
