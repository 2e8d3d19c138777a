//! What a campaign of faults asks of its own database: notes of all effects, the end of sessions, what became of each run.

use super::{Error, Store};
use crate::drill::chaos::RunEnd;

const WATCHED: &str = include_str!("schema/drill_chaos.sql");

/// Words by which the commit of an admission and of a publication are known on the wire.
pub const ADMISSION_COMMIT: &str = "INSERT INTO finaz.admission";
pub const PUBLICATION_COMMIT: &str = "INSERT INTO finaz.publications";

impl Store {
    /// Takes note of claims, publications and orphans from now on, besides what `watch_drill` does.
    pub async fn watch_chaos(&self) -> Result<(), Error> {
        self.order(WATCHED).await
    }

    /// Ends every session but ours and the one to `keep`, as an operator does; gives how many.
    pub async fn end_sessions(&self, keep: i32) -> Result<i64, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_type = 'client backend'
                   AND pid <> pg_backend_pid() AND pid <> $1",
                &[&keep],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }

    /// Runs that have not come to their end.
    pub async fn open_runs(&self) -> Result<i64, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT count(*) FROM finaz.api_runs WHERE state IN ('QUEUED', 'RUNNING')",
                &[],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }

    /// What became of every run.
    pub async fn run_ends(&self) -> Result<Vec<RunEnd>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT r.run_id, coalesce(a.key, ''), r.state, r.attempts, r.error,
                        coalesce((SELECT array_agg('sha256:' || encode(p.values_hash, 'hex'))
                                  FROM finaz.publications AS p WHERE p.run_id = r.run_id), '{}')
                 FROM finaz.api_runs AS r LEFT JOIN finaz.admission AS a USING (run_no) ORDER BY r.run_no",
                &[],
            )
            .await
            .map_err(|error| self.error(&error))?;
        let end = |row: &tokio_postgres::Row| RunEnd {
            run_id: row.get(0),
            key: row.get(1),
            state: row.get(2),
            attempts: row.get(3),
            error: row.get(4),
            published: row.get(5),
        };
        Ok(rows.iter().map(end).collect())
    }
}
