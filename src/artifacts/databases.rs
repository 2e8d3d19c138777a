//! Which databases name blobs of this store, so that nobody removes on the word of one what another one needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;

use super::{Artifacts, Error, name, record};
use crate::canonical::Value;

impl Artifacts {
    /// Notes that a database, known by when it was made, names blobs of this store. It lasts when this returns.
    pub fn note_database(&self, birth: &str) -> Result<(), Error> {
        let folder = self.root.join("databases");
        let path = folder.join(format!("{}.mark", name::encode(birth)));
        if path.exists() {
            return Ok(());
        }
        self.disk.folder(&folder)?;
        let fields = BTreeMap::from([("birth".to_owned(), Value::Text(birth.to_owned()))]);
        self.disk.rename(self.record(fields)?, &path)?;
        self.disk.sync_folder(&folder)?;
        self.disk.sync_folder(&self.root)
    }

    /// The databases that were noted.
    ///
    /// # Errors
    /// A damaged mark, and a folder that cannot be read: neither is taken for none.
    pub fn databases(&self) -> Result<BTreeSet<String>, Error> {
        let folder = self.root.join("databases");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(Error::io(&folder, error)),
        };
        let mut births = BTreeSet::new();
        for entry in entries {
            let path: PathBuf = entry.map_err(|error| Error::io(&folder, error))?.path();
            if path.extension().is_some_and(|ending| ending == "mark")
                && let Some(fields) = record::read(&path)?
            {
                births.insert(record::text(&fields, "birth", &path)?.to_owned());
            }
        }
        Ok(births)
    }
}
