//! `cas verify`: every byte of the store read once, and what does not hold named.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::Serialize;

use super::pack::{Entry, Plan, Tail, Trouble};
use super::{Artifacts, Error, Kind, pack, packs};
use crate::ids::Hash;

/// Damages listed in full; a broken disk may hold millions, which are counted only.
const LISTED_MAX: usize = 1000;

/// One thing that does not hold.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Damage {
    /// The blob, where it is known which.
    pub hash: Option<Hash>,
    /// The file.
    pub place: String,
    /// What is wrong with it.
    pub seen: String,
}

/// What `verify` saw.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct VerifyReport {
    /// Blobs in files of their own.
    pub loose: u64,
    /// Blobs in packs.
    pub packed: u64,
    pub packs: u64,
    pub labels: u64,
    /// Bytes of all blobs.
    pub bytes: u64,
    /// All that does not hold.
    pub damages: u64,
    /// The first 1000 of them.
    pub damaged: Vec<Damage>,
}

impl VerifyReport {
    fn damage(&mut self, hash: Option<Hash>, path: &Path, seen: impl Into<String>) {
        self.damages += 1;
        if self.damaged.len() < LISTED_MAX {
            let place = path.display().to_string();
            self.damaged.push(Damage { hash, place, seen: seen.into() });
        }
    }
}

/// A buffer to read blobs through, so that memory does not depend on their size.
#[derive(Debug)]
pub(super) struct Checker {
    buffer: Box<[u8]>,
}

impl Checker {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; 256 << 10].into_boxed_slice() }
    }

    /// The hash of a part of a file.
    pub(super) fn hash(&mut self, file: &File, mut at: u64, len: u64) -> Result<Hash, Trouble> {
        let mut digest = Context::new(&SHA256);
        let mut left = len;
        while left > 0 {
            let want = left.min(pack::wide(self.buffer.len()));
            let part = &mut self.buffer[..usize::try_from(want).expect("not above the buffer")];
            file.read_exact_at(part, at)?;
            digest.update(part);
            at += want;
            left -= want;
        }
        Ok(Hash::from_digest(digest.finish().as_ref()).expect("SHA-256 has 32 bytes"))
    }

    /// What is wrong with a blob, if anything is.
    pub(super) fn fault(&mut self, file: &File, blob: &Entry) -> Result<Option<String>, io::Error> {
        match self.hash(file, blob.offset, blob.len) {
            Ok(seen) if seen == blob.hash => Ok(None),
            Ok(seen) => Ok(Some(format!("holds {seen}"))),
            Err(Trouble::Damaged(seen)) => Ok(Some(seen.to_owned())),
            Err(Trouble::Io(e)) => Err(e),
        }
    }
}

/// Whether a file is the pack of this plan, whole.
pub(super) fn same_pack(file: &File, plan: &Plan) -> bool {
    let mut checker = Checker::new();
    Tail::read(file, plan.name).and_then(|tail| tail.index(file, plan.name)).is_ok()
        && plan.entries.iter().all(|entry| matches!(checker.fault(file, entry), Ok(None)))
}

impl Artifacts {
    /// Reads every blob, label and fence mark. `progress` is told the blobs and bytes read so far.
    /// What `gc` removes meanwhile is no damage.
    ///
    /// # Errors
    /// What the system said; damage is in the report.
    pub fn verify(&self, progress: &dyn Fn(u64, u64)) -> Result<VerifyReport, Error> {
        let mut report = VerifyReport::default();
        let mut checker = Checker::new();
        for folder in self.loose_folders() {
            for entry in fs::read_dir(&folder).map_err(|e| Error::io(&folder, e))? {
                let path = entry.map_err(|e| Error::io(&folder, e))?.path();
                match loose_hash(&path) {
                    Some(hash) => verify_loose(&mut report, &mut checker, &path, hash)?,
                    None => report.damage(None, &path, "is no blob"),
                }
                progress(report.loose, report.bytes);
            }
        }
        for name in packs::names(&self.root.join("cas/packs"))? {
            self.verify_pack(&mut report, &mut checker, name)?;
            progress(report.loose + report.packed, report.bytes);
        }
        self.verify_labels(&mut report)?;
        self.verify_fences(&mut report)?;
        Ok(report)
    }

