//! Making results visible: publication, SUCCEEDED, the event delivered and the lease checked, in one commit.

use std::collections::HashSet;

use tokio_postgres::types::ToSql;

use super::one_trip::Steps;
use super::{Claim, Error, Restored, Store};
use crate::ids::Hash;
use crate::points::Point;
use crate::rules::settle::{self, Next, Told};

/// Locks the lease; the clock is read outside of the CTE, so after the lock was granted.
pub(super) const LOCK_LEASE: &str = "
    WITH l AS MATERIALIZED (
        SELECT owner, fence, closed, expires_at FROM finaz.leases WHERE lease_no = $1 FOR UPDATE
    ) SELECT owner = $2 AND fence = $3 AND NOT closed AND expires_at > clock_timestamp() FROM l";

/// Publishes those runs of the set that are still ours, cancels those of them that were asked to: the last safe
/// boundary. What it does not return is stale.
/// Runs behind LOCK_LEASE in the same transaction. A publication that is there already is an error here (the
/// key is unique), never an overwrite and never ignored.
/// The runs `$4` come sorted; what belongs to one stands at its place in the other arrays, and in the hashes one
/// behind the other. There is no join to be planned by statistics that were wrong a moment later.
const PUBLISH: &str = "
    WITH v AS MATERIALIZED (
        SELECT lease_no, epoch FROM finaz.leases
        WHERE lease_no = $1 AND owner = $2 AND fence = $3 AND NOT closed AND expires_at > clock_timestamp()
    ), u AS (
        UPDATE finaz.api_runs AS r SET run_revision = r.run_revision + 1,
               state = CASE WHEN r.cancel_requested_at IS NULL THEN 'SUCCEEDED' ELSE 'CANCELLED' END,
               finished_at = clock_timestamp(), error = NULL
        WHERE r.run_no = ANY ($4::bigint[]) AND r.fence = ($5::bigint[])[width_bucket(r.run_no, $4::bigint[])]
          AND r.lease_no = (SELECT lease_no FROM v) AND r.state = 'RUNNING'
        RETURNING r.run_no, r.event_id, r.run_id, r.state, r.fence, width_bucket(r.run_no, $4::bigint[]) AS i
    ), p AS (
        INSERT INTO finaz.publications (run_no, epoch, fence, rows, ref, values_hash, run_id)
        SELECT run_no, (SELECT epoch FROM v), fence, ($8::bigint[])[i], substr($6::bytea, 32 * i - 31, 32),
               substr($7::bytea, 32 * i - 31, 32), run_id
        FROM u WHERE state = 'SUCCEEDED'
    ), o AS (
        UPDATE finaz.outbox AS o SET delivered_at = clock_timestamp()
        WHERE o.id = ANY ((SELECT array_agg(event_id) FROM u)::bigint[])
    ), d AS (
        UPDATE finaz.leases AS l SET closed = $9, staged_at = clock_timestamp() - $10::float8 * interval '1 second',
               expires_at = CASE WHEN $9 THEN clock_timestamp() ELSE l.expires_at END
        WHERE l.lease_no = (SELECT lease_no FROM v)
    )
    SELECT run_no, state = 'SUCCEEDED' FROM u";

/// Where a drill can hold a process that publishes.
const STEPS: Steps = Steps {
    begun: Point::PublishBegun,
    locked: Some(Point::PublishLocked),
    made: Point::PublishMade,
    sent: Point::PublishSent,
    acked: Point::PublishAcked,
};

/// In [`PUBLISH`], where a run was taken on from a checkpoint: who did that, from which event on and to which, and why.
const NOTE_RESTORE: &str = ", n AS (
        INSERT INTO finaz.restores (name, run_id, checkpoint, manifest_hash, from_seq, seq, epoch, fence, who, reason)
        SELECT 'batch/' || run_id, run_id, $11::text, $12::bytea, $13::bigint, $14::bigint, (SELECT epoch FROM v), fence,
               $15::text, $16::text
        FROM u WHERE state = 'SUCCEEDED'
    )
    SELECT run_no, ";

