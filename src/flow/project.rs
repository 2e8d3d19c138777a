//! From the body of a snapshot to the columns that a flow reads: one pass, memory for those only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufRead, Read as _};

use super::scan::{self, Cell, Head};
use super::{Begun, Flow, Input};
use crate::canonical::{self, Value};
use crate::invalid::Invalid;
use crate::manifest::{self, shown};

/// No event is longer: the import takes no line of this size.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// How many names are kept to find the one that was meant, when an instrument is unknown.
const NAMES_MAX: usize = 1000;

/// Why a snapshot could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not fit the flow, or is no snapshot.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("{place}: {source}")]
    Io { place: String, source: io::Error },
}

/// What a flow reads of a snapshot.
#[derive(Clone, Debug)]
pub struct Projection {
    /// In the flow's order; when it names none, all of the snapshot, sorted.
    pub instruments: Vec<InstrumentColumns>,
    pub reached: Reached,
}

/// How far a snapshot was read: so many events, those of other instruments included, and the last of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reached {
    pub events: u64,
    /// Nanoseconds since 1970 UTC.
    pub event_time: i64,
    pub instrument: String,
    pub seq: u64,
}

/// The events of one instrument, column by column, all of one length.
#[derive(Clone, Debug)]
pub struct InstrumentColumns {
    pub name: String,
    /// Nanoseconds since 1970 UTC.
    pub event_time: Vec<i64>,
    /// By name; NaN where an event has null or lacks the field.
    pub fields: BTreeMap<String, Vec<f64>>,
}

/// Reads what `flow` needs of `body`, a snapshot's blob; `place` is its name in errors.
///
/// # Errors
/// `SNAPSHOT_DAMAGED` (not canonical, out of order), `SNAPSHOT_EMPTY`, `INSTRUMENT_UNKNOWN`,
/// `FIELD_UNKNOWN` (no event of an instrument has it), `FIELD_NOT_NUMERIC`; or reading fails.
pub fn project(flow: &Flow, body: &mut dyn BufRead, place: &str) -> Result<Projection, Error> {
    read(Reader::new(flow, place), body)
}

/// Reads the rest of a snapshot of which a beginning was read before: `body` goes on right behind what `begun` reached.
/// Every instrument of the beginning is there, also one of which no event came since.
///
/// # Errors
/// As [`project`]; a rest of no events is one.
pub fn project_rest(
    flow: &Flow,
    body: &mut dyn BufRead,
    place: &str,
    begun: &Begun,
) -> Result<Projection, Error> {
    read(Reader::behind(flow, place, begun), body)
}

fn read(mut reader: Reader<'_>, body: &mut dyn BufRead) -> Result<Projection, Error> {
    let (flow, place) = (reader.flow, reader.place);
    let mut cells = vec![Cell::Absent; flow.plan.fields.len()];
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut *body).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read {
            Ok(0) => return Ok(reader.finish()?),
            Ok(_) => reader.line(&line, &mut cells)?,
            Err(source) => return Err(Error::Io { place: place.to_owned(), source }),
        }
    }
}

/// Holds the fields that `flow` reads against the first event of a snapshot: an import writes the same fields in each.
///
/// # Errors
/// `FIELD_UNKNOWN`, `SNAPSHOT_DAMAGED`.
pub fn check_fields(flow: &Flow, first_line: &[u8], place: &str) -> Result<(), Invalid> {
    let mut reader = Reader::new(flow, place);
    let mut cells = vec![Cell::Absent; flow.plan.fields.len()];
    first_line.clone_into(&mut reader.first_line);
    reader.lines = 1;
    let line = first_line.strip_suffix(b"\n").unwrap_or(first_line);
    let head = scan::event(line, &flow.plan.fields, &mut cells, (place, 1))?;
    let absent = cells.iter().position(|cell| matches!(cell, Cell::Absent));
    match absent {
        Some(field) => Err(reader.unknown_field(&head.instrument, &flow.plan.fields[field])),
        None => Ok(()),
    }
}

