//! From the order of the source to the order of the body: event time, instrument, seq.
//!
//! A source that is in that order already goes straight through. One that is not, and does not fit
//! in memory, is sorted in runs that are merged; it is then read from its start again, because what
//! was written straight through cannot be taken back.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::Write as _;

use super::Error;
use super::event::{Event, Instruments, Stop, Writer};
use super::settings::Settings;
use super::source::Source;
use super::spill::{Run, Spill};
use super::unique::Ids;
use crate::artifacts::{Artifacts, BlobWriter};

/// Lines of the body in memory.
#[cfg(not(test))]
const ARENA_MAX: usize = 48 << 20;
#[cfg(test)]
const ARENA_MAX: usize = 4 << 10;

/// The head of a line in a run: time, seq, instrument, place of the count, length.
const HEAD: usize = 28;
/// No count in this line: its id is the source's.
const NO_COUNT: u32 = u32::MAX;

/// Where a line lies in memory, and what orders it.
#[derive(Clone, Copy, Debug)]
struct Key {
    time: i64,
    seq: u64,
    instrument: u32,
    count_at: u32,
    from: u32,
    len: u32,
}

/// The events of one pass over a source.
pub(super) struct Intake<'a> {
    artifacts: &'a Artifacts,
    source: &'a Source,
    sort: bool,
    writer: Writer,
    pub(super) instruments: Instruments,
    pub(super) ids: Ids,
    arena: Vec<u8>,
    keys: Vec<Key>,
    /// The last event, as long as all of them were in order.
    last: Option<Key>,
    ordered: bool,
    /// Lines that went straight through; none when this pass sorts.
    body: Option<Body<'a>>,
    runs: Option<Spill>,
}

impl<'a> Intake<'a> {
    /// A pass that hopes for order, or one that sorts from the start.
    pub(super) fn new(
        artifacts: &'a Artifacts,
        source: &'a Source,
        settings: &Settings,
        sorting: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            artifacts,
            source,
            sort: settings.sort,
            writer: Writer::new(settings),
            instruments: Instruments::default(),
            ids: Ids::default(),
            arena: Vec::new(),
            keys: Vec::new(),
            last: None,
            ordered: true,
            body: None,
            runs: if sorting { Some(Spill::new(artifacts)?) } else { None },
        })
    }

    /// Takes the next event of the source.
    pub(super) fn event(&mut self, event: &Event<'_>) -> Result<(), Stop> {
        let counted = self.instruments.count(event, self.source, self.sort)?;
        if let Some(id) = event.event_id {
            self.ids.add(self.artifacts, id, event.line)?;
        }
        let from = self.arena.len();
        let count_at = self.writer.line(event, &self.instruments, counted, &mut self.arena);
        let narrow = |size: usize| u32::try_from(size).expect("the arena is far below 4 GiB");
        let key = Key {
            time: event.time,
            seq: counted.1,
            instrument: counted.0,
            count_at: count_at.map_or(NO_COUNT, narrow),
            from: narrow(from),
            len: narrow(self.arena.len() - from),
        };
        let before = self.last.replace(key);
        self.ordered &=
            before.is_none_or(|last| order(&self.instruments, &last, &key) == Ordering::Less);
        if !self.ordered && self.body.is_some() {
            return Err(Stop::Unordered);
        }
        self.keys.push(key);
        if self.arena.len() >= ARENA_MAX { Ok(self.drain()?) } else { Ok(()) }
    }

    /// Empties the memory: into the body while all is in order, else into a run.
    fn drain(&mut self) -> Result<(), Error> {
        if self.ordered && self.runs.is_none() {
            let mut body = match self.body.take() {
                Some(body) => body,
                None => Body::new(self.artifacts)?,
            };
            self.write(&mut body)?;
            self.body = Some(body);
        } else {
            let instruments = &self.instruments;
            self.keys.sort_unstable_by(|a, b| order(instruments, a, b));
            let runs = match &mut self.runs {
                Some(runs) => runs,
                none => none.insert(Spill::new(self.artifacts)?),
            };
            let (keys, arena) = (&self.keys, &self.arena);
            runs.run(|out| {
                keys.iter().try_for_each(|key| {
                    out.write_all(&key.head())?;
                    out.write_all(key.line(arena))
                })
            })?;
        }
        self.keys.clear();
        self.arena.clear();
        Ok(())
    }

    fn write(&self, body: &mut Body<'a>) -> Result<(), Error> {
        self.keys.iter().try_for_each(|key| body.line(key, key.line(&self.arena)))
    }

    /// The whole body, once the source has ended. `step` is called now and then.
    pub(super) fn finish(mut self, step: &dyn Fn()) -> Result<(BlobWriter<'a>, u64), Error> {
        if self.runs.is_some() {
            self.drain()?;
            // The memory is needed for the buffers of the runs.
            self.arena = Vec::new();
            self.keys = Vec::new();
            return self.merge(step);
        }
        let instruments = &self.instruments;
        if !self.ordered {
            self.keys.sort_unstable_by(|a, b| order(instruments, a, b));
        }
        let mut body = match self.body.take() {
            Some(body) => body,
            None => Body::new(self.artifacts)?,
        };
        self.write(&mut body)?;
        Ok((body.out, body.events))
    }

    fn merge(&self, step: &dyn Fn()) -> Result<(BlobWriter<'a>, u64), Error> {
        const STEP: u64 = 1 << 14;
        let ranks = self.instruments.ranks();
        let rank = |key: &Key| ranks[usize::try_from(key.instrument).expect("32 bits fit")];
        let mut body = Body::new(self.artifacts)?;
        let mut runs = self.runs.as_ref().map(Spill::runs).unwrap_or_default();
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (at, run) in runs.iter_mut().enumerate() {
            if let Some(key) = Key::next(run)? {
                heap.push(Reverse((key.time, rank(&key), key.seq, at)));
            }
        }
        while let Some(mut top) = heap.peek_mut() {
            let at = top.0.3;
            let run = &mut runs[at];
            let key = Key::next(run)?.expect("it was seen when it was put on the heap");
            let len = usize::try_from(key.len).expect("32 bits fit");
            body.line(&key, &run.peek(HEAD + len)?[HEAD..])?;
            run.take(HEAD + len);
            match Key::next(run)? {
                Some(key) => *top = Reverse((key.time, rank(&key), key.seq, at)),
                None => drop(PeekMut::pop(top)),
            }
            if body.events % STEP == 0 {
                step();
            }
        }
        Ok((body.out, body.events))
    }
}

