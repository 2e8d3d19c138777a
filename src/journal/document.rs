//! A journal as one document of FINAZ_JSON_V1, to be read by a person and to be taken in again bit for bit: the head, then
//! each segment as its header and its rows.
//!
//! Fates are `partition@offset treatment reason id`, identities one text of hex digits, accepted and applied events
//! lists. NaN is null; an infinity, which no node gives, is a text.

use super::fields::{Fields, object, text};
use super::head::Head;
use super::segment::{Header, Kind, NewSegment, Segment};
use super::{Error, VERSION, damaged, rows};
use crate::canonical::{self, Value};
use crate::stream::{Accepted, Applied, Fate, Identity, Quarantined, Reason, Treatment};

const KIND: &str = "StreamExport";

/// The parts of a document, which is too large to be one value: `open`, the segments with a comma between, `close`.
#[derive(Clone, Debug)]
pub struct Exported {
    pub open: Vec<u8>,
    pub close: Vec<u8>,
}

impl Exported {
    /// Of the journal of this name.
    #[must_use]
    pub fn of(name: &str, head: &[u8]) -> Self {
        let mut open = b"{\"head\":".to_vec();
        open.extend_from_slice(head);
        open.extend_from_slice(b",\"kind\":");
        canonical::write_text(KIND, &mut open);
        open.extend_from_slice(b",\"name\":");
        canonical::write_text(name, &mut open);
        open.extend_from_slice(b",\"segments\":[");
        Self { open, close: format!("],\"version\":{VERSION}}}").into_bytes() }
    }
}

/// A document taken apart: the name, the head as it was, and its segments in its order.
///
/// # Errors
/// [`Error::Damaged`] when it is not a whole journal, [`Error::Version`].
pub fn imported(bytes: &[u8], place: &str) -> Result<(String, Head, Vec<NewSegment>), Error> {
    let mut fields = Fields::read(bytes, KIND, place)?;
    let head = fields.take("head")?;
    let head = head.to_bytes().map_err(|error| damaged(place, error.message))?;
    let head = Head::parse(&head, place)?;
    let name = fields.text("name")?;
    let mut values = fields.list("segments")?.into_iter();
    fields.end()?;
    let mut segments = Vec::new();
    for kind in Kind::ALL {
        for named in head.segments.of(kind) {
            let value = values.next().ok_or_else(|| damaged(place, "has too few segments"))?;
            let mut segment = read_segment(value, kind, place)?;
            segment.named.level = named.level;
            if segment.named != *named {
                let what = format!("has another segment of {} than its head says", kind.field());
                return Err(damaged(place, what));
            }
            segments.push(segment);
        }
    }
    if values.next().is_some() {
        return Err(damaged(place, "has segments that its head does not name"));
    }
    Ok((name, head, segments))
}

/// A segment as a document has it.
#[must_use]
pub fn exported(segment: &Segment<'_>) -> Vec<u8> {
    let rows = match segment.header.kind {
        Kind::Fates => {
            Value::List(segment.fates().map(|(_at, fate)| Value::Text(fate_words(&fate))).collect())
        }
        Kind::Identities => Value::Text(hex(segment.body)),
        Kind::Accepted => Value::List(segment.accepted().map(|row| accepted_row(&row)).collect()),
        Kind::Applied => Value::List(segment.applied().map(applied_row).collect()),
        Kind::Quarantined => {
            Value::List(segment.quarantined().map(|(_at, row)| quarantined_row(&row)).collect())
        }
    };
    object([("header", segment.header.value()), ("rows", rows)])
        .to_bytes()
        .expect("infinities are texts, and rows are flat")
}

fn read_segment(value: Value, kind: Kind, place: &str) -> Result<NewSegment, Error> {
    let mut fields = Fields::of(value, place)?;
    let header = fields.take("header")?;
    let header = header.to_bytes().map_err(|error| damaged(place, error.message))?;
    let header = Header::read(&header, kind, place)?;
    let values = fields.take("rows")?;
    fields.end()?;
    let bad = || damaged(place, format!("has a row of {} that cannot be", kind.field()));
    let encoded = encode(kind, values).ok_or_else(bad)?;
    // Its rows are those of one commit; of how many it is, and of when, says the header.
    let end = memchr::memchr(b'\n', encoded.blob.bytes()).ok_or_else(bad)?;
    header.written(encoded.blob.bytes()[end + 1..].to_vec()).ok_or_else(bad)
}

fn encode(kind: Kind, values: Value) -> Option<NewSegment> {
    match kind {
        Kind::Fates => rows::fates(&each(values, read_fate)?, 0, 0),
        Kind::Identities => rows::identities(&mut read_identities(&values)?, 0),
        Kind::Accepted => {
            let rows = each(values, read_accepted)?;
            let width = rows.first()?.fields.len();
            rows.iter().all(|row| row.fields.len() == width).then(|| rows::accepted(&rows, 0))?
        }
        Kind::Applied => {
            let rows = each(values, read_applied)?;
            let width = rows.first()?.values.len();
            rows.iter().all(|row| row.values.len() == width).then(|| rows::applied(&rows, 0))?
        }
        Kind::Quarantined => rows::quarantined(&each(values, read_row)?, 0, 0),
    }
}

fn each<T>(values: Value, read: impl Fn(Value) -> Option<T>) -> Option<Vec<T>> {
    list(values)?.into_iter().map(read).collect()
}

fn fate_words(fate: &Fate) -> String {
    let reason = Some(fate.reason.word()).filter(|word| !word.is_empty()).unwrap_or("-");
    let (partition, offset, treatment) = (fate.partition, fate.offset, fate.treatment.word());
    format!("{partition}@{offset} {treatment} {reason} {}", hex(&fate.id))
}

