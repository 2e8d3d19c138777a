//! What one process does at a time, and what a turn that ended early has left.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use super::record::{self, Fields};
use super::{Artifacts, Error, disk, name};

/// A turn at something: nobody else has it until this is dropped or the process ends.
#[derive(Debug)]
pub struct Turn<'a> {
    store: &'a Artifacts,
    mark: PathBuf,
    /// The system takes the lock back with the file, however the process ends.
    _lock: File,
}

/// Somebody else has the turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Taken {
    /// `None` when it has only just begun.
    pub pid: Option<u32>,
    pub age: Duration,
}

impl Artifacts {
    /// Takes the turn at `name` among those of `what`, a folder of the store, or says who has it.
    ///
    /// # Errors
    /// What the system said.
    pub fn take_turn(&self, what: &str, name: &str) -> Result<Result<Turn<'_>, Taken>, Error> {
        let folder = self.root.join(what);
        self.disk.folder(&folder)?;
        let file = name::encode(name);
        let path = folder.join(format!("{file}.lock"));
        let io = |e| Error::io(&path, e);
        let open = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let mut lock = open.map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                lock.read_to_string(&mut pid).map_err(io)?;
                let since = disk::changed_at(&lock.metadata().map_err(io)?);
                let age = u64::try_from(disk::file_clock() - since).unwrap_or(0);
                return Ok(Err(Taken {
                    pid: pid.trim().parse().ok(),
                    age: Duration::from_nanos(age),
                }));
            }
            Err(TryLockError::Error(e)) => return Err(io(e)),
        }
        lock.set_permissions(Permissions::from_mode(0o600)).map_err(io)?;
        lock.set_len(0).map_err(io)?;
        lock.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(io)?;
        Ok(Ok(Turn { store: self, mark: folder.join(format!("{file}.mark")), _lock: lock }))
    }
}

impl Turn<'_> {
    /// What the turn before has left, if it did not come to its end.
    ///
    /// # Errors
    /// A damaged mark, or what the system said.
    pub fn left(&self) -> Result<Option<Fields>, Error> {
        record::read(&self.mark)
    }

    /// Notes what the next turn must know should this one not come to its end; it lasts when this returns.
    ///
    /// # Errors
    /// What the system said.
    pub fn mark(&self, fields: Fields) -> Result<(), Error> {
        self.store.disk.rename(self.store.record(fields)?, &self.mark)?;
        self.store.disk.sync_folder(self.mark.parent().unwrap_or(&self.store.root))
    }

    /// The turn has come to its end: its mark goes.
    ///
    /// # Errors
    /// What the system said.
    pub fn done(self) -> Result<(), Error> {
        if fs::exists(&self.mark).map_err(|e| Error::io(&self.mark, e))? {
            self.store.disk.unlink(&self.mark)?;
            self.store.disk.sync_folder(self.mark.parent().unwrap_or(&self.store.root))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::canonical::Value;

    #[test]
    fn one_has_the_turn_and_the_other_learns_who() {
        let folder = tempfile::tempdir().unwrap();
        let store = Artifacts::open(folder.path()).unwrap();
        let first = store.take_turn("replay", "a/b").unwrap().unwrap();
        let taken = store.take_turn("replay", "a/b").unwrap().unwrap_err();
        assert_eq!(taken.pid, Some(std::process::id()));
        assert!(taken.age < Duration::from_mins(1), "{taken:?}");
        // Another name is another turn.
        store.take_turn("replay", "a_b").unwrap().unwrap();
        drop(first);
        store.take_turn("replay", "a/b").unwrap().unwrap();
    }

    #[test]
    fn a_turn_that_ends_early_leaves_its_mark_and_an_orderly_end_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = Artifacts::open(folder.path()).unwrap();
        let turn = store.take_turn("replay", "t").unwrap().unwrap();
        assert_eq!(turn.left().unwrap(), None);
        let fields = BTreeMap::from([("n".to_owned(), Value::Int(7))]);
        turn.mark(fields.clone()).unwrap();
        drop(turn);
        let turn = store.take_turn("replay", "t").unwrap().unwrap();
        assert_eq!(turn.left().unwrap(), Some(fields));
        turn.done().unwrap();
        let turn = store.take_turn("replay", "t").unwrap().unwrap();
        assert_eq!(turn.left().unwrap(), None);
        turn.done().unwrap();
        assert_eq!(store.verify(&|_, _| ()).unwrap().damaged, []);
    }
}
