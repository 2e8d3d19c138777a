//! ClickHouse: the only room that speaks to it.
//!
//! Results are *staged* here, they are not published here: a row counts only when its
//! `(run_no, run_id, epoch, fence)` stands in PostgreSQL's `publications` (docs/reading.md). So
//! nothing here needs a transaction, everything may be repeated, and what a dead worker leaves
//! behind is garbage that [`Warehouse::refs`] finds and [`Warehouse::delete`] removes. One ClickHouse
//! database belongs to one PostgreSQL database: the other's rows would look like that garbage.
//!
//! A row is known by `(run_no, epoch, fence, run_id, seq)`. Staged twice, after an answer that got
//! lost, it is two rows until ClickHouse merges them (`ReplacingMergeTree`), and one for every reader
//! at any time: they take the last staged of each `seq`.
//!
//! What is acknowledged survives the server's death, not a power cut: the durable copy of a result is in the
//! artifact store, and the reconciler stages again what is missing here. Who wants both on the disk pays 2 to
//! 4 ms an insert: `ALTER TABLE finaz.staging MODIFY SETTING fsync_after_insert = 1, fsync_part_directory = 1`.

mod address;
mod block;
mod drill;
mod error;
mod schema;
mod series;
mod staging;
mod transport;

use std::path::PathBuf;
use std::time::Duration;

use clickhouse::{Client, Compression};

pub use drill::{drill_warehouse, warehouse_by_way_of};
pub use error::Error;
pub use schema::{Migrated, SCHEMA, State};
pub use series::StreamRows;
pub use staging::{Ref, Series, StagedRead, StagedRef, StagedRun, StagedSeries};

use crate::invalid::Invalid;
use address::Address;

/// A server on the same machine or network answers in milliseconds.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// How to reach the server, beside its URL.
#[derive(Clone, Debug)]
pub struct Options {
    /// A PEM file of certificate authorities to trust beside Mozilla's. The URL's `sslrootcert=FILE`
    /// trusts that file alone.
    pub ca: Option<PathBuf>,
    /// Lets `http://` go to other machines than this one.
    pub allow_plaintext: bool,
    /// How long the server may keep us waiting for an answer before it counts as away.
    pub patience: Duration,
}

/// A ClickHouse server and our database on it. Holds a pool of connections, opens none by itself.
#[derive(Clone)]
pub struct Warehouse {
    client: Client,
    /// Where, without user and password.
    place: String,
    database: String,
    /// Kept only to strike it out of what the server says.
    password: Option<String>,
    patience: Duration,
}

impl std::fmt::Debug for Warehouse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Warehouse")
            .field("place", &self.place)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl Warehouse {
    /// Gets ready to speak to `http[s]://[user[:password]@]host[:port][/database][?sslrootcert=FILE]`
    /// (the database may also be `?database=`; `finaz` when none is named). Connects to nothing.
    ///
    /// # Errors
    /// [`Invalid`], without the password: a bad URL, plaintext to another machine, a bad CA file.
    pub fn connect(url: &str, options: &Options) -> Result<Self, Invalid> {
        let address = Address::parse(url, options.allow_plaintext)?;
        let trust = transport::Trust { alone: address.ca.as_deref(), too: options.ca.as_deref() };
        let mut client = transport::client(&trust, CONNECT_MAX.min(options.patience))?
            .with_url(&address.origin)
            // Between two processes of one machine LZ4 costs more than it saves.
            .with_compression(if address.loopback { Compression::None } else { Compression::Lz4 })
            .with_product_info("finaz", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &address.user {
            client = client.with_user(user);
        }
        if let Some(password) = &address.password {
            client = client.with_password(password);
        }
        Ok(Self {
            client,
            place: address.origin,
            database: address.database,
            password: address.password,
            patience: options.patience,
        })
    }

    /// A statement without an answer.
    async fn execute(&self, sql: &str) -> Result<(), Error> {
        self.retried(|| self.client.query_raw(sql).execute()).await
    }

    /// A statement whose answer is one value.
    async fn one<T>(&self, sql: &str) -> Result<T, Error>
    where
        T: clickhouse::RowOwned + clickhouse::RowRead,
    {
        self.retried(|| self.client.query_raw(sql).fetch_one::<T>()).await
    }

    /// Awaits what may be repeated, within our patience; once more at once when the connection broke.
    /// That is how it looks when the server closes an idle connection just as we take it up.
    async fn retried<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = clickhouse::error::Result<T>>,
    {
        match self.timed(ask()).await {
            Err(clickhouse::error::Error::Network(_)) => self.timed(ask()).await,
            done => done,
        }
        .map_err(|error| self.error(&error))
    }

    async fn timed<T>(
        &self,
        answer: impl Future<Output = clickhouse::error::Result<T>>,
    ) -> clickhouse::error::Result<T> {
        tokio::time::timeout(self.patience, answer)
            .await
            .unwrap_or(Err(clickhouse::error::Error::TimedOut))
    }

    fn error(&self, error: &clickhouse::error::Error) -> Error {
        error::classify(&self.place, self.password.as_deref(), error)
    }
}

#[cfg(test)]
mod tests;