struct Reader<'a> {
    flow: &'a Flow,
    place: &'a str,
    /// How many lines were read.
    lines: u64,
    /// The instruments kept, by name; all of them when the flow names none.
    index: HashMap<String, usize>,
    columns: Vec<Columns>,
    /// Of the event before.
    last: Option<(i64, String, u64)>,
    first_line: Vec<u8>,
    /// Instruments of the snapshot that the flow does not name, while one that it does is missing.
    others: HashSet<String>,
    missing: usize,
}

struct Columns {
    name: String,
    event_time: Vec<i64>,
    /// In the order of the plan's fields.
    fields: Vec<Vec<f64>>,
    /// Which of the fields any event had.
    seen: Vec<bool>,
    /// Events of it were read before: that it is there, with every field, is known.
    known: bool,
}

impl<'a> Reader<'a> {
    fn new(flow: &'a Flow, place: &'a str) -> Self {
        let mut reader = Self {
            flow,
            place,
            lines: 0,
            index: HashMap::new(),
            columns: Vec::new(),
            last: None,
            first_line: Vec::new(),
            others: HashSet::new(),
            missing: flow.instruments.len(),
        };
        for name in &flow.instruments {
            reader.add(name);
        }
        reader
    }

    /// One that goes on behind what was read before.
    fn behind(flow: &'a Flow, place: &'a str, begun: &Begun) -> Self {
        let mut reader = Self::new(flow, place);
        let Reached { events, event_time, instrument, seq } = &begun.reached;
        reader.lines = *events;
        reader.last = Some((*event_time, instrument.clone(), *seq));
        for name in begun.instruments() {
            let at = match reader.index.get(name) {
                Some(at) => *at,
                None => reader.add(name),
            };
            reader.columns[at].known = true;
            reader.missing = reader.missing.saturating_sub(1);
        }
        reader
    }

    fn add(&mut self, name: &str) -> usize {
        let count = self.flow.plan.fields.len();
        self.columns.push(Columns {
            name: name.to_owned(),
            event_time: Vec::new(),
            fields: vec![Vec::new(); count],
            seen: vec![false; count],
            known: false,
        });
        self.index.insert(name.to_owned(), self.columns.len() - 1);
        self.columns.len() - 1
    }

