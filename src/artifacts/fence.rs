//! The highest (epoch, fence) handed out for a lease, kept where a restored database does not reach:
//! a control layer that was set back is found out here, before an effect under its old fences.
//!
//! A mark is a file of its own, named by lease, epoch and fence, and never written again. So nobody waits for anybody here:
//! an owner that is stopped with a mark half made holds up no successor, and puts nothing in the place of a higher one when
//! it goes on.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Artifacts, Error, name, record};
use crate::canonical::Value;
use crate::points::{Point, reach};

/// Between the lease and its fence in the name of a mark; no lease has it in its own.
const AT: char = '@';

/// A mark, as its name has it.
struct Mark {
    path: PathBuf,
    /// `None`: of a store that kept one mark a lease, which has it inside.
    named: Option<(i64, i64)>,
}

impl Artifacts {
    /// The highest (epoch, fence) ever handed out for this lease.
    ///
    /// # Errors
    /// A damaged mark: it is not taken for none.
    pub fn fence_high_water(&self, lease: &str) -> Result<Option<(i64, i64)>, Error> {
        loop {
            let marks = self.marks(lease)?;
            let newest = marks.iter().filter(|mark| mark.named.is_some());
            let newest = newest.max_by_key(|mark| mark.named);
            let oldest = marks.iter().find(|mark| mark.named.is_none());
            let mut highest = None;
            let mut gone = false;
            for mark in newest.into_iter().chain(oldest) {
                match read(mark, lease)? {
                    Some(held) => highest = highest.max(Some(held)),
                    None => gone = true,
                }
            }
            // Who removed it has made a higher one before.
            if !gone {
                return Ok(highest);
            }
        }
    }

    /// Notes that (epoch, fence) is handed out; it lasts when this returns. The highest mark never goes down.
    ///
    /// # Errors
    /// [`Error::FenceRegression`] when a higher one is noted already, or was while this one was being made.
    pub fn raise_fence_high_water(&self, lease: &str, epoch: i64, fence: i64) -> Result<(), Error> {
        let offered = (epoch, fence);
        if self.not_above(lease, offered)? != Some(offered) {
            let fields = BTreeMap::from([
                ("epoch".to_owned(), Value::Int(epoch)),
                ("fence".to_owned(), Value::Int(fence)),
                ("lease".to_owned(), Value::Text(lease.to_owned())),
            ]);
            let mark = self.record(fields)?;
            reach(Point::FenceMade);
            let file = format!("{}{AT}{epoch}-{fence}.mark", name::encode(lease));
            self.disk.rename(mark, &self.root.join("fences").join(file))?;
            reach(Point::FenceNamed);
        }
        // Also when nothing changed: who noted it may have died before its fsync.
        self.disk.sync_folder(&self.root.join("fences"))?;
        self.not_above(lease, offered)?;
        for mark in self.marks(lease)? {
            let lower = match mark.named {
                Some(named) => named < offered,
                None => read(&mark, lease)?.is_none_or(|held| held <= offered),
            };
            if lower {
                // Of no use any more, and in nobody's way.
                let _left = self.disk.unlink(&mark.path);
            }
        }
        Ok(())
    }

    /// What is noted, unless it is above what is offered.
    fn not_above(&self, lease: &str, offered: (i64, i64)) -> Result<Option<(i64, i64)>, Error> {
        let held = self.fence_high_water(lease)?;
        match held.filter(|held| *held > offered) {
            Some(held) => Err(Error::FenceRegression { lease: lease.to_owned(), held, offered }),
            None => Ok(held),
        }
    }

    fn marks(&self, lease: &str) -> Result<Vec<Mark>, Error> {
        let folder = self.root.join("fences");
        let lease = name::encode(lease);
        let mut marks = Vec::new();
        for entry in fs::read_dir(&folder).map_err(|e| Error::io(&folder, e))? {
            let path = entry.map_err(|e| Error::io(&folder, e))?.path();
            let Some(file) = path.file_name().and_then(OsStr::to_str) else { continue };
            let Some(rest) = file.strip_prefix(&lease).and_then(|f| f.strip_suffix(".mark")) else {
                continue;
            };
            let named = match rest.strip_prefix(AT) {
                Some(numbers) => Some(numbers_of(numbers, &path)?),
                None if rest.is_empty() => None,
                // Of a lease whose name begins like this one.
                None => continue,
            };
            marks.push(Mark { path, named });
        }
        Ok(marks)
    }
}

fn numbers_of(text: &str, path: &Path) -> Result<(i64, i64), Error> {
    let numbers = text
        .split_once('-')
        .and_then(|(epoch, fence)| Some((epoch.parse().ok()?, fence.parse().ok()?)));
    numbers.ok_or_else(|| record::corrupt(path, "has a name that no mark has"))
}

/// What a mark says; `None` when it is gone.
fn read(mark: &Mark, lease: &str) -> Result<Option<(i64, i64)>, Error> {
    let path = &mark.path;
    let Some(fields) = record::read(path)? else { return Ok(None) };
    let held = (record::int(&fields, "epoch", path)?, record::int(&fields, "fence", path)?);
    if record::text(&fields, "lease", path)? != lease || mark.named.is_some_and(|n| n != held) {
        return Err(record::corrupt(path, "is the mark of another lease or fence"));
    }
    Ok(Some(held))
}
