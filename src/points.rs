//! Places in the program at which a drill can hold a process, to deal it a fault exactly there.
//!
//! [`reach`] is all that stands in the code of the product; with nothing armed it loads one number. A process is armed when
//! its environment asks for it and the database that it works on is marked as that very drill's ([`crate::store`] looks).
//! It then says that it is at the point, by a file in the drill's folder, stops itself, and goes no further before that
//! file is gone: whoever sees the file and the process stopped knows where it stands.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// How often one that was let go looks whether it was.
const LOOK: Duration = Duration::from_millis(1);

/// Declares the points: what each is called, and what has just happened there.
macro_rules! points {
    ($($point:ident $name:literal $what:literal)+) => {
        /// A place in the program.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Point { $($point),+ }

        impl Point {
            /// In the order in which a process passes them.
            pub const ALL: &[Self] = &[$(Self::$point),+];

            /// As a person names it: `commit.sent`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$point => $name),+ }
            }

            /// What has just happened there.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$point => $what),+ }
            }
        }
    };
}

points! {
    WorkerReady "worker.ready" "the worker is ready and has claimed nothing"
    ClaimBegun "claim.begun" "BEGIN of the claim was answered"
    ClaimMade "claim.made" "the claim is made and not committed"
    ClaimSent "claim.sent" "COMMIT of the claim is sent, its answer not read"
    ClaimAcked "claim.acked" "the claim is committed: RUNNING, with a lease"
    ClaimKept "claim.kept" "the lease of the claim is being renewed"
    FlowRead "flow.read" "the flow was read from its blob"
    SnapshotRead "snapshot.read" "the snapshot was read and its hash checked"
    SnapshotProjected "snapshot.projected" "the snapshot is columns, as the flow needs them"
    NodesComputed "nodes.computed" "the nodes have given their values"
    RowsSent "rows.sent" "rows are sent to ClickHouse, its answer not read"
    RowsAcked "rows.acked" "the rows are in ClickHouse"
    BatchStaged "batch.staged" "blob and rows are kept, nothing is published"
    PublishBegun "publish.begun" "BEGIN of the publication was answered"
    PublishLocked "publish.locked" "the row of the lease is locked for the publication"
    PublishMade "publish.made" "publication, SUCCEEDED and delivery are made and not committed"
    PublishSent "publish.sent" "COMMIT of the publication is sent, its answer not read"
    PublishAcked "publish.acked" "the publication is committed, the lease released with it"
    BatchDone "batch.done" "the batch is done and its lease is renewed no more"
    WorkerDrained "worker.drained" "the queue is empty and the worker about to end"
    StreamReady "stream.ready" "the stream is checked and has taken nothing"
    LeaseLocked "lease.locked" "the row of the lease is locked, the lease not yet granted"
    LeaseGranted "lease.granted" "the lease is committed, its fence not yet noted beside the database"
    FenceMade "fence.made" "the mark of the fence is written under no name yet"
    FenceNamed "fence.named" "the mark of the fence has its name, the folder is not synced"
    LeaseMarked "lease.marked" "the fence is noted beside the database"
    JournalOpened "journal.opened" "the row of the stream is there and its own"
    JournalRead "journal.read" "what the journal holds is read"
    HandoffKept "handoff.kept" "a part of a handoff is a blob and not on record"
    HandoffTaken "handoff.taken" "the owner has said what it takes"
    LogOpened "log.opened" "the log is opened at the next offsets"
    LogFetched "log.fetched" "records were fetched"
    RecordsTaken "records.taken" "the records are decided, in memory alone"
    CommitCut "commit.cut" "what is new is cut from the engine"
    CommitKept "commit.kept" "segments and head are kept, the pointer stands where it stood"
    CommitBegun "commit.begun" "BEGIN of the commit was answered"
    CommitLocked "commit.locked" "the row of the lease is locked for the commit"
    CommitMade "commit.made" "the pointer is moved and not committed"
    CommitSent "commit.sent" "COMMIT is sent, its answer not read"
    CommitAcked "commit.acked" "the pointer is moved for good"
    CheckpointKept "checkpoint.kept" "the manifest of a checkpoint is a blob and not on record"
    CheckpointNamed "checkpoint.named" "the checkpoint is on record"
    RenewalLocked "renewal.locked" "the row of the lease is locked for a renewal"
    RenewalMade "renewal.made" "the renewal is made and not committed"
    RenewalAcked "renewal.acked" "the renewal is committed"
    DrainBegun "drain.begun" "SIGTERM was heard"
    StreamEnding "stream.ending" "the stream has read all that it was asked for"
    StreamEnded "stream.ended" "the last commit is made, nothing is said of the handoff yet"
    HandoffGiven "handoff.given" "the owner has said what it leaves"
    EmitWritten "emit.written" "the values are written beside their place"
    EmitLocked "emit.locked" "the row of the lease is locked for the emit"
    EmitNamed "emit.named" "the file of the values has its name, the lease still locked"
    EmitAcked "emit.acked" "the emit is over and the lease unlocked"
    ReleaseLocked "release.locked" "the row of the lease is locked for its release"
    ReleaseMade "release.made" "the release is made and not committed"
    LeaseReleased "lease.released" "the lease is given back"
    BlobMade "blob.made" "a temporary file is made and empty"
    BlobHalf "blob.half" "half of the blob is written"
    BlobWritten "blob.written" "the blob is written and not synced"
    BlobSynced "blob.synced" "the blob is synced and has no name"
    BlobNamed "blob.named" "the blob has its name, the folder is not synced"
    BlobLasting "blob.lasting" "the folder is synced: the blob lasts"
}

