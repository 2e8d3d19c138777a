//! One partition that is followed: what has come and was not handed over yet, and how far it is accounted for.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use krafka::__private::protocol::{Record, RecordBatchHeader};
use krafka::__private::util::varint;
use tokio::time::Instant;

use super::frames::Frame;
use super::{Edge, Event, Got};

/// The records of a batch that is being handed over.
#[derive(Debug)]
enum Open {
    /// Where they lie, and how many are left.
    Plain {
        base: i64,
        rest: Bytes,
        left: u32,
    },
    Unpacked {
        base: i64,
        records: std::vec::IntoIter<Record>,
    },
    /// None of them can be read.
    Lost {
        left: u32,
        why: Arc<str>,
        raw: Bytes,
    },
}

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
    frames: VecDeque<(Frame, Skip)>,
    held: usize,
    open: Option<(Open, i64)>,
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

    /// Nothing lies between where the next fetch would begin and this; or something that nobody can read.
    pub(super) fn step_over(&mut self, to: i64, lost: Option<Arc<str>>) {
        if let Some(why) = lost {
            let left = u32::try_from(to - self.ahead).unwrap_or(u32::MAX);
            self.open = Some((Open::Lost { left, why, raw: Bytes::new() }, to - 1));
        } else {
            self.next = to;
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
            let mut skip = Skip::No;
            if let Ok(header) = &frame.header {
                while let Some((_, producer)) = aborted.next_if(|(first, _)| *first <= frame.base) {
                    inside.insert(producer);
                }
                if header.attributes.is_control_batch {
                    skip = Skip::All;
                    if ends_an_abort(&frame, header) {
                        inside.remove(&header.producer_id);
                    }
                } else if header.attributes.is_transactional && inside.contains(&header.producer_id)
                {
                    skip = Skip::All;
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
            if let Some((open, last)) = &mut self.open {
                let last = *last;
                let stay = match open {
                    Open::Plain { base, rest, left } => {
                        plain(self.partition, *base, last, rest, left, &mut self.next, out)
                    }
                    Open::Unpacked { base, records } => match records.next() {
                        None => Step::Over,
                        Some(record) => {
                            whole(self.partition, *base, last, record, &mut self.next, out);
                            Step::Stay
                        }
                    },
                    Open::Lost { left: 0, .. } => Step::Over,
                    Open::Lost { left, why, raw } => {
                        *left -= 1;
                        out.push(Event::Undecodable {
                            partition: self.partition,
                            offset: self.next,
                            why: Arc::clone(why),
                            raw: std::mem::take(raw).to_vec(),
                        });
                        self.next += 1;
                        Step::Stay
                    }
                };
                match stay {
                    Step::Stay => self.told = self.next,
                    Step::Over => {
                        self.next = self.next.max(last + 1);
                        self.open = None;
                    }
                    Step::Lost(why, left) => {
                        self.told = self.next;
                        let left = left.min(u32::try_from(last + 1 - self.next).unwrap_or(0));
                        self.open = Some((Open::Lost { left, why, raw: Bytes::new() }, last));
                    }
                }
            } else if let Some((frame, skip)) = self.frames.pop_front() {
                self.held -= frame.bytes.len();
                self.open(frame, skip);
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

    fn open(&mut self, frame: Frame, skip: Skip) {
        let last = frame.last;
        let open = match &frame.header {
            _ if last < self.next || skip == Skip::All => {
                self.next = self.next.max(last + 1);
                return;
            }
            Err(why) => self.lost(&frame, Arc::clone(why)),
            Ok(header) => match frame.plain(header) {
                Some(rest) => Open::Plain { base: frame.base, rest, left: frame.count },
                None => match frame.unpack() {
                    Ok(batch) => {
                        Open::Unpacked { base: frame.base, records: batch.records.into_iter() }
                    }
                    Err(why) => self.lost(&frame, why),
                },
            },
        };
        self.open = Some((open, last));
    }

    /// As many as it says that it has, of those that were not handed over.
    fn lost(&mut self, frame: &Frame, why: Arc<str>) -> Open {
        self.next = self.next.max(frame.base);
        let span = u32::try_from(frame.last + 1 - self.next).unwrap_or(u32::MAX);
        Open::Lost { left: frame.count.min(span), why, raw: frame.bytes.clone() }
    }
}

enum Step {
    Stay,
    Over,
    /// The rest of the batch cannot be read, and how many that would be.
    Lost(Arc<str>, u32),
}

/// The next record of a batch that is not compressed. One that is wrong within its bounds costs only itself.
fn plain(
    partition: i32,
    base: i64,
    last: i64,
    rest: &mut Bytes,
    left: &mut u32,
    next: &mut i64,
    out: &mut Vec<Event>,
) -> Step {
    if *left == 0 {
        return Step::Over;
    }
    let mut body: &[u8] = rest;
    let size = varint::decode_signed_varint(&mut body).ok().and_then(|n| usize::try_from(n).ok());
    let size = size.filter(|size| *size <= body.len());
    let Some(size) = size else {
        return Step::Lost("a record that does not end in its batch".into(), *left);
    };
    let size = rest.len() - body.len() + size;
    let mut bytes = rest.split_to(size);
    *left -= 1;
    let raw = bytes.clone();
    match Record::decode(&mut bytes) {
        Ok(record) => whole(partition, base, last, record, next, out),
        Err(error) => {
            let why = error.to_string().into();
            out.push(Event::Undecodable { partition, offset: *next, why, raw: raw.to_vec() });
            *next += 1;
        }
    }
    Step::Stay
}

fn whole(
    partition: i32,
    base: i64,
    last: i64,
    record: Record,
    next: &mut i64,
    out: &mut Vec<Event>,
) {
    let offset = base.saturating_add(i64::from(record.offset_delta));
    // Handed over already: a fetch begins with the batch in which the offset lies.
    if offset < *next {
        return;
    }
    if offset > last {
        let why = format!("a record at {offset} in a batch that ends at {last}").into();
        out.push(Event::Undecodable { partition, offset: *next, why, raw: Vec::new() });
        *next += 1;
        return;
    }
    *next = offset + 1;
    out.push(Event::Record { partition, offset, got: Got::walked(record) });
}

/// Whether a marker ends a transaction by throwing it away.
fn ends_an_abort(frame: &Frame, header: &RecordBatchHeader) -> bool {
    let Some(mut records) = frame.plain(header) else { return false };
    let Ok(marker) = Record::decode(&mut records) else { return false };
    marker.key.is_some_and(|key| key.get(2..4) == Some(&[0, 0]))
}
