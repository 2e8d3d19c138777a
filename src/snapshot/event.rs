//! An event on its way from the source into the body: numbered, and written once.

use std::collections::HashMap;

use super::Error;
use super::cell::{self, integer, natural, shown};
use super::settings::{INSTRUMENT_MAX, STANDARD, Settings};
use super::source::Source;
use crate::canonical::{write_f64, write_text};
use crate::invalid::Invalid;

/// More instruments in one file are a wrong column, and would be held in memory.
const INSTRUMENTS_MAX: usize = 100_000;

/// One event as a reader found it.
#[derive(Debug)]
pub(super) struct Event<'a> {
    /// The line, or the row, from 1.
    pub(super) line: u64,
    pub(super) time: i64,
    pub(super) close: Option<f64>,
    pub(super) instrument: &'a str,
    pub(super) event_id: Option<&'a str>,
    pub(super) fields: &'a Kept,
}

/// The kept fields of one event, in canonical form, in the order of [`Settings::fields`].
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Kept {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Ends a field whose value was appended to `bytes`.
    pub(super) fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn get(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[from..self.ends[at]]
    }
}

/// Why a reader stopped.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(Error),
    /// The rows are not in the order of the body, which was taken for granted so far.
    Unordered,
    /// The line that was looked for.
    Found(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Invalid> for Stop {
    fn from(invalid: Invalid) -> Self {
        Self::Failed(invalid.into())
    }
}

/// What a reader hands its events to.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&Event<'_>) -> Result<(), Stop>;

/// The instruments of a source, numbered as they come.
#[derive(Debug, Default)]
pub(super) struct Instruments {
    numbers: HashMap<Box<str>, u32>,
    all: Vec<Instrument>,
    last: u32,
}

#[derive(Debug)]
struct Instrument {
    name: Box<str>,
    /// The name in canonical form, with its quotes.
    quoted: Box<[u8]>,
    time: i64,
    events: u64,
}

impl Instruments {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn name(&self, number: u32) -> &str {
        &self.get(number).name
    }

    fn get(&self, number: u32) -> &Instrument {
        &self.all[usize::try_from(number).expect("32 bits fit")]
    }

    /// The place of each instrument in the order of names.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let mut by_name: Vec<u32> = (0..).take(self.all.len()).collect();
        by_name.sort_unstable_by_key(|number| self.name(*number));
        let mut ranks = vec![0; by_name.len()];
        for (rank, number) in (0..).zip(by_name) {
            ranks[usize::try_from(number).expect("32 bits fit")] = rank;
        }
        ranks
    }

    /// Counts an event in: its instrument's number, and its own within that.
    pub(super) fn count(
        &mut self,
        event: &Event<'_>,
        source: &Source,
        sort: bool,
    ) -> Result<(u32, u64), Error> {
        let number = self.number(event, source)?;
        let instrument = &mut self.all[usize::try_from(number).expect("32 bits fit")];
        if event.time < instrument.time && !sort {
            let message = format!(
                "the time of {} goes back by {} ns",
                shown(&instrument.name),
                i128::from(instrument.time) - i128::from(event.time)
            );
            let hint = "is the file sorted another way? --sort orders the events by time";
            return Err(Invalid::new("TIME_ORDER", source.at(event.line), message, hint).into());
        }
        instrument.time = event.time;
        let seq = instrument.events;
        instrument.events += 1;
        Ok((number, seq))
    }

    fn number(&mut self, event: &Event<'_>, source: &Source) -> Result<u32, Error> {
        let name = event.instrument;
        let last = usize::try_from(self.last).expect("32 bits fit");
        if self.all.get(last).is_some_and(|last| *last.name == *name) {
            return Ok(self.last);
        }
        if let Some(number) = self.numbers.get(name) {
            self.last = *number;
            return Ok(*number);
        }
        cell::name("instrument", name, INSTRUMENT_MAX)
            .map_err(|fault| fault.at(source.at(event.line)))?;
        if self.all.len() == INSTRUMENTS_MAX {
            let message = format!("there are more than {INSTRUMENTS_MAX} instruments");
            let hint = "does --instrument-column name the right column?";
            return Err(
                Invalid::new("INSTRUMENTS_MANY", source.at(event.line), message, hint).into()
            );
        }
        let number = u32::try_from(self.all.len()).expect("bounded above");
        let mut quoted = Vec::with_capacity(name.len() + 2);
        write_text(name, &mut quoted);
        self.numbers.insert(name.into(), number);
        let quoted = quoted.into();
        self.all.push(Instrument { name: name.into(), quoted, time: event.time, events: 0 });
        self.last = number;
        Ok(number)
    }
}

/// What stands after a key of the body.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Close,
    EventId,
    EventTime,
    Instrument,
    Seq,
    Field(usize),
}

/// Writes the lines of the body.
#[derive(Debug)]
pub(super) struct Writer {
    /// Each key with what goes before it, in the order of the keys.
    slots: Vec<(Vec<u8>, Slot)>,
    time: Vec<u8>,
}

impl Writer {
    pub(super) fn new(settings: &Settings) -> Self {
        let standard = [Slot::Close, Slot::EventId, Slot::EventTime, Slot::Instrument, Slot::Seq];
        let mut keys: Vec<(&str, Slot)> = STANDARD.into_iter().zip(standard).collect();
        let fields = settings.fields.iter().enumerate();
        keys.extend(fields.map(|(at, name)| (name.as_str(), Slot::Field(at))));
        keys.sort_by_key(|(name, _)| *name);
        let slots = keys.into_iter().enumerate().map(|(at, (name, slot))| {
            let mut before = vec![if at == 0 { b'{' } else { b',' }];
            write_text(name, &mut before);
            before.push(b':');
            (before, slot)
        });
        Self { slots: slots.collect(), time: Vec::new() }
    }

    /// Appends the line of an event. Where its id is made here, gives the place of the id's last
    /// digit: it counts equal times, which is known only when the events are in order.
    pub(super) fn line(
        &mut self,
        event: &Event<'_>,
        instruments: &Instruments,
        (number, seq): (u32, u64),
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let from = out.len();
        let mut count_at = None;
        let quoted = &instruments.get(number).quoted;
        self.time.clear();
        integer(event.time, &mut self.time);
        for (before, slot) in &self.slots {
            out.extend_from_slice(before);
            match slot {
                Slot::Close => match event.close {
                    Some(close) => write_f64(close, out),
                    None => out.extend_from_slice(b"null"),
                },
                Slot::EventId => match event.event_id {
                    Some(id) => write_text(id, out),
                    None => {
                        out.extend_from_slice(&quoted[..quoted.len() - 1]);
                        out.push(b'@');
                        out.extend_from_slice(&self.time);
                        out.push(b'#');
                        count_at = Some(out.len() - from);
                        out.extend_from_slice(b"0\"");
                    }
                },
                Slot::EventTime => out.extend_from_slice(&self.time),
                Slot::Instrument => out.extend_from_slice(quoted),
                Slot::Seq => natural(seq, out),
                Slot::Field(at) => out.extend_from_slice(event.fields.get(*at)),
            }
        }
        out.extend_from_slice(b"}\n");
        count_at
    }
}
