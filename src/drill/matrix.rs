//! The kill matrix: every point of the program, every fault that is dealt there, and what came of each run.

use serde::Serialize;

use super::{Check, Environment, Moment, QueueNumbers, Verdict, Versions};
use crate::points::Point;

/// What the process that is held does.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// `finaz worker`.
    Batch,
    /// `finaz stream`.
    Stream,
}

impl Work {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Stream => "stream",
        }
    }
}

/// How a process comes to its point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// A worker with one run.
    Run,
    /// A stream in the middle: it goes on for ever.
    Middle,
    /// The same, with checkpoints of its own.
    Checkpoints,
    /// A stream that has read all that it was asked for.
    End,
    /// A stream whose source has ended: all that it read is final.
    Ended,
    /// A stream that is told to end.
    Drain,
}

/// What is done to a process that is held at a point.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// Stopped until its lease is over and another has done the work, then woken.
    Pause,
    /// The same, and the server ends its sessions meanwhile.
    Cut,
    /// The server ends its sessions, and it is woken at once.
    Blink,
}

impl Fault {
    pub const ALL: [Self; 4] = [Self::Kill, Self::Pause, Self::Cut, Self::Blink];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Cut => "cut",
            Self::Blink => "blink",
        }
    }

    /// What it is, in words.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Kill => "killed (SIGKILL)",
            Self::Pause => "stopped past its lease (SIGSTOP), overtaken, woken (SIGCONT)",
            Self::Cut => "stopped, its sessions ended by the server, overtaken, woken",
            Self::Blink => "stopped, its sessions ended by the server, woken at once",
        }
    }
}

impl std::str::FromStr for Fault {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|fault| fault.word() == word).ok_or(())
    }
}

/// A row of the matrix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    pub point: Point,
    pub way: Way,
    /// Rows go to ClickHouse there.
    pub stages: bool,
}

impl Place {
    #[must_use]
    pub const fn work(&self) -> Work {
        match self.way {
            Way::Run => Work::Batch,
            Way::Middle | Way::Checkpoints | Way::End | Way::Ended | Way::Drain => Work::Stream,
        }
    }

    /// `stream commit.sent`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.work().word(), self.point.name())
    }
}

const fn at(point: Point, way: Way) -> Place {
    let stages = matches!(point, Point::RowsSent | Point::RowsAcked);
    Place { point, way, stages }
}

/// All rows. The points of a blob are passed by a worker and by a stream.
pub const PLACES: &[Place] = &[
    at(Point::WorkerReady, Way::Run),
    at(Point::ClaimBegun, Way::Run),
    at(Point::ClaimMade, Way::Run),
    at(Point::ClaimSent, Way::Run),
    at(Point::ClaimAcked, Way::Run),
    at(Point::ClaimKept, Way::Run),
    at(Point::FlowRead, Way::Run),
    at(Point::SnapshotRead, Way::Run),
    at(Point::SnapshotProjected, Way::Run),
    at(Point::NodesComputed, Way::Run),
    at(Point::BlobMade, Way::Run),
    at(Point::BlobHalf, Way::Run),
    at(Point::BlobWritten, Way::Run),
    at(Point::BlobSynced, Way::Run),
    at(Point::BlobNamed, Way::Run),
    at(Point::BlobLasting, Way::Run),
    at(Point::RowsSent, Way::Run),
    at(Point::RowsAcked, Way::Run),
    at(Point::BatchStaged, Way::Run),
    at(Point::PublishBegun, Way::Run),
    at(Point::PublishLocked, Way::Run),
    at(Point::PublishMade, Way::Run),
    at(Point::PublishSent, Way::Run),
    at(Point::PublishAcked, Way::Run),
    at(Point::BatchDone, Way::Run),
    at(Point::WorkerDrained, Way::Run),
    at(Point::StreamReady, Way::Middle),
    at(Point::LeaseLocked, Way::Middle),
    at(Point::LeaseGranted, Way::Middle),
    at(Point::FenceMade, Way::Middle),
    at(Point::FenceNamed, Way::Middle),
    at(Point::LeaseMarked, Way::Middle),
    at(Point::JournalOpened, Way::Middle),
    at(Point::JournalRead, Way::Middle),
    at(Point::HandoffKept, Way::Middle),
    at(Point::HandoffTaken, Way::Middle),
    at(Point::LogOpened, Way::Middle),
    at(Point::LogFetched, Way::Middle),
    at(Point::RecordsTaken, Way::Middle),
    at(Point::CommitCut, Way::Middle),
    at(Point::BlobMade, Way::Middle),
    at(Point::BlobHalf, Way::Middle),
    at(Point::BlobWritten, Way::Middle),
    at(Point::BlobSynced, Way::Middle),
    at(Point::BlobNamed, Way::Middle),
    at(Point::BlobLasting, Way::Middle),
    at(Point::CommitKept, Way::Middle),
    at(Point::CommitBegun, Way::Middle),
    at(Point::CommitLocked, Way::Middle),
    at(Point::CommitMade, Way::Middle),
    at(Point::CommitSent, Way::Middle),
    at(Point::CommitAcked, Way::Middle),
    at(Point::CheckpointKept, Way::Checkpoints),
    at(Point::CheckpointNamed, Way::Checkpoints),
    at(Point::RenewalLocked, Way::Middle),
    at(Point::RenewalMade, Way::Middle),
    at(Point::RenewalAcked, Way::Middle),
    at(Point::DrainBegun, Way::Drain),
    at(Point::StreamEnding, Way::End),
    at(Point::StreamEnded, Way::End),
    at(Point::HandoffGiven, Way::End),
    at(Point::RowsSent, Way::Ended),
    at(Point::RowsAcked, Way::Ended),
    at(Point::EmitWritten, Way::End),
    at(Point::EmitLocked, Way::End),
    at(Point::EmitNamed, Way::End),
    at(Point::EmitAcked, Way::End),
    at(Point::ReleaseLocked, Way::Drain),
    at(Point::ReleaseMade, Way::Drain),
    at(Point::LeaseReleased, Way::Drain),
];

