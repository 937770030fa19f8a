//! `AtomicFile`: a file that appears whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use fireclay_core::{Error, Result};

/// A new file beside the one it will replace. [`commit`](AtomicFile::commit) puts it in place; dropped before, it is
/// removed, and the file that was there has not been touched.
pub(crate) struct AtomicFile {
    /// Where the content goes in the end.
    target: PathBuf,
    folder: PathBuf,
    /// None once the file has been put in place.
    temporary: Option<PathBuf>,
    writer: BufWriter<File>,
}

/// Small writes are gathered to this many bytes.
const BUFFER_NBYTES: usize = 1 << 18;

impl AtomicFile {
    /// A temporary file in the folder of `path`, with a name that no other process or call uses.
    pub(crate) fn create(path: &Path) -> Result<AtomicFile> {
        if path.is_dir() {
            return Err(Error::Io {
                action: "writing",
                path: path.into(),
                source: io::ErrorKind::IsADirectory.into(),
                hint: "give the name of a file in it".into(),
            });
        }
        let target = follow_link(path);
        // The rename would put a plain file in the place of a device or pipe, for every program.
        if target.metadata().is_ok_and(|meta| !meta.is_file()) {
            return Err(Error::Io {
                action: "writing",
                path: path.into(),
                source: io::Error::other("it is a device or a pipe, expected a file"),
                hint: "give the path of a plain file".into(),
            });
        }
        let Some(name) = target.file_name() else {
            return Err(Error::Io {
                action: "writing",
                path: path.into(),
                source: io::ErrorKind::InvalidFilename.into(),
                hint: "give the name of a file".into(),
            });
        };
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        loop {
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            let mut temporary = std::ffi::OsString::from(".");
            temporary.push(name);
            temporary.push(format!(".{}.{serial}.tmp", process::id()));
            let temporary = folder.join(temporary);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&temporary)
            {
                Ok(file) => {
                    return Ok(AtomicFile {
                        writer: BufWriter::with_capacity(BUFFER_NBYTES, file),
                        temporary: Some(temporary),
                        target,
                        folder,
                    });
                }
                // Left behind by a killed process of the same id: the next serial is free.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(write_error(path, error)),
            }
        }
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.writer.write_all(bytes);
        written.map_err(|error| write_error(&self.target, error))
    }

    /// Writes `bytes` over the first ones.
    pub(crate) fn write_at_start(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.writer.write_all(bytes))
            .map_err(|error| write_error(&self.target, error))
    }

    /// Puts the file in place once its content is on the disk, and has the disk remember that too.
    pub(crate) fn commit(mut self) -> Result<()> {
        let Some(temporary) = self.temporary.clone() else {
            return Ok(());
        };
        self.writer
            .flush()
            .and_then(|()| self.writer.get_ref().sync_all())
            .and_then(|()| fs::rename(&temporary, &self.target))
            .map_err(|error| write_error(&self.target, error))?;
        self.temporary = None;
        sync_folder(&self.folder).map_err(|source| Error::Io {
            action: "syncing the folder of",
            path: self.target.clone(),
            source,
            hint: "the new file is in place, but may be lost if the machine stops now".into(),
        })
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // There is no way to report a failure from here, and the error that led here is on its way already.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The file that a link points to, so that the link stays one; other paths as they are.
fn follow_link(path: &Path) -> PathBuf {
    if path.is_symlink() {
        fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    } else {
        path.to_owned()
    }
}

/// A new name in a folder survives a crash only once the folder itself is synced.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // A folder that may be written to but not listed, and file systems that know no syncing of folders.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

fn write_error(path: &Path, source: io::Error) -> Error {
    let hint = match source.kind() {
        io::ErrorKind::NotFound => "the folder does not exist; create it first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose a folder that may be written to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "nothing was changed; free some space or save elsewhere"
        }
        io::ErrorKind::NotADirectory => "a part of the path is a file",
        _ => "nothing was changed",
    };
    Error::Io {
        action: "writing",
        path: path.into(),
        source,
        hint: hint.into(),
    }
}
