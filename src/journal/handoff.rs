//! The manifest of a handoff, in parts: what its giver and its taker say, each for itself and each under its own fence.
//!
//! `GIVEN` is the giver's: the commit that it leaves, how far each partition was read, where the log ended. `TAKEN` is
//! the taker's: the commit from which it goes on, the next offsets at which it opens, and the hash of the giver's part;
//! none, where the giver died or was fenced. For a handoff from history `CAPTURED` comes first: where the log ended
//! before anything was read. A part is a blob named by its hash, so a taker that names one vouches for every byte of it.

use serde::{Deserialize, Serialize};

use super::{Error, VERSION, damaged};
use crate::canonical;
use crate::ids::{Hash, StreamIdentity};

const KIND: &str = "StreamHandoff";

/// Who speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HandoffPart {
    /// Where the log ended before a history was read.
    Captured,
    /// The one who gives a stream away.
    Given,
    /// The one who takes it.
    Taken,
}

impl HandoffPart {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Captured => "CAPTURED",
            Self::Given => "GIVEN",
            Self::Taken => "TAKEN",
        }
    }
}

/// One part of a handoff.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Handoff {
    pub part: HandoffPart,
    pub identity: StreamIdentity,
    /// Whose part it is, and the fence under which it was written down.
    pub owner: String,
    pub epoch: i64,
    pub fence: i64,
    /// What is handed over; nothing, where nothing was ever committed.
    pub commit: Option<HandedCommit>,
    /// Of a taker: the giver's part.
    pub given: Option<Hash>,
    /// Of a giver: `DRAINED`, `STOPPED`, `ENDED`, or `HISTORY`.
    pub reason: Option<String>,
    /// Of a handoff from history.
    pub history: Option<History>,
    /// Nanoseconds since 1970 UTC.
    pub watermark: Option<i64>,
    pub partitions: Vec<HandoffPartition>,
}

/// A commit of the journal.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HandedCommit {
    pub epoch: i64,
    pub fence: i64,
    pub seq: i64,
    pub head: Hash,
}

/// Where a stream comes from that did not begin with its log.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    pub snapshot: Hash,
    /// The part that captured the log's ends.
    pub captured: Option<Hash>,
    /// Events of the snapshot that the flow reads.
    pub events: u64,
    /// Somebody asked to go on though the snapshot is no whole history of the log.
    pub accepted_gap: bool,
}

/// One partition at a handoff.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HandoffPartition {
    pub partition: i32,
    /// The log: its first offset, the first that nobody may read yet, and the one behind its last.
    pub earliest: i64,
    pub stable: i64,
    pub high_water: i64,
    /// The first record that is not decided; absent where that is not known yet.
    pub next_offset: Option<i64>,
    pub watermark: Option<i64>,
    pub checked: Option<Checked>,
}

/// What the log below the captured end holds, held against the history.
#[derive(Clone, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// Records whose event the history has.
    pub known: u64,
    /// Of these: with another payload.
    pub differs: u64,
    /// Records whose event it lacks: the stream reads them.
    pub missing: u64,
    /// Of these: before the watermark of the history, so they can only be recorded as late.
    pub late: u64,
    /// Of instruments that the flow does not read.
    pub filtered: u64,
    /// Tombstones, and what is no event.
    pub unreadable: u64,
    /// The first record that is missing.
    pub first_missing: Option<i64>,
    /// The history reaches what the log still has: the log is whole, or the first record of the flow is of the history.
    pub joined: bool,
}

/// A part as it is written.
#[derive(Deserialize, Serialize)]
struct Document {
    kind: String,
    version: i64,
    #[serde(flatten)]
    handoff: Handoff,
}

impl Handoff {
    /// The blob: FINAZ_JSON_V1.
    ///
    /// # Panics
    /// Never: it is made of texts and whole numbers.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let document = Document { kind: KIND.to_owned(), version: VERSION, handoff: self.clone() };
        let json = serde_json::to_vec(&document).expect("texts and whole numbers");
        let value = canonical::parse(&json, KIND).expect("what was just written");
        value.to_bytes().expect("texts and whole numbers")
    }

    /// Reads a blob; `place` is its name.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything that [`Handoff::to_bytes`] would not have written, [`Error::Version`].
    pub fn parse(bytes: &[u8], place: &str) -> Result<Self, Error> {
        let read: Result<Document, _> = serde_json::from_slice(bytes);
        let document = read.map_err(|error| damaged(place, error.to_string()))?;
        if document.kind != KIND {
            return Err(damaged(place, format!("is a {:?}, not a {KIND:?}", document.kind)));
        }
        if document.version != VERSION {
            let found = document.version;
            return Err(Error::Version { place: place.to_owned(), found, known: VERSION });
        }
        if document.handoff.to_bytes() != bytes {
            return Err(damaged(place, "is not in canonical form"));
        }
        Ok(document.handoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given() -> Handoff {
        Handoff {
            part: HandoffPart::Given,
            identity: StreamIdentity {
                run_id: "r".to_owned(),
                cluster: "c".to_owned(),
                topic_id: "0".repeat(32),
                topic: "t".to_owned(),
                group: "g".to_owned(),
                flow: Hash::of(b"flow"),
                flow_name: "f".to_owned(),
                partitions: Some(vec![3]),
            },
            owner: "o/1".to_owned(),
            epoch: 1,
            fence: 2,
            commit: Some(HandedCommit { epoch: 1, fence: 2, seq: 9, head: Hash::of(b"head") }),
            given: None,
            reason: Some("HISTORY".to_owned()),
            history: Some(History {
                snapshot: Hash::of(b"s"),
                captured: Some(Hash::of(b"c")),
                events: 7,
                accepted_gap: false,
            }),
            watermark: Some(-1),
            partitions: vec![HandoffPartition {
                partition: 3,
                earliest: 0,
                stable: 4,
                high_water: 5,
                next_offset: Some(4),
                watermark: None,
                checked: Some(Checked { known: 4, joined: true, ..Checked::default() }),
            }],
        }
    }

    #[test]
    fn a_part_reads_back_and_nothing_that_differs_by_a_byte_does() {
        let part = given();
        let bytes = part.to_bytes();
        assert_eq!(Handoff::parse(&bytes, "p").expect("as written"), part);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            let read = Handoff::parse(&bad, "p");
            assert!(read.as_ref().map_or(true, |read| *read != part), "{at}: {read:?}");
            assert!(Handoff::parse(&bytes[..at], "p").is_err(), "cut at {at}");
        }
    }

    #[test]
    fn another_kind_another_version_and_an_unknown_field_are_refused() {
        let text = String::from_utf8(given().to_bytes()).expect("text");
        for (from, to) in [
            (r#""kind":"StreamHandoff""#, r#""kind":"StreamHead""#),
            (r#""part":"GIVEN""#, r#""part":"LENT""#),
            (r#""owner":"o/1""#, r#""owner":"o/1","p":1"#),
            (r#""epoch":1,"#, r#""epoch": 1,"#),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            assert!(Handoff::parse(text.replace(from, to).as_bytes(), "p").is_err(), "{to}");
        }
        let newer = text.replace(r#""version":2"#, r#""version":3"#);
        let refused = Handoff::parse(newer.as_bytes(), "p");
        assert!(matches!(refused, Err(Error::Version { found: 3, known: 2, .. })), "{refused:?}");
    }
}
