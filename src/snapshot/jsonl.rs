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

/// A file of lines, and what those read so far have settled.
struct Reader<'a> {
    source: &'a Source,
    settings: &'a Settings,
    /// The key of the event id, or that there is none: the first line decides.
    event_id: Option<Option<String>>,
    /// The keys of the first line, for messages.
    keys: Vec<String>,
    /// Which fields were on any line.
    seen: Vec<bool>,
    kept: Kept,
}

/// Reads the objects of a JSON lines file. Empty lines are none.
pub(super) fn read(
    source: &Source,
    settings: &Settings,
    progress: Progress<'_>,
    sink: Sink<'_>,
) -> Result<(), Stop> {
    let mut lines = source.lines(progress)?;
    let seen = vec![false; settings.fields.len()];
    let kept = Kept::default();
    let mut reader = Reader { source, settings, event_id: None, keys: Vec::new(), seen, kept };
    let mut any = false;
    while let Some((number, line)) = lines.next(source)? {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        any = true;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let value = parse_line(line, &source.place, number)?;
        let Value::Map(object) = value else {
            let message = format!("the line is {}, not an object", value.kind());
            let hint = "JSON lines has one object a line, and no list around them";
            return Err(Invalid::new("JSON_SHAPE", source.at(number), message, hint).into());
        };
        reader.event(number, &object, &mut *sink)?;
    }
    if !any {
        return Err(empty(source).into());
    }
    reader.all_fields_seen().map_err(Stop::from)
}

impl Reader<'_> {
    fn event(&mut self, line: u64, object: &Object, sink: Sink<'_>) -> Result<(), Stop> {
        if self.keys.is_empty() {
            self.keys = object.keys().cloned().collect();
        }
        let (source, settings) = (self.source, self.settings);
        let at = |fault: Fault| Stop::from(fault.at(source.at(line)));
        let event_id = self.event_id(line, object)?;
        self.kept.clear();
        for (field, seen) in settings.fields.iter().zip(&mut self.seen) {
            let value = object.get(field);
            *seen |= value.is_some();
            keep(field, value.unwrap_or(&Value::Null), &mut self.kept.bytes).map_err(at)?;
            self.kept.end();
        }
        let instrument = match &settings.instrument {
            Instrument::Fixed(name) => name.clone(),
            Instrument::Column(key) => {
                let value = self.get(line, object, "--instrument-column", key)?;
                word("instrument", value).map_err(at)?
            }
        };
        let time = self.get(line, object, "--time-column", &settings.time_column)?;
        let close = self.get(line, object, "--close-column", &settings.close_column)?;
        sink(&Event {
            line,
            time: time_of(settings, time).map_err(at)?,
            close: close_of(close).map_err(at)?,
            instrument: &instrument,
            event_id: event_id.as_deref(),
            fields: &self.kept,
        })
    }

    fn get<'a>(
        &self,
        line: u64,
        object: &'a Object,
        flag: &str,
        key: &str,
    ) -> Result<&'a Value, Invalid> {
        object.get(key).ok_or_else(|| {
            let keys: Vec<String> = object.keys().cloned().collect();
            let message =
                format!("{flag}: there is no key {}; the keys are {}", shown(key), listed(&keys));
            unknown(flag, key, message, &keys, self.source.at(line))
        })
    }

    fn event_id(&mut self, line: u64, object: &Object) -> Result<Option<String>, Invalid> {
        let flag = &self.settings.event_id_column;
        let first = || {
            let standard = || object.contains_key("event_id").then(|| "event_id".to_owned());
            flag.clone().or_else(standard)
        };
        let key = self.event_id.get_or_insert_with(first).clone();
        let place = || self.source.at(line);
        match key {
            Some(key) => {
                let value = self.get(line, object, "--event-id-column", &key)?;
                let id = word("event id", value).map_err(|fault| fault.at(place()))?;
                cell::name("event id", &id, EVENT_ID_MAX).map_err(|fault| fault.at(place()))?;
                Ok(Some(id))
            }
            None if object.contains_key("event_id") => {
                let message = "has an event_id, and the lines before have none";
                let hint = "give every line its event_id, or none";
                Err(Invalid::new("EVENT_ID_MIXED", place(), message, hint))
            }
            None => Ok(None),
        }
    }

    /// A field that no line has is a slip of the pen; one that some lines lack is null there.
    fn all_fields_seen(&self) -> Result<(), Invalid> {
        let Some(missing) = self.seen.iter().position(|seen| !seen) else { return Ok(()) };
        let name = &self.settings.fields[missing];
        let message = format!("--field: no line has the key {}", shown(name));
        Err(unknown("--field", name, message, &self.keys, self.source.at(1)))
    }
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

fn time_of(settings: &Settings, value: &Value) -> Result<i64, Fault> {
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
fn close_of(value: &Value) -> Result<Option<f64>, Fault> {
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
