//! Snapshots: market data from files, made into one immutable blob that is named by its hash.
//!
//! The body has one line of FINAZ_JSON_V1 an event, `{close, event_id, event_time, instrument, seq,
//! …kept fields}`, ordered by event time, instrument and seq. A reader (`table`, `jsonl`, `columnar`)
//! finds the events of a source (`source`) as the flags say (`settings`, `time`, `cell`); `order`
//! brings them into the body's order and writes it. What a flag does not say is refused, not guessed.

mod calendar;
mod cell;
mod column;
mod columnar;
mod csv;
mod describe;
mod event;
mod import;
mod jsonl;
mod order;
mod pattern;
mod settings;
mod source;
mod spill;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod unique;

use std::io;

use serde::Serialize;

use crate::artifacts;
use crate::ids::Hash;
use crate::invalid::Invalid;

pub use describe::{Described, DescribedInstrument, describe};
pub use import::import;

/// Why a snapshot could not be imported or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input or a flag; the place is `file:line` or the flag.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Artifacts(#[from] artifacts::Error),
    /// The source could not be read.
    #[error("{place}: {source}")]
    Io { place: String, source: io::Error },
}

impl Error {
    fn io(place: &str, source: io::Error) -> Self {
        let kind = source.kind();
        if kind == io::ErrorKind::StorageFull || kind == io::ErrorKind::QuotaExceeded {
            return artifacts::Error::DiskFull { place: place.to_owned(), source }.into();
        }
        Self::Io { place: place.to_owned(), source }
    }
}

/// What a source is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    Csv,
    JsonLines,
    Parquet,
}

/// The flags of `snapshot import`. A column that is not named has the standard name (`event_time`,
/// `close`; in JSON lines also `instrument` and `event_id`).
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// What the snapshot is to be called; without it, it has its hash alone.
    pub name: Option<String>,
    /// What the file is, where its ending and its first bytes do not tell.
    pub format: Option<Format>,
    pub time_column: Option<String>,
    pub close_column: Option<String>,
    /// All events are of this instrument.
    pub instrument: Option<String>,
    pub instrument_column: Option<String>,
    pub event_id_column: Option<String>,
    /// `rfc3339` (and that if left out), `epoch-s|ms|us|ns`, or a strftime layout.
    pub time_format: Option<String>,
    /// The zone of times that do not say their own: a name or an offset.
    pub tz: Option<String>,
    /// Columns are numbers from 1.
    pub no_header: bool,
    /// Take times in any order.
    pub sort: bool,
    /// Further columns to keep.
    pub fields: Vec<String>,
    /// Let the name stand for this snapshot even if it stands for another.
    pub replace: bool,
}

/// An imported snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Imported {
    pub snapshot: Hash,
    pub name: Option<String>,
    pub events: u64,
    pub instruments: u64,
    /// The same content was in the store before.
    pub already_present: bool,
}
