//! `cas gc`: removes what nobody keeps and merges packs. Nothing younger than a given age is touched:
//! a blob is written, and found present, some time before anything refers to it.
//!
//! A merged pack lasts before the packs it replaces are removed, so a crash leaves two copies and
//! never none, and a reader that loses a pack under its hands finds the new one in the folder. Each
//! removal looks at the file's age once more under a lock that whoever places a blob shares.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::pack::{self, BLOBS_MAX, BYTES_MAX, Entry, Plan, Tail, Trouble};
use super::verify::{Damage, loose_hash};
use super::{Artifacts, Error, disk, packs};
use crate::ids::Hash;

/// What is being written is locked. What is not, and has not changed for this long, a crash left.
const TMP_AGE: Duration = Duration::from_mins(10);
/// Removals under one hold of the lock: it keeps writers waiting.
const REMOVED_AT_ONCE: usize = 256;
/// A pack with less than this share of a full one is merged with others.
const SMALL: u64 = 4;
/// A pack is rewritten once this share of its bytes is dead.
const DEAD: u64 = 4;

/// What `gc` did, or would do.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct GcReport {
    pub dry_run: bool,
    /// Blobs that are kept because somebody asked to.
    pub kept: u64,
    /// Blobs that nobody asked to keep, too young to remove.
    pub young: u64,
    /// Blobs removed, loose and packed.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Dead blobs in packs that are not worth rewriting yet.
    pub dead_in_packs: u64,
    pub packs_removed: u64,
    pub packs_written: u64,
    /// What a crash had left half written.
    pub temporary_removed: u64,
    /// Packs that are damaged and so were left alone.
    pub damaged: Vec<Damage>,
}

/// One pass over the store.
struct Pass<'a> {
    store: &'a Artifacts,
    keep: &'a HashSet<Hash>,
    /// Changed at or before this: old.
    old: i128,
    report: GcReport,
}

/// Live blobs in memory, and where each lies there.
type Loaded = (Vec<Entry>, Vec<u8>);

/// A pack whose live blobs go into a merged one.
struct Source {
    name: Hash,
    path: PathBuf,
    /// Where each live blob lies in `bytes`.
    live: Vec<Entry>,
    /// The live blobs, checked: at most what one pack holds.
    bytes: Vec<u8>,
    dead: u64,
    dead_bytes: u64,
    /// Worth rewriting even if there is nothing to merge it with.
    wasteful: bool,
}

impl Artifacts {
    /// Removes blobs that are not in `keep` and have not been written, or found present, for
    /// `min_age`; merges small packs and rewrites half dead ones; clears away what crashes left.
    ///
    /// # Errors
    /// What the system said. Nothing that is kept is lost at any point.
    pub fn gc(
        &self,
        keep: &HashSet<Hash>,
        min_age: Duration,
        dry_run: bool,
    ) -> Result<GcReport, Error> {
        let now = disk::file_clock();
        let report = GcReport { dry_run, ..GcReport::default() };
        let old = now - nanoseconds(min_age);
        let mut pass = Pass { store: self, keep, old, report };
        pass.temporary(now - nanoseconds(TMP_AGE))?;
        for folder in self.loose_folders() {
            pass.loose(&folder)?;
        }
        pass.packed()?;
        Ok(pass.report)
    }
}

fn nanoseconds(age: Duration) -> i128 {
    i128::try_from(age.as_nanos()).unwrap_or(i128::MAX / 2)
}

