//! What can go wrong between a blob and the disk, each told apart because each needs another answer.

use std::io;
use std::path::Path;

use super::label::Label;
use crate::ids::Hash;
use crate::invalid::Invalid;

/// Why an artifact could not be written, read or named.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No copy of this blob, loose or packed.
    #[error("{hash} is not in the artifact store at {place}")]
    Missing { hash: Hash, place: String },
    /// The bytes there are not those that the hash names.
    #[error("{hash} is damaged: {place} {seen}")]
    Corrupt { hash: Hash, place: String, seen: String },
    /// A pack that cannot be searched: whether a blob is in it cannot be said.
    #[error("{place} is damaged: {seen}")]
    PackCorrupt { place: String, seen: String },
    /// A label or a fence mark that does not hold together.
    #[error("{place} is damaged: {seen}")]
    RecordCorrupt { place: String, seen: String },
    /// No room (`ENOSPC`, `EDQUOT`). Nothing was left under a final name.
    #[error("{place}: the disk is full")]
    DiskFull { place: String, source: io::Error },
    /// Linux marks pages clean after a failed fsync, so a retry "succeeds" with the data gone. Fatal:
    /// this store takes no more writes from this process.
    #[error("{place}: fsync failed, what was written may be lost")]
    FsyncFailed { place: String, source: io::Error },
    /// The name stands for something else, and nobody asked to replace it.
    #[error("`{name}` is taken: it is {held}, not {offered}")]
    LabelTaken { name: String, held: Box<Label>, offered: Box<Label> },
    /// A name that no command could refer to, or that a terminal would not show as it is.
    #[error(transparent)]
    Name(#[from] Invalid),
    /// A fence below the highest one handed out: the control layer was set back.
    #[error(
        "lease `{lease}` has handed out epoch {} fence {}, and now epoch {} fence {}",
        held.0, held.1, offered.0, offered.1
    )]
    FenceRegression { lease: String, held: (i64, i64), offered: (i64, i64) },
    /// A folder that is no artifact store of this version.
    #[error("{place}: {seen}")]
    Layout { place: String, seen: String },
    /// Anything else that the system said.
    #[error("{place}: {source}")]
    Io { place: String, source: io::Error },
}

impl Error {
    /// Tells a full disk from every other failure.
    pub(super) fn io(place: &Path, source: io::Error) -> Self {
        let place = place.display().to_string();
        let kind = source.kind();
        if kind == io::ErrorKind::StorageFull || kind == io::ErrorKind::QuotaExceeded {
            return Self::DiskFull { place, source };
        }
        Self::Io { place, source }
    }
}
