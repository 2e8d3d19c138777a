//! The artifact store's disk, call by call: what was written and not synced may be gone, or half there, when the power
//! fails; what was renamed and not synced may have no name.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::seen::Seen;
use super::world::{Fault, Proc, Sim};
use super::{Mistake, kernel};
use crate::ids::Hash;
use crate::rules::lease::HighWater;

/// A file under its final name.
#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    /// Its bytes outlive a power cut.
    synced: bool,
    /// So does its name.
    named: bool,
}

/// The files of one machine.
#[derive(Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<Hash, File>,
    /// The highest fence handed out for a lease, each durable.
    marks: BTreeMap<String, HighWater>,
    pub(super) full: bool,
}

impl Disk {
    /// A blob that has been there for long.
    pub(super) fn place(&mut self, bytes: Vec<u8>) -> Hash {
        let hash = Hash::of(&bytes);
        self.files.insert(hash, File { bytes, synced: true, named: true });
        hash
    }

    /// Whether a blob is there and stays, whatever happens to the power.
    pub(super) fn keeps(&self, hash: &Hash) -> bool {
        self.files.get(hash).is_some_and(|file| file.synced && file.named)
    }

    /// The bytes of a blob.
    ///
    /// # Errors
    /// Missing, or not what its name says.
    pub(super) fn get(&self, hash: &Hash) -> Result<Vec<u8>, Fault> {
        let Some(file) = self.files.get(hash) else { return Err(Fault::Missing(*hash)) };
        if Hash::of(&file.bytes) == *hash {
            Ok(file.bytes.clone())
        } else {
            Err(Fault::Corrupt(*hash))
        }
    }

    /// Whether a power cut at this moment would cost a file.
    pub(super) fn is_unsure(&self) -> bool {
        self.files.values().any(|file| !file.named || !file.synced)
    }

    /// The first file whose bytes are not what its name says.
    pub(super) fn torn(&self) -> Option<Hash> {
        self.files.iter().find(|(hash, file)| Hash::of(&file.bytes) != **hash).map(|f| *f.0)
    }

    pub(super) fn mark(&self, lease: &str) -> Option<HighWater> {
        self.marks.get(lease).copied()
    }
}

impl Sim {
    /// The power fails: of what no sync covers, some is there, some is not, and some is half there.
    pub(super) fn cut_power(&self) {
        let mut disk = self.disk.borrow_mut();
        let mut lost = 0;
        disk.files.retain(|_, file| {
            let stays = file.named || self.between(0, 1) == 1;
            lost += u64::from(!stays);
            stays
        });
        let mut torn = 0;
        for file in disk.files.values_mut() {
            if !file.synced && self.between(0, 1) == 1 {
                let kept = usize::try_from(self.between(0, file.bytes.len() as u64)).unwrap_or(0);
                file.bytes.truncate(kept.saturating_sub(1));
                torn += 1;
            }
            (file.synced, file.named) = (true, true);
        }
        drop(disk);
        if lost > 0 {
            self.saw(Seen::UnsyncedLost);
        }
        self.note(&format!("power cut: {lost} names lost, {torn} files torn"));
    }
}

impl Proc {
    /// Keeps blobs in the order of the real store: tmp files, one sync of all, renames, one sync of the folders.
    pub(super) async fn put_many(&self, blobs: Vec<Vec<u8>>) -> Result<Vec<Hash>, Fault> {
        let sim = Rc::clone(&self.sim);
        let all: Vec<Hash> = blobs.iter().map(|blob| Hash::of(blob)).collect();
        let mut set: BTreeMap<Hash, Vec<u8>> = all.iter().copied().zip(blobs).collect();
        for hash in set.keys().copied().collect::<Vec<_>>() {
            if sim.disk.borrow().get(&hash).is_ok() {
                set.remove(&hash);
                // Who wrote it may not have come to its own fsync.
                self.disk_call().await?;
                self.sync(&[hash], false);
                self.sync(&[hash], true);
            }
        }
        if set.is_empty() {
            return Ok(all);
        }
        for _tmp in set.keys() {
            self.disk_call().await?;
            if sim.disk.borrow().full {
                sim.saw(Seen::DiskFull);
                return Err(Fault::Full);
            }
        }
        let early = sim.makes(Mistake::NoFsync);
        if !early {
            self.disk_call().await?;
            if sim.hits(sim.options.fsync_failed) {
                sim.saw(Seen::FsyncFailed);
                return Err(Fault::Fsync);
            }
        }
        let names: Vec<Hash> = set.keys().copied().collect();
        for (hash, bytes) in set {
            self.disk_call().await?;
            // In place of a file that has its name for good, if somebody was faster.
            let mut disk = sim.disk.borrow_mut();
            let named = disk.files.get(&hash).is_some_and(|held| held.named);
            disk.files.insert(hash, File { bytes, synced: !early, named });
        }
        if sim.makes(Mistake::NoFolderSync) {
            return Ok(all);
        }
        self.disk_call().await?;
        self.sync(&names, true);
        Ok(all)
    }

    fn sync(&self, names: &[Hash], folder: bool) {
        let mut disk = self.sim.disk.borrow_mut();
        for name in names {
            if let Some(file) = disk.files.get_mut(name) {
                file.named |= folder;
                file.synced |= !folder;
            }
        }
    }

    async fn disk_call(&self) -> Result<(), Fault> {
        let micros = self.sim.between(20, 2_000);
        kernel::sleep(&self.sim.kernel, micros).await;
        Ok(())
    }

    /// Notes a fence outside of the database, before anything is done under it.
    pub(super) async fn raise_mark(&self, lease: &str, mark: HighWater) -> Result<(), Fault> {
        self.disk_call().await?;
        if self.sim.disk.borrow().full {
            return Err(Fault::Full);
        }
        self.disk_call().await?;
        let mut disk = self.sim.disk.borrow_mut();
        let held = disk.marks.entry(lease.to_owned()).or_insert(mark);
        *held = (*held).max(mark);
        Ok(())
    }
}