impl Pass<'_> {
    fn temporary(&mut self, old: i128) -> Result<(), Error> {
        for path in paths(&self.store.tmp)? {
            let Ok(file) = File::open(&path) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            // Whoever writes a file holds its lock until it ends, however it ends.
            if disk::changed_at(&metadata) > old || !metadata.is_file() || file.try_lock().is_err()
            {
                continue;
            }
            self.report.temporary_removed += 1;
            if !self.report.dry_run {
                self.store.disk.unlink(&path)?;
            }
        }
        Ok(())
    }

    fn loose(&mut self, folder: &Path) -> Result<(), Error> {
        let mut dead = Vec::new();
        for path in paths(folder)? {
            let Some(hash) = loose_hash(&path) else { continue };
            if self.keep.contains(&hash) {
                self.report.kept += 1;
                continue;
            }
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if disk::changed_at(&metadata) > self.old {
                self.report.young += 1;
            } else {
                dead.push((path, metadata.size()));
            }
        }
        for some in dead.chunks(REMOVED_AT_ONCE) {
            let alone = self.alone()?;
            for (path, bytes) in some {
                if self.remove(path)? {
                    self.report.removed += 1;
                    self.report.removed_bytes += bytes;
                }
            }
            drop(alone);
        }
        Ok(())
    }

    /// Holds off everyone who would place a blob or count on one.
    fn alone(&self) -> Result<Option<File>, Error> {
        if self.report.dry_run {
            return Ok(None);
        }
        let (file, path) = self.store.lock_file("cas/lock")?;
        file.lock().map_err(|e| Error::io(&path, e))?;
        Ok(Some(file))
    }

    /// Removes a file that is still old, under the lock.
    fn remove(&self, path: &Path) -> Result<bool, Error> {
        let Ok(metadata) = fs::metadata(path) else { return Ok(false) };
        if disk::changed_at(&metadata) > self.old {
            return Ok(false);
        }
        if !self.report.dry_run {
            self.store.disk.unlink(path)?;
        }
        Ok(true)
    }

    fn packed(&mut self) -> Result<(), Error> {
        let mut group: Vec<Source> = Vec::new();
        let (mut blobs, mut bytes) = (0, 0);
        for name in packs::names(&self.store.root.join("cas/packs"))? {
            let Some(source) = self.source(name)? else { continue };
            let size: u64 = source.live.iter().map(|entry| entry.len).sum();
            if blobs + source.live.len() > BLOBS_MAX || bytes + size > BYTES_MAX {
                self.merge(std::mem::take(&mut group))?;
                (blobs, bytes) = (0, 0);
            }
            blobs += source.live.len();
            bytes += size;
            group.push(source);
        }
        self.merge(group)
    }

    /// Looks at a pack: removes one that is all dead, gives back one that is to be rewritten.
    fn source(&mut self, name: Hash) -> Result<Option<Source>, Error> {
        let path = self.store.packs.path(&name);
        let Ok(file) = File::open(&path) else { return Ok(None) };
        let index = match Tail::read(&file, name).and_then(|tail| tail.index(&file, name)) {
            Ok(index) => index,
            Err(Trouble::Damaged(seen)) => {
                self.damaged(None, &path, seen.to_owned());
                return Ok(None);
            }
            Err(Trouble::Io(e)) => return Err(Error::io(&path, e)),
        };
        let metadata = file.metadata().map_err(|e| Error::io(&path, e))?;
        let total: u64 = index.iter().map(|entry| entry.len).sum();
        let count = pack::wide(index.len());
        let live: Vec<Entry> =
            index.into_iter().filter(|entry| self.keep.contains(&entry.hash)).collect();
        let kept = pack::wide(live.len());
        let live_bytes: u64 = live.iter().map(|entry| entry.len).sum();
        self.report.kept += kept;
        let (dead, dead_bytes) = (count - kept, total - live_bytes);
        if disk::changed_at(&metadata) > self.old {
            self.report.young += dead;
            return Ok(None);
        }
        let wasteful = dead_bytes * DEAD >= total && dead > 0;
        let source = |live, bytes| Source {
            name,
            path: path.clone(),
            live,
            bytes,
            dead,
            dead_bytes,
            wasteful,
        };
        if live.is_empty() {
            self.drop_packs(&[source(live, Vec::new())])?;
            return Ok(None);
        }
        let small = kept < pack::wide(BLOBS_MAX) / SMALL && live_bytes < BYTES_MAX / SMALL;
        if (wasteful || small)
            && let Some((live, bytes)) = self.load(&file, &path, live)?
        {
            return Ok(Some(source(live, bytes)));
        }
        self.report.dead_in_packs += dead;
        Ok(None)
    }

    /// Reads the live blobs of a pack; nothing if one of them is damaged.
    fn load(
        &mut self,
        file: &File,
        path: &Path,
        mut live: Vec<Entry>,
    ) -> Result<Option<Loaded>, Error> {
        let mut bytes = Vec::new();
        let mut whole = true;
        for entry in &mut live {
            let from = bytes.len();
            let len = usize::try_from(entry.len).expect("what one pack holds fits in memory");
            bytes.resize(from + len, 0);
            file.read_exact_at(&mut bytes[from..], entry.offset).map_err(|e| Error::io(path, e))?;
            let seen = Hash::of(&bytes[from..]);
            if seen != entry.hash {
                self.damaged(Some(entry.hash), path, format!("holds {seen}"));
                whole = false;
            }
            entry.offset = pack::wide(from);
        }
        Ok(whole.then_some((live, bytes)))
    }

    fn damaged(&mut self, hash: Option<Hash>, path: &Path, seen: String) {
        self.report.damaged.push(Damage { hash, place: path.display().to_string(), seen });
    }

    /// Writes the live blobs of these packs into one, then removes the packs.
    fn merge(&mut self, group: Vec<Source>) -> Result<(), Error> {
        if group.is_empty() || (group.len() == 1 && !group[0].wasteful) {
            self.report.dead_in_packs += group.iter().map(|source| source.dead).sum::<u64>();
            return Ok(());
        }
        self.report.packs_written += 1;
        if self.report.dry_run {
            return self.drop_packs(&group);
        }
        let mut live: Vec<(Hash, &[u8])> = Vec::new();
        for source in &group {
            let blob = |entry: &Entry| {
                let from = usize::try_from(entry.offset).expect("it lies in memory");
                let len = usize::try_from(entry.len).expect("it lies in memory");
                (entry.hash, &source.bytes[from..from + len])
            };
            live.extend(source.live.iter().map(blob));
        }
        live.sort_unstable_by_key(|(hash, _)| *hash);
        live.dedup_by_key(|(hash, _)| *hash);
        let plan = Plan::new(live.iter().map(|(hash, blob)| (*hash, pack::wide(blob.len()))));
        self.store.write_pack(&plan, &live)?;
        let replaced: Vec<Source> =
            group.into_iter().filter(|source| source.name != plan.name).collect();
        self.drop_packs(&replaced)
    }

    fn drop_packs(&mut self, packs: &[Source]) -> Result<(), Error> {
        for some in packs.chunks(REMOVED_AT_ONCE) {
            let alone = self.alone()?;
            for pack in some {
                if self.remove(&pack.path)? {
                    self.store.packs.removed(&pack.name);
                    self.report.packs_removed += 1;
                    self.report.removed += pack.dead;
                    self.report.removed_bytes += pack.dead_bytes;
                } else {
                    self.report.young += pack.dead;
                }
            }
            drop(alone);
        }
        Ok(())
    }
}

fn paths(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |e| Error::io(folder, e);
    fs::read_dir(folder).map_err(failed)?.map(|entry| Ok(entry.map_err(failed)?.path())).collect()
}
