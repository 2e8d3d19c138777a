//! The folder of packs: which pack holds a blob.
//!
//! Packs are found by listing the folder, again after a miss if the folder has changed. A pack that
//! is asked for a second time has the first eight bytes of its hashes kept in memory, within
//! [`KEPT_MAX`] for all packs; the others are searched on the disk, two reads each. The pack that
//! answered last is asked first: what was written together is read together.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk;
use super::error::Error;
use super::pack::{self, Entry, Tail, Trouble};
use crate::ids::Hash;

/// Hashes kept in memory over all packs: 64 MiB.
const KEPT_MAX: usize = 8 << 20;
/// Packs that are kept open, those that answered last.
const OPEN_MAX: usize = 16;

/// The packs of one store, as far as this process knows them.
#[derive(Debug)]
pub(super) struct Packs {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The one that answered last comes first.
    known: Vec<Known>,
    /// The folder's time of change at the last listing, if a later change must differ from it.
    listed: Option<i128>,
    kept: usize,
}

#[derive(Debug)]
struct Known {
    name: Hash,
    file: Option<Arc<File>>,
    tail: Option<Tail>,
    asked: bool,
    prefixes: Option<Box<[u64]>>,
    index_checked: bool,
}

/// A copy of a blob inside a pack.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) pack: Hash,
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) entry: Entry,
}

