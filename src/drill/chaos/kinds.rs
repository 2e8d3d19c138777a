//! What a campaign deals, and what it must have come to.

use serde::Serialize;

/// A kind of fault.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    WorkerKilled,
    WorkerStopped,
    WorkerDrained,
    StreamKilled,
    StreamStopped,
    StreamDrained,
    ClientKilled,
    PostgresCut,
    PostgresReset,
    PostgresHeld,
    PostgresDelayed,
    PostgresUnheard,
    PostgresSessionsEnded,
    PostgresRestarted,
    BrokerCut,
    BrokerReset,
    BrokerHeld,
    BrokerDelayed,
    BrokerUnheard,
    BrokerRestarted,
    WarehouseReset,
    WarehouseHeld,
    WarehouseDelayed,
    WarehouseUnheard,
    WarehouseStopped,
    WorkerDiskFull,
    StreamDiskFull,
    Retention,
}

impl FaultKind {
    pub const ALL: [Self; 28] = [
        Self::WorkerKilled,
        Self::WorkerStopped,
        Self::WorkerDrained,
        Self::StreamKilled,
        Self::StreamStopped,
        Self::StreamDrained,
        Self::ClientKilled,
        Self::PostgresCut,
        Self::PostgresReset,
        Self::PostgresHeld,
        Self::PostgresDelayed,
        Self::PostgresUnheard,
        Self::PostgresSessionsEnded,
        Self::PostgresRestarted,
        Self::BrokerCut,
        Self::BrokerReset,
        Self::BrokerHeld,
        Self::BrokerDelayed,
        Self::BrokerUnheard,
        Self::BrokerRestarted,
        Self::WarehouseReset,
        Self::WarehouseHeld,
        Self::WarehouseDelayed,
        Self::WarehouseUnheard,
        Self::WarehouseStopped,
        Self::WorkerDiskFull,
        Self::StreamDiskFull,
        Self::Retention,
    ];

    /// What is done, in words.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::WorkerKilled => "a worker is killed (SIGKILL)",
            Self::WorkerStopped => "a worker is stopped past its lease (SIGSTOP), and goes on",
            Self::WorkerDrained => "a worker is told to end (SIGTERM)",
            Self::StreamKilled => "the owner of a stream is killed (SIGKILL)",
            Self::StreamStopped => {
                "the owner of a stream is stopped past its lease (SIGSTOP), and goes on"
            }
            Self::StreamDrained => "the owner of a stream is told to end (SIGTERM)",
            Self::ClientKilled => "a client is killed while it admits",
            Self::PostgresCut => "connections to PostgreSQL are closed, new ones at once",
            Self::PostgresReset => "connections to PostgreSQL are reset",
            Self::PostgresHeld => "nothing passes to PostgreSQL",
            Self::PostgresDelayed => "all that passes to PostgreSQL is late",
            Self::PostgresUnheard => "the answer to a COMMIT is swallowed",
            Self::PostgresSessionsEnded => "sessions are ended (pg_terminate_backend)",
            Self::PostgresRestarted => "PostgreSQL is restarted",
            Self::BrokerCut => "connections to the broker are closed, new ones at once",
            Self::BrokerReset => "connections to the broker are reset",
            Self::BrokerHeld => "nothing passes to the broker",
            Self::BrokerDelayed => "all that passes to the broker is late",
            Self::BrokerUnheard => "the broker's answers are swallowed",
            Self::BrokerRestarted => "the broker is restarted",
            Self::WarehouseReset => "connections to ClickHouse are reset",
            Self::WarehouseHeld => "nothing passes to ClickHouse",
            Self::WarehouseDelayed => "all that passes to ClickHouse is late",
            Self::WarehouseUnheard => "ClickHouse's answers are swallowed",
            Self::WarehouseStopped => "ClickHouse is stopped",
            Self::WorkerDiskFull => "a worker's disk is full",
            Self::StreamDiskFull => "the disk of a stream's owner is full",
            Self::Retention => "retention takes records that a stream needs",
        }
    }

    /// How long it lasts, milliseconds: least and most. One that is over at once lasts nothing.
    pub(super) fn lasts(self) -> (u64, u64) {
        match self {
            Self::WorkerStopped | Self::StreamStopped => (300, 2_000),
            Self::PostgresCut | Self::BrokerCut => (300, 2_500),
            Self::PostgresReset | Self::BrokerReset | Self::WarehouseReset => (0, 1_200),
            Self::PostgresHeld | Self::BrokerHeld | Self::WarehouseHeld => (500, 4_000),
            Self::PostgresDelayed | Self::BrokerDelayed | Self::WarehouseDelayed => (1_000, 4_000),
            Self::BrokerUnheard | Self::WarehouseUnheard => (500, 2_500),
            Self::PostgresRestarted => (0, 1_000),
            Self::BrokerRestarted | Self::WarehouseStopped => (2_000, 4_000),
            Self::WorkerDiskFull | Self::StreamDiskFull => (1_500, 3_000),
            Self::WorkerKilled
            | Self::WorkerDrained
            | Self::StreamKilled
            | Self::StreamDrained
            | Self::ClientKilled
            | Self::PostgresUnheard
            | Self::PostgresSessionsEnded
            | Self::Retention => (0, 0),
        }
    }
}

/// What a long campaign must have come to, or it has shown too little.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Situation {
    Handoff,
    StaleRefusal,
    UnknownCommit,
    OrphanSwept,
    BlockedRecovery,
}

impl Situation {
    pub const ALL: [Self; 5] = [
        Self::Handoff,
        Self::StaleRefusal,
        Self::UnknownCommit,
        Self::OrphanSwept,
        Self::BlockedRecovery,
    ];

    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Handoff => "a stream went from one owner to another",
            Self::StaleRefusal => "an effect was refused by its fence",
            Self::UnknownCommit => "a commit whose answer was lost had been made",
            Self::OrphanSwept => "runs of a dead owner went back to the queue",
            Self::BlockedRecovery => "a stream said that its recovery is blocked",
        }
    }
}

/// The name of a kind or a situation, as the document has it.
#[must_use]
pub fn name_of(kind: &impl Serialize) -> String {
    serde_json::to_value(kind)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}
