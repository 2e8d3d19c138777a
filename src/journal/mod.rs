//! What a stream keeps between two processes: the formats, and the rules by which many small files become few large
//! ones. Pure: bytes in, rows out.
//!
//! A commit adds one segment for each kind of rows that is new, and one head that names all segments. So it costs what
//! is new, not what was ever seen; sixteen segments of one level become one of the next (`compact`), so that a head
//! stays small. Identities are kept this way and not as rows of PostgreSQL because 24 bytes in a file that is read
//! once, at a start, cost a tenth of a row with its index, and because the pointer to the head and the identities it
//! knows then move in one commit.
//!
//! A head and a segment are read strictly: what is read is what would be written, byte for byte. They are blobs of the
//! artifact store besides, and so no byte of them is trusted before its hash was.

mod batch;
mod checkpoint;
mod compact;
mod document;
mod draft;
mod fields;
mod handoff;
mod head;
mod manifest;
mod rows;
mod segment;
#[cfg(test)]
mod tests;

pub use batch::{BatchCheckpoint, BatchSink, BatchState, InstrumentKept, LastEvent, PublishedRun};
pub use checkpoint::{BlobRef, Checkpoint, Difference};
pub use compact::Merge;
pub use document::{Exported, exported, imported};
pub use draft::{Draft, Drafted, Loaded, merged};
pub use handoff::{Checked, HandedCommit, Handoff, HandoffPart, HandoffPartition, History};
pub use head::{Head, SegmentRef, Segments};
pub use manifest::Manifest;
pub use segment::{Kind, NewSegment, Segment};

/// Why a head or a segment is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not what was written: cut, changed, or not of this kind.
    #[error("the journal is damaged: {place} {what}")]
    Damaged { place: String, what: String },
    /// Written by another finaz.
    #[error("{place} is of version {found} of the journal, this finaz reads version {known}")]
    Version { place: String, found: i64, known: i64 },
}

/// The version that is written, and the only one that is read.
const VERSION: i64 = 2;

fn damaged(place: &str, what: impl Into<String>) -> Error {
    Error::Damaged { place: place.to_owned(), what: what.into() }
}
