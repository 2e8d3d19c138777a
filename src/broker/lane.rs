//! One partition that is followed: what has come and was not handed over yet, and how far it is accounted for.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use krafka::__private::protocol::{Record, RecordBatchHeader};
use tokio::time::Instant;

use super::frames::Frame;
use super::opened::{Next, Opened};
use super::{Edge, Event};

/// A partition.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) partition: i32,
    /// The next offset to be handed over; all below it is accounted for.
    pub(super) next: i64,
    /// Below it, the caller was told.
    told: i64,
    /// Where the next fetch begins.
    pub(super) ahead: i64,
    /// The leader's epoch of what came last, by which a broker sees that its log is another; -1 for none.
    pub(super) epoch: i32,
    pub(super) edge: Edge,
    pub(super) paused: bool,
    /// It was said that it cannot go on, and why.
    pub(super) halted: bool,
    pub(super) flying: bool,
    pub(super) retry_at: Option<Instant>,
    /// How often in a row it failed, and gave nothing where something should be.
    pub(super) failures: u32,
    pub(super) empty: u32,
    /// How often in a row the log ended before it.
    pub(super) beyond: u32,
    frames: VecDeque<(Frame, Skip)>,
    held: usize,
    open: Option<Opened>,
    notes: VecDeque<Event>,
}

/// Whether the records of a batch are for us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Skip {
    No,
    /// A marker, or of a transaction that was aborted.
    All,
}

impl Lane {
    pub(super) fn new(partition: i32, next: i64) -> Self {
        let edge = Edge { partition, earliest: 0, stable: 0, high_water: 0 };
        Self {
            partition,
            next,
            told: next,
            ahead: next,
            epoch: -1,
            edge,
            paused: false,
            halted: false,
            flying: false,
            retry_at: None,
            failures: 0,
            empty: 0,
            beyond: 0,
            frames: VecDeque::new(),
            held: 0,
            open: None,
            notes: VecDeque::new(),
        }
    }

    /// Bytes that came and were not handed over.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn has_something(&self) -> bool {
        self.open.is_some() || !self.frames.is_empty() || !self.notes.is_empty()
    }

    /// It ends here, and this says why.
    pub(super) fn halt(&mut self, event: Event) {
        self.halted = true;
        self.notes.push_back(event);
    }

    /// Goes on behind offsets that give nothing, or something that nobody can read. Only for a lane that
    /// has nothing to hand over.
    pub(super) fn step_over(&mut self, to: i64, lost: Option<Arc<str>>) {
        let (partition, from) = (self.partition, self.next);
        if let Some(why) = lost {
            self.open = Some(Opened::lost(partition, from, to - 1, why));
        } else {
            self.notes.push_back(Event::Mute { partition, from, next: to });
            (self.next, self.told) = (to, to);
        }
        self.ahead = to;
    }

    /// Takes what a fetch brought, which begins where the lane wanted it.
    pub(super) fn take(&mut self, frames: Vec<Frame>, mut aborted: Vec<(i64, i64)>) {
        // By first offset: which producers are inside a transaction that was aborted.
        aborted.sort_unstable();
        let mut aborted = aborted.into_iter().peekable();
        let mut inside = BTreeSet::new();
        for frame in frames {
            while let Some((_, producer)) = aborted.next_if(|(first, _)| *first <= frame.base) {
                inside.insert(producer);
            }
            let mut skip = Skip::No;
            if let Ok(header) = &frame.header {
                let attributes = header.attributes;
                let is_aborted =
                    attributes.is_transactional && inside.contains(&header.producer_id);
                if attributes.is_control_batch || is_aborted {
                    skip = Skip::All;
                }
                if attributes.is_control_batch && ends_an_abort(&frame, header) {
                    inside.remove(&header.producer_id);
                }
                self.epoch = header.partition_leader_epoch;
            }
            if frame.last < self.ahead {
                continue;
            }
            self.ahead = frame.last + 1;
            self.held += frame.bytes.len();
            self.frames.push_back((frame, skip));
        }
    }

    /// Hands over until there are `most`, or nothing is left.
    pub(super) fn hand_over(&mut self, most: usize, out: &mut Vec<Event>) {
        while out.len() < most {
            if let Some(open) = &mut self.open {
                match open.next(self.next) {
                    Next::Event(offset, event) => {
                        self.next = offset + 1;
                        self.told = self.next;
                        out.push(event);
                    }
                    Next::Known => {}
                    Next::Over => {
                        self.next = self.next.max(open.last() + 1);
                        self.open = None;
                    }
                }
            } else if let Some((frame, skip)) = self.frames.pop_front() {
                self.held -= frame.bytes.len();
                if skip == Skip::All || frame.last < self.next {
                    self.next = self.next.max(frame.last + 1);
                } else {
                    self.open = Some(Opened::new(self.partition, &frame, self.next));
                }
            } else {
                break;
            }
        }
        if self.told < self.next {
            self.told = self.next;
            out.push(Event::Hole { partition: self.partition, next: self.next });
        }
        if self.open.is_none() && self.frames.is_empty() {
            out.extend(self.notes.drain(..));
        }
    }
}

