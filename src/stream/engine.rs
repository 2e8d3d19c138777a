//! The decision about each record, in the order of SPEC part 7, and the application of events in event-time order.
//!
//! Watermarks depend on records and markers alone: the same log gives the same decisions at any speed, with
//! any pauses and any restarts.

use std::collections::HashMap;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::identities::{Identities, Seen};
use super::lane::{Lane, Lanes, Marker};
use super::waitroom::{Waiting, Waitroom};
use super::{Applied, Delta, Fate, Identity, Ledger, Quarantined, Reason, Treatment, identity_of};
use crate::flow::scan::{self, Cell};
use crate::flow::{Flow, InstrumentState, Numbers};
use crate::ids::Hash;

/// What a run is bound to.
#[derive(Clone, Debug)]
pub struct Plan {
    pub flow: Arc<Flow>,
    /// The partitions that this engine reads.
    pub partitions: Vec<i32>,
    /// Those of them in which the partitioner puts an instrument of the flow; all, when the flow names none.
    pub active: Vec<i32>,
    /// In a split run: where the partitioner puts a key. A record elsewhere, or whose key is not its instrument, is omitted.
    pub home: Option<fn(&[u8], u32) -> u32>,
    /// Partitions of the topic.
    pub topic_partitions: u32,
    /// Nanoseconds that a record may be ahead of the highest event time of its partition.
    pub max_jump_ns: i64,
}

/// A record as it comes from a partition.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
}

/// The nodes of one instrument.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) name: Arc<str>,
    pub(super) nodes: InstrumentState,
    /// Events that went through them.
    pub(super) applied: u64,
}

/// What a stream knows and decides.
#[derive(Debug)]
pub struct Engine {
    pub(super) plan: Plan,
    pub(super) lanes: Lanes,
    pub(super) index: HashMap<String, usize>,
    pub(super) running: Vec<Running>,
    pub(super) identities: Identities,
    pub(super) waiting: Waitroom,
    /// W: events before it were applied; it never goes back.
    pub(super) watermark: i64,
    pub(super) delta: Delta,
    /// Of an earlier cut, empty.
    pub(super) spare: Delta,
    /// Something was passed since the last cut that is no record: a marker, or offsets that hold nothing.
    pub(super) passed: bool,
    /// Bytes of keys and values among the new quarantined records.
    pub(super) kept_bytes: usize,
    pub(super) cells: Vec<Cell>,
    /// Which of the flow's fields any event had that was accepted since the start of this process.
    pub(super) had: Vec<bool>,
    /// An event was accepted since the last cut.
    pub(super) fed: bool,
}

/// An event that nothing speaks against.
pub(super) struct Sound<'a> {
    pub(super) message: Message<'a>,
    pub(super) payload: u64,
    pub(super) fields: Numbers,
}

/// Why a record goes to quarantine.
struct Why<'a> {
    treatment: Treatment,
    reason: Reason,
    /// In words.
    detail: String,
    event_id: Option<&'a str>,
}

impl<'a> Why<'a> {
    fn omitted(reason: Reason, detail: String, event_id: Option<&'a str>) -> Self {
        Self { treatment: Treatment::Omitted, reason, detail, event_id }
    }
}

/// What was read of a value.
pub(super) struct Message<'a> {
    pub(super) head: scan::Head<'a>,
    pub(super) id: [u8; 16],
}

