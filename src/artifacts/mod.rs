//! The artifact store: blobs named by their SHA-256, and the few small files that name blobs.
//!
//! ```text
//! <root>/layout                     what this folder is; written last, when the rest is there
//! <root>/cas/sha256/ab/cd…          one blob a file ("loose")
//! <root>/cas/packs/<hash>.pack      many small blobs in one file (`pack`)
//! <root>/cas/lock                   shared by who places a blob, held alone by `gc` as it removes
//! <root>/labels/{snapshot,flow,faults}/…   a name for a blob (`label`)
//! <root>/fences/…                   the highest fence handed out for a lease (`fence`)
//! <root>/replay/…                   who is at it, and what an early end has left (`turn`)
//! <root>/tmp/                       what is being written
//! ```
//! The write order is: temporary file, write, fsync, rename, fsync of the folder; only then is a
//! write acknowledged. A set of up to 100 blobs shares one `syncfs`, a larger one becomes one pack.
//! A failed fsync ends all writing by this process ([`Error::FsyncFailed`]). Every read checks the
//! hash. A blob that is present is compared before it is taken for present: putting it again heals a
//! damaged copy. Where a blob has several copies, the first sound one is read.
//!
//! All of it blocks; an async caller moves it to a thread for blocking work.

mod blob;
mod databases;
mod disk;
mod error;
mod fence;
mod gc;
mod label;
mod name;
mod pack;
mod packs;
mod record;
#[cfg(test)]
mod tests;
mod turn;
mod verify;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{Hash, Hashed};
use crate::points::{self, Point, reach};

pub use blob::{BlobReader, BlobWriter};
pub use error::Error;
pub use gc::GcReport;
pub use label::{Kind, Label};
pub use name::check_name;
pub use record::Fields;
pub use turn::{Taken, Turn};
pub use verify::{Damage, VerifyReport};

#[cfg(test)]
pub(crate) use disk::faults;

use blob::Part;
use disk::{Disk, Tmp};
use pack::Entry;
use packs::Packs;
use verify::Checker;

const LAYOUT: &[u8] = b"finaz artifacts 1\n";

/// Above this many blobs a set becomes a pack; up to here each is a file of its own.
const LOOSE_MAX: usize = 100;

/// An open artifact store. Threads share it, and processes share the folder.
#[derive(Debug)]
pub struct Artifacts {
    root: PathBuf,
    tmp: PathBuf,
    disk: Disk,
    packs: Packs,
}

