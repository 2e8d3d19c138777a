//! The highest (epoch, fence) handed out for a lease, kept where a restored database does not reach:
//! a control layer that was set back is found out here, before an effect under its old fences.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Artifacts, Error, name, record};
use crate::canonical::Value;
use crate::points::{Point, reach};

impl Artifacts {
    /// The highest (epoch, fence) ever handed out for this lease.
    ///
    /// # Errors
    /// A damaged mark: it is not taken for none.
    pub fn fence_high_water(&self, lease: &str) -> Result<Option<(i64, i64)>, Error> {
        let path = self.fence_path(lease);
        let Some(fields) = record::read(&path)? else { return Ok(None) };
        if record::text(&fields, "lease", &path)? != lease {
            return Err(record::corrupt(&path, "is the mark of another lease"));
        }
        let mark = (record::int(&fields, "epoch", &path)?, record::int(&fields, "fence", &path)?);
        Ok(Some(mark))
    }

    /// Notes that (epoch, fence) is handed out; it lasts when this returns. The mark never goes down.
    ///
    /// # Errors
    /// [`Error::FenceRegression`] when a higher one is noted already.
    pub fn raise_fence_high_water(&self, lease: &str, epoch: i64, fence: i64) -> Result<(), Error> {
        let (lock, path) = self.lock_file("fences/lock")?;
        lock.lock().map_err(|e| Error::io(&path, e))?;
        let offered = (epoch, fence);
        let held = self.fence_high_water(lease)?;
        if let Some(held) = held.filter(|held| *held > offered) {
            return Err(Error::FenceRegression { lease: lease.to_owned(), held, offered });
        }
        if held != Some(offered) {
            let fields = BTreeMap::from([
                ("epoch".to_owned(), Value::Int(epoch)),
                ("fence".to_owned(), Value::Int(fence)),
                ("lease".to_owned(), Value::Text(lease.to_owned())),
            ]);
            let mark = self.record(fields)?;
            reach(Point::FenceMade);
            self.disk.rename(mark, &self.fence_path(lease))?;
            reach(Point::FenceNamed);
        }
        // Also when nothing changed: who noted it may have died before its fsync.
        self.disk.sync_folder(&self.root.join("fences"))
    }

    fn fence_path(&self, lease: &str) -> PathBuf {
        // The ending keeps a lease from being called `lock`.
        self.root.join("fences").join(format!("{}.mark", name::encode(lease)))
    }
}
