//! The evidence of a drill: one document whose fields come in one order.

use serde::Serialize;

use super::{Check, Moment, Verdict};

/// Everything that a drill leaves behind.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    pub kind: &'static str,
    pub version: u32,
    /// `2owners`.
    pub drill: &'static str,
    pub verdict: Verdict,
    pub passed: usize,
    pub failed: usize,
    pub not_run: usize,
    pub seed: u64,
    /// Of this run alone; in the names of its database and its topics.
    pub nonce: String,
    /// RFC 3339, UTC, by the database.
    pub started_at: String,
    pub ended_at: String,
    pub seconds: f64,
    pub ttl_sec: f64,
    pub fast: bool,
    pub versions: Versions,
    pub environment: Environment,
    pub ledger: QueueNumbers,
    pub checks: Vec<Check>,
    /// The leases of the two phases of the drill.
    pub timeline: Vec<Moment>,
    /// The whole history, a JSON line a moment; its SHA-256 and how many there are.
    pub history: String,
    pub history_hash: String,
    pub history_lines: usize,
}

#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Versions {
    pub finaz: String,
    pub postgresql: String,
    pub broker: String,
}

impl Versions {
    /// Of this program and the servers; `cluster` is the id that the broker gives.
    #[must_use]
    pub fn of(postgresql: String, cluster: Option<&str>) -> Self {
        let cluster = cluster.map_or_else(String::new, |id| format!(", cluster {id}"));
        let broker = format!("of the Kafka protocol{cluster}");
        Self { finaz: env!("CARGO_PKG_VERSION").to_owned(), postgresql, broker }
    }
}

#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Environment {
    pub os: String,
    pub arch: String,
    pub database: String,
    pub brokers: String,
    pub topics: Vec<String>,
    pub folder: String,
}

/// What became of the records of both phases, counted by offset.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct QueueNumbers {
    /// Records that the topics hold.
    pub attempted: u64,
    /// Of those, decided in a committed journal.
    pub acked: u64,
    /// Held by the topic and decided nowhere.
    pub lost: u64,
    /// Decided, and not in the topic.
    pub unexpected: u64,
    /// Decided twice.
    pub duplicated: u64,
    /// Decided by the one who took over, behind the last commit of the one who was stopped or killed.
    pub recovered: u64,
}

impl QueueNumbers {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            attempted: self.attempted + other.attempted,
            acked: self.acked + other.acked,
            lost: self.lost + other.lost,
            unexpected: self.unexpected + other.unexpected,
            duplicated: self.duplicated + other.duplicated,
            recovered: self.recovered + other.recovered,
        }
    }
}