impl Packs {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, state: Mutex::default() }
    }

    pub(super) fn path(&self, name: &Hash) -> PathBuf {
        self.folder.join(format!("{}.pack", name.hex()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in there is left half done by a panic that a new listing would not mend.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next copy of a blob outside of the packs in `tried`.
    ///
    /// # Errors
    /// A damaged pack, but only when no other pack has the blob: it might have been in there.
    pub(super) fn find(&self, hash: &Hash, tried: &HashSet<Hash>) -> Result<Option<Found>, Error> {
        let mut state = self.state();
        let mut damaged = None;
        loop {
            let found = self.find_known(&mut state, hash, tried, &mut damaged)?;
            if found.is_some() || !self.list(&mut state)? {
                return if found.is_none() { damaged.map_or(Ok(None), Err) } else { Ok(found) };
            }
        }
    }

    /// The copy in the pack that answered last, if that is open and its index in memory.
    pub(super) fn at_hand(&self, hash: &Hash) -> Option<Found> {
        let state = self.state();
        let known = state.known.first()?;
        let (file, entry) = known.look_open(hash)?;
        Some(Found { pack: known.name, path: self.path(&known.name), file, entry })
    }

    /// Closes a pack whose open file is damaged: by now its name may lead to a sound one.
    pub(super) fn close(&self, name: &Hash) {
        let mut state = self.state();
        if let Some(known) = state.known.iter_mut().find(|known| known.name == *name) {
            known.file = None;
        }
    }

    fn find_known(
        &self,
        state: &mut State,
        hash: &Hash,
        tried: &HashSet<Hash>,
        damaged: &mut Option<Error>,
    ) -> Result<Option<Found>, Error> {
        let mut at = 0;
        while at < state.known.len() {
            if tried.contains(&state.known[at].name) {
                at += 1;
                continue;
            }
            let path = self.path(&state.known[at].name);
            let State { known, kept, .. } = state;
            match known[at].look(&path, hash, kept) {
                Ok(None) => at += 1,
                Ok(Some((file, entry))) => {
                    state.known[..=at].rotate_right(1);
                    if let Some(last) = state.known.get_mut(OPEN_MAX) {
                        last.file = None;
                    }
                    return Ok(Some(Found { pack: state.known[0].name, path, file, entry }));
                }
                // `gc` has written its blobs into another pack before it removed this one.
                Err(Trouble::Io(e)) if e.kind() == io::ErrorKind::NotFound => {
                    forget(state, at);
                    state.listed = None;
                }
                Err(trouble @ Trouble::Damaged(_)) => {
                    *damaged = Some(trouble.at(&path));
                    at += 1;
                }
                Err(trouble @ Trouble::Io(_)) => return Err(trouble.at(&path)),
            }
        }
        Ok(None)
    }

    /// Reads the folder again if it may have changed; says whether a pack was new.
    fn list(&self, state: &mut State) -> Result<bool, Error> {
        let failed = |e| Error::io(&self.folder, e);
        let changed = disk::changed_at(&fs::metadata(&self.folder).map_err(failed)?);
        if state.listed == Some(changed) {
            return Ok(false);
        }
        // A change within the same tick of the clock would leave no trace in the folder's time.
        state.listed = (disk::file_clock() > changed).then_some(changed);
        let known: HashSet<Hash> = state.known.iter().map(|known| known.name).collect();
        let before = state.known.len();
        for name in names(&self.folder)? {
            if !known.contains(&name) {
                state.known.push(Known::new(name));
            }
        }
        Ok(state.known.len() > before)
    }

    /// Holds the index of every pack against its name, once a process: only then is a blob that was
    /// not found known to be in none of them.
    pub(super) fn check_indexes(&self) -> Result<(), Error> {
        let mut state = self.state();
        for known in &mut state.known {
            let path = self.path(&known.name);
            match known.check_index(&path) {
                Err(Trouble::Io(e)) if e.kind() == io::ErrorKind::NotFound => {}
                checked => checked.map_err(|trouble| trouble.at(&path))?,
            }
        }
        Ok(())
    }

    /// Forgets a pack that was removed.
    pub(super) fn removed(&self, name: &Hash) {
        let mut state = self.state();
        if let Some(at) = state.known.iter().position(|known| known.name == *name) {
            forget(&mut state, at);
        }
    }
}

fn forget(state: &mut State, at: usize) {
    let gone = state.known.remove(at);
    state.kept -= gone.prefixes.map_or(0, |prefixes| prefixes.len());
}

impl Known {
    fn new(name: Hash) -> Self {
        Self { name, file: None, tail: None, asked: false, prefixes: None, index_checked: false }
    }

    fn look(
        &mut self,
        path: &Path,
        hash: &Hash,
        kept: &mut usize,
    ) -> Result<Option<(Arc<File>, Entry)>, Trouble> {
        if self
            .prefixes
            .as_ref()
            .is_some_and(|kept| kept.binary_search(&pack::prefix(hash)).is_err())
        {
            return Ok(None);
        }
        let file = Arc::new(File::open(path)?);
        let tail = match self.tail {
            Some(tail) => tail,
            None => *self.tail.insert(Tail::read(&file, self.name)?),
        };
        if self.prefixes.is_none() && self.asked && *kept + tail.count <= KEPT_MAX {
            let index = tail.index(&file, self.name)?;
            self.index_checked = true;
            *kept += tail.count;
            self.prefixes = Some(index.iter().map(|entry| pack::prefix(&entry.hash)).collect());
        }
        self.asked = true;
        let Some(prefixes) = &self.prefixes else {
            return Ok(tail.find(&file, hash)?.map(|entry| (file, entry)));
        };
        let entry = in_index(tail, prefixes, &file, hash)?;
        if entry.is_some() {
            self.file = Some(Arc::clone(&file));
        }
        Ok(entry.map(|entry| (file, entry)))
    }

    /// As [`Known::look`] in the open file with the index in memory, if there are both.
    fn look_open(&self, hash: &Hash) -> Option<(Arc<File>, Entry)> {
        let (file, tail, prefixes) = (self.file.as_ref()?, self.tail?, self.prefixes.as_ref()?);
        let entry = in_index(tail, prefixes, file, hash).ok()??;
        Some((Arc::clone(file), entry))
    }

    fn check_index(&mut self, path: &Path) -> Result<(), Trouble> {
        if !self.index_checked {
            let file = File::open(path)?;
            Tail::read(&file, self.name)?.index(&file, self.name)?;
            self.index_checked = true;
        }
        Ok(())
    }
}

/// The blob's entry, read where the first bytes of the hashes say that it may be.
fn in_index(
    tail: Tail,
    prefixes: &[u64],
    file: &File,
    hash: &Hash,
) -> Result<Option<Entry>, Trouble> {
    let wanted = pack::prefix(hash);
    let mut slot = prefixes.partition_point(|kept| *kept < wanted);
    while prefixes.get(slot) == Some(&wanted) {
        let entry = tail.entry(file, slot)?;
        if entry.hash == *hash {
            return Ok(Some(entry));
        }
        slot += 1;
    }
    Ok(None)
}

/// The packs that the folder names now, in the order of their names.
pub(super) fn names(folder: &Path) -> Result<Vec<Hash>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        let name = entry.map_err(|e| Error::io(folder, e))?.file_name();
        let hex = name.to_str().and_then(|name| name.strip_suffix(".pack"));
        names.extend(hex.and_then(|hex| format!("sha256:{hex}").parse::<Hash>().ok()));
    }
    names.sort_unstable();
    Ok(names)
}
