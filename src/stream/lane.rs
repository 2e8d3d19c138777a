//! One partition of a stream: how far it was read, its ledger, and its watermark.

use super::Ledger;
use crate::ids::Hash;

/// The last record that was read of a partition: it must still be there when the stream goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Anchor {
    pub offset: i64,
    /// Of key and value.
    pub hash: Hash,
}

impl Anchor {
    /// Of a record with this key and value; absent and empty are told apart.
    #[must_use]
    pub fn of(offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        let mut bytes = Vec::new();
        for part in [key, value] {
            let length =
                part.map_or(u64::MAX, |part| u64::try_from(part.len()).expect("in memory"));
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(part.unwrap_or_default());
        }
        Self { offset, hash: Hash::of(&bytes) }
    }
}

/// What a partition says about its own end: evidence, where silence proves nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Marker {
    /// Nothing is to come for now.
    IdleConfirmed,
    /// Nothing is to come any more.
    EndOfBoundedSource,
}

impl Marker {
    /// Its name in the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::IdleConfirmed => "IDLE_CONFIRMED",
            Self::EndOfBoundedSource => "END_OF_BOUNDED_SOURCE",
        }
    }

    /// The marker of this name.
    #[must_use]
    pub fn parse(word: &[u8]) -> Option<Self> {
        [Self::IdleConfirmed, Self::EndOfBoundedSource]
            .into_iter()
            .find(|marker| marker.word().as_bytes() == word)
    }
}

/// A partition as the engine knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub(super) next_offset: i64,
    /// The highest event time of a record of the flow.
    pub(super) max_time: Option<i64>,
    pub(super) ledger: Ledger,
    pub(super) markers: u64,
    pub(super) idle: bool,
    pub(super) ended: bool,
    /// Holds the watermark of the whole: an instrument of the flow belongs here, or a record of it came.
    pub(super) active: bool,
    pub(super) anchor: Option<Anchor>,
    /// The last record as it came, for the anchor of the next commit.
    pub(super) last: Option<Last>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Last {
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
}

/// The partitions of an engine, by number: few, and each is asked for several times a record.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes(Vec<(i32, Lane)>);

impl FromIterator<(i32, Lane)> for Lanes {
    fn from_iter<I: IntoIterator<Item = (i32, Lane)>>(lanes: I) -> Self {
        let mut lanes: Vec<(i32, Lane)> = lanes.into_iter().collect();
        lanes.sort_by_key(|(partition, _)| *partition);
        lanes.dedup_by_key(|(partition, _)| *partition);
        Self(lanes)
    }
}

impl Lanes {
    fn at(&self, partition: i32) -> Option<usize> {
        self.0.binary_search_by_key(&partition, |(partition, _)| *partition).ok()
    }

    pub(super) fn get(&self, partition: i32) -> Option<&Lane> {
        self.at(partition).map(|at| &self.0[at].1)
    }

    pub(super) fn get_mut(&mut self, partition: i32) -> Option<&mut Lane> {
        self.at(partition).map(|at| &mut self.0[at].1)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Lane> {
        self.0.iter().map(|(_, lane)| lane)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &Lane)> {
        self.0.iter().map(|(partition, lane)| (*partition, lane))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (i32, &mut Lane)> {
        self.0.iter_mut().map(|(partition, lane)| (*partition, lane))
    }

    /// What all of them that have a say agree on.
    pub(super) fn least(&self, lateness: i64) -> Option<i64> {
        // A loop: `min` of an iterator copies the iterator, which waits for what was stored just before.
        let mut least = None;
        for (_, lane) in &self.0 {
            if let Some(says) = lane.says(lateness)
                && least.is_none_or(|least| says < least)
            {
                least = Some(says);
            }
        }
        least
    }
}

impl Lane {
    /// W_p: nothing before it is accepted any more. `None` while nothing came.
    pub(super) fn watermark(&self, lateness: i64) -> Option<i64> {
        self.max_time.map(|time| time.saturating_sub(lateness))
    }

    /// What this partition says to the watermark of the whole; `None` when it has no say.
    pub(super) fn says(&self, lateness: i64) -> Option<i64> {
        let silent = self.idle || self.ended || !self.active;
        (!silent).then(|| self.watermark(lateness).unwrap_or(i64::MIN))
    }

    pub(super) fn remember(&mut self, offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        let last = self.last.get_or_insert_default();
        last.offset = offset;
        refill(&mut last.key, key);
        refill(&mut last.value, value);
    }

    pub(super) fn anchor(&mut self) -> Option<&Anchor> {
        if let Some(last) = self.last.take() {
            let (key, value) = (last.key.as_deref(), last.value.as_deref());
            self.anchor = Some(Anchor::of(last.offset, key, value));
        }
        self.anchor.as_ref()
    }
}

/// Keeps the memory of the record before.
fn refill(kept: &mut Option<Vec<u8>>, bytes: Option<&[u8]>) {
    match (kept.as_mut(), bytes) {
        (Some(kept), Some(bytes)) => {
            kept.clear();
            kept.extend_from_slice(bytes);
        }
        (None, Some(bytes)) => *kept = Some(bytes.to_vec()),
        (_, None) => *kept = None,
    }
}