/// How a run of the matrix came out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Fell {
    Pass,
    Fail,
    /// The process never came to the point.
    Miss,
    /// It could not be carried out.
    #[serde(rename = "NOT RUN")]
    NotRun,
}

impl Fell {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Miss => "MISS",
            Self::NotRun => "NOT RUN",
        }
    }
}

/// One run: a point, a fault, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct CellRun {
    pub work: Work,
    pub point: &'static str,
    pub fault: Fault,
    pub verdict: Fell,
    /// Processes that were started until one stood at the point.
    pub tries: u32,
    /// How the process ended that was held, and its successor.
    pub ended: String,
    pub successor: String,
    /// What was not as it must be.
    pub why: Vec<String>,
    pub seconds: f64,
    /// Its lease, in the history.
    pub lease: Option<String>,
}

/// A moment of the history of one of the databases.
#[derive(Clone, Debug, Serialize)]
pub struct LaneMoment {
    /// Which database, from 1.
    pub lane: usize,
    #[serde(flatten)]
    pub moment: Moment,
}

/// Everything that a kill matrix leaves behind.
#[derive(Clone, Debug, Serialize)]
pub struct MatrixEvidence {
    pub kind: &'static str,
    pub version: u32,
    /// `kill-matrix`.
    pub drill: &'static str,
    pub verdict: Verdict,
    /// Runs, and those of them that passed, failed, never came to their point, were not carried out.
    pub total: usize,
    pub passed: usize,
    pub failed: usize,
    pub missed: usize,
    pub not_run: usize,
    /// All points under all faults were asked for.
    pub whole: bool,
    pub seed: u64,
    /// Of this drill alone; one a database.
    pub nonces: Vec<String>,
    /// RFC 3339, UTC, by the database.
    pub started_at: String,
    pub ended_at: String,
    pub seconds: f64,
    pub ttl_sec: f64,
    pub versions: Versions,
    pub environment: Environment,
    pub ledger: QueueNumbers,
    pub checks: Vec<Check>,
    pub runs: Vec<CellRun>,
    /// Of some leases: of runs that did not pass, else of one for each fault.
    pub timeline: Vec<Moment>,
    /// The whole history, a JSON line a moment; its SHA-256 and how many there are.
    pub history: String,
    pub history_hash: String,
    pub history_lines: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_of_the_program_is_in_the_matrix_and_each_row_is_there_once() {
        for point in Point::ALL {
            let rows = PLACES.iter().filter(|place| place.point == *point).count();
            assert!(rows > 0, "{} is in no row", point.name());
        }
        let mut names: Vec<String> = PLACES.iter().map(Place::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), PLACES.len());
        assert!(Point::ALL.len() >= 40 && PLACES.len() * Fault::ALL.len() >= 120);
    }

    #[test]
    fn a_fault_is_found_by_its_word() {
        for fault in Fault::ALL {
            assert_eq!(fault.word().parse(), Ok(fault));
        }
        assert_eq!("flood".parse::<Fault>(), Err(()));
    }
}
