//! What is kept of a batch run, to go on from it over a longer snapshot: the state of each node behind its last event, and
//! the manifest that names it.
//!
//! A run has one commit, its publication. The events that it has read are its snapshot, whose name is the hash of their
//! bytes: it stands for the identities that were seen, and another snapshot can be held against it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::checkpoint::{Made, sealed, unsealed};
use super::fields::{Fields, count, object, text};
use super::{BlobRef, Error, VERSION, damaged};
use crate::canonical::Value;
use crate::ids::Hash;
use crate::stream::Ledger;

const KIND: &str = "BatchCheckpoint";
const STATE_KIND: &str = "BatchState";
/// Of the only commit that a run has.
const SEQ: i64 = 1;
/// A snapshot is one log: what it has of partitions.
const PARTITION: &str = "0";

/// A published run, and every blob that it takes to go on from it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BatchCheckpoint {
    pub run_id: String,
    pub flow_name: String,
    /// The flow.
    pub plan: Hash,
    /// The events that were read, all of it.
    pub snapshot: Hash,
    /// Of the publication.
    pub epoch: i64,
    pub fence: i64,
    pub seq: i64,
    pub made: Made,
    /// The blob that holds the state of each node: two checkpoints with one are the same to the bit.
    pub state: Hash,
    /// The number of the event that comes next.
    pub next_offsets: BTreeMap<String, i64>,
    /// Of the last event, nanoseconds since 1970 UTC.
    pub watermark: Option<i64>,
    pub ledger: Ledger,
    /// The identities that were seen, by what holds them: the snapshot.
    pub dedupe: Vec<Hash>,
    pub sink: BatchSink,
    pub side_inputs: Vec<Hash>,
    /// No node draws anything.
    pub rng: Option<u64>,
    /// All that is needed, in order of hash.
    pub blobs: Vec<BlobRef>,
}

/// Where the values went.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BatchSink {
    pub dataset: String,
    /// The FeatureBatch that was published.
    pub result: Hash,
    pub values_hash: Hash,
    pub rows: u64,
}

/// A publication, as a checkpoint of it is made from it.
#[derive(Clone, Debug)]
pub struct PublishedRun {
    pub run_id: String,
    pub flow_name: String,
    pub epoch: i64,
    pub fence: i64,
    pub ledger: Ledger,
    pub flow: BlobRef,
    pub snapshot: BlobRef,
    pub result: BlobRef,
    pub sink: BatchSink,
}

/// The nodes behind the last event that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchState {
    /// By id, in the order of the flow.
    pub nodes: Vec<String>,
    /// Events that were read, those of other instruments included.
    pub events: u64,
    /// The last of them.
    pub last: LastEvent,
    /// In the order of the result.
    pub instruments: Vec<InstrumentKept>,
}

/// What orders an event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LastEvent {
    /// Nanoseconds since 1970 UTC.
    pub event_time: i64,
    pub instrument: String,
    pub seq: u64,
}

/// One instrument of a state.
#[derive(Clone, Debug, PartialEq)]
pub struct InstrumentKept {
    pub name: String,
    pub events: u64,
    pub last_event_time: i64,
    /// The states of its nodes, in the order of the flow.
    pub nodes: Value,
}

impl BatchCheckpoint {
    /// Of a publication and the state behind its last event, which is a blob of `state` bytes.
    #[must_use]
    pub fn of(run: PublishedRun, state: &BatchState, blob: BlobRef) -> Self {
        let mut blobs = vec![run.flow, run.snapshot, run.result, blob];
        blobs.sort_unstable();
        blobs.dedup();
        let next = i64::try_from(state.events).expect("no snapshot is that long");
        Self {
            run_id: run.run_id,
            flow_name: run.flow_name,
            plan: run.flow.hash,
            snapshot: run.snapshot.hash,
            epoch: run.epoch,
            fence: run.fence,
            seq: SEQ,
            made: Made::here(),
            state: blob.hash,
            next_offsets: BTreeMap::from([(PARTITION.to_owned(), next)]),
            watermark: Some(state.last.event_time),
            ledger: run.ledger,
            dedupe: vec![run.snapshot.hash],
            sink: run.sink,
            side_inputs: Vec::new(),
            rng: None,
            blobs,
        }
    }