    pub(super) fn loose_folders(&self) -> impl Iterator<Item = PathBuf> {
        let root = self.root.join("cas/sha256");
        (0..=u8::MAX)
            .map(move |first| root.join(format!("{first:02x}")))
            .filter(|path| path.is_dir())
    }

    fn verify_pack(
        &self,
        report: &mut VerifyReport,
        checker: &mut Checker,
        name: Hash,
    ) -> Result<(), Error> {
        let path = self.packs.path(&name);
        let Some(file) = open(&path)? else { return Ok(()) };
        report.packs += 1;
        let index = match Tail::read(&file, name).and_then(|tail| tail.index(&file, name)) {
            Ok(index) => index,
            Err(Trouble::Damaged(seen)) => {
                report.damage(None, &path, seen);
                return Ok(());
            }
            Err(Trouble::Io(e)) => return Err(Error::io(&path, e)),
        };
        for entry in &index {
            report.packed += 1;
            report.bytes += entry.len;
            if let Some(seen) = checker.fault(&file, entry).map_err(|e| Error::io(&path, e))? {
                report.damage(Some(entry.hash), &path, seen);
            }
        }
        Ok(())
    }

    fn verify_labels(&self, report: &mut VerifyReport) -> Result<(), Error> {
        for kind in Kind::ALL {
            for path in self.label_files(kind)? {
                match self.read_label(&path) {
                    Ok(None) => continue,
                    Ok(Some((_, label))) => match self.contains(&label.hash) {
                        Ok(true) => {}
                        // A damaged pack is in the report already, and the blob may be in it.
                        Ok(false) | Err(Error::PackCorrupt { .. }) => {
                            report.damage(
                                Some(label.hash),
                                &path,
                                "names a blob that is not there",
                            );
                        }
                        Err(other) => return Err(other),
                    },
                    Err(Error::RecordCorrupt { seen, .. }) => report.damage(None, &path, seen),
                    Err(other) => return Err(other),
                }
                report.labels += 1;
            }
        }
        Ok(())
    }

    fn verify_fences(&self, report: &mut VerifyReport) -> Result<(), Error> {
        let folder = self.root.join("fences");
        for entry in fs::read_dir(&folder).map_err(|e| Error::io(&folder, e))? {
            let path = entry.map_err(|e| Error::io(&folder, e))?.path();
            if path.extension().is_some_and(|ending| ending == "mark") {
                match super::record::read(&path) {
                    Ok(_) => {}
                    Err(Error::RecordCorrupt { seen, .. }) => report.damage(None, &path, seen),
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(())
    }
}

fn verify_loose(
    report: &mut VerifyReport,
    checker: &mut Checker,
    path: &Path,
    hash: Hash,
) -> Result<(), Error> {
    let Some(file) = open(path)? else { return Ok(()) };
    let len = file.metadata().map_err(|e| Error::io(path, e))?.len();
    report.loose += 1;
    report.bytes += len;
    let blob = Entry { hash, offset: 0, len };
    if let Some(seen) = checker.fault(&file, &blob).map_err(|e| Error::io(path, e))? {
        report.damage(Some(hash), path, seen);
    }
    Ok(())
}

fn open(path: &Path) -> Result<Option<File>, Error> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(path, e)),
    }
}

/// The hash that a loose blob's path spells.
pub(super) fn loose_hash(path: &Path) -> Option<Hash> {
    let rest = path.file_name()?.to_str()?;
    let first = path.parent()?.file_name()?.to_str()?;
    format!("sha256:{first}{rest}").parse().ok()
}
