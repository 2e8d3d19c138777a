//! The one error that a verb can end with. What words, code, hint and exit status it gets is `commands/failure.rs`.

use std::io;
use std::time::Duration;

use crate::artifacts;
use crate::broker;
use crate::flow;
use crate::ids::{Hash, Owner};
use crate::invalid::Invalid;
use crate::journal;
use crate::replay;
use crate::snapshot;
use crate::store;
use crate::warehouse;

impl From<flow::Error> for Error {
    fn from(error: flow::Error) -> Self {
        match error {
            flow::Error::Invalid(invalid) => Self::Invalid(invalid),
            flow::Error::Io { place, source } => Self::Io { place, source },
        }
    }
}

impl From<replay::Error> for Error {
    fn from(error: replay::Error) -> Self {
        match error {
            replay::Error::Invalid(invalid) => Self::Invalid(invalid),
            replay::Error::Io { place, source } => Self::Io { place, source },
        }
    }
}

impl From<snapshot::Error> for Error {
    fn from(error: snapshot::Error) -> Self {
        match error {
            snapshot::Error::Invalid(invalid) => Self::Invalid(invalid),
            snapshot::Error::Artifacts(error) => Self::Artifacts(error),
            snapshot::Error::Io { place, source } => Self::Io { place, source },
        }
    }
}