impl Engine {
    /// One that has read nothing; each partition begins at offset 0 until [`Engine::begin`] says otherwise.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let lane = |partition: &i32| {
            let active = plan.active.contains(partition);
            (*partition, Lane { active, ..Lane::default() })
        };
        let mut engine = Self {
            lanes: plan.partitions.iter().map(lane).collect(),
            index: HashMap::new(),
            running: Vec::new(),
            identities: Identities::default(),
            waiting: Waitroom::default(),
            watermark: i64::MIN,
            delta: Delta::default(),
            spare: Delta::default(),
            passed: false,
            kept_bytes: 0,
            cells: vec![Cell::Absent; plan.flow.fields().len()],
            had: vec![false; plan.flow.fields().len()],
            fed: false,
            plan,
        };
        for name in engine.plan.flow.instruments.clone() {
            engine.instrument(&name);
        }
        engine
    }

    /// A partition of which nothing was read begins here.
    pub fn begin(&mut self, partition: i32, offset: i64) {
        if let Some(lane) = self.lanes.get_mut(partition).filter(|lane| lane.ledger.read == 0) {
            lane.next_offset = lane.next_offset.max(offset);
        }
    }

    /// Takes in one record; gives what became of it. A record before the next offset was decided already: `None`.
    pub fn take(&mut self, record: Record<'_>) -> Option<Treatment> {
        let lane = self.lanes.get_mut(record.partition)?;
        if record.offset < lane.next_offset {
            return None;
        }
        lane.next_offset = record.offset + 1;
        lane.remember(record.offset, record.key, record.value);
        let (id, treatment, reason) = self.decide(record);
        self.settle(record, id, treatment, reason);
        Some(treatment)
    }

    /// A record that the client could not decode; whatever of it there is, is kept.
    pub fn omit(&mut self, partition: i32, offset: i64, detail: &str, raw: &[u8]) {
        let Some(lane) = self.lanes.get_mut(partition).filter(|l| l.next_offset <= offset) else {
            return;
        };
        lane.next_offset = offset + 1;
        let record = Record { partition, offset, key: None, value: Some(raw) };
        self.quarantine(
            record,
            Why {
                treatment: Treatment::Omitted,
                reason: Reason::Undecodable,
                detail: detail.to_owned(),
                event_id: None,
            },
        );
        self.settle(record, [0; 16], Treatment::Omitted, Reason::Undecodable);
    }

    /// Offsets before this one hold nothing more: markers of transactions, aborted and compacted records.
    pub fn skip_to(&mut self, partition: i32, offset: i64) {
        if let Some(lane) = self.lanes.get_mut(partition).filter(|l| l.next_offset < offset) {
            lane.next_offset = offset;
            self.passed = true;
        }
    }

    /// Offsets of which the broker says that they can be read, and gives nothing: no records of the ledger, but on
    /// record in the quarantine.
    pub fn lose(&mut self, partition: i32, from: i64, next: i64) {
        let record = Record { partition, offset: from, key: None, value: None };
        let detail = format!("the broker gives nothing from offset {from} up to {next}");
        self.quarantine(
            record,
            Why { treatment: Treatment::Omitted, reason: Reason::Mute, detail, event_id: None },
        );
        self.skip_to(partition, next);
    }

    /// A marker in the log: evidence about what is to come, no record of the ledger.
    pub fn mark(&mut self, partition: i32, offset: i64, marker: Marker) {
        let Some(lane) = self.lanes.get_mut(partition).filter(|l| l.next_offset <= offset) else {
            return;
        };
        lane.next_offset = offset + 1;
        lane.markers += 1;
        self.passed = true;
        match marker {
            Marker::IdleConfirmed => lane.idle = true,
            Marker::EndOfBoundedSource => lane.ended = true,
        }
        self.advance();
    }

    /// Whether every partition that counts has said that nothing is to come any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut active = self.lanes.values().filter(|lane| lane.active).peekable();
        active.peek().is_some() && active.all(|lane| lane.ended)
    }

    /// The ledger of all partitions.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.lanes.values().fold(Ledger::default(), |sum, lane| sum.plus(&lane.ledger))
    }

    /// A field that the flow computes with, and none of the events had that were accepted since the last cut and before.
    #[must_use]
    pub fn lacks(&self) -> Option<&str> {
        let lacking = self.had.iter().position(|had| !had && self.fed);
        lacking.map(|at| self.plan.flow.fields()[at].as_str())
    }

    fn decide(&mut self, record: Record<'_>) -> ([u8; 16], Treatment, Reason) {
        let Some(value) = record.value else {
            return self.refuse(
                record,
                [0; 16],
                Why::omitted(Reason::Tombstone, String::new(), None),
            );
        };
        // Taken out for the time of the reading: it borrows the value, not the engine.
        let mut cells = std::mem::take(&mut self.cells);
        let message = scan::message(value, self.plan.flow.fields(), &mut cells);
        let decided = match message {
            Err(detail) => {
                self.refuse(record, [0; 16], Why::omitted(Reason::Unreadable, detail, None))
            }
            Ok(head) => {
                let id = identity_of(head.event_id.as_deref().unwrap_or_default());
                self.decide_event(record, value, &Message { head, id }, &cells)
            }
        };
        self.cells = cells;
        decided
    }

    fn decide_event(
        &mut self,
        record: Record<'_>,
        value: &[u8],
        message: &Message<'_>,
        cells: &[Cell],
    ) -> ([u8; 16], Treatment, Reason) {
        let (id, head) = (message.id, &message.head);
        let event_id = head.event_id.as_deref();
        if let Some(detail) = self.misplaced(record, &head.instrument) {
            return self.refuse(record, id, Why::omitted(Reason::Misplaced, detail, event_id));
        }
        let Some(instrument) = self.reads(&head.instrument) else {
            return (id, Treatment::Filtered, Reason::None);
        };
        let fields = match numbers(self.plan.flow.fields(), cells, value) {
            Ok(fields) => fields,
            Err(detail) => {
                return self.refuse(record, id, Why::omitted(Reason::Unreadable, detail, event_id));
            }
        };
        let identity = Identity { id, payload: payload_of(value) };
        let time = head.event_time;
        let jump = self.jump(record.partition, time);
        // Noted at once: a look first would search the same place twice.
        let seen = match jump {
            None => self.identities.note(identity),
            Some(_) => self.identities.look(identity),
        };
        match (seen, jump) {
            (Seen::New, Some(detail)) => {
                return self.refuse(record, id, Why::omitted(Reason::TimeJump, detail, event_id));
            }
            (Seen::New, None) => {}
            (seen, jump) => {
                if jump.is_none() {
                    self.see_time(record.partition, time);
                }
                let reason =
                    if seen == Seen::Otherwise { Reason::PayloadDiffers } else { Reason::None };
                if seen == Seen::Otherwise {
                    let detail = "the same event id with another payload".to_owned();
                    self.quarantine(
                        record,
                        Why { treatment: Treatment::Duplicate, reason, detail, event_id },
                    );
                }
                return (id, Treatment::Duplicate, reason);
            }
        }
        self.delta.identities.push(identity);
        if let Some(watermark) = self.late(record.partition, time) {
            let detail = format!("event time {time} is before the watermark {watermark}");
            self.quarantine(
                record,
                Why { treatment: Treatment::Late, reason: Reason::None, detail, event_id },
            );
            return (id, Treatment::Late, Reason::None);
        }
        for (had, cell) in self.had.iter_mut().zip(cells) {
            *had |= !matches!(cell, Cell::Absent);
        }
        let reason = self.accept(record.partition, instrument, message, fields);
        (id, Treatment::Consumed, reason)
    }

    /// Keeps an event until it is applied; the reason says whether it is a GAP.
    #[inline]
    pub(super) fn accept(
        &mut self,
        partition: i32,
        instrument: usize,
        message: &Message<'_>,
        fields: Numbers,
    ) -> Reason {
        let Message { head: scan::Head { event_time, seq, .. }, id } = message;
        let (event_time, seq, id) = (*event_time, *seq, *id);
        let reason = if fields.iter().any(|x| x.is_nan()) { Reason::Gap } else { Reason::None };
        self.await_watermark(partition, Waiting { event_time, instrument, seq, id, fields });
        reason
    }

    pub(super) fn await_watermark(&mut self, partition: i32, event: Waiting) {
        let event_time = event.event_time;
        self.fed = true;
        self.waiting.push(partition, event);
        self.see_time(partition, event_time);
    }

    /// In a split run a record's key is its instrument and lies where the partitioner puts it: only then are identities,
    /// nodes and watermark a partition's own.
    pub(super) fn misplaced(&self, record: Record<'_>, instrument: &str) -> Option<String> {
        let home = self.plan.home?;
        if record.key != Some(instrument.as_bytes()) {
            return Some(
                "its key is not its instrument, and this run is split by partition".to_owned(),
            );
        }
        let home = home(instrument.as_bytes(), self.plan.topic_partitions);
        let here = u32::try_from(record.partition).ok() == Some(home);
        (!here).then(|| format!("the partitioner puts it into partition {home}"))
    }

    /// The instrument's number, if the flow reads it.
    pub(super) fn reads(&mut self, instrument: &str) -> Option<usize> {
        let known = self.index.get(instrument).copied();
        let every = self.plan.flow.instruments.is_empty();
        known.or_else(|| every.then(|| self.instrument(instrument)))
    }

    pub(super) fn instrument(&mut self, name: &str) -> usize {
        let number = self.running.len();
        let nodes = self.plan.flow.start();
        self.running.push(Running { name: name.into(), nodes, applied: 0 });
        self.index.insert(name.to_owned(), number);
        number
    }

    /// In words, when the time is too far ahead to be believed.
    pub(super) fn jump(&self, partition: i32, time: i64) -> Option<String> {
        let highest = self.lanes.get(partition)?.max_time?;
        let far = time > highest.saturating_add(self.plan.max_jump_ns);
        far.then(|| format!("event time {time} is more than max_jump ahead of {highest}"))
    }

    /// The watermark that the time is before: that of its own partition, or that up to which events were applied.
    pub(super) fn late(&self, partition: i32, time: i64) -> Option<i64> {
        let own = self.lanes.get(partition)?.watermark(self.plan.flow.allowed_lateness_ns);
        let watermark = own.unwrap_or(i64::MIN).max(self.watermark);
        (time < watermark).then_some(watermark)
    }

    /// A record of the flow moves its partition's watermark, and wakes the partition.
    pub(super) fn see_time(&mut self, partition: i32, time: i64) {
        if let Some(lane) = self.lanes.get_mut(partition) {
            lane.max_time = Some(lane.max_time.map_or(time, |highest| highest.max(time)));
            (lane.active, lane.idle, lane.ended) = (true, false, false);
        }
    }

    fn refuse(
        &mut self,
        record: Record<'_>,
        id: [u8; 16],
        why: Why<'_>,
    ) -> ([u8; 16], Treatment, Reason) {
        let (treatment, reason) = (why.treatment, why.reason);
        self.quarantine(record, why);
        (id, treatment, reason)
    }

    fn quarantine(&mut self, record: Record<'_>, why: Why<'_>) {
        let Why { treatment, reason, detail, event_id } = why;
        self.kept_bytes += record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        self.delta.quarantined.push(Quarantined {
            partition: record.partition,
            offset: record.offset,
            treatment,
            reason,
            detail,
            event_id: event_id.map(str::to_owned),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            hash: Hash::of(record.value.unwrap_or_default()),
        });
    }

    fn settle(&mut self, record: Record<'_>, id: [u8; 16], treatment: Treatment, reason: Reason) {
        let Record { partition, offset, .. } = record;
        if let Some(lane) = self.lanes.get_mut(partition) {
            lane.ledger.count(treatment, reason);
        }
        self.delta.fates.push(Fate { id, partition, offset, treatment, reason });
        if matches!(treatment, Treatment::Consumed | Treatment::Duplicate) {
            self.advance();
        }
    }

    /// Moves W to the minimum of what the active partitions say, and applies what lies before it.
    pub(super) fn advance(&mut self) {
        let lateness = self.plan.flow.allowed_lateness_ns;
        let said = self.lanes.least(lateness);
        let watermark = match said {
            Some(watermark) => watermark,
            None if self.has_ended() => i64::MAX,
            None => return,
        };
        self.watermark = self.watermark.max(watermark);
        while let Some(next) = self.waiting.pop_before(self.watermark) {
            let running = &mut self.running[next.instrument];
            running.applied += 1;
            self.delta.applied.push(Applied {
                event_time: next.event_time,
                instrument: Arc::clone(&running.name),
                values: self.plan.flow.push(&mut running.nodes, &next.fields),
            });
        }
    }
}

/// The numbers of the fields that the flow reads; NaN for null or a field that is not there.
pub(super) fn numbers(names: &[String], cells: &[Cell], value: &[u8]) -> Result<Numbers, String> {
    let number = |(cell, name): (&Cell, &String)| {
        cell.number(value)
            .map_err(|kind| format!("`{name}` is {kind}, and a node computes with numbers"))
    };
    cells.iter().zip(names).map(number).collect()
}

/// By which another payload under the same id is noticed. It decides nothing more than how a duplicate is reported, so it
/// needs no cryptographic hash, which an identity does.
pub(super) fn payload_of(value: &[u8]) -> u64 {
    XxHash3_64::oneshot(value)
}