/// Whether a marker ends a transaction by throwing it away.
fn ends_an_abort(frame: &Frame, header: &RecordBatchHeader) -> bool {
    let Some(mut records) = frame.plain(header) else { return false };
    let Ok(marker) = Record::decode(&mut records) else { return false };
    marker.key.is_some_and(|key| key.get(2..4) == Some(&[0, 0]))
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use krafka::__private::protocol::{RecordBatch, RecordBatchBuilder};
    use krafka::__private::util::crc32c;

    use super::*;
    use crate::broker::frames::cut;

    const FAR: i64 = i64::MAX;

    fn batch(base: i64, values: &[&str]) -> RecordBatch {
        let mut builder = RecordBatchBuilder::new();
        for value in values {
            builder = builder.add_record(None::<Bytes>, Some(value.to_string()));
        }
        let mut batch = builder.build();
        batch.base_offset = base;
        batch
    }

    fn bytes(batch: &RecordBatch) -> BytesMut {
        BytesMut::from(&batch.encode().expect("a batch")[..])
    }

    /// Makes the checksum right again.
    fn sign(batch: &mut [u8]) {
        let sum = crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&sum.to_be_bytes());
    }

    /// What comes of these bytes, one event a line.
    fn read(lane: &mut Lane, bytes: &[u8], high_water: i64, aborted: Vec<(i64, i64)>) -> String {
        let cut = cut(Bytes::copy_from_slice(bytes), lane.ahead, high_water);
        assert!(cut.stuck.is_none(), "{:?}", cut.stuck);
        lane.take(cut.frames, aborted);
        let mut events = Vec::new();
        while lane.has_something() {
            lane.hand_over(events.len() + 1, &mut events);
        }
        assert_eq!((lane.next, lane.held()), (lane.ahead, 0));
        let said = events.iter().map(|event| match event {
            Event::Record { offset, got, .. } => {
                format!("{offset} {}", String::from_utf8_lossy(got.value().expect("a value")))
            }
            Event::Hole { next, .. } => format!("hole to {next}"),
            Event::Undecodable { offset, raw, .. } => format!("{offset} lost {}", !raw.is_empty()),
            Event::Mute { .. } | Event::Blocked { .. } | Event::Ahead { .. } => {
                panic!("{event:?}")
            }
        });
        said.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_record_that_is_wrong_in_a_batch_that_is_right_costs_only_itself() {
        let mut bytes = bytes(&batch(10, &["aa", "bb", "cc"]));
        // The length of the value of the second record: two bytes that claim to be sixty.
        let at = bytes.windows(2).position(|two| two == b"bb").expect("it") - 1;
        bytes[at] = 120;
        sign(&mut bytes);
        let said = read(&mut Lane::new(0, 10), &bytes, FAR, Vec::new());
        assert_eq!(said, "10 aa, 11 lost true, 12 cc");
    }

    #[test]
    fn a_record_that_does_not_end_costs_those_behind_it_in_its_batch_and_no_other() {
        let mut both = bytes(&batch(10, &["aa", "bb", "cc"]));
        let at = both.windows(2).position(|two| two == b"bb").expect("it") - 6;
        both[at] = 126;
        sign(&mut both);
        both.extend_from_slice(&bytes(&batch(13, &["dd"])));
        let said = read(&mut Lane::new(0, 10), &both, FAR, Vec::new());
        assert_eq!(said, "10 aa, 11 lost true, 12 lost false, 13 dd");
    }

    #[test]
    fn records_that_came_while_the_broker_answered_are_left_for_the_next_answer() {
        let all =
            [bytes(&batch(5, &["a", "b"])), bytes(&batch(7, &["c"])), bytes(&batch(8, &["d"]))];
        let mut lane = Lane::new(0, 5);
        assert_eq!(read(&mut lane, &all.concat(), 7, Vec::new()), "5 a, 6 b");
        assert_eq!(read(&mut lane, &all[1..].concat(), 7, Vec::new()), "");
        assert_eq!(read(&mut lane, &all[1..].concat(), 9, Vec::new()), "7 c, 8 d");
    }

    #[test]
    fn whatever_bit_turns_the_batches_around_it_are_read_and_nothing_is_invented() {
        let (before, good) = (bytes(&batch(0, &["x"])), bytes(&batch(1, &["aa", "bb"])));
        let after = bytes(&batch(3, &["y"]));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let all = [&before[..], &bad[..], &after[..]].concat();
            let cut = cut(Bytes::copy_from_slice(&all), 0, 4);
            let mut lane = Lane::new(0, 0);
            lane.take(cut.frames, Vec::new());
            let mut events = Vec::new();
            lane.hand_over(1000, &mut events);
            let mut offsets = Vec::new();
            for event in events {
                match event {
                    Event::Record { offset, got, .. } => {
                        let value = got.value().expect("a value");
                        let known = [(0, "x"), (1, "aa"), (2, "bb"), (3, "y")];
                        let known = known.iter().any(|k| k.0 == offset && k.1.as_bytes() == value);
                        assert!(known, "bit {bit}: {offset} {value:?}");
                        offsets.push(offset);
                    }
                    Event::Undecodable { offset, .. } => offsets.push(offset),
                    Event::Hole { .. } => {}
                    Event::Mute { .. } | Event::Blocked { .. } | Event::Ahead { .. } => {
                        panic!("{event:?}")
                    }
                }
            }
            assert!(offsets.is_sorted() && offsets.len() <= 4, "bit {bit}: {offsets:?}");
            assert_eq!(offsets.first(), Some(&0), "bit {bit}");
            // A length that turned hides what follows; the broker is asked again from there on.
            let is_length = (8..12).contains(&(bit / 8));
            assert!(is_length || offsets.contains(&3), "bit {bit}: {offsets:?}");
        }
    }

    #[test]
    fn a_batch_that_lies_about_its_size_cannot_make_more_records_than_it_has_bytes() {
        let mut bytes = bytes(&batch(0, &["x"]));
        bytes[23..27].copy_from_slice(&i32::MAX.to_be_bytes());
        bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
        let said = read(&mut Lane::new(0, 0), &bytes, FAR, Vec::new());
        assert_eq!(said, "0 lost true");
    }

    #[test]
    fn the_end_of_a_batch_that_lost_its_last_records_is_a_hole() {
        let mut short = batch(5, &["a", "b"]);
        short.last_offset_delta = 9;
        let said = read(&mut Lane::new(0, 3), &bytes(&short), FAR, Vec::new());
        assert_eq!(said, "5 a, 6 b, hole to 15");
        let mut empty = batch(5, &[]);
        empty.last_offset_delta = 4;
        let said = read(&mut Lane::new(0, 5), &bytes(&empty), FAR, Vec::new());
        assert_eq!(said, "hole to 10");
    }

    #[test]
    fn a_commit_marker_does_not_let_through_what_was_aborted() {
        let of = |base, values: &[&str], control: bool| {
            let mut batch = batch(base, values);
            batch.attributes.is_transactional = true;
            batch.attributes.is_control_batch = control;
            batch.producer_id = 7;
            batch
        };
        let marker = |base, kind: u8| {
            let mut batch = of(base, &[""], true);
            batch.records[0].key = Some(vec![0, 0, 0, kind].into());
            bytes(&batch)
        };
        let all = [
            bytes(&of(0, &["a"], false)),
            marker(1, 1),
            bytes(&of(2, &["b"], false)),
            marker(3, 0),
            bytes(&of(4, &["c"], false)),
        ];
        let said = read(&mut Lane::new(0, 0), &all.concat(), FAR, vec![(0, 7)]);
        assert_eq!(said, "4 c");
        let said = read(&mut Lane::new(0, 0), &all.concat(), FAR, vec![(2, 7)]);
        assert_eq!(said, "0 a, 4 c");
    }
}
