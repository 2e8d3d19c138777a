//! The head: what a stream is, how far it has come, and the segments that hold the rest.

use super::compact::level_of;
use super::fields::{Fields, count, object, text};
use super::segment::Kind;
use super::{Error, VERSION, damaged};
use crate::canonical::Value;
use crate::ids::{Hash, StreamIdentity};

const KIND: &str = "StreamHead";

/// One state of a stream, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    pub identity: StreamIdentity,
    pub epoch: i64,
    pub fence: i64,
    /// Commits so far, this one included.
    pub seq: i64,
    /// The head before it.
    pub previous: Option<Hash>,
    /// Accepted events before this event time are applied.
    pub drained_before: i64,
    /// The engine's own: next offsets, nodes, watermarks, counters.
    pub state: Value,
    pub segments: Segments,
}

/// A segment, as a head names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentRef {
    pub hash: Hash,
    pub rows: u64,
    pub bytes: u64,
    /// 0: as a commit wrote it. See [`Segments::plan`].
    pub level: u8,
    /// The commits whose rows it holds: from and to, both included.
    pub first: i64,
    pub last: i64,
    /// Of accepted events: the highest event time, so that it can be dropped unread.
    pub until: Option<i64>,
}

/// The segments of a head, by kind, in the order of their commits.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Segments([Vec<SegmentRef>; 5]);

impl Segments {
    #[must_use]
    pub fn of(&self, kind: Kind) -> &[SegmentRef] {
        &self.0[kind.index()]
    }

    pub(super) fn of_mut(&mut self, kind: Kind) -> &mut Vec<SegmentRef> {
        &mut self.0[kind.index()]
    }

    /// Adds what a commit wrote.
    pub fn append(&mut self, kind: Kind, segment: SegmentRef) {
        self.of_mut(kind).push(segment);
    }

    /// All of them.
    pub fn hashes(&self) -> impl Iterator<Item = Hash> {
        self.0.iter().flatten().map(|segment| segment.hash)
    }

    fn value(&self) -> Value {
        let list = |kind: Kind| {
            let list = self.of(kind).iter().map(SegmentRef::value).collect();
            (kind.field().to_owned(), Value::List(list))
        };
        Value::Map(Kind::ALL.into_iter().map(list).collect())
    }

    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let mut segments = Self::default();
        for kind in Kind::ALL {
            for value in fields.list(kind.field())? {
                let segment = SegmentRef::read(value, kind, place)?;
                let before = segments.of(kind).last();
                if before.is_some_and(|b| b.level < segment.level || b.last >= segment.first) {
                    return Err(damaged(place, format!("has {} out of order", kind.field())));
                }
                segments.append(kind, segment);
            }
        }
        fields.end()?;
        Ok(segments)
    }
}

impl SegmentRef {
    fn value(&self) -> Value {
        object([
            ("bytes", count(self.bytes)),
            ("first", Value::Int(self.first)),
            ("hash", text(&self.hash)),
            ("last", Value::Int(self.last)),
            ("level", Value::Int(self.level.into())),
            ("rows", count(self.rows)),
            ("until", self.until.map_or(Value::Null, Value::Int)),
        ])
    }

    fn read(value: Value, kind: Kind, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let segment = Self {
            bytes: fields.count("bytes")?,
            first: fields.int("first")?,
            hash: fields.hash("hash")?,
            last: fields.int("last")?,
            level: level_of(fields.int("level")?)
                .ok_or_else(|| damaged(place, "has an unknown level"))?,
            rows: fields.count("rows")?,
            until: fields.optional("until", Fields::int)?,
        };
        fields.end()?;
        if segment.first > segment.last
            || segment.rows == 0
            || segment.until.is_some() != (kind == Kind::Accepted)
        {
            return Err(damaged(
                place,
                format!("has a segment of {} that cannot be", kind.field()),
            ));
        }
        Ok(segment)
    }
}

impl Head {
    /// The blob.
    ///
    /// # Panics
    /// When the engine's state has no canonical form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.value().to_bytes().expect("the state of a stream is finite and flat")
    }

    fn value(&self) -> Value {
        object([
            ("drained_before", Value::Int(self.drained_before)),
            ("epoch", Value::Int(self.epoch)),
            ("fence", Value::Int(self.fence)),
            ("identity", identity_value(&self.identity)),
            ("kind", text(KIND)),
            ("previous", self.previous.as_ref().map_or(Value::Null, text)),
            ("segments", self.segments.value()),
            ("seq", Value::Int(self.seq)),
            ("state", self.state.clone()),
            ("version", Value::Int(VERSION)),
        ])
    }

    /// Reads a blob; `place` is its name.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything that [`Head::to_bytes`] would not have written, [`Error::Version`].
    pub fn parse(bytes: &[u8], place: &str) -> Result<Self, Error> {
        let mut fields = Fields::read(bytes, KIND, place)?;
        let head = Self {
            drained_before: fields.int("drained_before")?,
            epoch: fields.int("epoch")?,
            fence: fields.int("fence")?,
            identity: read_identity(fields.take("identity")?, place)?,
            previous: fields.optional("previous", Fields::hash)?,
            segments: Segments::read(fields.take("segments")?, place)?,
            seq: fields.int("seq")?,
            state: fields.take("state")?,
        };
        fields.end()?;
        let last = Kind::ALL.into_iter().filter_map(|kind| head.segments.of(kind).last());
        if head.seq < 1 || head.fence < 1 || last.map(|s| s.last).max() > Some(head.seq) {
            return Err(damaged(place, "has commits that were not made yet"));
        }
        if head.to_bytes() != bytes {
            return Err(damaged(place, "is not in canonical form"));
        }
        Ok(head)
    }

    /// Every blob that this head needs, itself left out.
    #[must_use]
    pub fn needs(&self) -> Vec<Hash> {
        self.segments.hashes().collect()
    }
}

fn identity_value(identity: &StreamIdentity) -> Value {
    let partitions = identity.partitions.as_ref().map_or(Value::Null, |some| {
        Value::List(some.iter().map(|partition| Value::Int((*partition).into())).collect())
    });
    object([
        ("cluster", text(&identity.cluster)),
        ("flow", text(&identity.flow)),
        ("flow_name", text(&identity.flow_name)),
        ("group", text(&identity.group)),
        ("partitions", partitions),
        ("run_id", text(&identity.run_id)),
        ("topic", text(&identity.topic)),
        ("topic_id", text(&identity.topic_id)),
    ])
}

fn read_identity(value: Value, place: &str) -> Result<StreamIdentity, Error> {
    let mut fields = Fields::of(value, place)?;
    let partitions = |fields: &mut Fields<'_>, name: &str| {
        let list = fields.list(name)?;
        let number = |value: &Value| {
            let Value::Int(int) = value else { return None };
            i32::try_from(*int).ok()
        };
        let numbers: Option<Vec<i32>> = list.iter().map(number).collect();
        numbers.ok_or_else(|| damaged(place, "has partitions that are no numbers"))
    };
    let identity = StreamIdentity {
        cluster: fields.text("cluster")?,
        flow: fields.hash("flow")?,
        flow_name: fields.text("flow_name")?,
        group: fields.text("group")?,
        partitions: fields.optional("partitions", partitions)?,
        run_id: fields.text("run_id")?,
        topic: fields.text("topic")?,
        topic_id: fields.text("topic_id")?,
    };
    fields.end()?;
    Ok(identity)
}
