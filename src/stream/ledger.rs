//! The conservation ledger: every record read has one treatment, and the sums say so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Reason, Treatment};
use crate::canonical::Value;

/// How many records had which treatment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
pub struct Ledger {
    pub read: u64,
    pub consumed: u64,
    pub filtered: u64,
    pub duplicates_skipped: u64,
    pub late: u64,
    pub omitted: u64,
    /// Of the consumed: a null close.
    pub gaps: u64,
    /// Of the duplicates: the same id with another payload.
    pub conflicts: u64,
}

impl Ledger {
    pub(super) fn count(&mut self, treatment: Treatment, reason: Reason) {
        self.read += 1;
        match treatment {
            Treatment::Consumed => self.consumed += 1,
            Treatment::Filtered => self.filtered += 1,
            Treatment::Duplicate => self.duplicates_skipped += 1,
            Treatment::Late => self.late += 1,
            Treatment::Omitted => self.omitted += 1,
        }
        self.gaps += u64::from(treatment == Treatment::Consumed && reason == Reason::Gap);
        self.conflicts += u64::from(reason == Reason::PayloadDiffers);
    }

    /// A record that was omitted is consumed after all: it was read before, and counts once.
    pub(super) fn take_back(&mut self, gap: bool) {
        self.omitted -= 1;
        self.consumed += 1;
        self.gaps += u64::from(gap);
    }

    /// Whether nothing was lost and nothing counted twice.
    #[must_use]
    pub fn holds(&self) -> bool {
        let parts =
            [self.consumed, self.filtered, self.duplicates_skipped, self.late, self.omitted];
        self.read == parts.iter().sum::<u64>()
            && self.gaps <= self.consumed
            && self.conflicts <= self.duplicates_skipped
    }

    /// The sums of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            read: self.read + other.read,
            consumed: self.consumed + other.consumed,
            filtered: self.filtered + other.filtered,
            duplicates_skipped: self.duplicates_skipped + other.duplicates_skipped,
            late: self.late + other.late,
            omitted: self.omitted + other.omitted,
            gaps: self.gaps + other.gaps,
            conflicts: self.conflicts + other.conflicts,
        }
    }

    fn fields(&mut self) -> [(&'static str, &mut u64); 8] {
        [
            ("read", &mut self.read),
            ("consumed", &mut self.consumed),
            ("filtered", &mut self.filtered),
            ("duplicates_skipped", &mut self.duplicates_skipped),
            ("late", &mut self.late),
            ("omitted", &mut self.omitted),
            ("gaps", &mut self.gaps),
            ("conflicts", &mut self.conflicts),
        ]
    }

    pub(super) fn to_value(self) -> Value {
        let mut ledger = self;
        let count = |count: u64| Value::Int(i64::try_from(count).expect("no log is that long"));
        Value::Map(ledger.fields().map(|(name, n)| (name.to_owned(), count(*n))).into())
    }

    /// What [`Ledger::to_value`] wrote, if it holds.
    pub(super) fn from_map(map: &BTreeMap<String, Value>) -> Option<Self> {
        let mut ledger = Self::default();
        for (name, count) in ledger.fields() {
            match map.get(name) {
                Some(Value::Int(n)) => *count = u64::try_from(*n).ok()?,
                _ => return None,
            }
        }
        (map.len() == 8 && ledger.holds()).then_some(ledger)
    }
}