fn read_fate(value: Value) -> Option<Fate> {
    let words = as_text(value)?;
    let mut words = words.split(' ');
    let (partition, offset) = words.next()?.split_once('@')?;
    let fate = Fate {
        partition: partition.parse().ok()?,
        offset: offset.parse().ok()?,
        treatment: treatment_of(words.next()?)?,
        reason: match words.next()? {
            "-" => Reason::None,
            word => reason_of(word)?,
        },
        id: unhex(words.next()?)?.try_into().ok()?,
    };
    words.next().is_none().then_some(fate)
}

fn read_identities(value: &Value) -> Option<Vec<Identity>> {
    let Value::Text(digits) = value else { return None };
    let bytes = unhex(digits)?;
    let identity = |row: &[u8; 24]| {
        let (id, payload) = row.split_at(16);
        Some(Identity {
            id: id.try_into().ok()?,
            payload: u64::from_be_bytes(payload.try_into().ok()?),
        })
    };
    let (rows, []) = bytes.as_chunks::<24>() else { return None };
    rows.iter().map(identity).collect()
}

fn accepted_row(row: &Accepted) -> Value {
    let seq = i64::try_from(row.seq).map_or(Value::Uint(row.seq), Value::Int);
    Value::List(vec![
        Value::Int(row.event_time),
        Value::Text(row.instrument.to_string()),
        seq,
        Value::Text(hex(&row.id)),
        Value::Int(row.partition.into()),
        Value::List(row.fields.iter().copied().map(float).collect()),
    ])
}

fn read_accepted(value: Value) -> Option<Accepted> {
    let [time, instrument, seq, id, partition, fields] = list(value)?.try_into().ok()?;
    Some(Accepted {
        event_time: int(&time)?,
        instrument: as_text(instrument)?.into(),
        seq: if let Value::Uint(seq) = seq { seq } else { int(&seq)?.try_into().ok()? },
        id: unhex(&as_text(id)?)?.try_into().ok()?,
        partition: int(&partition)?.try_into().ok()?,
        fields: each(fields, |x| read_float(&x))?.into(),
    })
}

fn applied_row(row: Applied) -> Value {
    let values = row.values.into_iter().map(float).collect();
    Value::List(vec![
        Value::Int(row.event_time),
        Value::Text(row.instrument.to_string()),
        Value::List(values),
    ])
}

fn read_applied(value: Value) -> Option<Applied> {
    let [time, instrument, values] = list(value)?.try_into().ok()?;
    Some(Applied {
        event_time: int(&time)?,
        instrument: as_text(instrument)?.into(),
        values: each(values, |x| read_float(&x))?.into(),
    })
}

/// A quarantined record, as its line in a segment.
pub(super) fn quarantined_row(row: &Quarantined) -> Value {
    let bytes =
        |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(Value::Null, |b| Value::Text(hex(b)));
    object([
        ("detail", text(&row.detail)),
        ("event_id", row.event_id.as_ref().map_or(Value::Null, text)),
        ("hash", text(&row.hash)),
        ("key", bytes(&row.key)),
        ("offset", Value::Int(row.offset)),
        ("partition", Value::Int(row.partition.into())),
        ("reason", text(row.reason.word())),
        ("treatment", text(row.treatment.word())),
        ("value", bytes(&row.value)),
    ])
}

/// Reads what [`quarantined_row`] gives.
pub(super) fn read_quarantined(value: Value, place: &str) -> Result<Quarantined, Error> {
    let mut fields = Fields::of(value, place)?;
    let bad = || damaged(place, "has a quarantined record that cannot be");
    let bytes = |fields: &mut Fields<'_>, name: &str| unhex(&fields.text(name)?).ok_or_else(bad);
    let row = Quarantined {
        detail: fields.text("detail")?,
        event_id: fields.optional("event_id", Fields::text)?,
        hash: fields.hash("hash")?,
        key: fields.optional("key", bytes)?,
        offset: fields.int("offset")?,
        partition: i32::try_from(fields.int("partition")?).map_err(|_wide| bad())?,
        reason: reason_of(&fields.text("reason")?).ok_or_else(bad)?,
        treatment: treatment_of(&fields.text("treatment")?).ok_or_else(bad)?,
        value: fields.optional("value", bytes)?,
    };
    fields.end()?;
    Ok(row)
}

fn read_row(value: Value) -> Option<Quarantined> {
    read_quarantined(value, "a row").ok()
}

fn treatment_of(word: &str) -> Option<Treatment> {
    (0..=u8::MAX).filter_map(Treatment::from_code).find(|treatment| treatment.word() == word)
}

fn reason_of(word: &str) -> Option<Reason> {
    (0..=u8::MAX).filter_map(Reason::from_code).find(|reason| reason.word() == word)
}

fn float(x: f64) -> Value {
    if x.is_nan() {
        Value::Null
    } else if x.is_finite() {
        Value::Float(x)
    } else {
        text(&x)
    }
}

fn read_float(value: &Value) -> Option<f64> {
    match value {
        Value::Null => Some(f64::NAN),
        Value::Float(x) => Some(*x),
        Value::Text(word) => word.parse().ok().filter(|x: &f64| x.is_infinite()),
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::List(_) | Value::Map(_) => None,
    }
}

fn list(value: Value) -> Option<Vec<Value>> {
    if let Value::List(list) = value { Some(list) } else { None }
}

fn as_text(value: Value) -> Option<String> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn int(value: &Value) -> Option<i64> {
    if let Value::Int(int) = value { Some(*int) } else { None }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}
