//! A topic: partitions with offsets, transactions that are open, ended or aborted, records that are gone, and a tail that may
//! be cut off. A reader gets what is committed, in order, and no further than the first open transaction.

use std::collections::BTreeMap;

use crate::stream::Marker;

/// What stands at an offset.
#[derive(Clone, Debug)]
enum What {
    Record {
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    },
    Marker(Marker),
    /// The end of a transaction.
    Control,
    /// Compacted.
    Gone,
}

#[derive(Clone, Debug)]
struct Line {
    what: What,
    transaction: Option<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fortune {
    Open,
    Committed,
    Aborted,
}

#[derive(Clone, Debug, Default)]
struct Log {
    /// The first offset that is still there.
    earliest: i64,
    lines: Vec<Line>,
}

/// What a reader gets.
#[derive(Clone, Debug)]
pub(super) enum Got {
    Record {
        offset: i64,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    },
    Marker {
        offset: i64,
        marker: Marker,
    },
    /// Offsets before this one hold nothing more.
    Hole {
        next: i64,
    },
}

/// How far a partition reaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) earliest: i64,
    pub(super) end: i64,
}

/// A topic.
#[derive(Clone, Debug, Default)]
pub(super) struct Broker {
    logs: Vec<Log>,
    transactions: BTreeMap<u64, Fortune>,
}

impl Broker {
    pub(super) fn new(partitions: usize) -> Self {
        Self { logs: vec![Log::default(); partitions], transactions: BTreeMap::new() }
    }

    fn log(&mut self, partition: i32) -> &mut Log {
        &mut self.logs[usize::try_from(partition).expect("a partition")]
    }

    fn log_of(&self, partition: i32) -> &Log {
        &self.logs[usize::try_from(partition).expect("a partition")]
    }

    pub(super) fn append(
        &mut self,
        partition: i32,
        record: (Vec<u8>, Option<Vec<u8>>),
        transaction: Option<u64>,
    ) {
        let what = What::Record { key: record.0, value: record.1 };
        self.log(partition).lines.push(Line { what, transaction });
    }

    pub(super) fn mark(&mut self, partition: i32, marker: Marker) {
        self.log(partition).lines.push(Line { what: What::Marker(marker), transaction: None });
    }

    /// An offset that compaction has emptied.
    pub(super) fn compacted(&mut self, partition: i32) {
        self.log(partition).lines.push(Line { what: What::Gone, transaction: None });
    }

    /// Begins a transaction of this number.
    pub(super) fn begin(&mut self, number: u64) {
        self.transactions.insert(number, Fortune::Open);
    }

    pub(super) fn end(&mut self, partition: i32, number: u64, commits: bool) {
        let fortune = if commits { Fortune::Committed } else { Fortune::Aborted };
        self.transactions.insert(number, fortune);
        let line = Line { what: What::Control, transaction: None };
        self.log(partition).lines.push(line);
    }

    /// Cuts off so many offsets at the end, and more until the first of them was a record; gives how many there were.
    pub(super) fn truncate(&mut self, partition: i32, count: usize) -> usize {
        let lines = &self.log_of(partition).lines;
        let record = |line: &Line| {
            matches!(line.what, What::Record { .. }) && self.fortune(line) == Fortune::Committed
        };
        let at = lines.len().saturating_sub(count);
        let at = lines.iter().take(at + 1).rposition(record).unwrap_or(lines.len());
        let count = lines.len() - at;
        let log = self.log(partition);
        let left =
            usize::try_from(log.earliest).unwrap_or(0).max(log.lines.len().saturating_sub(count));
        let cut = log.lines.len().saturating_sub(left);
        log.lines.truncate(left);
        cut
    }

    /// Whether the source of a partition has said that nothing is to come.
    pub(super) fn has_ended(&self, partition: i32) -> bool {
        let is_end = |line: &Line| matches!(line.what, What::Marker(Marker::EndOfBoundedSource));
        self.log_of(partition).lines.iter().any(is_end)
    }

    /// Retention takes what lies before this offset.
    pub(super) fn delete_before(&mut self, partition: i32, offset: i64) {
        let log = self.log(partition);
        log.earliest = log.earliest.max(offset);
    }

    pub(super) fn reach(&self, partition: i32) -> Reach {
        let log = self.log_of(partition);
        let end = i64::try_from(log.lines.len()).unwrap_or(i64::MAX);
        Reach { earliest: log.earliest.min(end), end }
    }

    fn fortune(&self, line: &Line) -> Fortune {
        let of = |number| self.transactions.get(&number).copied();
        line.transaction.and_then(of).unwrap_or(Fortune::Committed)
    }

    /// The offset of the first record of an open transaction, or the end.
    fn stable(&self, partition: i32) -> usize {
        let lines = &self.log_of(partition).lines;
        let open = lines.iter().position(|line| self.fortune(line) == Fortune::Open);
        open.unwrap_or(lines.len())
    }

    /// Whether an open transaction keeps a reader at this offset from what lies behind it.
    pub(super) fn waits(&self, partition: i32, from: i64) -> bool {
        let stable = self.stable(partition);
        stable < self.log_of(partition).lines.len() && i64::try_from(stable) == Ok(from)
    }

    /// What a reader gets from an offset on, no more than so many offsets.
    pub(super) fn read(&self, partition: i32, from: i64, most: usize) -> Vec<Got> {
        let lines = &self.log_of(partition).lines;
        let start = usize::try_from(from).unwrap_or(0);
        let end = self.stable(partition).min(start.saturating_add(most));
        let mut got = Vec::new();
        let mut hole = None;
        for (at, line) in lines.iter().enumerate().take(end).skip(start) {
            let offset = i64::try_from(at).unwrap_or(i64::MAX);
            match (&line.what, self.fortune(line)) {
                (What::Record { key, value }, Fortune::Committed) => {
                    hole = None;
                    got.push(Got::Record { offset, key: key.clone(), value: value.clone() });
                }
                (What::Marker(marker), _) => {
                    hole = None;
                    got.push(Got::Marker { offset, marker: *marker });
                }
                (What::Record { .. } | What::Control | What::Gone, _) => hole = Some(offset + 1),
            }
        }
        got.extend(hole.map(|next| Got::Hole { next }));
        got
    }

    /// The record at an offset.
    pub(super) fn record_at(
        &self,
        partition: i32,
        offset: i64,
    ) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        match self.read(partition, offset, 1).into_iter().next()? {
            Got::Record { key, value, .. } => Some((key, value)),
            Got::Marker { .. } | Got::Hole { .. } => None,
        }
    }
}
