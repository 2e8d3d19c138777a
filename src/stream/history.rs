//! A stream that goes on from a history: the events of a snapshot, accepted as they stand, before the first record.
//!
//! They go the way of any accepted event, each as if it had come through the partition where its instrument belongs: so
//! nodes, identities, watermarks and what still waits are what they would be had the log brought them in order.

use super::engine::{Engine, Record, numbers, payload_of};
use super::identities::Seen;
use super::waitroom::Waiting;
use super::{Identity, identity_of};
use crate::flow::scan;
use crate::invalid::Invalid;
use crate::replay::partition;

/// What became of an event of a history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seeded {
    /// Of an instrument that the flow does not read.
    Filtered,
    /// Accepted.
    New,
    /// It was accepted before.
    Known,
}

/// What a record would be to a stream, were it read now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Foreseen {
    Unreadable,
    Filtered,
    /// Its event is known.
    Known,
    /// The same with another payload.
    Differs,
    /// Its event is not known; whether it is before the watermark.
    Missing {
        late: bool,
    },
}

impl Engine {
    /// Accepts an event of a history, which come in the order of event time. `line` is FINAZ_JSON_V1 without its end,
    /// `at` its place in the snapshot.
    ///
    /// # Errors
    /// `SNAPSHOT_DAMAGED` for no event, or one out of order; `FIELD_NOT_NUMERIC`.
    pub fn seed(&mut self, line: &[u8], at: (&str, u64)) -> Result<Seeded, Invalid> {
        let mut cells = std::mem::take(&mut self.cells);
        let head = scan::event(line, self.plan.flow.fields(), &mut cells, at);
        let seeded = head.and_then(|head| self.seed_event(line, &head, &cells, at));
        self.cells = cells;
        seeded
    }

    fn seed_event(
        &mut self,
        line: &[u8],
        head: &scan::Head<'_>,
        cells: &[scan::Cell],
        at: (&str, u64),
    ) -> Result<Seeded, Invalid> {
        let refuse = |code, message: String, hint: &str| {
            Invalid::new(code, format!("{}:{}", at.0, at.1), message, hint)
        };
        let damaged = |message: &str| {
            refuse(
                "SNAPSHOT_DAMAGED",
                message.to_owned(),
                "name one that `finaz snapshot import` made",
            )
        };
        let home = partition(head.instrument.as_bytes(), self.plan.topic_partitions);
        let home = i32::try_from(home).unwrap_or(i32::MAX);
        if self.lanes.get(home).is_none() {
            return Ok(Seeded::Filtered);
        }
        let Some(instrument) = self.reads(&head.instrument) else { return Ok(Seeded::Filtered) };
        let event_id =
            head.event_id.as_deref().ok_or_else(|| damaged("an event has an `event_id`"))?;
        let fields = numbers(self.plan.flow.fields(), cells, line).map_err(|message| {
            let hint = "name another field as the input, or import the column as numbers";
            refuse("FIELD_NOT_NUMERIC", message, hint)
        })?;
        let identity = Identity { id: identity_of(event_id), payload: payload_of(line) };
        match self.identities.look(identity) {
            Seen::New => {}
            Seen::Before => return Ok(Seeded::Known),
            Seen::Otherwise => return Err(damaged("an event id that comes twice")),
        }
        let (event_time, seq, id) = (head.event_time, head.seq, identity.id);
        if self.late(home, event_time).is_some() {
            return Err(damaged("not in the order of event time"));
        }
        self.identities.note(identity);
        self.delta.identities.push(identity);
        self.await_watermark(home, Waiting { event_time, instrument, seq, id, fields });
        self.advance();
        Ok(Seeded::New)
    }

    /// Instruments that the flow names and of which no event came yet.
    #[must_use]
    pub fn without_events(&self) -> Vec<&str> {
        let waits = self.waiting.sorted();
        let has = |number: usize| {
            self.running[number].applied > 0 || waits.iter().any(|event| event.instrument == number)
        };
        (0..self.running.len()).filter(|n| !has(*n)).map(|n| &*self.running[n].name).collect()
    }

    /// Events that were accepted from a history: known, and never read.
    #[must_use]
    pub fn history(&self) -> u64 {
        let ledger = self.ledger();
        (self.identities.len() as u64).saturating_sub(ledger.consumed + ledger.late)
    }

    /// What this record would be; nothing of it is kept.
    pub fn foresee(&mut self, record: Record<'_>) -> Foreseen {
        let Some(value) = record.value else { return Foreseen::Unreadable };
        let mut cells = std::mem::take(&mut self.cells);
        let foreseen = match scan::message(value, self.plan.flow.fields(), &mut cells) {
            Err(_no_event) => Foreseen::Unreadable,
            Ok(head) => self.foresee_event(record.partition, value, &head, &cells),
        };
        self.cells = cells;
        foreseen
    }

    fn foresee_event(
        &self,
        partition: i32,
        value: &[u8],
        head: &scan::Head<'_>,
        cells: &[scan::Cell],
    ) -> Foreseen {
        let reads = self.plan.flow.instruments.is_empty()
            || self.index.contains_key(head.instrument.as_ref());
        if !reads {
            return Foreseen::Filtered;
        }
        if numbers(self.plan.flow.fields(), cells, value).is_err() {
            return Foreseen::Unreadable;
        }
        let id = identity_of(head.event_id.as_deref().unwrap_or_default());
        match self.identities.look(Identity { id, payload: payload_of(value) }) {
            Seen::Before => Foreseen::Known,
            Seen::Otherwise => Foreseen::Differs,
            Seen::New => {
                Foreseen::Missing { late: self.late(partition, head.event_time).is_some() }
            }
        }
    }

    /// Notes a record below the offset at which a partition will be opened: the last one must still be there then.
    pub fn pass(&mut self, record: Record<'_>) {
        if let Some(lane) = self.lanes.get_mut(record.partition) {
            lane.remember(record.offset, record.key, record.value);
        }
    }
}
