//! The manifest of a checkpoint: one commit of a stream, and every blob that it takes to be that again.
//!
//! It names the head and the segments as they lie in the artifact store, and copies none of them: a checkpoint costs its
//! manifest. `manifest_hash` is the SHA-256 of the FINAZ_JSON_V1 of everything else; the manifest is a blob itself.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Error, Head, Kind, VERSION, damaged};
use crate::canonical::{self, Value};
use crate::ids::{Hash, StreamIdentity};
use crate::stream::{ENGINE, Ledger, Position, STATE};

const KIND: &str = "Checkpoint";
/// The one field of a manifest that its hash does not cover.
const FIELD: &str = "manifest_hash";
/// The one field of a manifest that its hash does not cover.
/// The consistent cut of a stream at one commit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    pub identity: StreamIdentity,
    pub epoch: i64,
    pub fence: i64,
    /// The commit.
    pub seq: i64,
    /// The flow.
    pub plan: Hash,
    pub made: Made,
    /// The blob that holds the state of each node, of each partition, and the segments by name.
    pub head: Hash,
    /// SHA-256 of the FINAZ_JSON_V1 of that state: two checkpoints with one are the same to the bit.
    pub state: Hash,
    /// By partition.
    pub next_offsets: BTreeMap<String, i64>,
    /// Nanoseconds since 1970 UTC.
    pub watermark: Option<i64>,
    pub ledger: Ledger,
    /// The identities that were seen, by the segments that hold them.
    pub dedupe: Vec<Hash>,
    pub sink: Sink,
    /// What it goes on from besides its log: the snapshot of a handoff.
    pub side_inputs: Vec<Hash>,
    /// No node draws anything.
    pub rng: Option<u64>,
    /// All that is needed, in order of hash.
    pub blobs: Vec<BlobRef>,
}

/// By which layouts and rules it was made: all must be this program's, its own version excepted.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    pub finaz: String,
    pub engine: i64,
    pub state_schema: i64,
    pub journal_schema: i64,
}

impl Made {
    pub(super) fn here() -> Self {
        Self {
            finaz: env!("CARGO_PKG_VERSION").to_owned(),
            engine: ENGINE,
            state_schema: STATE,
            journal_schema: VERSION,
        }
    }

    /// Where it is not as this program would make it; the version of the program itself may be another.
    #[must_use]
    pub fn foreign(&self) -> Option<Difference> {
        let here = Self::here();
        let numbers = [
            ("engine", self.engine, here.engine),
            ("state_schema", self.state_schema, here.state_schema),
            ("journal_schema", self.journal_schema, here.journal_schema),
        ];
        let number = numbers.into_iter().find(|(_, held, offered)| held != offered);
        number.map(|(field, held, offered)| Difference {
            field,
            held: held.to_string(),
            offered: offered.to_string(),
        })
    }
}

/// Where the values go, and which were final.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    pub dataset: String,
    /// The segments that hold the values that were final.
    pub values: Vec<Hash>,
}

/// A blob of the artifact store.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    pub hash: Hash,
    pub bytes: u64,
}

/// A manifest as it is written.
#[derive(Deserialize, Serialize)]
struct Document<T> {
    kind: String,
    version: i64,
    manifest_hash: Option<Hash>,
    #[serde(flatten)]
    manifest: T,
}

/// The blob of a manifest of this kind, FINAZ_JSON_V1, and its `manifest_hash`.
pub(super) fn sealed<T: Serialize>(kind: &str, manifest: &T) -> (Vec<u8>, Hash) {
    let document =
        Document { kind: kind.to_owned(), version: VERSION, manifest_hash: None, manifest };
    let json = serde_json::to_vec(&document).expect("texts and whole numbers");
    let value = canonical::parse(&json, kind).expect("what was just written");
    let Value::Map(mut map) = value else { unreachable!("a struct is an object") };
    map.remove(FIELD);
    let bytes = |map: &BTreeMap<String, Value>| {
        Value::Map(map.clone()).to_bytes().expect("texts and whole numbers")
    };
    let hash = Hash::of(&bytes(&map));
    map.insert(FIELD.to_owned(), Value::Text(hash.to_string()));
    (bytes(&map), hash)
}