impl FromStr for Point {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|point| point.name() == name).ok_or(())
    }
}

/// 0: nothing is armed. Else one more than the number of the point that is.
static ARMED: AtomicU32 = AtomicU32::new(0);
static HOLD: OnceLock<Hold> = OnceLock::new();

/// Where the process is to be held.
#[derive(Debug)]
struct Hold {
    /// So many times the point is still passed before that.
    left: AtomicU32,
    /// Says that the process is there; it is held for as long as this is there.
    says: PathBuf,
}

/// The file by which a process says that it is at its point.
#[must_use]
pub fn announcement(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("at-point.{pid}"))
}

/// Holds this process when it reaches `point` for the `nth` time, from 1. For the life of the process the first call counts.
pub fn arm(point: Point, nth: u32, folder: &Path) {
    let says = announcement(folder, std::process::id());
    if HOLD.set(Hold { left: AtomicU32::new(nth.max(1)), says }).is_ok() {
        ARMED.store(1 + point as u32, Ordering::Relaxed);
    }
}

/// Whether this process is to be held somewhere: what goes out in one piece otherwise is then done step by step.
#[must_use]
pub fn is_armed() -> bool {
    ARMED.load(Ordering::Relaxed) != 0
}

/// The process is at this point.
#[inline]
pub fn reach(point: Point) {
    let armed = ARMED.load(Ordering::Relaxed);
    if armed != 0 && armed == 1 + point as u32 {
        hold(point);
    }
}

#[cold]
fn hold(point: Point) {
    let Some(Hold { left, says }) = HOLD.get() else { return };
    if left.fetch_sub(1, Ordering::Relaxed) != 1 {
        return;
    }
    ARMED.store(0, Ordering::Relaxed);
    if fs::write(says, point.name()).is_err() {
        // There is no drill any more.
        return;
    }
    // All of the process stops. This thread may go on for a moment, or be woken by somebody else: it stays here all the
    // same.
    let _stopped = kill_process(getpid(), Signal::STOP);
    while says.exists() {
        #[expect(clippy::disallowed_methods, reason = "nothing of this process shall go on here")]
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_a_name_of_its_own_and_is_found_by_it() {
        for (at, point) in Point::ALL.iter().enumerate() {
            assert_eq!(point.name().parse(), Ok(*point));
            assert_eq!(*point as usize, at);
            assert!(!point.what().is_empty());
        }
        assert_eq!("commit".parse::<Point>(), Err(()));
    }

    #[test]
    fn with_nothing_armed_a_point_is_passed() {
        assert!(!is_armed());
        for point in Point::ALL {
            reach(*point);
        }
    }
}
