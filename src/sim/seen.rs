//! States that a campaign must have been in, each at least once: else it has not looked where it claims to.

use std::collections::BTreeMap;

macro_rules! states {
    ($($name:ident $word:literal,)*) => {
        /// An interesting state.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub(super) enum Seen { $($name,)* }

        impl Seen {
            pub(super) const ALL: &[Self] = &[$(Self::$name,)*];

            /// In words.
            pub(super) fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

states! {
    Killed "a process is killed",
    PausedOverTtl "a process is stopped for longer than its lease lives",
    Drained "a process is told to end, and drains",
    Panicked "work panics while the heart of its process beats",
    StoreCrashed "PostgreSQL is restarted under its sessions",
    WarehouseAway "ClickHouse is away when rows are staged",
    PowerCut "the power of the machine fails",
    UnsyncedLost "the power fails between a rename and the sync of its folder",
    DiskFull "the disk is full when blobs are written",
    FsyncFailed "an fsync fails, and the process ends",
    RequestLost "a request never comes to the store",
    ReplyLost "a transaction is made and its answer lost",
    SettledDone "an unknown publication is read back, and was made",
    SettledAgain "an unknown publication is read back, was not made, and is made once",
    Conflict "a key is used with another body",
    LostAdmission "the answer to an admission is lost, and the same run answered later",
    BelowFloor "an event is committed below one that was claimed before",
    Handoff "an orphan is carried to its end by another owner",
    StaleRefused "an effect of an owner that was overtaken is refused",
    Swept "an orphan is swept",
    Excused "an orphan is swept and its owner excused, since the server was down",
    Poison "a run that lost three owners fails",
    GivenBack "runs are given back by a worker that lost track of them",
    ServiceAway "runs are given back since a service is away",
    CancelledRunning "a run is cancelled while it runs",
    CancelledTooLate "a run is to be cancelled and is published first",
    BrokerAway "the broker is away",
    StreamHandoff "an owner takes up what another one has committed",
    StreamFenced "an owner of a stream is refused by its fence, and ends",
    StreamDrained "an owner of a stream drains and gives its lease back",
    CommitDone "an unknown commit of a journal is read back, and was made",
    CommitAgain "an unknown commit of a journal is read back, and made again",
    Compacted "segments of a journal are merged",
    OpenTransaction "a reader waits for an open transaction",
    Aborted "records of an aborted transaction are not read",
    Duplicate "an event comes twice",
    Late "an event comes too late",
    Omitted "a record that is none is omitted",
    Ahead "a log ends before what was read of it",
    Foreign "the last record that was read is another one by now",
    Blocked "retention takes what is still to be read",
    StreamGolden "a stream comes to the values of its batch",
    BadRun "a run whose snapshot is not there fails by itself",
}

/// How often what was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Sights(BTreeMap<Seen, u64>);

impl Sights {
    pub(super) fn saw(&mut self, seen: Seen) {
        *self.0.entry(seen).or_default() += 1;
    }

    pub(super) fn count(&self, seen: Seen) -> u64 {
        self.0.get(&seen).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (seen, count) in &other.0 {
            *self.0.entry(*seen).or_default() += count;
        }
    }
}
