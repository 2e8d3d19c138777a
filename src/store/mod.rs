//! PostgreSQL, the only gate of visibility: every statement this program runs, beside the rows it returns.
//!
//! What is stored and why: `admission` claims a key once; `api_runs` is the state of each run; `outbox` is the
//! queue; `leases` say who owns which runs until when; `publications` are what readers may see; `streams` say how
//! far each stream has come, `handoffs` who had it when; `refused_effects` and `run_history` are evidence. The statements follow three rules: every effect checks its fence in the
//! transaction that makes it, time is `clock_timestamp()` read after the lock is granted, and rows are locked in
//! one order: lease, outbox, run.

mod admission;
mod checkpoints;
mod claim;
mod connect;
mod drill;
mod drill_chaos;
mod drill_hands;
mod finish;
mod handoffs;
mod health;
mod history;
mod lease;
mod listen;
mod one_trip;
mod publish;
mod reconcile;
mod run;
mod schema;
mod streams;
mod sweep;

use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::WrongType;

pub use admission::{Admitted, Verdict};
pub use checkpoints::{CheckpointRow, Named, NewCheckpoint, RestoreRow, Source};
pub use claim::{Claim, ClaimedRun};
pub use connect::{Connect, Limits, by_way_of};
pub use drill::{DrillMark, DrillSession, DrillState, drill_database};
pub use drill_chaos::{ADMISSION_COMMIT, PUBLICATION_COMMIT};
pub use drill_hands::{JOURNAL_COMMIT, LEASE_RENEWAL};
pub use finish::Ended;
pub use handoffs::{HandoffNote, HandoffRow};
pub use health::Health;
pub use history::{OutboxEvent, RefusedEffect, TraceEvent};
pub use lease::LeaseRow;
pub use listen::Listener;
pub use publish::{Published, RunResult, TakenOn};
pub use reconcile::PublishedRef;
pub use run::{RunFilter, RunRow};
pub use schema::SchemaState;
pub use streams::{
    Restored, StreamBarred, StreamLease, StreamMove, StreamRefusal, StreamRow, StreamStatus,
    StreamVerdict, StreamView,
};
pub use sweep::Swept;

/// An operation that takes longer has lost its server.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Begins a transaction of the hot path. Its statements name every row by key, and shall find them by key even where
/// the planner takes the table for an empty or a small one: its statistics are as old as the last ANALYZE.
const BEGIN_HOT: &str =
    "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan";

/// What can go wrong between us and PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not reachable, shutting down, full, or silent. The same request may succeed later.
    #[error("PostgreSQL at {place} is away: {why}")]
    Away { place: String, why: String },
    /// The server does not let us in: a wrong password, no such database or user.
    #[error("PostgreSQL at {place} refuses us: {why}")]
    Denied { place: String, why: String },
    /// It lets us in, and not do what we need.
    #[error("PostgreSQL at {place} grants too little: {why}")]
    Forbidden { place: String, why: String },
    /// A row is locked by somebody else for longer than we wait.
    #[error("a row is locked by another session")]
    Busy,
    /// The row of a lease is; `blockers` may be who.
    #[error("the row of {name} is locked by {}", named(blockers))]
    LeaseBusy { name: String, blockers: Vec<String> },
    /// The reply to COMMIT was lost: it may or may not have happened.
    #[error("PostgreSQL at {place} did not answer COMMIT: {why}")]
    CommitUnknown { place: String, why: String },
    /// The schema is not the one this binary was made for; 0: there is none.
    #[error("the schema is version {found}, this binary needs version {needed}")]
    Schema { found: i32, needed: i32 },
    /// The server is not one that results may be entrusted to.
    #[error("{what}")]
    Unsafe { check: &'static str, what: String },
    /// Two publications of one run with different content.
    #[error("run {run_id} is published with another content: {held}, not {offered}")]
    PublicationConflict { run_id: String, held: String, offered: String },
    /// The server refused a statement: a bug of ours, or a schema that somebody changed.
    #[error("PostgreSQL refused a statement ({sqlstate}): {why}")]
    Statement { sqlstate: String, why: String },
}

