//! What is in a snapshot, read from its body.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;

use serde::Serialize;

use super::Error;
use super::settings::STANDARD;
use crate::artifacts::{self, Artifacts};
use crate::canonical::{Value, parse_line};
use crate::ids::Hash;
use crate::invalid::Invalid;

/// A snapshot in figures.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Described {
    pub snapshot: Hash,
    pub events: u64,
    /// Events without a close.
    pub gaps: u64,
    /// The size of the body.
    pub bytes: u64,
    pub instruments: Vec<DescribedInstrument>,
    /// The keys beside those that every event has.
    pub fields: Vec<String>,
}

/// One instrument of a snapshot. Times are nanoseconds since 1970 UTC.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct DescribedInstrument {
    pub name: String,
    pub events: u64,
    pub gaps: u64,
    pub first: i64,
    pub last: i64,
}

/// Reads a snapshot through and describes it; memory is for its instruments only.
///
/// # Errors
/// A blob that is not there, is damaged, or is no snapshot (`NOT_A_SNAPSHOT`).
pub fn describe(artifacts: &Artifacts, snapshot: &Hash) -> Result<Described, Error> {
    let mut reader = artifacts.reader(snapshot)?;
    let bytes = reader.size();
    let place = snapshot.to_string();
    let mut instruments: BTreeMap<String, DescribedInstrument> = BTreeMap::new();
    let mut fields: BTreeSet<String> = BTreeSet::new();
    let mut line = Vec::new();
    let mut events = 0;
    while read_line(&mut reader, &mut line, &place)? {
        events += 1;
        if count(&line, &mut instruments, &mut fields).is_none() {
            // Damage is the likelier cause, and tells more.
            reader.finish()?;
            return Err(no_snapshot(&place, events).into());
        }
    }
    reader.finish()?;
    let instruments: Vec<DescribedInstrument> = instruments.into_values().collect();
    let gaps = instruments.iter().map(|instrument| instrument.gaps).sum();
    let fields = fields.into_iter().collect();
    Ok(Described { snapshot: *snapshot, events, gaps, bytes, instruments, fields })
}

fn read_line(
    reader: &mut artifacts::BlobReader,
    line: &mut Vec<u8>,
    place: &str,
) -> Result<bool, Error> {
    use std::io::Read as _;
    /// No import writes a longer one.
    const LINE_MAX: u64 = 16 << 20;
    line.clear();
    let read = reader.take(LINE_MAX).read_until(b'\n', line);
    let read = read.map_err(|e| Error::io(place, e))?;
    Ok(read > 0)
}

/// Counts one line in; `None` if it is no event.
fn count(
    line: &[u8],
    instruments: &mut BTreeMap<String, DescribedInstrument>,
    fields: &mut BTreeSet<String>,
) -> Option<()> {
    let Ok(Value::Map(event)) = parse_line(line.strip_suffix(b"\n")?, "", 1) else { return None };
    let gap = match event.get("close")? {
        Value::Float(_) => 0,
        Value::Null => 1,
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Map(_) => return None,
    };
    let (Value::Int(time), Value::Text(name)) =
        (event.get("event_time")?, event.get("instrument")?)
    else {
        return None;
    };
    match instruments.get_mut(name) {
        Some(instrument) => {
            instrument.events += 1;
            instrument.gaps += gap;
            instrument.last = *time;
        }
        None => {
            let (name, first, last) = (name.clone(), *time, *time);
            let new = DescribedInstrument { name: name.clone(), events: 1, gaps: gap, first, last };
            instruments.insert(name, new);
        }
    }
    for key in event.into_keys() {
        if !STANDARD.contains(&key.as_str()) && !fields.contains(&key) {
            fields.insert(key);
        }
    }
    Some(())
}

fn no_snapshot(place: &str, line: u64) -> Invalid {
    let hint = "`finaz snapshot list` names those that are";
    Invalid::new("NOT_A_SNAPSHOT", format!("{place}:{line}"), "the blob is no snapshot", hint)
}