fn order(instruments: &Instruments, a: &Key, b: &Key) -> Ordering {
    a.time.cmp(&b.time).then_with(|| {
        if a.instrument == b.instrument {
            return a.seq.cmp(&b.seq);
        }
        instruments.name(a.instrument).cmp(instruments.name(b.instrument))
    })
}

impl Key {
    fn line<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        let from = usize::try_from(self.from).expect("32 bits fit");
        &arena[from..from + usize::try_from(self.len).expect("32 bits fit")]
    }

    fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&self.time.to_le_bytes());
        head[8..16].copy_from_slice(&self.seq.to_le_bytes());
        head[16..20].copy_from_slice(&self.instrument.to_le_bytes());
        head[20..24].copy_from_slice(&self.count_at.to_le_bytes());
        head[24..].copy_from_slice(&self.len.to_le_bytes());
        head
    }

    /// The key of the next line in a run, which stays there.
    fn next(run: &mut Run<'_>) -> Result<Option<Self>, Error> {
        let head = run.peek(HEAD)?;
        if head.is_empty() {
            return Ok(None);
        }
        let wide = |at: usize| head[at..at + 8].try_into().expect("8 bytes were cut");
        let narrow =
            |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes were cut"));
        Ok(Some(Self {
            time: i64::from_le_bytes(wide(0)),
            seq: u64::from_le_bytes(wide(8)),
            instrument: narrow(16),
            count_at: narrow(20),
            from: 0,
            len: narrow(24),
        }))
    }
}

/// The body as it is written, line after line in its order.
struct Body<'a> {
    out: BlobWriter<'a>,
    /// The folder that it is written to.
    place: String,
    events: u64,
    /// Time and instrument of the last line, and how many lines had them before.
    last: Option<(i64, u32)>,
    equal: u64,
}

impl<'a> Body<'a> {
    fn new(artifacts: &'a Artifacts) -> Result<Self, Error> {
        let place = artifacts.root().display().to_string();
        Ok(Self { out: artifacts.writer()?, place, events: 0, last: None, equal: 0 })
    }

    fn line(&mut self, key: &Key, line: &[u8]) -> Result<(), Error> {
        let this = Some((key.time, key.instrument));
        self.equal = if self.last == this { self.equal + 1 } else { 0 };
        self.last = this;
        self.events += 1;
        let written = if self.equal == 0 || key.count_at == NO_COUNT {
            self.out.write_all(line)
        } else {
            let at = usize::try_from(key.count_at).expect("32 bits fit");
            self.out
                .write_all(&line[..at])
                .and_then(|()| write!(self.out, "{}", self.equal))
                .and_then(|()| self.out.write_all(&line[at + 1..]))
        };
        written.map_err(|e| Error::io(&self.place, e))
    }
}
