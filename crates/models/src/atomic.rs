//! Files that are either the old ones or the new ones, whole: temporary file beside the target, flush, rename.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Puts `bytes` at `path`, in place of what was there.
///
/// # Errors
/// What the system says; the temporary file is removed and the old file untouched.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path)?;
    let written =
        OpenOptions::new().write(true).create(true).truncate(true).open(&temporary).and_then(|mut file| {
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

/// `.NAME.PROCESS.COUNT.tmp` in the folder of `path`: no two writers share one.
fn beside(path: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(temporary))
}

/// A rename is on disk once its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(()); // elsewhere a folder cannot be opened as a file
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