    /// What people call it: the run and its commit.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}@{}", self.run_id, self.seq)
    }

    /// The name of its row.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}{}", Self::NAMES, self.run_id)
    }

    /// How the names of such rows begin.
    pub const NAMES: &str = "batch/";

    /// The number of the event that comes next.
    #[must_use]
    pub fn next(&self) -> i64 {
        self.next_offsets.get(PARTITION).copied().unwrap_or_default()
    }

    /// The blob, FINAZ_JSON_V1, and its `manifest_hash`.
    #[must_use]
    pub fn to_bytes(&self) -> (Vec<u8>, Hash) {
        sealed(KIND, self)
    }

    /// Reads a blob; `place` is its name. Gives its `manifest_hash` too, which was checked.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything that [`BatchCheckpoint::to_bytes`] would not have written, [`Error::Version`].
    pub fn parse(bytes: &[u8], place: &str) -> Result<(Self, Hash), Error> {
        unsealed(KIND, bytes, place)
    }

    /// Whether this is the state that it was made of, and nothing in it says otherwise.
    #[must_use]
    pub fn is_of(&self, state: &BatchState) -> bool {
        let consumed: u64 = state.instruments.iter().map(|instrument| instrument.events).sum();
        let next = BTreeMap::from([(PARTITION.to_owned(), self.next())]);
        let named = [self.plan, self.snapshot, self.state, self.sink.result];
        let held = |hash: &Hash| self.blobs.iter().any(|blob| blob.hash == *hash);
        u64::try_from(self.next()).ok() == Some(state.events)
            && self.next_offsets == next
            && self.seq == SEQ
            && self.watermark == Some(state.last.event_time)
            && self.ledger.holds()
            && (self.ledger.read, self.ledger.consumed) == (state.events, consumed)
            && self.dedupe == [self.snapshot]
            && named.iter().all(held)
    }
}

