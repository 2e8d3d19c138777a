//! A schedule of faults: what is to go wrong with which event.

use std::collections::HashMap;

use crate::canonical::Value;
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::manifest::{Codes, Dialect, Document, Object, hint, shown};

static FAULTS: Dialect = Dialect {
    kind: "FaultSchedule",
    noun: "fault schedule",
    bytes_max: 16 << 20,
    values_max: 1_000_000,
    too_large_hint: "is this the right file? A snapshot goes to `finaz snapshot import`",
    codes: Codes {
        too_large: "FAULTS_TOO_LARGE",
        too_complex: "FAULTS_TOO_COMPLEX",
        syntax: "FAULTS_SYNTAX",
        bom: "FAULTS_BOM",
        duplicate_key: "FAULTS_DUPLICATE_KEY",
        kind: "FAULTS_KIND",
        unknown_field: "FAULTS_UNKNOWN_FIELD",
        missing_field: "FAULTS_MISSING_FIELD",
        wrong_type: "FAULTS_WRONG_TYPE",
        name: "FAULTS_NAME",
    },
};

/// A schedule is held in memory, a snapshot is not.
pub(super) const FAULTS_MAX: usize = 100_000;
/// 400 days, beyond which a stream takes a time for a mistake.
const DELAY_MS_MAX: u64 = 400 * 86_400_000;
/// A day of the wall clock.
const WALL_MS_MAX: u64 = 86_400_000;
const BURST_MAX: u64 = 10_000;

/// The types, as a schedule names them.
pub(super) const TYPES: [&str; 7] =
    ["DUPLICATE", "DELAY", "GAP", "REVISION", "PAUSE", "BURST", "SOURCE_FAILURE"];

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// The event arrives twice.
    Duplicate,
    /// It arrives later, in domain time.
    Delay { delay_ms: u64 },
    /// It is missing; a tombstone arrives in its place.
    Gap,
    /// After it another version of it arrives, of this close (null: a gap) and with an id of its own.
    Revision { after_ms: u64, close: Option<f64> },
    /// The wall clock stands before it arrives.
    Pause { pause_ms: u64 },
    /// It arrives this many times more.
    Burst { count: u64 },
    /// Its source is down for so long by the wall clock, then delivers it.
    SourceFailure { down_ms: u64 },
}

impl Kind {
    /// As a schedule and a log name it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Duplicate => "DUPLICATE",
            Self::Delay { .. } => "DELAY",
            Self::Gap => "GAP",
            Self::Revision { .. } => "REVISION",
            Self::Pause { .. } => "PAUSE",
            Self::Burst { .. } => "BURST",
            Self::SourceFailure { .. } => "SOURCE_FAILURE",
        }
    }

    /// The fields besides `type` and `event_id`.
    fn parameters(&self) -> Vec<(&'static str, Value)> {
        let count = |x: u64| i64::try_from(x).map_or(Value::Uint(x), Value::Int);
        match self {
            Self::Duplicate | Self::Gap => Vec::new(),
            Self::Delay { delay_ms } => vec![("delay_ms", count(*delay_ms))],
            Self::Revision { after_ms, close } => vec![
                ("after_ms", count(*after_ms)),
                ("close", close.map_or(Value::Null, Value::Float)),
            ],
            Self::Pause { pause_ms } => vec![("pause_ms", count(*pause_ms))],
            Self::Burst { count: more } => vec![("count", count(*more))],
            Self::SourceFailure { down_ms } => vec![("down_ms", count(*down_ms))],
        }
    }
}

/// One fault of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub event_id: String,
    pub kind: Kind,
}

