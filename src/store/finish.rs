//! The other ends of a claimed run: failed, cancelled, given back; and what a fence refused.

use super::publish::LOCK_LEASE;
use super::{Claim, Error, Store};

/// Ends or gives back runs of a lease that is still ours; returns which.
const FINISH: &str = "
    WITH v AS MATERIALIZED (
        SELECT lease_no FROM finaz.leases
        WHERE lease_no = $1 AND owner = $2 AND fence = $3 AND NOT closed AND expires_at > clock_timestamp()
    ), u AS (
        UPDATE finaz.api_runs AS r SET state = $7, error = i.error, run_revision = r.run_revision + $8,
               finished_at = CASE WHEN $8 = 1 THEN clock_timestamp() END
        FROM v, unnest($4::bigint[], $5::bigint[], $6::text[]) AS i (run_no, fence, error)
        WHERE r.run_no = i.run_no AND r.fence = i.fence AND r.lease_no = v.lease_no AND r.state = 'RUNNING'
        RETURNING r.run_no, r.event_id, r.fence, r.error
    ), o AS (
        UPDATE finaz.outbox AS o SET claimed = ($8 = 1),
               delivered_at = CASE WHEN $8 = 1 THEN clock_timestamp() END
        FROM u WHERE o.id = u.event_id
    ), h AS (
        INSERT INTO finaz.run_history (run_no, what, fence, owner)
        SELECT run_no, CASE WHEN $8 = 1 THEN lower($7) ELSE 'given back' END || coalesce(': ' || error, ''), fence, $2
        FROM u
    )
    SELECT run_no FROM u";

/// How a claimed run ends without a result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    Failed,
    Cancelled,
    /// A service was away: back to the queue, no attempt counted.
    GivenBack,
}

impl Ended {
    fn state(self) -> &'static str {
        match self {
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::GivenBack => "QUEUED",
        }
    }
}

impl Store {
    /// Ends runs of a claim, each with its reason; gives those that were still ours.
    pub async fn finish(
        &self,
        claim: &Claim,
        runs: &[(i64, i64, Option<String>)],
        how: Ended,
    ) -> Result<Vec<i64>, Error> {
        self.bounded(async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
            let owner = claim.owner.token();
            transaction
                .query(LOCK_LEASE, &[&claim.lease_no, &owner, &claim.fence])
                .await
                .map_err(|error| self.error(&error))?;
            let run_nos: Vec<i64> = runs.iter().map(|run| run.0).collect();
            let fences: Vec<i64> = runs.iter().map(|run| run.1).collect();
            let errors: Vec<Option<&str>> = runs.iter().map(|run| run.2.as_deref()).collect();
            let revision = i64::from(how != Ended::GivenBack);
            let rows = transaction
                .query(
                    FINISH,
                    &[
                        &claim.lease_no,
                        &owner,
                        &claim.fence,
                        &run_nos,
                        &fences,
                        &errors,
                        &how.state(),
                        &revision,
                    ],
                )
                .await
                .map_err(|error| self.error(&error))?;
            transaction.commit().await.map_err(|error| self.commit_error(&error))?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
        .await
    }

    /// Releases the lease if it is still ours: expires it, leaves the fence. What ran under it and did not end
    /// is the sweep's.
    pub async fn close(&self, claim: &Claim) -> Result<(), Error> {
        let client = self.client().await?;
        client
            .execute(
                "UPDATE finaz.leases SET expires_at = least(expires_at, clock_timestamp()),
                        closed = NOT EXISTS (SELECT 1 FROM finaz.api_runs AS r
                            WHERE r.run_no = ANY (run_nos) AND r.lease_no = $1 AND r.state = 'RUNNING')
                 WHERE lease_no = $1 AND owner = $2 AND fence = $3 AND NOT closed",
                &[&claim.lease_no, &claim.owner.token(), &claim.fence],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(())
    }

    /// Lets go of a lease whose work panicked: it expires at once and is nobody's, so the sweep counts its runs as
    /// having lost an owner.
    pub async fn disown(&self, claim: &Claim) -> Result<(), Error> {
        let client = self.client().await?;
        client
            .execute(
                "UPDATE finaz.leases SET expires_at = least(expires_at, clock_timestamp()),
                        owner = owner || ' (panicked)'
                 WHERE lease_no = $1 AND owner = $2 AND fence = $3 AND NOT closed",
                &[&claim.lease_no, &claim.owner.token(), &claim.fence],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(())
    }

    /// Records effects that a fence refused, each against what the lease and the run say now.
    pub async fn record_refused(
        &self,
        claim: &Claim,
        effect: &str,
        run_nos: &[i64],
    ) -> Result<(), Error> {
        let fences: Vec<i64> = run_nos
            .iter()
            .map(|no| claim.runs.iter().find(|run| run.run_no == *no).map_or(0, |run| run.fence))
            .collect();
        let client = self.client().await?;
        client
            .execute(
                "INSERT INTO finaz.refused_effects
                     (effect, run_id, lease, owner, fence, current_owner, current_fence)
                 SELECT $1, r.run_id, coalesce(mine.name, 'lease ' || $2), $3, i.fence, held.owner, r.fence
                 FROM unnest($4::bigint[], $5::bigint[]) AS i (run_no, fence)
                 JOIN finaz.api_runs AS r USING (run_no)
                 LEFT JOIN finaz.leases AS held ON held.lease_no = r.lease_no
                 LEFT JOIN finaz.leases AS mine ON mine.lease_no = $2",
                &[&effect, &claim.lease_no, &claim.owner.token(), &run_nos, &fences],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(())
    }
}
