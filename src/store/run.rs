//! Runs as they stand, and requests to cancel them.

use super::{Error, Store};
use crate::ids::Hash;

/// A run and, once published, where its result is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunRow {
    pub run_no: i64,
    pub run_id: String,
    pub state: String,
    pub fence: i64,
    pub run_revision: i64,
    pub attempts: i32,
    pub error: Option<String>,
    pub flow: Hash,
    pub snapshot: Hash,
    pub cancel_requested: bool,
    /// Epoch and fence it was published under, the FeatureBatch, the hash of the values and their number.
    pub publication: Option<(i64, i64, Hash, Hash, i64)>,
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub state: Option<String>,
    pub limit: i64,
}

const SELECT: &str = "
    SELECT r.run_no, r.run_id, r.state, r.fence, r.run_revision, r.attempts, r.error, r.flow, r.snapshot,
           r.cancel_requested_at IS NOT NULL, p.epoch, p.fence, p.ref, p.values_hash, p.rows
    FROM finaz.api_runs AS r LEFT JOIN finaz.publications AS p USING (run_no)";

fn run_row(row: &tokio_postgres::Row) -> RunRow {
    let hash = |bytes| Hash::from_digest(bytes).expect("the column is checked");
    RunRow {
        run_no: row.get(0),
        run_id: row.get(1),
        state: row.get(2),
        fence: row.get(3),
        run_revision: row.get(4),
        attempts: row.get(5),
        error: row.get(6),
        flow: hash(row.get(7)),
        snapshot: hash(row.get(8)),
        cancel_requested: row.get(9),
        publication: row
            .get::<_, Option<i64>>(10)
            .map(|epoch| (epoch, row.get(11), hash(row.get(12)), hash(row.get(13)), row.get(14))),
    }
}

impl Store {
    /// The newest runs, first the newest.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                &format!(
                    "{SELECT} WHERE $1::text IS NULL OR r.state = $1 ORDER BY r.run_no DESC LIMIT $2"
                ),
                &[&filter.state, &filter.limit],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().map(run_row).collect())
    }

    /// The run of this id, or of the only id that begins so; two rows at most, to tell an ambiguous one.
    pub async fn runs_like(&self, run_id: &str) -> Result<Vec<RunRow>, Error> {
        let client = self.client().await?;
        let exact = client
            .query(&format!("{SELECT} WHERE r.run_id = $1"), &[&run_id])
            .await
            .map_err(|error| self.error(&error))?;
        if !exact.is_empty() {
            return Ok(exact.iter().map(run_row).collect());
        }
        let rows = client
            .query(&format!("{SELECT} WHERE starts_with(r.run_id, $1) LIMIT 2"), &[&run_id])
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().map(run_row).collect())
    }

    /// Asks to cancel: a run that has not started is CANCELLED in the same transaction, one that runs is
    /// marked; gives the state it had.
    pub async fn request_cancel(&self, run_id: &str) -> Result<Option<String>, Error> {
        self.bounded(async {
            let client = self.client().await?;
            // Locked in the order outbox, run, as a claim does.
            let row = client
                .query_opt(
                    "WITH e AS MATERIALIZED (
                         SELECT id FROM finaz.outbox
                         WHERE id = (SELECT event_id FROM finaz.api_runs WHERE run_id = $1) FOR UPDATE
                     ), was AS MATERIALIZED (
                         SELECT run_no, state, event_id, fence FROM finaz.api_runs
                         WHERE run_id = $1 AND event_id IN (SELECT id FROM e) FOR UPDATE
                     ), u AS (
                         UPDATE finaz.api_runs AS r SET cancel_requested_at = clock_timestamp(),
                             state = CASE was.state WHEN 'QUEUED' THEN 'CANCELLED' ELSE r.state END,
                             finished_at = CASE was.state WHEN 'QUEUED' THEN clock_timestamp() END,
                             run_revision = r.run_revision + CASE was.state WHEN 'QUEUED' THEN 1 ELSE 0 END
                         FROM was WHERE r.run_no = was.run_no AND was.state IN ('QUEUED', 'RUNNING')
                           AND r.cancel_requested_at IS NULL
                         RETURNING r.run_no
                     ), o AS (
                         UPDATE finaz.outbox AS o SET claimed = true, delivered_at = clock_timestamp()
                         FROM was WHERE o.id = was.event_id AND was.state = 'QUEUED'
                     ), h AS (
                         INSERT INTO finaz.run_history (run_no, what, fence)
                         SELECT run_no, 'cancel requested', was.fence FROM u JOIN was USING (run_no)
                     )
                     SELECT state FROM was",
                    &[&run_id],
                )
                .await
                .map_err(|error| self.commit_error(&error))?;
            Ok(row.map(|row| row.get(0)))
        })
        .await
    }
}
