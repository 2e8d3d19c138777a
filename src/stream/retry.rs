//! A record that was omitted, decided about anew by the rules of today. What was decided about others stays: an event
//! that is late by now is not taken.

use super::engine::{Engine, Message, Record, Sound, numbers, payload_of};
use super::identities::Seen;
use super::{Fate, Identity, Quarantined, Reason, Treatment, identity_of};
use crate::flow::scan::{self, Cell};
use crate::ids::Hash;

/// What a record would be today.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retried {
    /// `Consumed`: it was taken.
    pub treatment: Treatment,
    pub reason: Reason,
    /// In words; empty where it was taken.
    pub detail: String,
    pub event_id: Option<String>,
}

impl Retried {
    fn still(treatment: Treatment, reason: Reason, detail: impl Into<String>) -> Self {
        Self { treatment, reason, detail: detail.into(), event_id: None }
    }

    fn of(mut self, head: &scan::Head<'_>) -> Self {
        self.event_id = head.event_id.as_deref().map(str::to_owned);
        self
    }
}

impl Engine {
    /// Decides again about a record that was omitted at this place. Taken, it moves from omitted to consumed in the
    /// ledger and is applied in the order of event time as any other; `note` is kept with it. Otherwise nothing changes.
    pub fn retry(&mut self, record: Record<'_>, note: &str) -> Retried {
        let mut cells = std::mem::take(&mut self.cells);
        let tried = self.sound(record, &mut cells);
        self.cells = cells;
        match tried {
            Ok(sound) => self.take_back(record, sound, note),
            Err(still) => still,
        }
    }

    /// The event, if nothing speaks against it; in the order in which records are decided about.
    fn sound<'a>(&self, record: Record<'a>, cells: &mut [Cell]) -> Result<Sound<'a>, Retried> {
        let omitted = |reason, detail| Retried::still(Treatment::Omitted, reason, detail);
        let flow = &self.plan.flow;
        if self.lanes.get(record.partition).is_none_or(|lane| lane.ledger.omitted == 0) {
            return Err(omitted(Reason::None, "nothing was omitted of its partition".to_owned()));
        }
        let Some(value) = record.value else {
            return Err(omitted(Reason::Tombstone, "it has no value".to_owned()));
        };
        let head = scan::message(value, flow.fields(), cells)
            .map_err(|detail| omitted(Reason::Unreadable, detail))?;
        if let Some(detail) = self.misplaced(record, &head.instrument) {
            return Err(omitted(Reason::Misplaced, detail).of(&head));
        }
        if !flow.instruments.is_empty() && !self.index.contains_key(&*head.instrument) {
            let detail = "the flow does not read its instrument";
            return Err(Retried::still(Treatment::Filtered, Reason::None, detail).of(&head));
        }
        let fields = numbers(flow.fields(), cells, value)
            .map_err(|detail| omitted(Reason::Unreadable, detail).of(&head))?;
        let id = identity_of(head.event_id.as_deref().unwrap_or_default());
        let identity = Identity { id, payload: payload_of(value) };
        let seen = self.identities.look(identity);
        if seen != Seen::New {
            let reason =
                if seen == Seen::Otherwise { Reason::PayloadDiffers } else { Reason::None };
            let detail = "its event id was seen in another record";
            return Err(Retried::still(Treatment::Duplicate, reason, detail).of(&head));
        }
        if let Some(detail) = self.jump(record.partition, head.event_time) {
            return Err(omitted(Reason::TimeJump, detail).of(&head));
        }
        if let Some(watermark) = self.late(record.partition, head.event_time) {
            let time = head.event_time;
            let detail = format!("event time {time} is before the watermark {watermark} by now");
            return Err(Retried::still(Treatment::Late, Reason::None, detail).of(&head));
        }
        Ok(Sound { message: Message { head, id }, payload: identity.payload, fields })
    }

    fn take_back(&mut self, record: Record<'_>, sound: Sound<'_>, note: &str) -> Retried {
        let Sound { message, payload, fields } = sound;
        let identity = Identity { id: message.id, payload };
        let Record { partition, offset, .. } = record;
        let instrument = self.reads(&message.head.instrument).expect("it was looked at");
        self.identities.note(identity);
        self.delta.identities.push(identity);
        // What the partition said of its end was said behind this record.
        let said = self.lanes.get(partition).map(|lane| (lane.idle, lane.ended));
        let reason = self.accept(partition, instrument, &message, fields);
        if let (Some(lane), Some((idle, ended))) = (self.lanes.get_mut(partition), said) {
            (lane.idle, lane.ended) = (idle, ended);
            lane.ledger.take_back(reason == Reason::Gap);
        }
        let (treatment, retried) = (Treatment::Consumed, Reason::Retried);
        let fate = Fate { id: identity.id, partition, offset, treatment, reason: retried };
        self.delta.fates.push(fate);
        let taken = Retried::still(treatment, reason, "").of(&message.head);
        self.delta.quarantined.push(Quarantined {
            partition,
            offset,
            treatment,
            reason: retried,
            detail: note.to_owned(),
            event_id: taken.event_id.clone(),
            key: None,
            value: None,
            hash: Hash::of(record.value.unwrap_or_default()),
        });
        self.advance();
        taken
    }
}
