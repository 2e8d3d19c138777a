//! The arrivals of a snapshot under a schedule, one after the other in the order of the log:
//! (arrival_ns, event_time, instrument, seq, copy). Memory is for the schedule and for what it delays.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::io::{BufRead, Read as _};

use super::{Error, Kind, Schedule};
use crate::canonical::{self, Value};
use crate::flow::scan;
use crate::invalid::Invalid;
use crate::manifest::shown;

/// No event is longer: the import takes no line of this size.
const LINE_BYTES_MAX: u64 = 4 << 20;
const MS_NS: u64 = 1_000_000;

/// One arrival.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Counts from 0.
    pub number: u64,
    /// Domain time, nanoseconds since 1970 UTC.
    pub arrival_ns: i64,
    /// The instrument.
    pub key: &'a str,
    /// FINAZ_JSON_V1; `None` is a tombstone.
    pub event: Option<&'a [u8]>,
    /// The type of the fault that made this arrival what it is.
    pub fault: Option<&'static str>,
    /// The id of the event that a tombstone stands for, in no line of the log.
    pub missing: Option<&'a str>,
    /// Wall-clock time that passes before it, in no line of the log.
    pub wait_ms: u64,
}

/// What a fault did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Applied {
    pub event_id: String,
    pub kind: &'static str,
    pub effect: String,
    /// The first arrival that it shaped.
    pub arrival: u64,
}

/// A snapshot's events as they arrive.
#[derive(Debug)]
pub struct Arrivals<'a, R> {
    body: R,
    place: &'a str,
    schedule: &'a Schedule,
    index: HashMap<&'a str, usize>,
    /// For each fault, whether its event was met, and the first arrival that it shaped.
    met: Vec<bool>,
    shaped: Vec<Option<u64>>,
    lines: u64,
    ended: bool,
    current: Current,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// The last one that was done waiting.
    popped: Option<Waiting>,
    number: u64,
}

/// The event that was read last, and what is still to arrive of it.
#[derive(Debug, Default)]
struct Current {
    line: Vec<u8>,
    event_time: i64,
    instrument: String,
    seq: u64,
    turn: Option<Turn>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// The next one, from 0.
    copy: u64,
    /// The last one.
    last: u64,
    tombstone: bool,
    wait_ms: u64,
    /// Of the copies after the first.
    fault: Option<usize>,
}

/// An arrival whose time has not come.
#[derive(Debug)]
struct Waiting {
    arrival_ns: i64,
    event_time: i64,
    instrument: String,
    seq: u64,
    copy: u64,
    event: Vec<u8>,
    fault: usize,
}

impl Waiting {
    fn order(&self) -> (i64, i64, &str, u64, u64) {
        (self.arrival_ns, self.event_time, &self.instrument, self.seq, self.copy)
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Waiting {}

impl<'a, R: BufRead> Arrivals<'a, R> {
    /// `body` is a snapshot's blob, `place` its name in errors. Nothing is read yet.
    pub fn new(body: R, place: &'a str, schedule: &'a Schedule) -> Self {
        let faults = &schedule.faults;
        Self {
            body,
            place,
            schedule,
            index: faults
                .iter()
                .zip(0..)
                .map(|(fault, at)| (fault.event_id.as_str(), at))
                .collect(),
            met: vec![false; faults.len()],
            shaped: vec![None; faults.len()],
            lines: 0,
            ended: false,
            current: Current::default(),
            waiting: BinaryHeap::new(),
            popped: None,
            number: 0,
        }
    }

    /// The next arrival; `None` when all have come and every fault was applied.
    ///
    /// # Errors
    /// `SNAPSHOT_DAMAGED`, `SNAPSHOT_EMPTY`, `FAULTS_EVENT_UNKNOWN` (a fault names an event that is
    /// not there), `FAULTS_PARAMETER` (a time beyond what 64 bits hold); or reading fails.
    pub fn pull(&mut self) -> Result<Option<Arrival<'_>>, Error> {
        while self.current.turn.is_none() && !self.ended {
            self.read()?;
        }
        let current = &self.current;
        let waits_less = |turn: &Turn, waiting: &Waiting| {
            let time = current.event_time;
            let order = (time, time, current.instrument.as_str(), current.seq, turn.copy);
            waiting.order() < order
        };
        let first = self.waiting.peek().map(|Reverse(first)| first);
        let pop = match (&current.turn, first) {
            (None, None) => return Ok(None),
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(turn), Some(first)) => waits_less(turn, first),
        };
        let number = self.number;
        self.number += 1;
        if pop { Ok(Some(self.waited(number))) } else { Ok(Some(self.taken(number))) }
    }

