//! Orphans: runs whose owner died go back to the queue, or are poison; events and runs that disagree are mended.
//!
//! Every step re-checks what it read in the statement that writes, under the lock of the lease.

use std::time::Duration;

use super::{Error, Store};
use crate::ids::Owner;
use crate::rules::run::{Orphan, orphan};

/// Runs that a periodic look at events covers; the first covers all.
const MEND_NEWEST: i64 = 100_000;
/// Leases looked at in one transaction.
const LEASES_MAX: i64 = 20;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Swept {
    /// RUNNING without a live lease, back to QUEUED with its event pending.
    pub requeued: u64,
    /// The owner died with it too often: FAILED.
    pub poisoned: u64,
    /// Events that were given back: delivered or claimed, though the run is QUEUED.
    pub mended: u64,
}

/// Not those of the sweeper, who is alive. One that ran out while the server was down, or before a renewal could
/// follow its start, says nothing of its owner.
const EXPIRED: &str = "
    WITH l AS MATERIALIZED (
        SELECT lease_no, run_nos, expires_at FROM finaz.leases
        WHERE NOT closed AND (name LIKE 'batch/%' OR name LIKE 'run/%') AND expires_at <= clock_timestamp()
          AND owner <> $2
        ORDER BY lease_no LIMIT $1 FOR UPDATE SKIP LOCKED
    )
    SELECT l.lease_no, r.run_no, r.attempts,
           l.expires_at < pg_postmaster_start_time() + $3::float8 * interval '1 second'
    FROM l LEFT JOIN LATERAL (
        SELECT r.run_no, r.attempts FROM unnest(l.run_nos) AS n JOIN finaz.api_runs AS r ON r.run_no = n
        WHERE r.state = 'RUNNING' AND r.lease_no = l.lease_no
    ) AS r ON true";

const RETURN: &str = "
    WITH u AS (
        UPDATE finaz.api_runs AS r SET state = CASE WHEN i.poison THEN 'FAILED' ELSE 'QUEUED' END,
               attempts = i.attempts, run_revision = r.run_revision + CASE WHEN i.poison THEN 1 ELSE 0 END,
               finished_at = CASE WHEN i.poison THEN clock_timestamp() END,
               error = CASE WHEN i.poison THEN 'POISON_RUN: its owner died with it ' || i.attempts || ' times' END
        FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::boolean[]) AS i (run_no, lease_no, attempts, poison)
        WHERE r.run_no = i.run_no AND r.lease_no = i.lease_no AND r.state = 'RUNNING'
        RETURNING r.run_no, r.event_id, r.fence, r.attempts, i.poison, r.lease_no
    ), o AS (
        UPDATE finaz.outbox AS o SET claimed = u.poison, suspect = u.attempts,
               delivered_at = CASE WHEN u.poison THEN clock_timestamp() END
        FROM u WHERE o.id = u.event_id
    ), h AS (
        INSERT INTO finaz.run_history (run_no, what, fence, owner)
        SELECT u.run_no, CASE WHEN u.poison THEN 'failed: poison after ' ELSE 'orphan requeued, dead owners: ' END
               || u.attempts, u.fence, l.owner
        FROM u JOIN finaz.leases AS l USING (lease_no)
    )
    SELECT count(*) FILTER (WHERE NOT poison), count(*) FILTER (WHERE poison) FROM u";

const GIVE_BACK_OWN: &str = "
    WITH l AS MATERIALIZED (
        SELECT lease_no, run_nos FROM finaz.leases
        WHERE NOT closed AND owner = $1 AND lease_no <> ALL ($2) ORDER BY lease_no FOR UPDATE
    ), u AS (
        UPDATE finaz.api_runs AS r SET state = 'QUEUED' FROM l
        WHERE r.run_no = ANY (l.run_nos) AND r.lease_no = l.lease_no AND r.state = 'RUNNING'
        RETURNING r.run_no, r.event_id, r.fence
    ), o AS (
        UPDATE finaz.outbox AS o SET claimed = false FROM u WHERE o.id = u.event_id
    ), h AS (
        INSERT INTO finaz.run_history (run_no, what, fence, owner)
        SELECT run_no, 'given back: its owner lost track of it', fence, $1 FROM u
    ), d AS (
        UPDATE finaz.leases AS d SET closed = true, expires_at = least(d.expires_at, clock_timestamp())
        FROM l WHERE d.lease_no = l.lease_no
    )
    SELECT count(*) FROM u";

/// QUEUED, but its event is delivered or claimed: nobody would ever take it.
const MEND: &str = "
    WITH c AS MATERIALIZED (
        SELECT o.id FROM finaz.outbox AS o JOIN finaz.api_runs AS r ON r.event_id = o.id
        WHERE r.state = 'QUEUED' AND (o.claimed OR o.delivered_at IS NOT NULL) AND r.run_no >= $1
        ORDER BY o.id LIMIT 1000 FOR UPDATE OF o SKIP LOCKED
    )
    UPDATE finaz.outbox AS o SET claimed = false, delivered_at = NULL
    FROM c JOIN finaz.api_runs AS r ON r.event_id = c.id
    WHERE o.id = c.id AND r.state = 'QUEUED'";

/// RUNNING, but its lease is closed or gone (somebody's hand): reopened, expired, so that the page finds it.
const STRAY: &str = "
    UPDATE finaz.leases AS l SET closed = false, expires_at = least(l.expires_at, clock_timestamp())
    FROM finaz.api_runs AS r
    WHERE r.state = 'RUNNING' AND r.run_no >= $1 AND l.lease_no = r.lease_no AND l.closed";

