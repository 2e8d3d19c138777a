//! Labels: a name for a blob, kept beside it so that the store can be read without a server.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Artifacts, Error, check_name, name, record};
use crate::canonical::Value;
use crate::ids::Hash;

/// What a label names. Each kind has names of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Snapshot,
    Flow,
    Faults,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Snapshot, Self::Flow, Self::Faults];

    fn folder(self) -> &'static str {
        match self {
            Self::Snapshot => "labels/snapshot",
            Self::Flow => "labels/flow",
            Self::Faults => "labels/faults",
        }
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Label {
    pub hash: Hash,
    /// The values hash that a flow must give; it is no part of the flow's own hash.
    pub golden: Option<Hash>,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.golden {
            Some(golden) => write!(f, "{} (golden {golden})", self.hash),
            None => write!(f, "{}", self.hash),
        }
    }
}

impl Artifacts {
    /// What `name` stands for, if anything.
    ///
    /// # Errors
    /// A name that cannot be one, a damaged label, or what the system said.
    pub fn label(&self, kind: Kind, name: &str) -> Result<Option<Label>, Error> {
        Ok(self.read_label(&self.label_path(kind, name)?)?.map(|(_, label)| label))
    }

    /// Lets `name` stand for `label`; it lasts when this returns. Saying the same again is no change.
    ///
    /// # Errors
    /// [`Error::LabelTaken`] when the name stands for something else and `replace` is not set.
    pub fn set_label(
        &self,
        kind: Kind,
        name: &str,
        label: &Label,
        replace: bool,
    ) -> Result<(), Error> {
        let path = self.label_path(kind, name)?;
        let mut fields = BTreeMap::from([
            ("hash".to_owned(), Value::Text(label.hash.to_string())),
            ("name".to_owned(), Value::Text(name.to_owned())),
        ]);
        if let Some(golden) = label.golden {
            fields.insert("golden".to_owned(), Value::Text(golden.to_string()));
        }
        let folder = self.label_folder(kind);
        // A store may be older than a kind.
        self.disk.folder(&folder)?;
        let tmp = self.record(fields)?;
        // A link gives the name to one of two who ask at once; the other sees what it lost to.
        if !self.disk.link(&tmp, &path)? {
            let held = match self.read_label(&path) {
                Err(Error::RecordCorrupt { .. }) if replace => None,
                held => held?.map(|(_, held)| held),
            };
            match held {
                Some(held) if held == *label => {}
                Some(held) if !replace => {
                    let (held, offered) = (Box::new(held), Box::new(*label));
                    return Err(Error::LabelTaken { name: name.to_owned(), held, offered });
                }
                Some(_) | None => self.disk.rename(tmp, &path)?,
            }
        }
        self.disk.sync_folder(&folder)
    }

    /// All names of a kind, in order.
    ///
    /// # Errors
    /// A damaged label, named, or what the system said.
    pub fn labels(&self, kind: Kind) -> Result<Vec<(String, Label)>, Error> {
        let mut labels = Vec::new();
        for path in self.label_files(kind)? {
            labels.extend(self.read_label(&path)?);
        }
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(labels)
    }

    /// The files of a kind; a store that is older than the kind has none.
    pub(super) fn label_files(&self, kind: Kind) -> Result<Vec<PathBuf>, Error> {
        let folder = self.label_folder(kind);
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::io(&folder, e))?,
        };
        let path = |entry: io::Result<fs::DirEntry>| match entry {
            Ok(entry) => Ok(entry.path()),
            Err(e) => Err(Error::io(&folder, e)),
        };
        entries.map(path).collect()
    }

    fn label_folder(&self, kind: Kind) -> PathBuf {
        self.root.join(kind.folder())
    }

    fn label_path(&self, kind: Kind, name: &str) -> Result<PathBuf, Error> {
        check_name(name)?;
        Ok(self.label_folder(kind).join(name::encode(name)))
    }

    /// The name and label in a file. The name is held against the file's own: a file that was copied
    /// by hand would let a name stand for what nobody gave it.
    #[expect(clippy::unused_self, reason = "reads as the counterpart of set_label")]
    pub(super) fn read_label(&self, path: &Path) -> Result<Option<(String, Label)>, Error> {
        let Some(fields) = record::read(path)? else { return Ok(None) };
        let name = record::text(&fields, "name", path)?.to_owned();
        if path.file_name().is_none_or(|file| *file != *name::encode(&name)) {
            return Err(record::corrupt(
                path,
                &format!("is the label of `{}`", name.escape_debug()),
            ));
        }
        let hash = |key| {
            let text = record::text(&fields, key, path)?;
            text.parse::<Hash>().map_err(|_| record::corrupt(path, "has no hash where one must be"))
        };
        let golden = fields.contains_key("golden").then(|| hash("golden")).transpose()?;
        Ok(Some((name, Label { hash: hash("hash")?, golden })))
    }
}