/// What follows the last of its parts; the end of the insert, and what it becomes when a publication with the same content is known to be there.
const ASKED: &str = "\n    SELECT run_no, ";
const INSERTED: &str = "FROM u WHERE state = 'SUCCEEDED'\n";
const KEPT: &str = "FROM u WHERE state = 'SUCCEEDED' ON CONFLICT (run_no) DO NOTHING\n";

/// A computed run, ready to be published.
#[derive(Clone, Debug)]
pub struct RunResult {
    pub run_no: i64,
    pub run_id: String,
    pub fence: i64,
    /// The FeatureBatch in the artifact store.
    pub blob: Hash,
    pub values_hash: Hash,
    pub rows: i64,
}

/// A run that was not computed from its first event on, but taken on from a checkpoint.
#[derive(Clone, Debug)]
pub struct TakenOn {
    pub restored: Restored,
    /// The events behind it: the number of the first, and how many the snapshot has.
    pub from: i64,
    pub to: i64,
}

/// What became of a set.
#[derive(Clone, Debug, Default)]
pub struct Published {
    pub published: Vec<i64>,
    /// Ours, but somebody asked to cancel before this commit.
    pub cancelled: Vec<i64>,
    /// Not ours any more.
    pub left: Vec<i64>,
}

impl Store {
    /// Publishes a set under its claim's lease; `last` also releases the lease. `staged` says how many
    /// seconds ago the results became durable. A set of one may be `taken_on`, which is on record with it.
    ///
    /// A lost reply to COMMIT is settled by reading back: what ended under this lease is success, absence is tried
    /// again under the same fence. Other content under the same key is a conflict.
    pub async fn publish(
        &self,
        claim: &Claim,
        results: &[RunResult],
        (staged, last): (f64, bool),
        taken_on: Option<&TakenOn>,
    ) -> Result<Published, Error> {
        let mut statement = PUBLISH.to_owned();
        if taken_on.is_some() {
            statement = statement.replace(ASKED, NOTE_RESTORE);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let once = self.publish_once((&statement, taken_on), claim, results, (staged, last));
            let tried = self.bounded(once).await;
            match settle::after(tries, told(&tried), true) {
                Next::Take => return tried.map(|ended| Published::of(results, &ended)),
                // There already: other content is a conflict, the same is as good as ours.
                Next::Compare => {
                    self.check_content(results).await?;
                    statement = statement.replace(INSERTED, KEPT);
                }
                Next::ReadBack => match self.ended_among(claim, results).await {
                    // All of a transaction or nothing: what is not among them was not ours any more.
                    Ok(ended) if !ended.is_empty() => return Ok(Published::of(results, &ended)),
                    Ok(_none) => {}
                    Err(_away) => tokio::time::sleep(super::backoff(tries)).await,
                },
            }
        }
    }

