//! A segment: one line of header, then rows of one kind.

use super::fields::{Fields, count, object, text};
use super::head::SegmentRef;
use super::{Error, VERSION, damaged, rows};
use crate::canonical::Value;
use crate::ids::Hashed;

/// What the rows of a segment are.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    Accepted,
    Applied,
    Fates,
    Identities,
    Quarantined,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Accepted, Self::Applied, Self::Fates, Self::Identities, Self::Quarantined];

    pub(super) fn index(self) -> usize {
        match self {
            Self::Accepted => 0,
            Self::Applied => 1,
            Self::Fates => 2,
            Self::Identities => 3,
            Self::Quarantined => 4,
        }
    }

    /// Its list in a head.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Applied => "applied",
            Self::Fates => "fates",
            Self::Identities => "identities",
            Self::Quarantined => "quarantined",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Accepted => "StreamAccepted",
            Self::Applied => "StreamApplied",
            Self::Fates => "StreamFates",
            Self::Identities => "StreamIdentities",
            Self::Quarantined => "StreamQuarantined",
        }
    }
}

/// The first line of a segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// The commits whose rows it holds.
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) rows: u64,
    /// Floats in a row.
    pub(super) width: usize,
    /// The names that rows refer to by number.
    pub(super) instruments: Vec<String>,
    /// How many rows, one after the other, were committed when, in microseconds since 1970.
    pub(super) at: Vec<(u64, i64)>,
    /// The highest event time of accepted events.
    pub(super) until: Option<i64>,
}

impl Header {
    /// Of a segment without rows, as one commit begins it.
    pub(super) fn new(kind: Kind, seq: i64) -> Self {
        Self {
            kind,
            first: seq,
            last: seq,
            rows: 0,
            width: 0,
            instruments: Vec::new(),
            at: Vec::new(),
            until: None,
        }
    }

    pub(super) fn value(&self) -> Value {
        let at = self.at.iter().map(|(rows, at)| Value::List(vec![count(*rows), Value::Int(*at)]));
        let width = u64::try_from(self.width).expect("a row has few floats");
        object([
            ("at", Value::List(at.collect())),
            ("first", Value::Int(self.first)),
            ("instruments", Value::List(self.instruments.iter().map(text).collect())),
            ("kind", text(self.kind.word())),
            ("last", Value::Int(self.last)),
            ("rows", count(self.rows)),
            ("until", self.until.map_or(Value::Null, Value::Int)),
            ("version", Value::Int(VERSION)),
            ("width", count(width)),
        ])
    }

    fn line(&self) -> Vec<u8> {
        let mut line = self.value().to_bytes().expect("a header is flat and has no float");
        line.push(b'\n');
        line
    }

    pub(super) fn read(line: &[u8], kind: Kind, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::read(line, kind.word(), place)?;
        let run = |value: Value| {
            let Value::List(pair) = value else { return None };
            let [Value::Int(rows), Value::Int(at)] = pair[..] else { return None };
            Some((u64::try_from(rows).ok()?, at))
        };
        let name = |value: Value| if let Value::Text(name) = value { Some(name) } else { None };
        let wrong = || damaged(place, "has a header that cannot be");
        let header = Self {
            kind,
            first: fields.int("first")?,
            last: fields.int("last")?,
            rows: fields.count("rows")?,
            width: usize::try_from(fields.count("width")?).map_err(|_wide| wrong())?,
            instruments: fields
                .list("instruments")?
                .into_iter()
                .map(name)
                .collect::<Option<_>>()
                .ok_or_else(wrong)?,
            at: fields.list("at")?.into_iter().map(run).collect::<Option<_>>().ok_or_else(wrong)?,
            until: fields.optional("until", Fields::int)?,
        };
        fields.end()?;
        header.holds_together().then_some(header).ok_or_else(wrong)
    }

    /// Whether only that is there which belongs to the kind.
    fn holds_together(&self) -> bool {
        let timed = matches!(self.kind, Kind::Fates | Kind::Quarantined);
        let named = matches!(self.kind, Kind::Accepted | Kind::Applied);
        let rows = self.at.iter().try_fold(0_u64, |sum, (rows, _)| sum.checked_add(*rows));
        let at_fits = if timed {
            rows == Some(self.rows) && self.at.iter().all(|run| run.0 > 0)
        } else {
            self.at.is_empty()
        };
        at_fits
            && self.rows > 0
            && self.first <= self.last
            && self.until.is_some() == (self.kind == Kind::Accepted)
            && (named || (self.instruments.is_empty() && self.width == 0))
    }

    /// Header and rows in one blob; `None` when there are no rows.
    pub(super) fn written(&self, mut body: Vec<u8>) -> Option<NewSegment> {
        if self.rows == 0 {
            return None;
        }
        // Within the room that `body_of` left: large memory that is touched for the first time costs more than a move.
        body.splice(..0, self.line());
        let blob = Hashed::of(body);
        let named = SegmentRef {
            hash: blob.hash(),
            rows: self.rows,
            bytes: u64::try_from(blob.bytes().len()).expect("a blob in memory"),
            level: 0,
            first: self.first,
            last: self.last,
            until: self.until,
        };
        Some(NewSegment { kind: self.kind, blob, named })
    }
}

/// A segment that is to be kept, and how a head names it.
#[derive(Clone, Debug)]
pub struct NewSegment {
    pub kind: Kind,
    pub blob: Hashed,
    pub named: SegmentRef,
}

impl NewSegment {
    pub(super) fn at_level(mut self, level: u8) -> Self {
        self.named.level = level;
        self
    }
}

/// A segment that was read, and found to be one.
#[derive(Clone, Debug)]
pub struct Segment<'a> {
    pub(super) header: Header,
    pub(super) body: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads a blob that a head names as `named`; `place` is the blob's name for people.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything that no commit and no merge would have written, [`Error::Version`].
    pub fn parse(bytes: &'a [u8], kind: Kind, place: &str) -> Result<Self, Error> {
        let end =
            memchr::memchr(b'\n', bytes).ok_or_else(|| damaged(place, "has no line of header"))?;
        let header = Header::read(&bytes[..end], kind, place)?;
        if header.line() != bytes[..=end] {
            return Err(damaged(place, "has a header that is not in canonical form"));
        }
        let segment = Self { header, body: &bytes[end + 1..] };
        rows::check(&segment, place)?;
        Ok(segment)
    }

    /// Whether it is what a head says of it, which its hash has shown already unless the head lies.
    #[must_use]
    pub fn is(&self, named: &SegmentRef) -> bool {
        let Header { rows, first, last, until, .. } = self.header;
        (rows, first, last, until) == (named.rows, named.first, named.last, named.until)
    }
}
