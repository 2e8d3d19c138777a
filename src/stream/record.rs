//! The words of the ledger: what became of each record, and what a commit has to keep of it.

use std::sync::Arc;

use crate::flow::Numbers;
use crate::ids::Hash;

/// What became of a record. Every record has exactly one; `read` is their sum.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Treatment {
    /// Accepted, a GAP included: it is or will be applied, in event-time order.
    Consumed,
    /// Of an instrument that the flow does not read.
    Filtered,
    /// Its event id was seen before.
    Duplicate,
    /// Before the watermark of its own partition.
    Late,
    /// Unreadable, a tombstone, or not to be believed.
    Omitted,
}

/// Why, where the treatment alone does not say it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    None,
    /// No value.
    Tombstone,
    /// Not an event in JSON: cut off, no UTF-8, NaN, a field missing or of another kind.
    Unreadable,
    /// The client library could not decode it.
    Undecodable,
    /// Further ahead in event time than `max_jump`.
    TimeJump,
    /// In a split run: its key is not its instrument, or lies where the partitioner does not put it.
    Misplaced,
    /// A duplicate by id whose payload is another.
    PayloadDiffers,
    /// A null close.
    Gap,
    /// The broker gives nothing where it says that there is something.
    Mute,
    /// Omitted when it was read, and consumed later on, by somebody's order.
    Retried,
}

macro_rules! codes {
    ($of:ident { $($name:ident = $code:literal $word:literal,)* }) => {
        impl $of {
            /// As a journal writes it; never given another meaning.
            #[must_use]
            pub fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* }
            }

            /// What a journal wrote.
            #[must_use]
            pub fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// As documents and tables say it.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

codes!(Treatment {
    Consumed = 1 "consumed",
    Filtered = 2 "filtered",
    Duplicate = 3 "duplicates_skipped",
    Late = 4 "late",
    Omitted = 5 "omitted",
});

codes!(Reason {
    None = 0 "",
    Tombstone = 1 "tombstone",
    Unreadable = 2 "unreadable",
    Undecodable = 3 "undecodable",
    TimeJump = 4 "time_jump",
    Misplaced = 5 "misplaced",
    PayloadDiffers = 6 "payload_differs",
    Gap = 7 "gap",
    Mute = 8 "mute",
    Retried = 9 "retried",
});

/// The identity of an event: the first 128 bits of the SHA-256 of its id.
#[must_use]
pub fn identity_of(event_id: &str) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&Hash::of(event_id.as_bytes()).as_bytes()[..16]);
    id
}

/// An event that was seen.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Identity {
    pub id: [u8; 16],
    /// The XXH3-64 of its payload.
    pub payload: u64,
}

/// What became of one record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fate {
    /// [`identity_of`] its event id; zeros when it has none that could be read.
    pub id: [u8; 16],
    pub partition: i32,
    pub offset: i64,
    pub treatment: Treatment,
    pub reason: Reason,
}

/// An accepted event.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// Nanoseconds since 1970 UTC.
    pub event_time: i64,
    pub instrument: Arc<str>,
    pub seq: u64,
    pub id: [u8; 16],
    pub partition: i32,
    /// One for each field that the flow reads, in its plan's order; NaN for null.
    pub fields: Numbers,
}

/// An event that was sent through the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub event_time: i64,
    pub instrument: Arc<str>,
    /// One a node, in the flow's order; NaN for null.
    pub values: Numbers,
}

/// A record that was not taken, whole; or the note, without its bytes, that it was taken later on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Quarantined {
    pub partition: i32,
    pub offset: i64,
    pub treatment: Treatment,
    pub reason: Reason,
    /// In words: what was wrong where.
    pub detail: String,
    pub event_id: Option<String>,
    pub key: Option<Vec<u8>>,
    /// The record's own bytes; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Of the value; of nothing for a tombstone.
    pub hash: Hash,
}

/// What is new since the last commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// In the order read.
    pub fates: Vec<Fate>,
    pub identities: Vec<Identity>,
    /// Those that were not applied meanwhile, in any order.
    pub accepted: Vec<Accepted>,
    /// In the order applied: by event time, instrument, seq, identity.
    pub applied: Vec<Applied>,
    pub quarantined: Vec<Quarantined>,
}

impl Delta {
    /// Nothing is new any more; the memory stays.
    pub fn clear(&mut self) {
        let Self { fates, identities, accepted, applied, quarantined } = self;
        fates.clear();
        identities.clear();
        accepted.clear();
        applied.clear();
        quarantined.clear();
    }
}