    async fn publish_once(
        &self,
        (publish, taken_on): (&str, Option<&TakenOn>),
        claim: &Claim,
        results: &[RunResult],
        (staged, last): (f64, bool),
    ) -> Result<Vec<(i64, bool)>, Error> {
        let mut results: Vec<&RunResult> = results.iter().collect();
        results.sort_unstable_by_key(|result| result.run_no);
        let run_nos: Vec<i64> = results.iter().map(|result| result.run_no).collect();
        let fences: Vec<i64> = results.iter().map(|result| result.fence).collect();
        let blobs: Vec<u8> = results.iter().flat_map(|result| *result.blob.as_bytes()).collect();
        let hashes: Vec<u8> =
            results.iter().flat_map(|result| *result.values_hash.as_bytes()).collect();
        let rows: Vec<i64> = results.iter().map(|result| result.rows).collect();
        let client = self.client().await?;
        let statement = client.prepare_cached(publish).await.map_err(|error| self.error(&error))?;
        let lock = client.prepare_cached(LOCK_LEASE).await.map_err(|error| self.error(&error))?;
        let owner = claim.owner.token();
        let lease: [&(dyn ToSql + Sync); 3] = [&claim.lease_no, &owner, &claim.fence];
        let mut set: Vec<&(dyn ToSql + Sync)> = vec![
            &claim.lease_no,
            &owner,
            &claim.fence,
            &run_nos,
            &fences,
            &blobs,
            &hashes,
            &rows,
            &last,
            &staged,
        ];
        let manifest_hash = taken_on.map(|on| on.restored.manifest_hash.as_bytes().as_slice());
        if let Some(TakenOn { restored, from, to }) = taken_on {
            set.extend::<[&(dyn ToSql + Sync); 6]>([
                &restored.checkpoint,
                &manifest_hash,
                from,
                to,
                &restored.who,
                &restored.reason,
            ]);
        }
        let (lock, set) = ((&lock, &lease[..]), (&statement, &set[..]));
        let published = self.one_trip(&client, Some(lock), set, Some(&STEPS)).await?;
        Ok(published.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Those of the set that ended under this claim, and whether by publication.
    async fn ended_among(
        &self,
        claim: &Claim,
        results: &[RunResult],
    ) -> Result<Vec<(i64, bool)>, Error> {
        let run_nos: Vec<i64> = results.iter().map(|result| result.run_no).collect();
        let fences: Vec<i64> = results.iter().map(|result| result.fence).collect();
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT run_no, r.state = 'SUCCEEDED'
                 FROM finaz.api_runs AS r
                 JOIN unnest($1::bigint[], $2::bigint[]) AS i (run_no, fence) USING (run_no, fence)
                 WHERE r.lease_no = $3 AND r.state IN ('SUCCEEDED', 'CANCELLED')",
                &[&run_nos, &fences, &claim.lease_no],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Other content published for one of the set is a conflict.
    async fn check_content(&self, results: &[RunResult]) -> Result<(), Error> {
        let run_nos: Vec<i64> = results.iter().map(|result| result.run_no).collect();
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT run_no, ref FROM finaz.publications WHERE run_no = ANY ($1)",
                &[&run_nos],
            )
            .await
            .map_err(|error| self.error(&error))?;
        for row in &rows {
            let run_no: i64 = row.get(0);
            let held = Hash::from_digest(row.get(1)).expect("the column is checked");
            let offered = results.iter().find(|result| result.run_no == run_no);
            if let Some(result) = offered.filter(|result| result.blob != held) {
                return Err(Error::PublicationConflict {
                    run_id: result.run_id.clone(),
                    held: held.to_string(),
                    offered: result.blob.to_string(),
                });
            }
        }
        Ok(())
    }
}

fn told<T>(tried: &Result<T, Error>) -> Told {
    match tried {
        Ok(_) => Told::Answered,
        Err(Error::Statement { sqlstate, .. }) if sqlstate == "23505" => Told::There,
        Err(error) if error.is_away() => Told::Unknown,
        Err(_) => Told::Impossible,
    }
}

impl Published {
    /// Of a set, when these of it ended, each by publication or not.
    #[must_use]
    pub fn of(results: &[RunResult], ended: &[(i64, bool)]) -> Self {
        let (published, cancelled): (Vec<_>, Vec<_>) =
            ended.iter().partition(|(_, published)| *published);
        let numbers =
            |ended: Vec<(i64, bool)>| ended.into_iter().map(|(run_no, _)| run_no).collect();
        let known: HashSet<i64> = ended.iter().map(|(run_no, _)| *run_no).collect();
        let left = results.iter().map(|result| result.run_no).filter(|no| !known.contains(no));
        Self { published: numbers(published), cancelled: numbers(cancelled), left: left.collect() }
    }
}