impl Error {
    /// Sorts an error of the client library by whose turn it is.
    fn of(place: &str, error: &tokio_postgres::Error) -> Self {
        let place = place.to_owned();
        let Some(db) = error.as_db_error() else {
            let why = innermost(error);
            // Ours: no server will ever understand it.
            return if std::error::Error::source(error)
                .is_some_and(|source| source.is::<WrongType>())
            {
                Self::Statement { sqlstate: "42804".to_owned(), why }
            } else if why.contains("password missing") {
                // The server wants one, and we have none: it will not be there later either.
                Self::Denied { place, why }
            } else {
                Self::Away { place, why }
            };
        };
        let code = db.code();
        let why = db.message().to_owned();
        if *code == SqlState::LOCK_NOT_AVAILABLE {
            return Self::Busy;
        }
        let denied = [
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            SqlState::INVALID_CATALOG_NAME,
        ];
        if denied.contains(code) {
            return Self::Denied { place, why };
        }
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            return Self::Forbidden { place, why };
        }
        // Our prepared statement is not there, or another's is: the session is not ours alone.
        if [SqlState::DUPLICATE_PSTATEMENT, SqlState::INVALID_SQL_STATEMENT_NAME].contains(code) {
            return Self::Unsafe { check: health::POOLER, what: health::POOLED.to_owned() };
        }
        // Classes 08 (connection), 53 (resources), 57P (operator), 25P03 (idle in transaction), 40 (try again).
        let text = code.code();
        if ["08", "53", "57P", "25P0", "40"].iter().any(|class| text.starts_with(class)) {
            return Self::Away { place, why: format!("{why} ({text})") };
        }
        Self::Statement { sqlstate: text.to_owned(), why }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Away { .. }
            | Self::CommitUnknown { .. }
            | Self::Busy
            | Self::LeaseBusy { .. } => true,
            Self::Denied { .. }
            | Self::Forbidden { .. }
            | Self::Schema { .. }
            | Self::Unsafe { .. }
            | Self::PublicationConflict { .. }
            | Self::Statement { .. } => false,
        }
    }
}

/// Who holds a row, in words.
fn named(blockers: &[String]) -> String {
    if blockers.is_empty() { "another session".to_owned() } else { blockers.join(", ") }
}

/// The last cause: "connection refused" says more than "error connecting to server".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Sessions to one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: Pool,
    connect: Connect,
}

impl Store {
    /// Takes the way to a database; opens nothing yet.
    pub fn new(connect: Connect) -> Result<Self, Error> {
        Ok(Self { pool: connect.pool()?, connect })
    }

    /// The same database over sessions of its own.
    pub fn with_own_pool(&self) -> Result<Self, Error> {
        Self::new(self.connect.clone())
    }

    /// `user@host:port/database`, for messages.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.connect.place
    }

    async fn client(&self) -> Result<Object, Error> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => self.error(&error),
            PoolError::PostCreateHook(deadpool_postgres::HookError::Backend(error)) => {
                self.error(&error)
            }
            PoolError::Timeout(_) => self.connect.away("no answer in time"),
            PoolError::PostCreateHook(_) | PoolError::Closed | PoolError::NoRuntimeSpecified => {
                self.connect.away("the pool is closed")
            }
        })
    }

    fn error(&self, error: &tokio_postgres::Error) -> Error {
        Error::of(&self.connect.place, error)
    }

    /// What a failed COMMIT means: with a connection lost we cannot know, otherwise it did not happen.
    fn commit_error(&self, error: &tokio_postgres::Error) -> Error {
        let error = self.error(error);
        if let Error::Away { place, why } = error {
            return Error::CommitUnknown { place, why };
        }
        error
    }

    /// Bounds an operation: a server that froze is a server that is away.
    async fn bounded<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match tokio::time::timeout(OPERATION_TIMEOUT, work).await {
            Ok(done) => done,
            Err(_late) => Err(self.connect.away("no answer in time")),
        }
    }
}

/// How long to wait before try `n` (from 1): 50 ms, doubled each time, at most 2 s.
fn backoff(n: u32) -> Duration {
    Duration::from_millis(50 << n.min(6)).min(Duration::from_secs(2))
}
