//! Taking runs from the queue: QUEUED to RUNNING, the next fence and the lease in one transaction.

use std::time::Duration;

use tokio_postgres::types::ToSql;

use super::one_trip::Steps;
use super::{Error, Store};
use crate::ids::{Hash, Owner};
use crate::points::Point;

/// Claims by state, in order, skipping what others hold. The CTE is MATERIALIZED for correctness: without it
/// the planner may run the LIMIT again and lock more than it returns. An event whose run is not QUEUED any more
/// is marked delivered on the way. `$4` is the scan floor: with a snapshot held open somewhere, dead entries
/// below it would be read again at every claim. The rows are found by arrays of keys and not by a join, which
/// would be planned by statistics that are wrong by the time it runs: nothing is QUEUED or RUNNING for long.
const CLAIM: &str = "
    WITH c AS MATERIALIZED (
        SELECT id, run_no FROM finaz.outbox
        WHERE NOT claimed AND suspect = 0 AND id >= $4
        ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
    ), s AS MATERIALIZED (
        SELECT array_agg(id) AS ids, array_agg(run_no) AS run_nos FROM c HAVING count(*) > 0
    ), l AS MATERIALIZED (
        INSERT INTO finaz.leases (lease_no, name, owner, fence, epoch, expires_at, run_nos)
        SELECT n, 'batch/' || n, $1, 1,
               (SELECT coalesce(max(epoch), 1) FROM finaz.epochs WHERE lease = ''),
               clock_timestamp() + $2::float8 * interval '1 second', run_nos
        FROM (SELECT nextval('finaz.lease_no') AS n, run_nos FROM s) AS new
        RETURNING lease_no, epoch, fence
    ), u AS (
        UPDATE finaz.api_runs AS r SET state = 'RUNNING', fence = r.fence + 1, lease_no = (SELECT lease_no FROM l)
        WHERE r.run_no = ANY ((SELECT run_nos FROM s)::bigint[]) AND r.state = 'QUEUED'
        RETURNING r.run_no, r.event_id, r.run_id, r.fence, r.flow, r.snapshot, r.attempts,
                  r.cancel_requested_at IS NOT NULL
    ), o AS (
        UPDATE finaz.outbox AS o SET claimed = true, lease_no = (SELECT lease_no FROM l),
               delivered_at = CASE WHEN o.run_no IN (SELECT run_no FROM u) THEN NULL ELSE clock_timestamp() END
        WHERE o.id = ANY ((SELECT ids FROM s)::bigint[])
    )
    SELECT l.lease_no, l.epoch, l.fence, u.* FROM l LEFT JOIN u ON true";

/// Where a drill can hold a process that claims.
const STEPS: Steps = Steps {
    begun: Point::ClaimBegun,
    locked: None,
    made: Point::ClaimMade,
    sent: Point::ClaimSent,
    acked: Point::ClaimAcked,
};

/// The same for one suspect, the least suspicious first. Alone, so that a run that kills its worker takes
/// nobody with it.
const CLAIM_SUSPECT: &str = "
    WITH c AS MATERIALIZED (
        SELECT id, run_no FROM finaz.outbox WHERE NOT claimed AND suspect > 0
        ORDER BY suspect, id LIMIT 1 FOR UPDATE SKIP LOCKED
    )";

/// The same for the one run that a foreground command is about.
const CLAIM_ONE: &str = "
    WITH c AS MATERIALIZED (
        SELECT o.id, o.run_no FROM finaz.outbox AS o JOIN finaz.api_runs AS r ON r.event_id = o.id
        WHERE r.run_no = $3 AND NOT o.claimed FOR UPDATE OF o SKIP LOCKED
    )";