/// RUNNING under a lease that is not there any more: made anew, expired.
const LOST: &str = "
    INSERT INTO finaz.leases (lease_no, name, owner, fence, expires_at, run_nos)
    SELECT r.lease_no, 'batch/' || r.lease_no, 'lost', 1, clock_timestamp(), array_agg(r.run_no)
    FROM finaz.api_runs AS r LEFT JOIN finaz.leases AS l USING (lease_no)
    WHERE r.state = 'RUNNING' AND r.run_no >= $1 AND l.lease_no IS NULL
    GROUP BY r.lease_no ON CONFLICT DO NOTHING";

impl Store {
    /// Returns the runs of others' expired leases to the queue, a page of leases at a time. `ttl` is how long a
    /// lease lives at least.
    pub async fn sweep_orphans(&self, sweeper: &Owner, ttl: Duration) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        loop {
            let (leases, requeued, poisoned) = self.bounded(self.sweep_page(sweeper, ttl)).await?;
            swept.requeued += requeued;
            swept.poisoned += poisoned;
            if leases < usize::try_from(LEASES_MAX).unwrap_or(usize::MAX) {
                return Ok(swept);
            }
        }
    }

    async fn sweep_page(&self, sweeper: &Owner, ttl: Duration) -> Result<(usize, u64, u64), Error> {
        let mut client = self.client().await?;
        let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
        let rows = transaction
            .query(EXPIRED, &[&LEASES_MAX, &sweeper.token(), &ttl.as_secs_f64()])
            .await
            .map_err(|error| self.error(&error))?;
        let mut leases: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        leases.dedup();
        if leases.is_empty() {
            return Ok((0, 0, 0));
        }
        let (mut run_nos, mut lease_nos, mut attempts, mut poison) =
            (vec![], vec![], vec![], vec![]);
        for row in &rows {
            let Some(run_no) = row.get::<_, Option<i64>>(1) else { continue };
            let (count, dead) = match orphan(row.get(2), row.get(3)) {
                Orphan::Requeue { attempts } => (attempts, false),
                Orphan::Poison { attempts } => (attempts, true),
            };
            run_nos.push(run_no);
            lease_nos.push(row.get::<_, i64>(0));
            attempts.push(count);
            poison.push(dead);
        }
        let (requeued, poisoned): (i64, i64) = if run_nos.is_empty() {
            (0, 0)
        } else {
            let row = transaction
                .query_one(RETURN, &[&run_nos, &lease_nos, &attempts, &poison])
                .await
                .map_err(|error| self.error(&error))?;
            (row.get(0), row.get(1))
        };
        transaction
            .execute("UPDATE finaz.leases SET closed = true WHERE lease_no = ANY ($1)", &[&leases])
            .await
            .map_err(|error| self.error(&error))?;
        transaction.commit().await.map_err(|error| self.commit_error(&error))?;
        leases.sort_unstable();
        leases.dedup();
        Ok((leases.len(), requeued.unsigned_abs(), poisoned.unsigned_abs()))
    }

    /// Gives back the events of QUEUED runs from `floor` up that look taken; gives how many, and the floor of the
    /// newest runs, where a look costs little.
    pub async fn mend_events(&self, floor: i64) -> Result<(u64, i64), Error> {
        self.bounded(async {
            let client = self.client().await?;
            client.execute(LOST, &[&floor]).await.map_err(|error| self.error(&error))?;
            client.execute(STRAY, &[&floor]).await.map_err(|error| self.error(&error))?;
            let mended =
                client.execute(MEND, &[&floor]).await.map_err(|error| self.error(&error))?;
            let newest: i64 = client
                .query_one("SELECT last_value FROM finaz.run_no", &[])
                .await
                .map_err(|error| self.error(&error))?
                .get(0);
            Ok((mended, newest - MEND_NEWEST))
        })
        .await
    }

    /// Gives back what is on record as `owner`'s, which is us, and is not among the leases we know of: a claim whose
    /// reply was lost, or work that ended while the database was away. No owner died, so no attempt is counted.
    pub async fn give_back_own(&self, owner: &Owner, known: &[i64]) -> Result<u64, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let row = client
                .query_one(GIVE_BACK_OWN, &[&owner.token(), &known])
                .await
                .map_err(|error| self.error(&error))?;
            Ok(row.get::<_, i64>(0).unsigned_abs())
        })
        .await
    }

    /// What a sweep would find now: RUNNING runs without a live lease, and QUEUED ones whose event looks taken.
    pub async fn sweep_preview(&self) -> Result<u64, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT (SELECT count(*) FROM finaz.api_runs AS r LEFT JOIN finaz.leases AS l USING (lease_no)
                         WHERE r.state = 'RUNNING'
                           AND (l.lease_no IS NULL OR l.closed OR l.expires_at <= clock_timestamp()))
                      + (SELECT count(*) FROM finaz.api_runs AS r JOIN finaz.outbox AS o ON o.id = r.event_id
                         WHERE r.state = 'QUEUED' AND (o.claimed OR o.delivered_at IS NOT NULL))",
                &[],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }

    /// Whether anything is queued, or held by anybody.
    pub async fn has_work(&self) -> Result<bool, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM finaz.outbox WHERE NOT claimed AND suspect = 0)
                     OR EXISTS (SELECT 1 FROM finaz.outbox WHERE NOT claimed AND suspect > 0)
                     OR EXISTS (SELECT 1 FROM finaz.leases
                                WHERE NOT closed AND run_nos <> '{}' AND (name LIKE 'batch/%' OR name LIKE 'run/%'))",
                &[],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }
}