/// Reads what [`sealed`] gave, and nothing else.
pub(super) fn unsealed<T: Serialize + DeserializeOwned>(
    kind: &str,
    bytes: &[u8],
    place: &str,
) -> Result<(T, Hash), Error> {
    let read: Result<Document<T>, _> = serde_json::from_slice(bytes);
    let document = read.map_err(|error| damaged(place, error.to_string()))?;
    if document.kind != kind {
        return Err(damaged(place, format!("is a {:?}, not a {kind:?}", document.kind)));
    }
    if document.version != VERSION {
        let found = document.version;
        return Err(Error::Version { place: place.to_owned(), found, known: VERSION });
    }
    let (written, hash) = sealed(kind, &document.manifest);
    if document.manifest_hash != Some(hash) {
        return Err(damaged(place, format!("is not what its manifest_hash says, {hash}")));
    }
    if written != bytes {
        return Err(damaged(place, "is not in canonical form"));
    }
    Ok((document.manifest, hash))
}

/// Where a checkpoint is not this program's or this stream's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    pub field: &'static str,
    pub held: String,
    pub offered: String,
}

impl Checkpoint {
    /// Of the commit that this head is; `flow` is the blob of its flow and the dataset that this names.
    ///
    /// # Errors
    /// [`Error::Damaged`] when its state is none.
    pub fn of(head: &Head, flow: (BlobRef, &str), side_inputs: &[BlobRef]) -> Result<Self, Error> {
        let bytes = head.to_bytes();
        let hash = Hash::of(&bytes);
        let place = hash.to_string();
        let at = Position::of(&head.state)
            .ok_or_else(|| damaged(&place, "has a state that cannot be read"))?;
        let own = BlobRef { hash, bytes: bytes.len() as u64 };
        let segments = |kind: Kind| head.segments.of(kind).iter();
        let named = Kind::ALL.into_iter().flat_map(segments);
        let named = named.map(|segment| BlobRef { hash: segment.hash, bytes: segment.bytes });
        let mut blobs: Vec<BlobRef> =
            named.chain([own, flow.0]).chain(side_inputs.iter().copied()).collect();
        blobs.sort_unstable();
        blobs.dedup();
        let hashes = |kind: Kind| segments(kind).map(|segment| segment.hash).collect();
        let state = head.state.to_bytes().expect("the state of a stream is finite and flat");
        Ok(Self {
            identity: head.identity.clone(),
            epoch: head.epoch,
            fence: head.fence,
            seq: head.seq,
            plan: head.identity.flow,
            made: Made::here(),
            head: hash,
            state: Hash::of(&state),
            next_offsets: at.next_offsets.iter().map(|(p, next)| (p.to_string(), *next)).collect(),
            watermark: at.watermark,
            ledger: at.ledger,
            dedupe: hashes(Kind::Identities),
            sink: Sink { dataset: flow.1.to_owned(), values: hashes(Kind::Applied) },
            side_inputs: side_inputs.iter().map(|blob| blob.hash).collect(),
            rng: None,
            blobs,
        })
    }

    /// What people call it: the run, the partition of a split one, and the commit.
    #[must_use]
    pub fn id(&self) -> String {
        let name = self.identity.lease_name();
        let own = name.strip_prefix("stream/").unwrap_or(&name);
        format!("{own}@{}", self.seq)
    }

    /// The blob, FINAZ_JSON_V1, and its `manifest_hash`.
    ///
    /// # Panics
    /// Never: it is made of texts and whole numbers.
    #[must_use]
    pub fn to_bytes(&self) -> (Vec<u8>, Hash) {
        sealed(KIND, self)
    }

    /// Reads a blob; `place` is its name. Gives its `manifest_hash` too, which was checked.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything that [`Checkpoint::to_bytes`] would not have written, [`Error::Version`].
    pub fn parse(bytes: &[u8], place: &str) -> Result<(Self, Hash), Error> {
        unsealed(KIND, bytes, place)
    }

    /// What keeps this program from taking it up; the version of the program itself does not.
    #[must_use]
    pub fn foreign(&self) -> Option<Difference> {
        self.made.foreign().or_else(|| {
            let (held, offered) = (self.plan, self.identity.flow);
            (held != offered).then(|| Difference {
                field: "plan",
                held: held.to_string(),
                offered: offered.to_string(),
            })
        })
    }

    /// Whether a head is the one that this names, state and segments included.
    #[must_use]
    pub fn is_of(&self, head: &Head) -> bool {
        let flow = BlobRef { hash: self.plan, bytes: 0 };
        let Ok(again) = Self::of(head, (flow, &self.sink.dataset), &[]) else {
            return false;
        };
        let (made, side_inputs) = (self.made.clone(), self.side_inputs.clone());
        let held = again.blobs.iter().filter(|blob| blob.hash != self.plan);
        let holds = held.into_iter().all(|blob| self.blobs.contains(blob));
        holds && Self { made, side_inputs, blobs: self.blobs.clone(), ..again } == *self
    }
}
