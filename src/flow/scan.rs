//! One line of a snapshot's body: the quick way for lines as the import writes them, the strict way
//! for all others (escapes in a name, nested values, damage), which also says what is wrong.

use std::borrow::Cow;
use std::ops::Range;

use crate::canonical::{self, Value};
use crate::invalid::Invalid;

/// What a line says about one of the fields that a flow reads.
#[derive(Clone, Debug)]
pub enum Cell {
    Absent,
    /// The bytes of a scalar, not looked at yet: most lines may be of other instruments.
    Raw(Range<usize>),
    /// NaN for null.
    Number(f64),
    /// Something else, in words.
    Other(&'static str),
}

/// What orders an event, whose it is, and which it is.
#[derive(Debug)]
pub struct Head<'l> {
    pub event_time: i64,
    pub instrument: Cow<'l, str>,
    pub seq: u64,
    /// A flow does not ask for it.
    pub event_id: Option<Cow<'l, str>>,
}

impl Cell {
    /// The number, NaN for null or a field that is not there.
    ///
    /// # Errors
    /// What it is instead, in words.
    pub fn number(&self, line: &[u8]) -> Result<f64, &'static str> {
        let raw = match self {
            Self::Absent => return Ok(f64::NAN),
            Self::Number(x) => return Ok(*x),
            Self::Other(kind) => return Err(kind),
            Self::Raw(range) => &line[range.clone()],
        };
        match raw[0] {
            b'n' => Ok(f64::NAN),
            b'"' => Err("a text"),
            b't' | b'f' => Err("a truth value"),
            _ => {
                let text = std::str::from_utf8(raw).expect("the scanner took digits only");
                let x = text.parse::<f64>().expect("and only as they form a number");
                if x.is_finite() { Ok(x) } else { Err("a number that no 64-bit float can hold") }
            }
        }
    }
}

/// Reads one line without its end. `fields` are those a flow reads, `cells` as many.
///
/// # Errors
/// `SNAPSHOT_DAMAGED`: the line is no event in FINAZ_JSON_V1.
pub fn event<'l>(
    line: &'l [u8],
    fields: &[String],
    cells: &mut [Cell],
    at: (&str, u64),
) -> Result<Head<'l>, Invalid> {
    cells.fill(Cell::Absent);
    if let Some(head) = quick(line, fields, cells) {
        return Ok(head);
    }
    cells.fill(Cell::Absent);
    strict(line, fields, cells, at)
}

/// Reads a message of a log: an event as [`event`] takes it, but in any layout that JSON allows, and with an id.
///
/// # Errors
/// In words: what is missing, or is no JSON.
pub fn message<'l>(
    bytes: &'l [u8],
    fields: &[String],
    cells: &mut [Cell],
) -> Result<Head<'l>, String> {
    cells.fill(Cell::Absent);
    if let Some(head) = quick(bytes, fields, cells).filter(|head| head.event_id.is_some()) {
        return Ok(head);
    }
    cells.fill(Cell::Absent);
    let value = canonical::parse(bytes, "value").map_err(|error| error.to_string())?;
    let Value::Map(map) = value else {
        return Err(format!("{} and no event", value.kind()));
    };
    let head = loose(&map)?;
    for (cell, field) in cells.iter_mut().zip(fields) {
        *cell = map.get(field).map_or(Cell::Absent, of_value);
    }
    Ok(head)
}

fn loose(map: &std::collections::BTreeMap<String, Value>) -> Result<Head<'static>, String> {
    let text = |name: &str| match map.get(name) {
        Some(Value::Text(text)) if !text.is_empty() => Ok(text.clone()),
        _ => Err(format!("an event has `{name}`, a text")),
    };
    let whole = |name: &str| match map.get(name) {
        Some(Value::Int(number)) => Ok(*number),
        _ => Err(format!("an event has `{name}`, a whole number")),
    };
    let seq = u64::try_from(whole("seq")?).map_err(|_| "`seq` counts from 0".to_owned())?;
    Ok(Head {
        event_time: whole("event_time")?,
        instrument: text("instrument")?.into(),
        seq,
        event_id: Some(text("event_id")?.into()),
    })
}

fn quick<'l>(line: &'l [u8], fields: &[String], cells: &mut [Cell]) -> Option<Head<'l>> {
    let (mut event_time, mut instrument, mut seq, mut event_id) = (None, None, None, None);
    let mut last_key: &[u8] = b"";
    let mut at = 0;
    loop {
        let separator = if at == 0 { b'{' } else { b',' };
        if *line.get(at)? != separator || *line.get(at + 1)? != b'"' {
            return None;
        }
        let key_end = text_end(line, at + 2)?;
        let key = &line[at + 2..key_end];
        // Sorted, as all of FINAZ_JSON_V1 is; so none comes twice.
        if at > 0 && key <= last_key || *line.get(key_end + 1)? != b':' {
            return None;
        }
        last_key = key;
        let from = key_end + 2;
        let end = scalar_end(line, from)?;
        match key {
            b"event_time" => event_time = Some(whole(&line[from..end])?),
            b"seq" => seq = Some(u64::try_from(whole(&line[from..end])?).ok()?),
            b"instrument" if line[from] == b'"' => instrument = Some(from + 1..end - 1),
            b"event_id" if line[from] == b'"' => event_id = Some(from + 1..end - 1),
            _ => {}
        }
        if let Some(index) = fields.iter().position(|field| field.as_bytes() == key) {
            cells[index] = Cell::Raw(from..end);
        }
        at = end;
        if *line.get(at)? == b'}' {
            break;
        }
    }
    let instrument = std::str::from_utf8(&line[instrument?]).ok()?.into();
    let event_id = match event_id {
        Some(range) => Some(std::str::from_utf8(&line[range]).ok()?.into()),
        None => None,
    };
    let head = Head { event_time: event_time?, instrument, seq: seq?, event_id };
    (at + 1 == line.len()).then_some(head)
}