impl Fault {
    pub(super) fn value(&self) -> Value {
        let mut fields = vec![
            ("event_id", Value::Text(self.event_id.clone())),
            ("type", Value::Text(self.kind.name().to_owned())),
        ];
        fields.extend(self.kind.parameters());
        Value::Map(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

/// A manifest of kind `FaultSchedule` that was found good.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub name: Option<String>,
    /// A name, a file or a hash, as written; a command may say another.
    pub snapshot: Option<String>,
    /// What the faults were drawn from. They are written out, so it changes nothing any more.
    pub seed: u64,
    /// At most one for an event, in the order written.
    pub faults: Vec<Fault>,
    /// The hash of `canonical`.
    pub hash: Hash,
    /// FINAZ_JSON_V1 of the document as written. It is a manifest as well.
    pub canonical: Vec<u8>,
    source: Vec<u8>,
    place: String,
}

impl Schedule {
    /// Reads a manifest in YAML or JSON; `place` is its file name, or another name for errors.
    ///
    /// # Errors
    /// A `FAULTS_…` code, the place as `file:line:column`.
    pub fn parse(bytes: &[u8], place: &str) -> Result<Self, Invalid> {
        let document = Document::read(bytes, place, &FAULTS)?;
        let root = Object::root(&document)?;
        root.only(&["kind", "name", "snapshot", "seed", "faults"])?;
        let has = |field| root.fields().contains_key(field);
        let name = if has("name") { Some(root.name("name")?.to_owned()) } else { None };
        let snapshot = if has("snapshot") { Some(root.name("snapshot")?.to_owned()) } else { None };
        let seed = if has("seed") { read_seed(&root)? } else { 0 };
        let objects = root.objects("faults")?.ok_or_else(|| {
            root.missing("faults", "a list such as {type: DUPLICATE, event_id: some.event}")
        })?;
        if objects.len() > FAULTS_MAX {
            let message = format!("{} faults; {FAULTS_MAX} is the most", objects.len());
            return Err(root.refuse("faults", "FAULTS_MANY", message, "split the schedule"));
        }
        let mut seen: HashMap<&str, &str> = HashMap::with_capacity(objects.len());
        let mut faults = Vec::with_capacity(objects.len());
        for object in &objects {
            let (kind, event_id) = read_fault(object)?;
            if let Some(first) = seen.insert(event_id, kind.name()) {
                let message =
                    format!("the event {} has the fault {first} already", shown(event_id));
                let hint = "an event has one fault at most, so that each can be told by its effect";
                return Err(object.refuse("event_id", "FAULTS_DUPLICATE", message, hint));
            }
            faults.push(Fault { event_id: event_id.to_owned(), kind });
        }
        let canonical = document.value.to_bytes()?;
        Ok(Self {
            name,
            snapshot,
            seed,
            faults,
            hash: Hash::of(&canonical),
            canonical,
            source: bytes.to_vec(),
            place: place.to_owned(),
        })
    }

    /// A schedule of these faults, over the snapshot.
    ///
    /// # Errors
    /// What [`Schedule::parse`] would refuse.
    pub fn of(snapshot: &Hash, seed: u64, faults: &[Fault]) -> Result<Self, Invalid> {
        let seed = i64::try_from(seed).map_or(Value::Uint(seed), Value::Int);
        let faults = faults.iter().map(Fault::value).collect();
        let document = Value::Map(
            [
                ("faults", Value::List(faults)),
                ("kind", Value::Text(FAULTS.kind.to_owned())),
                ("seed", seed),
                ("snapshot", Value::Text(snapshot.to_string())),
            ]
            .map(|(key, value)| (key.to_owned(), value))
            .into(),
        );
        Self::parse(&document.to_bytes()?, "generated")
    }

    /// The canonical form with a line for each fault, for people and their diffs.
    #[must_use]
    pub fn to_lines(&self) -> Vec<u8> {
        let mut out = br#"{"faults":["#.to_vec();
        for (at, fault) in self.faults.iter().enumerate() {
            out.extend_from_slice(if at == 0 { b"\n" } else { b",\n" });
            fault.value().write(&mut out).expect("what was read can be written");
        }
        // The faults come first by the order of keys, and end the list here as there.
        let list = Value::List(self.faults.iter().map(Fault::value).collect());
        let list = list.to_bytes().expect("what was read can be written");
        out.extend_from_slice(b"\n]");
        out.extend_from_slice(&self.canonical[br#"{"faults":"#.len() + list.len()..]);
        out.push(b'\n');
        out
    }

    /// The refusal of a fault, at its place in the manifest.
    #[must_use]
    pub fn refuse(
        &self,
        index: usize,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Invalid {
        use crate::canonical::Step;
        let document = Document::read(&self.source, &self.place, &FAULTS)
            .expect("it was read from the same bytes before");
        let way = [Step::Field("faults"), Step::Item(index), Step::Field("event_id")];
        document.invalid(&way, code, message, hint)
    }
}

fn read_seed(root: &Object<'_>) -> Result<u64, Invalid> {
    let wanted = "a whole number from 0 to 18446744073709551615";
    let seed = root.whole("seed", wanted)?;
    u64::try_from(seed).map_err(|_| {
        root.refuse("seed", "FAULTS_SEED", format!("{seed} is no seed"), wanted.to_owned())
    })
}

fn read_fault<'a>(object: &Object<'a>) -> Result<(Kind, &'a str), Invalid> {
    let kind = object.text("type")?;
    let only = |parameters: &[&str]| object.only(&[&["type", "event_id"], parameters].concat());
    let kind = match kind {
        "DUPLICATE" => only(&[]).map(|()| Kind::Duplicate),
        "DELAY" => {
            only(&["delay_ms"])?;
            count(object, "delay_ms", DELAY_MS_MAX).map(|delay_ms| Kind::Delay { delay_ms })
        }
        "GAP" => only(&[]).map(|()| Kind::Gap),
        "REVISION" => {
            only(&["after_ms", "close"])?;
            let after_ms = count(object, "after_ms", DELAY_MS_MAX)?;
            let is_gap = object.fields().get("close") == Some(&Value::Null);
            let close = if is_gap { None } else { Some(object.number("close")?) };
            Ok(Kind::Revision { after_ms, close })
        }
        "PAUSE" => {
            only(&["pause_ms"])?;
            count(object, "pause_ms", WALL_MS_MAX).map(|pause_ms| Kind::Pause { pause_ms })
        }
        "BURST" => {
            only(&["count"])?;
            count(object, "count", BURST_MAX).map(|count| Kind::Burst { count })
        }
        "SOURCE_FAILURE" => {
            only(&["down_ms"])?;
            count(object, "down_ms", WALL_MS_MAX).map(|down_ms| Kind::SourceFailure { down_ms })
        }
        other => {
            let message = format!("no fault is of type {}", shown(other));
            let hint = hint(other, TYPES, "types of faults");
            Err(object.refuse("type", "FAULTS_TYPE", message, hint))
        }
    }?;
    let event_id = object.text("event_id")?;
    if event_id.is_empty() {
        let hint = "name the event that it is to happen to";
        return Err(object.refuse("event_id", "FAULTS_NAME", "an event's id is not empty", hint));
    }
    Ok((kind, event_id))
}

fn count<'a>(object: &Object<'a>, field: &'a str, most: u64) -> Result<u64, Invalid> {
    let wanted = format!("a whole number from 1 to {most}");
    let x = object.whole(field, &wanted)?;
    u64::try_from(x).ok().filter(|x| (1..=most).contains(x)).ok_or_else(|| {
        let message = format!("a {field} of {x} is not possible");
        object.refuse(field, "FAULTS_PARAMETER", message, wanted)
    })
}
