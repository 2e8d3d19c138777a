//! Events from JSON lines: an object a line.

use std::collections::BTreeMap;

use super::cell::{self, Fault, shown};
use super::event::{Event, Kept, Sink, Stop};
use super::settings::{EVENT_ID_MAX, Instrument, Settings, listed};
use super::source::{Progress, Source};
use super::table::empty;
use crate::canonical::{Value, parse_line, write_f64};
use crate::invalid::{Invalid, nearest};

type Object = BTreeMap<String, Value>;

/// What the lines so far have settled.
#[derive(Debug, Default)]
struct Seen {
    /// The key of the event id, or that there is none: the first line decides.
    event_id: Option<Option<String>>,
    /// The keys of the first line, for messages.
    keys: Vec<String>,
    /// Which fields were on any line.
    fields: Vec<bool>,
}

/// Reads the objects of a JSON lines file. Empty lines are none.
pub(super) fn read(
    source: &Source,
    settings: &Settings,
    progress: Progress<'_>,
    sink: Sink<'_>,
) -> Result<(), Stop> {
    let mut lines = source.lines(progress)?;
    let mut kept = Kept::default();
    let mut seen = Seen { fields: vec![false; settings.fields.len()], ..Seen::default() };
    let mut any = false;
    while let Some((number, line)) = lines.next(source)? {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        any = true;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let object = match parse_line(line, &source.place, number)? {
            Value::Map(object) => object,
            other => {
                let message = format!("the line is {}, not an object", other.kind());
                let hint = "JSON lines has one object a line, and no list around them";
                return Err(Invalid::new("JSON_SHAPE", source.at(number), message, hint).into());
            }
        };
        object_event(source, settings, (number, &object), &mut seen, &mut kept, &mut *sink)?;
    }
    if !any {
        return Err(empty(source).into());
    }
    match seen.fields.iter().position(|seen| !seen) {
        Some(missing) => {
            let name = &settings.fields[missing];
            let message = format!("--field: no line has the key {}", shown(name));
            Err(unknown("--field", name, message, &seen.keys, source.at(1)).into())
        }
        None => Ok(()),
    }
}

fn object_event(
    source: &Source,
    settings: &Settings,
    (line, object): (u64, &Object),
    seen: &mut Seen,
    kept: &mut Kept,
    sink: Sink<'_>,
) -> Result<(), Stop> {
    if seen.keys.is_empty() {
        seen.keys = object.keys().cloned().collect();
    }
    let at = |fault: Fault| Stop::from(fault.at(source.at(line)));
    let get = |flag: &str, key: &str| {
        object.get(key).ok_or_else(|| {
            let keys: Vec<String> = object.keys().cloned().collect();
            let message =
                format!("{flag}: there is no key {}; the keys are {}", shown(key), listed(&keys));
            Stop::from(unknown(flag, key, message, &keys, source.at(line)))
        })
    };
    let event_key = event_key(settings, object, seen);
    let event_id = match event_key {
        Some(key) => {
            let id = word("event id", get("--event-id-column", &key)?).map_err(at)?;
            cell::name("event id", &id, EVENT_ID_MAX).map_err(at)?;
            Some(id)
        }
        None if object.contains_key("event_id") && settings.event_id_column.is_none() => {
            let message = "has an event_id, and the lines before have none";
            let hint = "give every line its event_id, or none";
            return Err(Invalid::new("EVENT_ID_MIXED", source.at(line), message, hint).into());
        }
        None => None,
    };
    kept.clear();
    for (field, seen) in settings.fields.iter().zip(&mut seen.fields) {
        let value = object.get(field);
        *seen |= value.is_some();
        keep(field, value.unwrap_or(&Value::Null), &mut kept.bytes).map_err(at)?;
        kept.end();
    }
    let instrument = match &settings.instrument {
        Instrument::Fixed(name) => name.clone(),
        Instrument::Column(key) => {
            word("instrument", get("--instrument-column", key)?).map_err(at)?
        }
    };
    let time = time(settings, get("--time-column", &settings.time_column)?).map_err(at)?;
    let close = close(get("--close-column", &settings.close_column)?).map_err(at)?;
    sink(&Event {
        line,
        time,
        close,
        instrument: &instrument,
        event_id: event_id.as_deref(),
        fields: kept,
    })
}

/// The key of the event id: the flag's, or the standard one if the first line has it.
fn event_key(settings: &Settings, object: &Object, seen: &mut Seen) -> Option<String> {
    let first = || {
        let standard = || object.contains_key("event_id").then(|| "event_id".to_owned());
        settings.event_id_column.clone().or_else(standard)
    };
    seen.event_id.get_or_insert_with(first).clone()
}

fn unknown(flag: &str, key: &str, message: String, keys: &[String], place: String) -> Invalid {
    let hint = match nearest(key, keys.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {flag} {}?", shown(near)),
        None => format!("say which key with {flag}; a GAP is written as null"),
    };
    Invalid::new("COLUMN_UNKNOWN", place, message, hint)
}

/// A name: a text, or a whole number in decimal.
fn word(what: &str, value: &Value) -> Result<String, Fault> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        Value::Int(number) => Ok(number.to_string()),
        Value::Uint(number) => Ok(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => {
            let message = format!("the {what} is {}", value.kind());
            Err(Fault::new("JSON_SHAPE", message, format!("the {what} must be a text")))
        }
    }
}

fn time(settings: &Settings, value: &Value) -> Result<i64, Fault> {
    let text = match value {
        Value::Text(text) => text.clone(),
        Value::Int(number) if settings.standard_time && settings.times.unit().is_none() => {
            return Ok(*number);
        }
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Float(number) => {
            let mut digits = Vec::new();
            write_f64(*number, &mut digits);
            String::from_utf8_lossy(&digits).into_owned()
        }
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => {
            let message = format!("the time is {}", value.kind());
            return Err(Fault::new("JSON_SHAPE", message, "a time is a number or a text"));
        }
    };
    settings.times.read(&text)
}

/// A close may be a number in quotes: exchanges write prices so, to keep their digits.
fn close(value: &Value) -> Result<Option<f64>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::Float(number) => Ok(Some(*number)),
        Value::Int(number) => cell::close(&number.to_string()),
        Value::Uint(number) => cell::close(&number.to_string()),
        Value::Text(text) if text.trim().is_empty() => {
            let message = "the close is an empty text";
            Err(Fault::new("NUMBER_UNREADABLE", message, "write null for a GAP"))
        }
        Value::Text(text) => cell::close(text),
        Value::Bool(_) | Value::List(_) | Value::Map(_) => {
            let message = format!("the close is {}", value.kind());
            Err(Fault::new("JSON_SHAPE", message, "a close is a number or null"))
        }
    }
}

fn keep(field: &str, value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    if matches!(value, Value::List(_) | Value::Map(_)) {
        let message = format!("the field {} is {}", shown(field), value.kind());
        return Err(Fault::new("JSON_SHAPE", message, "a field is a number, a text or null"));
    }
    value.write(out).map_err(|invalid| Fault::new(invalid.code, invalid.message, invalid.hint))
}