/// Why a verb did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A setting that this verb cannot do without.
    #[error("{what}")]
    Unset { code: &'static str, what: &'static str, hint: &'static str },
    /// The artifact store serves another database too, which is known by when it was made.
    #[error(
        "the store at {place} serves the database made {other}, and the one made {asked} was asked"
    )]
    StoreOfAnother { place: String, asked: String, other: String },
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Artifacts(#[from] artifacts::Error),
    #[error(transparent)]
    Warehouse(#[from] warehouse::Error),
    #[error(transparent)]
    Broker(#[from] broker::Error),
    /// A file of the operator could not be read.
    #[error("{place}: {source}")]
    Io { place: String, source: io::Error },
    /// A file that was asked for could not be written.
    #[error("{place}: {source}")]
    NotWritten { place: String, source: io::Error },
    /// Another replay into the same topic is under way.
    #[error(
        "a replay into {topic} is under way: {}, for {} s",
        pid.map_or("just begun".to_owned(), |pid| format!("process {pid}")),
        age.as_secs()
    )]
    ReplayRunning { topic: String, pid: Option<u32>, age: Duration },
    /// What the topic holds is not what was written.
    #[error("{topic} does not hold the log {log_hash}: {what}")]
    ReadBackDiffers { topic: String, log_hash: Hash, what: String },
    /// A task that writes has ended; it says itself why.
    #[error("writing to a partition ended")]
    LaneEnded,
    /// The same key was used with another body.
    #[error("the idempotency key {key:?} was used with another request")]
    IdempotencyConflict { key: String, body_hash: Hash, other_hash: Hash },
    /// Live and another owner's.
    #[error("{name} is held by {owner} under fence {fence} until {expires_at}")]
    LeaseHeld { name: String, owner: Owner, fence: i64, expires_at: String },
    /// Another owner, or a higher fence, has it.
    #[error("{name} is not yours any more: {owner} has fence {fence}")]
    StaleFence { name: String, owner: Owner, fence: i64, yours: Owner },
    /// On record as the asker's, but its time is over.
    #[error("{name} expired at {expires_at}; it must be acquired anew")]
    LeaseExpired { name: String, expires_at: String },
    #[error("there is no lease {name}")]
    LeaseMissing { name: String },
    /// The next fence was handed out before: the database was restored from an older backup.
    #[error(
        "{name} would get epoch {epoch} fence {fence}, but epoch {known_epoch} fence {known_fence} was handed out before"
    )]
    FenceRegression { name: String, epoch: i64, fence: i64, known_epoch: i64, known_fence: i64 },
    #[error("the fence of {name} is at its end")]
    FenceExhausted { name: String },
    /// A stream's lease is live and another owner's.
    #[error("{name} is held by {owner} under fence {fence} until {expires_at}")]
    StreamHeld { name: String, owner: Owner, fence: i64, expires_at: String },
    /// A live stream of the same flow, topic and group reads a partition that this one would read.
    #[error("{other} reads the same: {}", until(owner.as_ref(), expires_at.as_deref()))]
    StreamOverlap { name: String, other: String, owner: Option<Owner>, expires_at: Option<String> },
    /// A run is split by partition or whole for its life; `split` is what it is.
    #[error("run {run_id} is {}", if *split { "split by partition" } else { "whole, not split by partition" })]
    StreamMixed { run_id: String, split: bool },
    /// An owner of a stream came back to find its lease expired or another's.
    #[error("{name}: fence {fence} is not accepted any more: {}", holder(owner.as_ref(), *current_fence, yours))]
    StreamFenced {
        name: String,
        yours: Owner,
        fence: i64,
        owner: Option<Owner>,
        current_fence: Option<i64>,
    },
    /// A journal of another run, topic, group or flow.
    #[error("the journal of {name} belongs to {field} {held}, not {offered}")]
    JournalForeign { name: String, field: &'static str, held: String, offered: String },
    /// The pointer of a journal is not where its owner left it, although the lease is still the owner's.
    #[error("the journal of {name} was moved by somebody else: {}", moved(*found))]
    JournalMoved { name: String, fence: i64, found: Option<(i64, i64)> },
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// A file that was to be taken in as a journal.
    #[error(transparent)]
    JournalFile(journal::Error),
    /// Retention took records that a stream has not read: there is no way on that would not lose them.
    #[error("partition {partition}: offset {needed} is needed, and the log begins at {earliest}")]
    RecoveryBlocked { partition: i32, needed: i64, earliest: i64 },
    /// A stream stands behind the end of the log: that is not the log it read.
    #[error("partition {partition}: offset {needed} is beyond the end of the log, {end}")]
    OffsetAhead { partition: i32, needed: i64, end: i64 },
    /// A run of so many records waited in vain until it might read on.
    #[error("the source is paused: {why}")]
    SourcePaused { why: String },
    /// A run that has begun already: with another snapshot, or with none.
    #[error("{name} began with {}, not with {offered}", held.map_or("its topic alone".to_owned(), |h| h.to_string()))]
    HandoffConflict { name: String, held: Option<Hash>, offered: Hash },
    /// A run that goes on from a snapshot of which not all was taken in.
    #[error("{name} goes on from {snapshot}, and that handoff was not finished")]
    HandoffIncomplete { name: String, snapshot: Hash },
    /// A snapshot that is no whole history of the log: `late` records of the flow that it lacks are before its watermark
    /// (`first` is the first record that it lacks there); the partitions `apart` have lost records that it may lack.
    #[error("the snapshot is no whole history of {name}: {}", gap(*late, *first, apart))]
    HandoffGap { name: String, late: u64, first: Option<(i32, i64)>, apart: Vec<i32> },
    /// A checkpoint of this id is there and is another.
    #[error("checkpoint {id} is there with manifest {held}, not {offered}")]
    CheckpointConflict { id: String, held: Hash, offered: Hash },
    /// A checkpoint that this program, or this stream, cannot take up.
    #[error("checkpoint {id} has {field} {held}, not {offered}")]
    CheckpointIncompatible { id: String, field: &'static str, held: String, offered: String },
    /// A snapshot that is not what a batch run went on from, and more: its event of this number is the first that differs.
    #[error(
        "snapshot {offered} does not begin with the events of checkpoint {id}: event {event} differs"
    )]
    SnapshotApart { id: String, held: Hash, offered: Hash, event: u64 },
    /// A checkpoint of which something is missing or changed.
    #[error("checkpoint {id} is damaged: {what}")]
    CheckpointDamaged { id: String, blob: Option<Hash>, what: String },
    /// Records that were read and have no treatment, or two: a defect of this program.
    #[error("the ledger of {run_id} does not hold: nothing was committed")]
    LedgerBroken { run_id: String },
    #[error("there is no run {run_id}")]
    RunUnknown { run_id: String },
    #[error("run {run_id} failed: {error}")]
    RunFailed { run_id: String, error: String },
    #[error("run {run_id} was cancelled")]
    RunCancelled { run_id: String },
    #[error("run {run_id} is {state}: too late to cancel")]
    TooLate { run_id: String, state: String },
    #[error("run {run_id} is {state}: there is no published result")]
    NotPublished { run_id: String, state: String },
    /// Not finished within the time that the caller gave.
    #[error("run {run_id} is still {state}")]
    StillRunning { run_id: String, state: String },
    /// A bug of ours, in the work of a batch: its lease runs out, its runs are the sweep's.
    #[error("a batch panicked: {what}")]
    Panicked { what: String },
    /// SIGINT or SIGTERM, after a clean stop.
    #[error("stopped by signal {signal}")]
    Interrupted { signal: i32 },
}

