//! What a drill does to its own database as an operator, a backup or a neighbour would: sessions that hold rows, rows
//! that are put back or deleted, a clock that is wrong.

use super::drill::DrillSession;
use super::{Error, Store};

/// Words by which a commit of a journal is known on the wire.
pub const JOURNAL_COMMIT: &str = "UPDATE finaz.streams AS s SET epoch";
/// Words by which the renewal of one lease is known, before it holds anything.
pub const LEASE_RENEWAL: &str = "SELECT owner, epoch, fence, closed, expires_at FROM finaz.leases";

impl DrillSession {
    /// Locks the row of a lease until the session ends.
    pub async fn lock_lease(&self, name: &str) -> Result<(), Error> {
        self.client.batch_execute("BEGIN").await.map_err(|error| self.error(&error))?;
        let lock = "SELECT 1 FROM finaz.leases WHERE name = $1 FOR UPDATE";
        self.client.execute(lock, &[&name]).await.map_err(|error| self.error(&error))?;
        Ok(())
    }

    fn error(&self, error: &tokio_postgres::Error) -> Error {
        Error::of(&self.place, error)
    }
}

impl Store {
    /// How many sessions wait for this one, directly or behind another that does.
    pub async fn waiting_behind(&self, pid: i32) -> Result<i64, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "WITH RECURSIVE b AS (
                     SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))
                     UNION
                     SELECT a.pid FROM pg_stat_activity AS a JOIN b ON b.pid = ANY (pg_blocking_pids(a.pid))
                     WHERE a.datname = current_database()
                 ) SELECT count(*) FROM b",
                &[&pid],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }

    /// The sessions that came from these ports and are idle inside of a transaction.
    pub async fn idle_in_transaction(&self, ports: &[i32]) -> Result<Vec<i32>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                   AND state = 'idle in transaction' AND client_port = ANY ($1) ORDER BY pid",
                &[&ports],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Ends the sessions of this name, as an administrator might; gives how many there were.
    pub async fn end_sessions_of(&self, name: &str) -> Result<i64, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = $1",
                &[&name],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }

    /// How many sessions of this name there are.
    pub async fn sessions(&self, name: &str) -> Result<i64, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = $1",
                &[&name],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }

    /// Keeps the rows of all streams, as a backup does.
    pub async fn keep_rows(&self) -> Result<(), Error> {
        self.by_hand(
            &[
                "CREATE TABLE finaz_drill.kept_leases AS SELECT * FROM finaz.leases",
                "CREATE TABLE finaz_drill.kept_streams AS SELECT * FROM finaz.streams",
                "CREATE TABLE finaz_drill.kept_handoffs AS SELECT * FROM finaz.handoffs",
            ],
            None,
        )
        .await
    }

    /// Puts the rows of a stream back as they were kept.
    pub async fn put_rows_back(&self, name: &str) -> Result<(), Error> {
        self.by_hand(
            &[
                "UPDATE finaz.leases AS l SET owner = k.owner, epoch = k.epoch, fence = k.fence, expires_at = k.expires_at,
                        closed = k.closed FROM finaz_drill.kept_leases AS k WHERE l.name = $1 AND k.name = l.name",
                "UPDATE finaz.streams AS s SET epoch = k.epoch, fence = k.fence, seq = k.seq, head = k.head, blobs = k.blobs,
                        state = k.state, reason = k.reason, report = k.report, committed_at = k.committed_at
                 FROM finaz_drill.kept_streams AS k WHERE s.name = $1 AND k.name = s.name",
                "DELETE FROM finaz.handoffs AS h WHERE h.name = $1
                   AND NOT EXISTS (SELECT FROM finaz_drill.kept_handoffs AS k WHERE k.handoff_no = h.handoff_no)",
            ],
            Some(name),
        )
        .await
    }

    /// Deletes the row of a lease, as a person might.
    pub async fn delete_lease(&self, name: &str) -> Result<(), Error> {
        self.by_hand(&["DELETE FROM finaz.leases WHERE name = $1"], Some(name)).await
    }

    async fn by_hand(&self, statements: &[&str], name: Option<&str>) -> Result<(), Error> {
        let mut client = self.client().await?;
        let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
        transaction
            .batch_execute("SET LOCAL finaz_drill.hand = 'on'")
            .await
            .map_err(|error| self.error(&error))?;
        for statement in statements {
            let done = match &name {
                Some(name) => transaction.execute(*statement, &[name]).await,
                None => transaction.execute(*statement, &[]).await,
            };
            done.map_err(|error| self.error(&error))?;
        }
        transaction.commit().await.map_err(|error| self.error(&error))
    }

    /// Makes the database's clock differ from that of the machine, for sessions that look for functions in `finaz_drill`
    /// first.
    pub async fn shift_clock(&self, seconds: i32) -> Result<(), Error> {
        self.order(&format!(
            "CREATE OR REPLACE FUNCTION finaz_drill.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS $$ SELECT pg_catalog.clock_timestamp() + {seconds} * interval '1 second' $$"
        ))
        .await
    }

    /// Seconds that a lease has left, by the machine's own clock.
    pub async fn lease_seconds(&self, name: &str) -> Result<f64, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT extract(epoch FROM expires_at - pg_catalog.clock_timestamp())::float8
                 FROM finaz.leases WHERE name = $1",
                &[&name],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }
}