/// Where the text that `from` is inside of is closed; `None` for one with escapes.
#[inline]
fn text_end(line: &[u8], from: usize) -> Option<usize> {
    let stop = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
    let end = from + line.get(from..)?.iter().position(stop)?;
    (line[end] == b'"').then_some(end)
}

/// The end of the text, number or word that starts at `from`.
#[inline]
fn scalar_end(line: &[u8], from: usize) -> Option<usize> {
    match *line.get(from)? {
        b'"' => text_end(line, from + 1).map(|end| end + 1),
        b'n' => line[from..].starts_with(b"null").then_some(from + 4),
        b't' => line[from..].starts_with(b"true").then_some(from + 4),
        b'f' => line[from..].starts_with(b"false").then_some(from + 5),
        _ => number_end(line, from),
    }
}

#[inline]
fn number_end(line: &[u8], from: usize) -> Option<usize> {
    let digits = |from: usize| {
        let rest = line.get(from..)?;
        let length = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        (length > 0).then_some(from + length)
    };
    let first = from + usize::from(line[from] == b'-');
    let mut at = digits(first)?;
    // 19 digits fit 64 bits, with a sign or without, but for some with a minus.
    if at - first > 19 - (first - from) || at - first > 1 && line[first] == b'0' {
        return None;
    }
    if line.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if line.get(at) == Some(&b'e') {
        let sign = usize::from(matches!(line.get(at + 1), Some(b'-' | b'+')));
        at = digits(at + 1 + sign)?;
    }
    Some(at)
}

/// A whole number of up to 19 digits.
#[inline]
fn whole(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let mut number = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
    }
    let number = i64::try_from(number).ok()?;
    Some(if negative { -number } else { number })
}

fn strict(
    line: &[u8],
    fields: &[String],
    cells: &mut [Cell],
    (place, number): (&str, u64),
) -> Result<Head<'static>, Invalid> {
    let damaged = |message: &str| {
        let hint = "name a snapshot that `finaz snapshot import` made";
        Invalid::new("SNAPSHOT_DAMAGED", format!("{place}:{number}"), message, hint)
    };
    let value = canonical::parse_line(line, place, number)
        .map_err(|error| Invalid { code: "SNAPSHOT_DAMAGED", ..error })?;
    if value.to_bytes()? != line {
        return Err(damaged("this line is not in canonical form"));
    }
    let Value::Map(map) = value else {
        return Err(damaged("this line is no event"));
    };
    let Some(Value::Int(event_time)) = map.get("event_time") else {
        return Err(damaged("an event has an `event_time`, a whole number of nanoseconds"));
    };
    let Some(Value::Text(instrument)) = map.get("instrument") else {
        return Err(damaged("an event has an `instrument`, a text"));
    };
    let seq = match map.get("seq") {
        Some(Value::Int(seq)) => u64::try_from(*seq).ok(),
        _ => None,
    };
    let Some(seq) = seq else {
        return Err(damaged("an event has a `seq`, a count from 0"));
    };
    for (cell, field) in cells.iter_mut().zip(fields) {
        *cell = map.get(field).map_or(Cell::Absent, of_value);
    }
    let event_id = match map.get("event_id") {
        Some(Value::Text(id)) => Some(id.clone().into()),
        _ => None,
    };
    Ok(Head { event_time: *event_time, instrument: instrument.clone().into(), seq, event_id })
}

#[expect(clippy::cast_precision_loss, reason = "a column is floats; a count above 2^53 is rounded")]
fn of_value(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Number(f64::NAN),
        Value::Float(x) => Cell::Number(*x),
        Value::Int(x) => Cell::Number(*x as f64),
        Value::Uint(x) => Cell::Number(*x as f64),
        Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            Cell::Other(value.kind())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_an_import_take_the_quick_way() {
        let fields = ["close".to_owned(), "volume".to_owned()];
        for line in [
            r#"{"close":1.0,"event_id":"fixture.event.0.0","event_time":1767225600000000000,"instrument":"sim.alpha","seq":0}"#,
            r#"{"close":2.854e-05,"event_id":"ñ","event_time":-1,"instrument":"ADA/BTC","seq":17}"#,
            r#"{"close":null,"event_id":"e","event_time":9223372036854775807,"instrument":"x","seq":0,"volume":12}"#,
            r#"{"bid":-0.0,"close":1e+16,"event_id":"e","event_time":0,"instrument":"x","note":"y","open":true,"seq":0}"#,
        ] {
            let mut quickly = vec![Cell::Absent; 2];
            let head = quick(line.as_bytes(), &fields, &mut quickly).expect(line);
            let mut strictly = vec![Cell::Absent; 2];
            let same = strict(line.as_bytes(), &fields, &mut strictly, ("t", 1)).expect(line);
            assert_eq!((head.event_time, head.seq), (same.event_time, same.seq));
            assert_eq!((head.instrument, head.event_id), (same.instrument, same.event_id));
            for (a, b) in quickly.iter().zip(&strictly) {
                let number = |cell: &Cell| cell.number(line.as_bytes()).map(f64::to_bits);
                assert_eq!(number(a), number(b), "{line}");
            }
        }
    }
}