/// Why a lease is not its owner's any more, in words.
fn holder(owner: Option<&Owner>, fence: Option<i64>, yours: &Owner) -> String {
    match (owner, fence) {
        (Some(owner), Some(_)) if owner == yours => "its lease expired".to_owned(),
        (Some(owner), Some(fence)) => format!("{owner} has fence {fence}"),
        (None, _) | (_, None) => "there is no such lease".to_owned(),
    }
}

/// Who has a stream until when, in words.
fn until(owner: Option<&Owner>, expires_at: Option<&str>) -> String {
    match (owner, expires_at) {
        (Some(owner), Some(expires_at)) => format!("{owner} has it until {expires_at}"),
        (_, None) | (None, _) => "nobody has it any more".to_owned(),
    }
}

/// What a history lacks, in words.
fn gap(late: u64, first: Option<(i32, i64)>, apart: &[i32]) -> String {
    let late = (late > 0).then(|| {
        let first =
            first.map_or(String::new(), |(partition, at)| format!(", {partition}:{at} first"));
        format!("{late} records of the log are not in it and before its watermark{first}")
    });
    let apart = (!apart.is_empty()).then(|| {
        let apart: Vec<String> = apart.iter().map(i32::to_string).collect();
        format!(
            "the log of partition {} begins behind its end, so far as can be seen",
            apart.join(", ")
        )
    });
    late.into_iter().chain(apart).collect::<Vec<_>>().join("; ")
}

/// Where a pointer was found, in words.
fn moved(found: Option<(i64, i64)>) -> String {
    match found {
        Some((fence, seq)) => format!("it stands at fence {fence}, commit {seq}"),
        None => "its row is gone".to_owned(),
    }
}

impl Error {
    /// Whether the same request may succeed later, with nobody doing anything wrong.
    #[must_use]
    pub fn is_away(&self) -> bool {
        let disk_full = matches!(self, Self::Artifacts(artifacts::Error::DiskFull { .. }));
        let store = matches!(self, Self::Store(error) if error.is_away());
        let warehouse = matches!(self, Self::Warehouse(error) if error.is_away());
        let full = matches!(self, Self::NotWritten { source, .. } if is_full(source));
        let broker = matches!(self, Self::Broker(error) if error.is_away());
        disk_full || store || warehouse || broker || full
    }

    /// The state of a stream that this ends and that stays blocked by it.
    pub(super) fn blocks(&self) -> Option<&'static str> {
        if matches!(self, Self::RecoveryBlocked { .. }) {
            Some("RECOVERY_BLOCKED")
        } else if matches!(self, Self::OffsetAhead { .. }) {
            Some("OFFSET_AHEAD")
        } else {
            None
        }
    }
}

/// No room on a disk.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