    /// What was waiting longest arrives.
    fn waited(&mut self, number: u64) -> Arrival<'_> {
        let Reverse(popped) = self.waiting.pop().expect("it was seen there");
        self.shaped[popped.fault].get_or_insert(number);
        let popped = self.popped.insert(popped);
        Arrival {
            number,
            arrival_ns: popped.arrival_ns,
            key: &popped.instrument,
            event: Some(&popped.event),
            fault: Some(self.schedule.faults[popped.fault].kind.name()),
            missing: None,
            wait_ms: 0,
        }
    }

    /// The current event, or a copy of it, arrives.
    fn taken(&mut self, number: u64) -> Arrival<'_> {
        let turn = self.current.turn.expect("it was seen there");
        // An event that is not delayed is itself; its copies, and its tombstone, are the fault's.
        let is_shaped = turn.copy > 0 || turn.tombstone;
        if let Some(fault) = turn.fault.filter(|_| is_shaped || turn.wait_ms > 0) {
            self.shaped[fault].get_or_insert(number);
        }
        let fault = turn.fault.filter(|_| is_shaped).map(|fault| &self.schedule.faults[fault]);
        let next = Turn { copy: turn.copy + 1, wait_ms: 0, ..turn };
        self.current.turn = (turn.copy < turn.last).then_some(next);
        Arrival {
            number,
            arrival_ns: self.current.event_time,
            key: &self.current.instrument,
            event: (!turn.tombstone).then_some(&self.current.line),
            fault: fault.map(|fault| fault.kind.name()),
            missing: fault.filter(|_| turn.tombstone).map(|fault| fault.event_id.as_str()),
            wait_ms: turn.wait_ms,
        }
    }

    /// What each fault did, in the order of the schedule; known at the end.
    #[must_use]
    pub fn applied(&self) -> Vec<Applied> {
        let applied = |(fault, shaped): (&super::Fault, &Option<u64>)| {
            Some(Applied {
                event_id: fault.event_id.clone(),
                kind: fault.kind.name(),
                effect: effect(fault),
                arrival: (*shaped)?,
            })
        };
        self.schedule.faults.iter().zip(&self.shaped).filter_map(applied).collect()
    }

    /// The blob's reader, to check what was read.
    pub fn into_body(self) -> R {
        self.body
    }

    /// Reads one event.
    fn read(&mut self) -> Result<(), Error> {
        let current = &mut self.current;
        current.line.clear();
        let read = (&mut self.body).take(LINE_BYTES_MAX).read_until(b'\n', &mut current.line);
        match read {
            Ok(0) => return Ok(self.end()?),
            Ok(_) => self.lines += 1,
            Err(source) => return Err(Error::Io { place: self.place.to_owned(), source }),
        }
        if current.line.pop() != Some(b'\n') {
            return Err(self.damaged("the line does not end, or is longer than any event").into());
        }
        let head = scan::event(&current.line, &[], &mut [], (self.place, self.lines))?;
        let before = (current.event_time, current.instrument.as_str(), current.seq);
        let now = (head.event_time, head.instrument.as_ref(), head.seq);
        if self.lines > 1 && before >= now {
            let what = "not after the event before it, by time, instrument and seq";
            return Err(self.damaged(what).into());
        }
        let Some(event_id) = &head.event_id else {
            return Err(self.damaged("an event has an `event_id`, a text").into());
        };
        let fault = self.index.get(event_id.as_ref()).copied();
        current.event_time = head.event_time;
        current.seq = head.seq;
        if current.instrument != head.instrument.as_ref() {
            current.instrument.clear();
            current.instrument.push_str(&head.instrument);
        }
        current.turn = Some(Turn { fault, ..Turn::default() });
        match fault {
            Some(fault) => Ok(self.apply(fault)?),
            None => Ok(()),
        }
    }

    /// Lets a fault happen to the current event.
    fn apply(&mut self, index: usize) -> Result<(), Invalid> {
        self.met[index] = true;
        let fault = &self.schedule.faults[index];
        let turn = self.current.turn.as_mut().expect("it was just read");
        match fault.kind {
            Kind::Duplicate => turn.last = 1,
            Kind::Burst { count } => turn.last = count,
            Kind::Gap => turn.tombstone = true,
            Kind::Pause { pause_ms: ms } | Kind::SourceFailure { down_ms: ms } => turn.wait_ms = ms,
            Kind::Delay { delay_ms } => {
                let event = std::mem::take(&mut self.current.line);
                self.wait(index, delay_ms, 0, event)?;
                self.current.turn = None;
            }
            Kind::Revision { after_ms, close } => {
                let event = self.revision(&fault.event_id, close)?;
                self.wait(index, after_ms, 1, event)?;
            }
        }
        Ok(())
    }

    fn wait(
        &mut self,
        fault: usize,
        after_ms: u64,
        copy: u64,
        event: Vec<u8>,
    ) -> Result<(), Invalid> {
        let current = &self.current;
        let after_ns = after_ms.checked_mul(MS_NS).and_then(|ns| i64::try_from(ns).ok());
        let arrival_ns = after_ns.and_then(|after| current.event_time.checked_add(after));
        let arrival_ns = arrival_ns.ok_or_else(|| {
            let message = format!("{after_ms} ms after this event is beyond the year 2262");
            self.schedule.refuse(fault, "FAULTS_PARAMETER", message, "make it less")
        })?;
        self.waiting.push(Reverse(Waiting {
            arrival_ns,
            event_time: current.event_time,
            instrument: current.instrument.clone(),
            seq: current.seq,
            copy,
            event,
            fault,
        }));
        Ok(())
    }

    /// The current event with another close, under an id of its own.
    fn revision(&self, event_id: &str, close: Option<f64>) -> Result<Vec<u8>, Invalid> {
        let value = canonical::parse_line(&self.current.line, self.place, self.lines)?;
        let Value::Map(mut fields) = value else {
            return Err(self.damaged("this line is no event"));
        };
        fields.insert("close".to_owned(), close.map_or(Value::Null, Value::Float));
        fields.insert("event_id".to_owned(), Value::Text(revised(event_id)));
        Value::Map(fields).to_bytes()
    }

    /// All events were read: every fault must have found its own.
    fn end(&mut self) -> Result<(), Invalid> {
        self.ended = true;
        self.current.turn = None;
        if self.lines == 0 {
            let hint = "import one with events";
            return Err(Invalid::new("SNAPSHOT_EMPTY", self.place, "it has no events", hint));
        }
        let Some(index) = self.met.iter().position(|met| !met) else { return Ok(()) };
        let event_id = shown(&self.schedule.faults[index].event_id);
        let message = format!("the snapshot {} has no event {event_id}", self.place);
        let hint = "a fault that cannot happen is not passed over: correct the id, or the snapshot";
        Err(self.schedule.refuse(index, "FAULTS_EVENT_UNKNOWN", message, hint))
    }

    fn damaged(&self, message: &str) -> Invalid {
        let place = format!("{}:{}", self.place, self.lines);
        let hint = "name a snapshot that `finaz snapshot import` made";
        Invalid::new("SNAPSHOT_DAMAGED", place, message, hint)
    }
}

/// The id of the revision of an event.
fn revised(event_id: &str) -> String {
    format!("{event_id}.r1")
}

fn effect(fault: &super::Fault) -> String {
    match fault.kind {
        Kind::Duplicate => "the same event arrives twice".to_owned(),
        Kind::Delay { delay_ms } => format!("arrives {delay_ms} ms late in domain time"),
        Kind::Gap => "is missing; a tombstone arrives in its place".to_owned(),
        Kind::Revision { after_ms, close } => {
            let close = close.map_or("null".to_owned(), |close| {
                let mut text = Vec::new();
                canonical::write_f64(close, &mut text);
                String::from_utf8_lossy(&text).into_owned()
            });
            let id = revised(&fault.event_id);
            format!("a revision {id} of close {close} arrives {after_ms} ms later")
        }
        Kind::Pause { pause_ms } => format!("a pause of {pause_ms} ms by the wall clock before it"),
        Kind::Burst { count } => format!("a burst of {count} more of the same event"),
        Kind::SourceFailure { down_ms } => {
            format!("the source is down {down_ms} ms by the wall clock, then delivers it")
        }
    }
}
