//! A batch whose records are handed over one after the other. What cannot be read costs its own offset, or
//! those behind it in the batch where the records can no longer be told apart.

use std::sync::Arc;

use bytes::Bytes;
use krafka::__private::protocol::Record;

use super::frames::Frame;
use super::inplace::{InPlace, varint};
use super::{Event, Got};

/// A batch of a partition.
#[derive(Debug)]
pub(super) struct Opened {
    partition: i32,
    base: i64,
    last: i64,
    records: Records,
}

#[derive(Debug)]
enum Records {
    /// Where they lie, and how many are left.
    Plain {
        rest: Bytes,
        left: u32,
    },
    Unpacked(std::vec::IntoIter<Record>),
    /// None of them can be read; the bytes go with the first.
    Lost {
        left: u32,
        why: Arc<str>,
        raw: Bytes,
    },
}

/// What the next record is.
#[derive(Debug)]
pub(super) enum Next {
    /// Of this offset.
    Event(i64, Event),
    /// It was handed over before: a fetch begins with the batch in which its offset lies.
    Known,
    Over,
}

impl Opened {
    /// `next` is the offset from which on records are wanted.
    pub(super) fn new(partition: i32, frame: &Frame, next: i64) -> Self {
        let lost = |why: &Arc<str>| {
            let left = frame.count.min(span(frame.last, next.max(frame.base)));
            Records::Lost { left, why: Arc::clone(why), raw: frame.bytes.clone() }
        };
        let records = match &frame.header {
            Err(why) => lost(why),
            Ok(header) => match frame.plain(header) {
                Some(rest) => Records::Plain { rest, left: frame.count },
                None => match frame.unpack() {
                    Ok(batch) => Records::Unpacked(batch.records.into_iter()),
                    Err(why) => lost(&why),
                },
            },
        };
        Self { partition, base: frame.base, last: frame.last, records }
    }

    /// Offsets from `next` to `last` at which something lies that nobody can read.
    pub(super) fn lost(partition: i32, next: i64, last: i64, why: Arc<str>) -> Self {
        let records = Records::Lost { left: span(last, next), why, raw: Bytes::new() };
        Self { partition, base: next, last, records }
    }

    pub(super) fn last(&self) -> i64 {
        self.last
    }

    /// The next record, where `next` is the first offset that was not handed over.
    pub(super) fn next(&mut self, next: i64) -> Next {
        let next = next.max(self.base);
        match &mut self.records {
            Records::Plain { left: 0, .. } | Records::Lost { left: 0, .. } => Next::Over,
            Records::Plain { rest, left } => match next_of(rest) {
                Some(bytes) => {
                    *left -= 1;
                    match InPlace::decode(bytes) {
                        Ok(record) => self.whole(record.offset_delta, next, Got::in_place(record)),
                        Err(raw) => match Record::decode(&mut raw.clone()) {
                            Ok(record) => self.walked(record, next),
                            Err(error) => self.broken(next, &error.to_string(), &raw),
                        },
                    }
                }
                None => {
                    let left = (*left).min(span(self.last, next));
                    let why = "a record that does not end in its batch".into();
                    let raw = rest.clone();
                    self.records = Records::Lost { left, why, raw };
                    self.next(next)
                }
            },
            Records::Unpacked(records) => match records.next() {
                Some(record) => self.walked(record, next),
                None => Next::Over,
            },
            Records::Lost { left, why, raw } => {
                *left -= 1;
                let (why, raw) = (Arc::clone(why), std::mem::take(raw).to_vec());
                let partition = self.partition;
                Next::Event(next, Event::Undecodable { partition, offset: next, why, raw })
            }
        }
    }

    fn walked(&self, record: Record, next: i64) -> Next {
        self.whole(record.offset_delta, next, Got::walked(record))
    }

    fn whole(&self, offset_delta: i32, next: i64, got: Got) -> Next {
        let offset = self.base.saturating_add(i64::from(offset_delta));
        if offset > self.last {
            let why = format!("a record at {offset} in a batch that ends at {}", self.last);
            return self.broken(next, &why, &[]);
        }
        if offset < next {
            return Next::Known;
        }
        Next::Event(offset, Event::Record { partition: self.partition, offset, got })
    }

    /// One whose offset is not known: the first that it can have.
    fn broken(&self, next: i64, why: &str, raw: &[u8]) -> Next {
        if next > self.last {
            return Next::Known;
        }
        let (why, raw) = (why.into(), raw.to_vec());
        Next::Event(next, Event::Undecodable { partition: self.partition, offset: next, why, raw })
    }
}

/// Cuts off the next record; `None` when it does not end here.
pub(super) fn next_of(rest: &mut Bytes) -> Option<Bytes> {
    let mut body: &[u8] = rest;
    let size = usize::try_from(varint(&mut body)?).ok()?;
    let head = rest.len() - body.len();
    (size <= body.len()).then(|| rest.split_to(head + size))
}

fn span(last: i64, from: i64) -> u32 {
    u32::try_from((last - from + 1).max(0)).unwrap_or(u32::MAX)
}
