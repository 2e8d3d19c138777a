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
    /// The hash of the values that the newest publication of a flow has.
    pub async fn published_for(&self, flow: &Hash) -> Result<Option<Hash>, Error> {
        let client = self.client().await?;
        let flow: &[u8] = flow.as_bytes();
        let row = client
            .query_opt(
                "SELECT p.values_hash FROM finaz.publications AS p JOIN finaz.api_runs AS r USING (run_no)
                 WHERE r.flow = $1 ORDER BY p.run_no DESC LIMIT 1",
                &[&flow],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.map(|row| Hash::from_digest(row.get(0)).expect("the column is checked")))
    }

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

    /// Asks to cancel: a run that has not started is CANCELLED at once, one that runs is marked; gives the state
    /// it had.
    ///
    /// Two transactions, since a claim locks event before run and a publication run before event: the first holds
    /// the run alone, the second goes the way of a claim. Whoever claims in between sees the mark.
    pub async fn request_cancel(&self, run_id: &str) -> Result<Option<String>, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let marked = client
                .query_opt(
                    "WITH u AS (
                         UPDATE finaz.api_runs SET cancel_requested_at = clock_timestamp()
                         WHERE run_id = $1 AND state IN ('QUEUED', 'RUNNING') AND cancel_requested_at IS NULL
                         RETURNING run_no, state, fence
                     ), h AS (
                         INSERT INTO finaz.run_history (run_no, what, fence)
                         SELECT run_no, 'cancel requested', fence FROM u
                     )
                     SELECT state FROM u
                     UNION ALL SELECT state FROM finaz.api_runs WHERE run_id = $1 AND NOT EXISTS (SELECT 1 FROM u)",
                    &[&run_id],
                )
                .await
                .map_err(|error| self.commit_error(&error))?;
            let Some(state) = marked.map(|row| row.get::<_, String>(0)) else { return Ok(None) };
            client
                .execute(
                    "WITH e AS MATERIALIZED (
                         SELECT o.id, o.run_no FROM finaz.outbox AS o
                         WHERE o.id = (SELECT event_id FROM finaz.api_runs WHERE run_id = $1) AND NOT o.claimed
                         FOR UPDATE SKIP LOCKED
                     ), u AS (
                         UPDATE finaz.api_runs AS r SET state = 'CANCELLED', finished_at = clock_timestamp(),
                                run_revision = r.run_revision + 1
                         FROM e WHERE r.run_no = e.run_no AND r.state = 'QUEUED' AND r.cancel_requested_at IS NOT NULL
                         RETURNING r.event_id
                     )
                     UPDATE finaz.outbox AS o SET claimed = true, delivered_at = clock_timestamp()
                     FROM u WHERE o.id = u.event_id",
                    &[&run_id],
                )
                .await
                .map_err(|error| self.commit_error(&error))?;
            Ok(Some(state))
        })
        .await
    }
}
