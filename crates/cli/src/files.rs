//! Files that commands read and write.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// Refuses a file to be written that is one of those read, or that is written twice. Each is given with its flag.
pub fn apart(read: &[(&str, &Path)], written: &[(&str, &Path)]) -> Result<(), Failure> {
    for (index, (flag, path)) in written.iter().enumerate() {
        let same = |other: &&(&str, &Path)| identity(other.1) == identity(path);
        if let Some((other, _)) = read.iter().chain(&written[..index]).find(same) {
            let path = path.display();
            return Err(Failure::input(format!(
                "{flag} {path}: expected a file of its own, found that of {other}"
            )));
        }
    }
    Ok(())
}

/// Refuses a file that could not be put in place, before there is anything to put there.
pub fn check_place(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Err(Failure::file(path, &io::Error::from(io::ErrorKind::IsADirectory)));
    }
    NewFile::create(path).map(drop)
}

/// What a path is called however it is written; a file that is not there yet by its folder.
fn identity(path: &Path) -> PathBuf {
    let by_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
    };
    fs::canonicalize(path).ok().or_else(by_folder).unwrap_or_else(|| path.to_owned())
}

/// Largest file of text or JSON that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 1 << 30;

/// A file of UTF-8 text.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let length = fs::metadata(path).map_err(|error| Failure::file(path, &error))?.len();
    if length > TEXT_BYTES_MAX {
        let message = format!("{}: {length} bytes, at most {TEXT_BYTES_MAX} are read", path.display());
        return Err(Failure::limit(message));
    }
    let bytes = fs::read(path).map_err(|error| Failure::file(path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::input(format!("{}: expected UTF-8 text, found another byte at {at}", path.display()))
    })
}

/// A file that appears under its name only when it is whole.
pub struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
}

impl NewFile {
    /// Begins a file.
    pub fn create(path: &Path) -> Result<NewFile, Failure> {
        let failed = |error: io::Error| Failure::file(path, &error);
        let name = path.file_name().ok_or_else(|| failed(io::Error::from(io::ErrorKind::InvalidInput)))?;
        let name = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
        let temporary = path.with_file_name(name);
        let file = BufWriter::new(File::create_new(&temporary).map_err(failed)?);
        Ok(NewFile { path: path.to_owned(), temporary, file })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|error| Failure::file(&self.path, &error))
    }

    /// Gives the file its name.
    pub fn finish(mut self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::file(&self.path, &error);
        self.file.flush().map_err(failed)?;
        self.file.get_ref().sync_all().map_err(failed)?;
        fs::rename(&self.temporary, &self.path).map_err(failed)
    }
}

impl Drop for NewFile {
    /// What was not finished is taken away; after [`NewFile::finish`] there is nothing to take.
    fn drop(&mut self) {
        drop(fs::remove_file(&self.temporary));
    }
}
