//! Is this a server that results may be entrusted to?

use std::time::Duration;

use tokio_postgres::SimpleQueryMessage;

use super::{Error, Store};

/// Connections that a worker opens: its pool, the listener, and one for a person.
const CONNECTIONS_NEEDED: i64 = 10;

/// The check that a pooler in transaction mode fails, and what is wrong with one.
pub(super) const POOLER: &str = "PG_POOLER";
pub(super) const POOLED: &str = "a pooler in transaction mode is in between: sessions are not ours";

/// What the server says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub version: i32,
    pub replica: bool,
    pub read_only: bool,
    pub fsync: bool,
    pub full_page_writes: bool,
    /// The server's default; our own sessions always set it to `on`.
    pub synchronous_commit: String,
    pub connections_free: i64,
    pub connections_max: i64,
    /// Two sessions of ours met in one backend: a pooler in transaction mode is in between.
    pub transaction_pooler: bool,
    /// Seconds of the oldest snapshot that keeps dead rows alive.
    pub oldest_snapshot: f64,
}

impl Health {
    /// Why a worker must not run here: the check's name and what is wrong; `None` when it may.
    #[must_use]
    pub fn unsafe_for_work(&self) -> Option<(&'static str, String)> {
        if self.replica || self.read_only {
            return Some((
                "PG_REPLICA",
                "the server is a replica or read-only: a lease read there proves nothing"
                    .to_owned(),
            ));
        }
        if self.transaction_pooler {
            return Some((POOLER, POOLED.to_owned()));
        }
        if !self.fsync || !self.full_page_writes {
            return Some((
                "PG_NOT_DURABLE",
                format!(
                    "fsync is {} and full_page_writes {}: a crash could hand out a fence twice",
                    on_off(self.fsync),
                    on_off(self.full_page_writes)
                ),
            ));
        }
        if self.version < 150_000 {
            return Some((
                "PG_VERSION",
                format!("the server is version {}, older than 15", self.version / 10_000),
            ));
        }
        if self.connections_free < CONNECTIONS_NEEDED {
            return Some((
                "PG_CONNECTIONS",
                format!(
                    "{} of {} connections are free, a worker needs {CONNECTIONS_NEEDED}",
                    self.connections_free, self.connections_max
                ),
            ));
        }
        None
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl Store {
    /// Asks the server about itself.
    pub async fn health(&self) -> Result<Health, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let row = client
                .query_one(
                    "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
                            current_setting('default_transaction_read_only') = 'on',
                            current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
                            (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'),
                            current_setting('max_connections')::bigint
                              - current_setting('superuser_reserved_connections')::bigint
                              - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
                            current_setting('max_connections')::bigint,
                            (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8
                             FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid())",
                    &[],
                )
                .await
                .map_err(|error| self.error(&error))?;
            Ok(Health {
                version: row.get(0),
                replica: row.get(1),
                read_only: row.get(2),
                fsync: row.get(3),
                full_page_writes: row.get(4),
                synchronous_commit: row.get(5),
                connections_free: row.get(6),
                connections_max: row.get(7),
                transaction_pooler: self.pooled().await?,
                oldest_snapshot: row.get(8),
            })
        })
        .await
    }

    /// Two sessions that are really ours are never in one backend. A pooler in transaction mode hands the first
    /// one's idle backend to the second one's transaction.
    async fn pooled(&self) -> Result<bool, Error> {
        let first = self.client().await?;
        let mut second = self.client().await?;
        for _ in 0..3 {
            let before = self.pid(&first).await?;
            let transaction = second.transaction().await.map_err(|error| self.error(&error))?;
            let other = self.pid(transaction.client()).await?;
            let after = tokio::time::timeout(Duration::from_secs(3), self.pid(&first));
            let after = match after.await {
                Ok(pid) => pid?,
                // A pooler with one backend makes the first session wait for the second one's transaction.
                Err(_late) => return Ok(true),
            };
            if before == other || before != after {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The backend behind a session. Not as a prepared statement: behind a pooler there may be none.
    async fn pid(&self, client: &tokio_postgres::Client) -> Result<Option<String>, Error> {
        let answer = client.simple_query("SELECT pg_backend_pid()").await;
        let answer = answer.map_err(|error| self.error(&error))?;
        Ok(answer.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            row.get(0).map(str::to_owned)
        }))
    }

    /// Sessions that may hold the row of a lease for which we have just waited in vain, the oldest first.
    pub(super) async fn blockers(&self) -> Result<Vec<String>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT 'pid ' || pid || ' (' || coalesce(nullif(application_name, ''), 'no name') || ', '
                        || round(extract(epoch FROM clock_timestamp() - xact_start)) || ' s in its transaction)'
                 FROM pg_stat_activity
                 WHERE xact_start < clock_timestamp() - current_setting('lock_timeout')::interval
                   AND pid <> pg_backend_pid()
                   AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'finaz.leases'::regclass)
                 ORDER BY xact_start LIMIT 5",
                &[],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
