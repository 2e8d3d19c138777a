//! A file of the operator's, written beside its place and moved there whole: who reads it never sees half of it.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::Error;
use crate::invalid::Invalid;

/// Under way; dropped before [`NewFile::finish`], it leaves nothing.
#[derive(Debug)]
pub(super) struct NewFile {
    to: BufWriter<File>,
    beside: PathBuf,
    target: PathBuf,
    placed: bool,
}

impl NewFile {
    /// Begins one that will be at `target`, for its owner alone.
    pub(super) fn at(target: &Path) -> Result<Self, Error> {
        Self::with_mode(target, 0o600)
    }

    /// Begins one that all may read.
    pub(super) fn readable_at(target: &Path) -> Result<Self, Error> {
        Self::with_mode(target, 0o644)
    }

    fn with_mode(target: &Path, mode: u32) -> Result<Self, Error> {
        // A link is followed, so that it stays one; what is no plain file is not ours to replace.
        let target = fs::canonicalize(target).unwrap_or_else(|_new| target.to_owned());
        if fs::symlink_metadata(&target).is_ok_and(|there| !there.is_file()) {
            let what = "is a device, a folder or a pipe, not a plain file";
            let place = target.display().to_string();
            return Err(Invalid::new("FILE_NOT_PLAIN", place, what, "name a file").into());
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", Uuid::new_v4().simple()));
        let beside = target.with_file_name(name);
        let failed = |source| Error::NotWritten { place: target.display().to_string(), source };
        let file = File::options().write(true).create_new(true).mode(mode).open(&beside);
        let to = BufWriter::with_capacity(1 << 16, file.map_err(failed)?);
        let new = Self { to, beside, target: target.clone(), placed: false };
        // A umask may have taken bits away.
        new.to.get_ref().set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        Ok(new)
    }

    /// What the system said, with the place that the operator gave.
    pub(super) fn failed(&self, source: io::Error) -> Error {
        Error::NotWritten { place: self.target.display().to_string(), source }
    }

    /// Makes what was written last, so that little is left to do in the end.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        let done = self.to.flush().and_then(|()| self.to.get_ref().sync_all());
        done.map_err(|source| self.failed(source))
    }

    /// Moves it to its place, in place of what was there; it lasts when this returns.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        let done = self.place();
        done.map_err(|source| self.failed(source))
    }

    fn place(&mut self) -> io::Result<()> {
        self.to.flush()?;
        self.to.get_ref().sync_all()?;
        fs::rename(&self.beside, &self.target)?;
        self.placed = true;
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.placed {
            // Best effort: the error that counts was the first one.
            drop(fs::remove_file(&self.beside));
        }
    }
}
