//! Files that are either the old ones or the new ones, whole: temporary file beside the target, flush, rename.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Puts `bytes` at `path`, in place of what was there.
///
/// # Errors
/// What the system says; the temporary file is removed and the old file untouched.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        // The first error is the one to tell; what is left over is only litter.
        drop(fs::remove_file(&temporary));
    }
    done?;
    sync_folder(path)
}

/// A rename is on disk once its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(()); // elsewhere a folder cannot be opened as a file
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