impl BatchState {
    /// The blob, FINAZ_JSON_V1.
    ///
    /// # Panics
    /// Never: the state of a node is finite and flat.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let instruments = self.instruments.iter().map(|instrument| {
            object([
                ("events", count(instrument.events)),
                ("last_event_time", Value::Int(instrument.last_event_time)),
                ("name", text(&instrument.name)),
                ("nodes", instrument.nodes.clone()),
            ])
        });
        let last = object([
            ("event_time", Value::Int(self.last.event_time)),
            ("instrument", text(&self.last.instrument)),
            ("seq", count(self.last.seq)),
        ]);
        let state = object([
            ("events", count(self.events)),
            ("instruments", Value::List(instruments.collect())),
            ("kind", text(STATE_KIND)),
            ("last", last),
            ("nodes", Value::List(self.nodes.iter().map(text).collect())),
            ("version", Value::Int(VERSION)),
        ]);
        state.to_bytes().expect("the state of a node is finite and flat")
    }

    /// Reads a blob; `place` is its name. The states of the nodes are not looked into.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything that [`BatchState::to_bytes`] would not have written, [`Error::Version`].
    pub fn parse(bytes: &[u8], place: &str) -> Result<Self, Error> {
        let mut fields = Fields::read(bytes, STATE_KIND, place)?;
        let instrument = |value: Value| -> Result<InstrumentKept, Error> {
            let mut fields = Fields::of(value, place)?;
            let instrument = InstrumentKept {
                name: fields.text("name")?,
                events: fields.count("events")?,
                last_event_time: fields.int("last_event_time")?,
                nodes: fields.take("nodes")?,
            };
            fields.end()?;
            Ok(instrument)
        };
        let node = |value: Value| {
            let wrong = damaged(place, format!("has {} for the id of a node", value.kind()));
            if let Value::Text(id) = value { Ok(id) } else { Err(wrong) }
        };
        let mut last = Fields::of(fields.take("last")?, place)?;
        let state = Self {
            nodes: fields.list("nodes")?.into_iter().map(node).collect::<Result<_, _>>()?,
            events: fields.count("events")?,
            last: LastEvent {
                event_time: last.int("event_time")?,
                instrument: last.text("instrument")?,
                seq: last.count("seq")?,
            },
            instruments: fields
                .list("instruments")?
                .into_iter()
                .map(instrument)
                .collect::<Result<_, _>>()?,
        };
        last.end()?;
        fields.end()?;
        if state.to_bytes() == bytes {
            return Ok(state);
        }
        Err(damaged(place, "is not in canonical form"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "sha256:here";

    fn state() -> BatchState {
        let nodes = object([("level", Value::Float(1.5)), ("seen", Value::Int(2))]);
        let kept = |name: &str, events: u64| InstrumentKept {
            name: name.to_owned(),
            events,
            last_event_time: 7,
            nodes: Value::List(vec![nodes.clone()]),
        };
        BatchState {
            nodes: vec!["e".to_owned()],
            events: 5,
            last: LastEvent { event_time: 9, instrument: "c".to_owned(), seq: 4 },
            instruments: vec![kept("b", 3), kept("a", 1)],
        }
    }

    fn checkpoint() -> BatchCheckpoint {
        let blob = |text: &str| BlobRef { hash: Hash::of(text.as_bytes()), bytes: 3 };
        let bytes = state().to_bytes();
        let run = PublishedRun {
            run_id: "run_1".to_owned(),
            flow_name: "f".to_owned(),
            epoch: 1,
            fence: 2,
            ledger: Ledger { read: 5, consumed: 4, filtered: 1, ..Ledger::default() },
            flow: blob("flow"),
            snapshot: blob("snapshot"),
            result: blob("result"),
            sink: BatchSink {
                dataset: "d".to_owned(),
                result: blob("result").hash,
                values_hash: Hash::of(b"values"),
                rows: 4,
            },
        };
        let own = BlobRef { hash: Hash::of(&bytes), bytes: bytes.len() as u64 };
        BatchCheckpoint::of(run, &state(), own)
    }

    #[test]
    fn what_is_written_reads_back_and_is_of_its_state() {
        let (made, kept) = (checkpoint(), state());
        assert_eq!(BatchState::parse(&kept.to_bytes(), PLACE).unwrap(), kept);
        let (bytes, hash) = made.to_bytes();
        assert_eq!(BatchCheckpoint::parse(&bytes, PLACE).unwrap(), (made.clone(), hash));
        assert_eq!((made.id().as_str(), made.name().as_str()), ("run_1@1", "batch/run_1"));
        assert!(made.is_of(&kept) && made.made.foreign().is_none());
        let mut further = kept.clone();
        further.events += 1;
        let mut other = kept.clone();
        other.last.event_time += 1;
        let mut fewer = kept;
        fewer.instruments.pop();
        for state in [further, other, fewer] {
            assert!(!made.is_of(&state), "{state:?}");
        }
    }

    #[test]
    fn no_bit_of_a_manifest_or_a_state_can_be_changed_unseen_and_none_cut_off() {
        let (whole, hash) = checkpoint().to_bytes();
        for at in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            if let Ok((_, other)) = BatchCheckpoint::parse(&bytes, PLACE) {
                panic!("bit {at} reads as {other}, was {hash}");
            }
        }
        let kept = state().to_bytes();
        for at in 0..kept.len() * 8 {
            let mut bytes = kept.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            if let Ok(state) = BatchState::parse(&bytes, PLACE) {
                assert_eq!(state.to_bytes(), bytes, "bit {at} reads as something else");
            }
        }
        for len in 0..whole.len() {
            assert!(BatchCheckpoint::parse(&whole[..len], PLACE).is_err(), "cut at {len}");
        }
        for len in 0..kept.len() {
            assert!(BatchState::parse(&kept[..len], PLACE).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn a_manifest_that_is_not_canonical_or_of_another_kind_is_refused_by_name() {
        let text = String::from_utf8(checkpoint().to_bytes().0).unwrap();
        let with = |from: &str, to: &str| {
            assert!(text.contains(from), "{text}");
            BatchCheckpoint::parse(text.replacen(from, to, 1).as_bytes(), PLACE).unwrap_err()
        };
        let spaced = with(r#"{"blobs""#, r#"{ "blobs""#);
        assert!(spaced.to_string().contains("canonical"), "{spaced}");
        let kind = with(KIND, "Checkpoint");
        assert!(kind.to_string().contains(r#"is a "Checkpoint""#), "{kind}");
        let version = with(r#""version":2"#, r#""version":3"#);
        assert!(matches!(version, Error::Version { found: 3, .. }), "{version}");
        let more = with(r#""version":2"#, r#""version":2,"wit":0"#);
        assert!(matches!(more, Error::Damaged { .. }), "{more}");
        let fence = with(r#""fence":2"#, r#""fence":3"#);
        assert!(fence.to_string().contains("manifest_hash"), "{fence}");
    }

    #[test]
    fn another_engine_is_named() {
        let mut made = checkpoint().made;
        made.finaz = "0.0.1".to_owned();
        assert!(made.foreign().is_none(), "the version alone is no reason");
        made.engine += 1;
        assert_eq!(made.foreign().map(|other| other.field), Some("engine"));
    }
}