/// The rest of a claim of one run: its lease is `run/<run id>`, whose own fence rises each time.
const ONE_TAIL: &str = ", l AS MATERIALIZED (
        INSERT INTO finaz.leases AS held (lease_no, name, owner, fence, epoch, expires_at, run_nos)
        SELECT nextval('finaz.lease_no'), 'run/' || r.run_id, $1, 1,
               (SELECT coalesce(max(epoch), 1) FROM finaz.epochs WHERE lease = ''),
               clock_timestamp() + $2::float8 * interval '1 second', ARRAY[c.run_no]
        FROM c JOIN finaz.api_runs AS r USING (run_no)
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = held.fence + 1, closed = false,
               epoch = excluded.epoch, acquired_at = clock_timestamp(), staged_at = NULL,
               expires_at = clock_timestamp() + $2::float8 * interval '1 second'
            WHERE held.expires_at <= clock_timestamp()
        RETURNING lease_no, epoch, fence
    ), u AS (
        UPDATE finaz.api_runs AS r SET state = 'RUNNING', fence = r.fence + 1, lease_no = l.lease_no
        FROM c, l WHERE r.run_no = c.run_no AND r.state = 'QUEUED'
        RETURNING r.run_no, c.id, r.run_id, r.fence, r.flow, r.snapshot, r.attempts, r.cancel_requested_at IS NOT NULL
    ), o AS (
        UPDATE finaz.outbox AS o SET claimed = true, lease_no = l.lease_no,
               delivered_at = CASE WHEN c.run_no IN (SELECT run_no FROM u) THEN NULL ELSE clock_timestamp() END
        FROM c, l WHERE o.id = c.id
    )
    SELECT l.lease_no, l.epoch, l.fence, u.* FROM l LEFT JOIN u ON true";

/// Runs claimed together under one lease.
#[derive(Clone, Debug)]
pub struct Claim {
    pub lease_no: i64,
    pub owner: Owner,
    /// The lease's fence; each run has one of its own.
    pub fence: i64,
    pub epoch: i64,
    pub runs: Vec<ClaimedRun>,
}

/// One run of a claim.
#[derive(Clone, Debug)]
pub struct ClaimedRun {
    pub run_no: i64,
    pub event_id: i64,
    pub run_id: String,
    pub fence: i64,
    pub flow: Hash,
    pub snapshot: Hash,
    pub attempts: i32,
    pub cancel_requested: bool,
}

impl Store {
    /// Claims up to `batch` runs that killed nobody yet, from event `floor` up; `None` when there are none.
    pub async fn claim(
        &self,
        owner: &Owner,
        ttl: Duration,
        batch: i64,
        floor: i64,
    ) -> Result<Option<Claim>, Error> {
        let rows = self.bounded(async {
            let client = self.client().await?;
            let statement =
                client.prepare_cached(CLAIM).await.map_err(|error| self.error(&error))?;
            let ttl = ttl.as_secs_f64();
            let params: [&(dyn ToSql + Sync); 4] = [&owner.token(), &ttl, &batch, &floor];
            self.one_trip(&client, None, (&statement, &params), Some(&STEPS)).await
        });
        Ok(claim_of(owner, &rows.await?))
    }

    /// Claims the least suspicious run that an owner died with, alone.
    pub async fn claim_suspect(
        &self,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Option<Claim>, Error> {
        let rows = self.bounded(async {
            let client = self.client().await?;
            client
                .query(&format!("{CLAIM_SUSPECT}{ONE_TAIL}"), &[&owner.token(), &ttl.as_secs_f64()])
                .await
                .map_err(|error| self.error(&error))
        });
        Ok(claim_of(owner, &rows.await?))
    }

    /// Claims this run if it is free.
    pub async fn claim_one(
        &self,
        owner: &Owner,
        ttl: Duration,
        run_no: i64,
    ) -> Result<Option<Claim>, Error> {
        let rows = self.bounded(async {
            let client = self.client().await?;
            client
                .query(
                    &format!("{CLAIM_ONE}{ONE_TAIL}"),
                    &[&owner.token(), &ttl.as_secs_f64(), &run_no],
                )
                .await
                .map_err(|error| self.error(&error))
        });
        Ok(claim_of(owner, &rows.await?))
    }
}

/// A claim whose events were all stray has a lease and no runs.
fn claim_of(owner: &Owner, rows: &[tokio_postgres::Row]) -> Option<Claim> {
    let first = rows.first()?;
    let mut runs: Vec<ClaimedRun> = rows
        .iter()
        .filter(|row| row.get::<_, Option<i64>>(3).is_some())
        .map(|row| ClaimedRun {
            run_no: row.get(3),
            event_id: row.get(4),
            run_id: row.get(5),
            fence: row.get(6),
            flow: Hash::from_digest(row.get(7)).expect("the column is checked"),
            snapshot: Hash::from_digest(row.get(8)).expect("the column is checked"),
            attempts: row.get(9),
            cancel_requested: row.get(10),
        })
        .collect();
    runs.sort_by_key(|run| run.run_no);
    Some(Claim {
        lease_no: first.get(0),
        epoch: first.get(1),
        fence: first.get(2),
        owner: owner.clone(),
        runs,
    })
}