impl Artifacts {
    /// Opens the store at `root`, and makes it first where there is none.
    ///
    /// # Errors
    /// [`Error::Layout`] for the store of another version, or what the system said.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let store = Self {
            root: root.to_owned(),
            tmp: root.join("tmp"),
            disk: Disk::default(),
            packs: Packs::new(root.join("cas/packs")),
        };
        let layout = root.join("layout");
        match fs::read(&layout) {
            Ok(seen) if seen == LAYOUT => return Ok(store),
            Ok(seen) => {
                let seen = String::from_utf8_lossy(&seen);
                let seen = format!("`{}` is not `finaz artifacts 1`", seen.trim().escape_debug());
                return Err(Error::Layout { place: layout.display().to_string(), seen });
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(&layout, e)),
        }
        store.create(&layout)?;
        Ok(store)
    }

    /// All folders at once: a later write then syncs its own folder only.
    fn create(&self, layout: &Path) -> Result<(), Error> {
        for folder in
            ["tmp", "cas/packs", "labels/snapshot", "labels/flow", "labels/faults", "fences"]
        {
            self.disk.folder(&self.root.join(folder))?;
        }
        for first in 0..=u8::MAX {
            self.disk.folder(&self.root.join(format!("cas/sha256/{first:02x}")))?;
        }
        self.disk.rename(self.disk.tmp(&self.tmp)?, &self.root.join("cas/lock"))?;
        let tmp = self.written(LAYOUT)?;
        // The folders above the root may be new as well, and this makes all of it last.
        self.disk.sync_all(&self.root)?;
        self.disk.rename(tmp, layout)?;
        self.disk.sync_folder(&self.root)
    }

    /// The folder of the store.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Bytes that may still be written where the store is; `None` where the system does not say.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        disk::free_bytes(&self.root)
    }

    /// Keeps a blob; it lasts when this returns. One that is present and whole is not written again.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and others, with nothing left under a final name;
    /// [`Error::FsyncFailed`], after which nothing more can be written.
    pub fn put(&self, bytes: &[u8]) -> Result<Hash, Error> {
        let hash = Hash::of(bytes);
        if !self.held(&hash)? {
            let tmp = self.written(bytes)?;
            self.disk.sync_file(&tmp.file, &tmp.path)?;
            self.place(tmp, &self.loose(&hash))?;
        }
        Ok(hash)
    }

    /// Keeps a set of blobs in one fsync round; the hashes come in the order of the blobs. More than
    /// 100 become one pack, and such a set is compared with the same set only, not blob by blob.
    ///
    /// # Errors
    /// As [`Artifacts::put`]; some of the set may have been kept.
    pub fn put_many(&self, blobs: &[Vec<u8>]) -> Result<Vec<Hash>, Error> {
        let hashes: Vec<Hash> = blobs.iter().map(|blob| Hash::of(blob)).collect();
        let set = hashes.iter().copied().zip(blobs.iter().map(Vec::as_slice)).collect();
        self.put_set(&set)?;
        Ok(hashes)
    }

    /// As [`Artifacts::put_many`], of blobs whose hashes are known.
    ///
    /// # Errors
    /// As [`Artifacts::put`]; some of the set may have been kept.
    pub fn put_hashed(&self, blobs: &[Hashed]) -> Result<(), Error> {
        self.put_set(&blobs.iter().map(|blob| (blob.hash(), blob.bytes())).collect())
    }

    fn put_set(&self, set: &BTreeMap<Hash, &[u8]>) -> Result<(), Error> {
        if set.len() <= LOOSE_MAX {
            return self.put_loose(set);
        }
        let set: Vec<(Hash, &[u8])> = set.iter().map(|(hash, bytes)| (*hash, *bytes)).collect();
        let mut from = 0;
        while from < set.len() {
            let mut bytes = 0;
            let fits = |(_, blob): &&(Hash, &[u8])| {
                bytes += pack::wide(blob.len());
                bytes <= pack::BYTES_MAX
            };
            let len = set[from..].iter().take(pack::BLOBS_MAX).take_while(fits).count().max(1);
            self.put_pack(&set[from..from + len])?;
            from += len;
        }
        Ok(())
    }

    fn put_loose(&self, set: &BTreeMap<Hash, &[u8]>) -> Result<(), Error> {
        let mut new = Vec::new();
        for (hash, bytes) in set {
            if !self.held(hash)? {
                new.push((self.loose(hash), *bytes));
            }
        }
        let mut written = Vec::with_capacity(new.len());
        for (target, bytes) in &new {
            written.push((self.written_in_steps(bytes)?, target));
        }
        match written.as_slice() {
            [] => return Ok(()),
            [(tmp, _)] => self.disk.sync_file(&tmp.file, &tmp.path)?,
            [_, ..] => self.disk.sync_all(&self.tmp)?,
        }
        reach(Point::BlobSynced);
        let folders: BTreeSet<&Path> =
            new.iter().filter_map(|(target, _)| target.parent()).collect();
        let shared = self.placing()?;
        for (tmp, target) in written {
            self.disk.rename(tmp, target)?;
            reach(Point::BlobNamed);
        }
        drop(shared);
        folders.into_iter().try_for_each(|folder| self.disk.sync_folder(folder))?;
        reach(Point::BlobLasting);
        Ok(())
    }

    fn put_pack(&self, set: &[(Hash, &[u8])]) -> Result<(), Error> {
        let plan =
            pack::Plan::new(set.iter().map(|(hash, bytes)| (*hash, pack::wide(bytes.len()))));
        let target = self.packs.path(&plan.name);
        if self.keep_file(&target, |file| verify::same_pack(file, &plan))? {
            return Ok(());
        }
        self.write_pack(&plan, set)
    }

    /// Writes a pack and makes it last under its name.
    fn write_pack(&self, plan: &pack::Plan, set: &[(Hash, &[u8])]) -> Result<(), Error> {
        let target = self.packs.path(&plan.name);
        let tmp = self.disk.tmp(&self.tmp)?;
        let path = tmp.path.clone();
        let mut out = BufWriter::with_capacity(1 << 20, tmp);
        pack::Plan::start(&mut out)
            .and_then(|()| set.iter().try_for_each(|(_, bytes)| out.write_all(bytes)))
            .and_then(|()| plan.finish(&mut out))
            .map_err(|e| Error::io(&path, e))?;
        let tmp = out.into_inner().map_err(|e| Error::io(&path, e.into_error()))?;
        self.disk.sync_file(&tmp.file, &path)?;
        self.place(tmp, &target)
    }

    /// A writer for a blob of any size.
    ///
    /// # Errors
    /// As [`Artifacts::put`].
    pub fn writer(&self) -> Result<BlobWriter<'_>, Error> {
        Ok(BlobWriter::new(self, self.disk.tmp(&self.tmp)?))
    }

    /// A file without a name to work in; it is gone when it is closed, however that comes about.
    ///
    /// # Errors
    /// As [`Artifacts::put`].
    pub fn scratch(&self) -> Result<File, Error> {
        let tmp = self.disk.tmp(&self.tmp)?;
        tmp.file.try_clone().map_err(|e| Error::io(&tmp.path, e))
    }

    /// Reads a blob and checks its hash.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Corrupt`], [`Error::PackCorrupt`], or what the system said.
    pub fn get(&self, hash: &Hash) -> Result<Vec<u8>, Error> {
        Ok(self.get_within(hash, u64::MAX)?.expect("no blob is larger"))
    }

    /// As [`Artifacts::get`]; `None` for a blob of more than `bytes_max` bytes, which is not read.
    ///
    /// # Errors
    /// As [`Artifacts::get`].
    pub fn get_within(&self, hash: &Hash, bytes_max: u64) -> Result<Option<Vec<u8>>, Error> {
        let mut damaged = None;
        let mut tried = HashSet::new();
        // The pack that answered last is open and its index in memory: no need to look for a file first.
        let mut next = self.packs.at_hand(hash).map(Part::of_pack);
        let mut open = next.is_some();
        let mut loose_left = true;
        loop {
            // A damaged copy is no reason not to read another one.
            let copy = match next.take() {
                Some(at_hand) => at_hand,
                None if loose_left => {
                    loose_left = false;
                    next = self.open_loose(hash)?;
                    continue;
                }
                None => match self.open_packed(hash, &tried)? {
                    Some(packed) => packed,
                    None => break,
                },
            };
            if copy.len > bytes_max {
                return Ok(None);
            }
            match copy.read(hash) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(Ok(seen)) => damaged = damaged.or(Some(copy.corrupt(hash, seen))),
                Err(Err(e)) => return Err(Error::io(&copy.path, e)),
            }
            match copy.pack {
                Some(pack) if std::mem::take(&mut open) => self.packs.close(&pack),
                pack => tried.extend(pack),
            }
        }
        Err(damaged.map_or_else(|| self.missing(hash), Ok)?)
    }

    /// Streams a blob; [`BlobReader::finish`] tells whether it was whole.
    ///
    /// # Errors
    /// As [`Artifacts::get`], damage apart.
    pub fn reader(&self, hash: &Hash) -> Result<BlobReader, Error> {
        if let Some(copy) = self.open_loose(hash)? {
            return Ok(copy.reader(*hash));
        }
        match self.open_packed(hash, &HashSet::new())? {
            Some(copy) => Ok(copy.reader(*hash)),
            None => Err(self.missing(hash)?),
        }
    }

    /// Whether there is a copy, whole or not.
    ///
    /// # Errors
    /// [`Error::PackCorrupt`] when it cannot be told, or what the system said.
    pub fn contains(&self, hash: &Hash) -> Result<bool, Error> {
        Ok(self.open_loose(hash)?.is_some() || self.open_packed(hash, &HashSet::new())?.is_some())
    }

    /// The error for a blob that was not found, once every index is known to be sound.
    fn missing(&self, hash: &Hash) -> Result<Error, Error> {
        self.packs.check_indexes()?;
        Ok(Error::Missing { hash: *hash, place: self.root.display().to_string() })
    }

    fn loose(&self, hash: &Hash) -> PathBuf {
        let hex = hash.hex();
        let mut path = self.root.join("cas/sha256");
        path.push(&hex[..2]);
        path.push(&hex[2..]);
        path
    }

    fn open_loose(&self, hash: &Hash) -> Result<Option<Part>, Error> {
        let path = self.loose(hash);
        let open = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        match open {
            Ok((len, file)) => {
                Ok(Some(Part { file: Arc::new(file), path, pack: None, offset: 0, len }))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(&path, e)),
        }
    }

    fn open_packed(&self, hash: &Hash, tried: &HashSet<Hash>) -> Result<Option<Part>, Error> {
        Ok(self.packs.find(hash, tried)?.map(Part::of_pack))
    }

    /// Whether a sound copy is there to stay: it lasts, and `gc` takes it for a new one.
    fn held(&self, hash: &Hash) -> Result<bool, Error> {
        let sound = |offset, len| {
            let blob = Entry { hash: *hash, offset, len };
            move |file: &File| matches!(Checker::new().fault(file, &blob), Ok(None))
        };
        if let Ok(Some(copy)) = self.open_loose(hash) {
            return self.keep_file(&copy.path, sound(0, copy.len));
        }
        // A damaged pack is no reason not to write: the new copy is the one that will be read.
        match self.open_packed(hash, &HashSet::new()) {
            Ok(Some(copy)) => self.keep_file(&copy.path, sound(copy.offset, copy.len)),
            Ok(None) | Err(_) => Ok(false),
        }
    }

    /// Sees to it that a present file stays, if `sound` finds it whole. One that cannot be read,
    /// marked or kept counts as absent: it is written anew.
    fn keep_file(&self, path: &Path, sound: impl FnOnce(&File) -> bool) -> Result<bool, Error> {
        let Ok(file) = File::open(path) else { return Ok(false) };
        // Young first, then looked at: `gc` removes nothing young, and sees this under its lock.
        if disk::touch(&file).is_err() || !sound(&file) {
            return Ok(false);
        }
        let shared = self.placing()?;
        let stays = disk::names(path, &file);
        drop(shared);
        if stays {
            // Who wrote it may not have come to its own fsync.
            self.disk.sync_data(&file, path)?;
            self.disk.sync_folder(path.parent().unwrap_or(&self.root))?;
        }
        Ok(stays)
    }

    fn written(&self, bytes: &[u8]) -> Result<Tmp, Error> {
        let mut tmp = self.disk.tmp(&self.tmp)?;
        tmp.write_all(bytes).map_err(|e| Error::io(&tmp.path, e))?;
        Ok(tmp)
    }

    /// The same, with places at which a drill can hold the process: half of a blob is what a crash may leave of it.
    fn written_in_steps(&self, bytes: &[u8]) -> Result<Tmp, Error> {
        if !points::is_armed() {
            return self.written(bytes);
        }
        let mut tmp = self.disk.tmp(&self.tmp)?;
        reach(Point::BlobMade);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        tmp.write_all(first).map_err(|e| Error::io(&tmp.path, e))?;
        reach(Point::BlobHalf);
        tmp.write_all(second).map_err(|e| Error::io(&tmp.path, e))?;
        reach(Point::BlobWritten);
        Ok(tmp)
    }

    /// Gives a synced file its final name, and makes the name last.
    fn place(&self, tmp: Tmp, target: &Path) -> Result<(), Error> {
        let shared = self.placing()?;
        self.disk.rename(tmp, target)?;
        drop(shared);
        self.disk.sync_folder(target.parent().unwrap_or(&self.root))
    }

    /// Holds `gc` off while a name is given or counted on. Each call has a lock of its own: one open
    /// file is one lock, however many threads use it.
    fn placing(&self) -> Result<File, Error> {
        let (file, path) = self.lock_file("cas/lock")?;
        file.lock_shared().map_err(|e| Error::io(&path, e))?;
        Ok(file)
    }

    fn lock_file(&self, name: &str) -> Result<(File, PathBuf), Error> {
        let path = self.root.join(name);
        let file = File::options().write(true).open(&path).map_err(|e| Error::io(&path, e))?;
        Ok((file, path))
    }
}