    fn line(&mut self, line: &[u8], cells: &mut [Cell]) -> Result<(), Invalid> {
        self.lines += 1;
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(self.damaged("the line does not end, or is longer than any event"));
        };
        if self.first_line.is_empty() {
            self.first_line = line.to_vec();
        }
        let head = scan::event(line, &self.flow.plan.fields, cells, (self.place, self.lines))?;
        self.check_order(&head)?;
        let at = match self.index.get(head.instrument.as_ref()) {
            Some(&at) => at,
            None if self.flow.instruments.is_empty() => self.add(&head.instrument),
            None => {
                if self.missing > 0 && self.others.len() < NAMES_MAX {
                    self.remember(&head.instrument);
                }
                return Ok(());
            }
        };
        self.keep(at, head.event_time, line, cells)
    }

    fn keep(&mut self, at: usize, time: i64, line: &[u8], cells: &[Cell]) -> Result<(), Invalid> {
        let columns = &mut self.columns[at];
        if columns.event_time.is_empty() && !columns.known {
            self.missing = self.missing.saturating_sub(1);
        }
        columns.event_time.push(time);
        for (index, cell) in cells.iter().enumerate() {
            match cell.number(line) {
                Ok(x) => columns.fields[index].push(x),
                Err(kind) => {
                    let field = shown(&self.flow.plan.fields[index]);
                    let message =
                        format!("the field {field} is {kind}, and a node computes with numbers");
                    let place = format!("{}:{}", self.place, self.lines);
                    let hint = "name another field as the input, or import the column as numbers";
                    return Err(Invalid::new("FIELD_NOT_NUMERIC", place, message, hint));
                }
            }
            columns.seen[index] |= !matches!(cell, Cell::Absent);
        }
        Ok(())
    }

    /// Every event comes after the one before: by time, instrument, seq.
    fn check_order(&mut self, head: &Head<'_>) -> Result<(), Invalid> {
        let Some((time, instrument, seq)) = &mut self.last else {
            self.last = Some((head.event_time, head.instrument.to_string(), head.seq));
            return Ok(());
        };
        let before = (*time, instrument.as_str(), *seq);
        if before >= (head.event_time, head.instrument.as_ref(), head.seq) {
            return Err(self.damaged("not after the event before it, by time, instrument and seq"));
        }
        *time = head.event_time;
        *seq = head.seq;
        if *instrument != head.instrument {
            instrument.clear();
            instrument.push_str(&head.instrument);
        }
        Ok(())
    }

    fn remember(&mut self, instrument: &str) {
        if !self.others.contains(instrument) {
            self.others.insert(instrument.to_owned());
        }
    }

    fn finish(mut self) -> Result<Projection, Invalid> {
        let Some((event_time, instrument, seq)) = self.last.take() else {
            let hint = "import one with events";
            return Err(Invalid::new("SNAPSHOT_EMPTY", self.place, "it has no events", hint));
        };
        let reached = Reached { events: self.lines, event_time, instrument, seq };
        if self.flow.instruments.is_empty() {
            self.columns.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        for columns in self.columns.iter().filter(|columns| !columns.known) {
            if columns.event_time.is_empty() {
                return Err(self.unknown_instrument(&columns.name));
            }
            if let Some(field) = columns.seen.iter().position(|seen| !seen) {
                return Err(self.unknown_field(&columns.name, &self.flow.plan.fields[field]));
            }
        }
        let names = &self.flow.plan.fields;
        let instruments = self.columns.into_iter().map(|columns| InstrumentColumns {
            name: columns.name,
            event_time: columns.event_time,
            fields: names.iter().cloned().zip(columns.fields).collect(),
        });
        Ok(Projection { instruments: instruments.collect(), reached })
    }

    fn unknown_instrument(&self, name: &str) -> Invalid {
        let known = self.columns.iter().filter(|columns| !columns.event_time.is_empty());
        let mut names: Vec<&str> = known.map(|columns| columns.name.as_str()).collect();
        names.extend(self.others.iter().map(String::as_str));
        names.sort_unstable();
        let hint = manifest::hint(name, names.iter().copied(), "instruments of the snapshot");
        let flow = shown(&self.flow.name);
        let message = format!("it has no instrument {}, which the flow {flow} names", shown(name));
        Invalid::new("INSTRUMENT_UNKNOWN", self.place, message, hint)
    }

    fn unknown_field(&self, instrument: &str, field: &str) -> Invalid {
        // Any line shows what fields there are; the nodes could have been meant as well.
        let line = self.first_line.strip_suffix(b"\n").unwrap_or(&self.first_line);
        let first = canonical::parse(line, self.place);
        let fields = match &first {
            Ok(Value::Map(map)) => map.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        let ids = self.flow.nodes.iter().map(|node| node.id.as_str());
        let names = fields.into_iter().chain(ids).filter(|name| *name != field);
        let hint = manifest::hint(field, names, "fields and nodes");
        let field_input = Input::Field(field.to_owned());
        let node = self.flow.nodes.iter().find(|node| node.input == field_input);
        let node = node.map_or(String::new(), |node| format!(", the input of {}", shown(&node.id)));
        let instrument = shown(instrument);
        let message = format!("no event of {instrument} has a field {}{node}", shown(field));
        Invalid::new("FIELD_UNKNOWN", self.place, message, hint)
    }

    fn damaged(&self, message: &str) -> Invalid {
        let place = format!("{}:{}", self.place, self.lines);
        let hint = "name a snapshot that `finaz snapshot import` made";
        Invalid::new("SNAPSHOT_DAMAGED", place, message, hint)
    }
}
