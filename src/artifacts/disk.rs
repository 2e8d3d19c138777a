//! Every system call that changes the store, in one place: the write order can be read here, and a
//! test can fail or stop each call in turn.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use super::error::Error;

#[cfg(test)]
pub(crate) mod faults;

/// One kind of call that changes the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Op {
    Create,
    Write,
    SyncFile,
    SyncAll,
    Rename,
    Link,
    SyncFolder,
    Unlink,
    Folder,
}

/// Where a test stands in. Outside of tests it is nothing.
#[cfg_attr(not(test), expect(clippy::unnecessary_wraps, reason = "fails under test only"))]
fn step(op: Op, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    faults::step(op, path)?;
    #[cfg(not(test))]
    let (Op::Create | _, _) = (op, path);
    Ok(())
}

/// The calls, and whether an fsync has ever failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    broken: Arc<OnceLock<String>>,
}

impl Disk {
    /// Refuses once an fsync has failed: what is in memory and on the disk may differ from then on.
    pub(super) fn usable(&self) -> Result<(), Error> {
        let Some(place) = self.broken.get() else { return Ok(()) };
        let source = io::Error::other("an earlier fsync failed; end this process");
        Err(Error::FsyncFailed { place: place.clone(), source })
    }

    fn fatal(&self, path: &Path, source: io::Error) -> Error {
        let place = path.display().to_string();
        // The first failure is the one to tell; a later one adds nothing.
        drop(self.broken.set(place.clone()));
        Error::FsyncFailed { place, source }
    }

    /// A new file under `folder` that vanishes unless it is moved to its final name.
    pub(super) fn tmp(&self, folder: &Path) -> Result<Tmp, Error> {
        self.usable()?;
        let path = folder.join(format!("{}.tmp", Uuid::new_v4().simple()));
        let made = step(Op::Create, &path).and_then(|()| {
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)
        });
        let tmp = Tmp { file: made.map_err(|e| Error::io(&path, e))?, path, placed: false };
        // A umask may have taken bits away. The lock tells `gc` that somebody is at work here.
        tmp.file
            .set_permissions(fs::Permissions::from_mode(0o600))
            .and_then(|()| tmp.file.lock())
            .map_err(|e| Error::io(&tmp.path, e))?;
        Ok(tmp)
    }

    /// Makes the bytes of an open file last.
    pub(super) fn sync_file(&self, file: &File, path: &Path) -> Result<(), Error> {
        self.usable()?;
        step(Op::SyncFile, path)
            .and_then(|()| file.sync_all())
            .map_err(|source| self.fatal(path, source))
    }

    /// As [`Disk::sync_file`] for a file that is there already: its times need not last.
    pub(super) fn sync_data(&self, file: &File, path: &Path) -> Result<(), Error> {
        self.usable()?;
        step(Op::SyncFile, path)
            .and_then(|()| file.sync_data())
            .map_err(|source| self.fatal(path, source))
    }

    /// Makes the names in a folder last.
    pub(super) fn sync_folder(&self, folder: &Path) -> Result<(), Error> {
        self.usable()?;
        let open = File::open(folder).map_err(|e| Error::io(folder, e))?;
        step(Op::SyncFolder, folder)
            .and_then(|()| open.sync_all())
            .map_err(|source| self.fatal(folder, source))
    }

    /// Makes everything in the file system of `folder` last: one round for many files.
    pub(super) fn sync_all(&self, folder: &Path) -> Result<(), Error> {
        self.usable()?;
        let open = File::open(folder).map_err(|e| Error::io(folder, e))?;
        step(Op::SyncAll, folder)
            .and_then(|()| rustix::fs::syncfs(&open).map_err(Into::into))
            .map_err(|source| self.fatal(folder, source))
    }

    /// Gives a file its final name, in place of what has it. The caller syncs the folder.
    pub(super) fn rename(&self, mut tmp: Tmp, target: &Path) -> Result<(), Error> {
        self.usable()?;
        let renamed = |tmp: &Tmp| {
            #[cfg(test)]
            faults::renamed(&tmp.path);
            step(Op::Rename, target).and_then(|()| fs::rename(&tmp.path, target))
        };
        let mut done = renamed(&tmp);
        if done.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            // Somebody removed the folder since the store was opened.
            if let Some(folder) = target.parent() {
                self.folder(folder)?;
                self.sync_folder(folder.parent().unwrap_or(folder))?;
                done = renamed(&tmp);
            }
        }
        done.map_err(|e| Error::io(target, e))?;
        tmp.placed = true;
        Ok(())
    }

    /// Gives a file its final name if nothing has it; says whether it did.
    pub(super) fn link(&self, tmp: &Tmp, target: &Path) -> Result<bool, Error> {
        self.usable()?;
        match step(Op::Link, target).and_then(|()| fs::hard_link(&tmp.path, target)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(Error::io(target, e)),
        }
    }

    /// Makes a folder and those above it, each for the owner alone; one that exists stays as it is.
    pub(super) fn folder(&self, path: &Path) -> Result<(), Error> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            self.folder(above)?;
        }
        match step(Op::Folder, path).and_then(|()| fs::create_dir(path)) {
            Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o700))
                .map_err(|e| Error::io(path, e)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(Error::io(path, e)),
        }
    }

    /// Removes a file; one that is gone already is no error.
    pub(super) fn unlink(&self, path: &Path) -> Result<(), Error> {
        self.usable()?;
        match step(Op::Unlink, path).and_then(|()| fs::remove_file(path)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(path, e)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// A file that is being written. Dropped before it has its final name, it is removed.
#[derive(Debug)]
pub(super) struct Tmp {
    pub(super) file: File,
    pub(super) path: PathBuf,
    placed: bool,
}

impl Write for Tmp {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        step(Op::Write, &self.path)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Tmp {
    fn drop(&mut self) {
        if !self.placed {
            // Best effort: what is left after a crash is `gc`'s.
            drop(step(Op::Unlink, &self.path).and_then(|()| fs::remove_file(&self.path)));
        }
    }
}

/// Makes a file young, so that `gc` leaves it alone.
pub(super) fn touch(file: &File) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now })?)
}

/// The clock that the kernel stamps files with, in nanoseconds.
pub(super) fn file_clock() -> i128 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// When the file was last changed, on the clock of [`file_clock`].
pub(super) fn changed_at(metadata: &fs::Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// Whether `path` still names this very file.
pub(super) fn names(path: &Path, file: &File) -> bool {
    let (Ok(there), Ok(here)) = (fs::metadata(path), file.metadata()) else { return false };
    there.ino() == here.ino() && there.dev() == here.dev()
}

/// Bytes free to us on the disk of this folder.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    let seen = rustix::fs::statvfs(folder).ok()?;
    Some(seen.f_bavail.saturating_mul(seen.f_frsize))
}
