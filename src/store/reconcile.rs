//! What the reconciler reads: publications in pages, and whether a staged result belongs to one.

use super::{Error, Store};
use crate::ids::Hash;

/// A publication, as far as it must be found again elsewhere.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublishedRef {
    pub run_no: i64,
    pub run_id: String,
    pub epoch: i64,
    pub fence: i64,
    pub blob: Hash,
    pub values_hash: Hash,
    pub rows: i64,
}

impl Store {
    /// Publications above `after`, in order, at most `limit`.
    pub async fn publications_after(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Vec<PublishedRef>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT run_no, run_id, epoch, fence, ref, values_hash, rows FROM finaz.publications
                 WHERE run_no > $1 ORDER BY run_no LIMIT $2",
                &[&after, &limit],
            )
            .await
            .map_err(|error| self.error(&error))?;
        let hash = |bytes: &[u8]| Hash::from_digest(bytes).expect("the column is checked");
        let publication = |row: &tokio_postgres::Row| PublishedRef {
            run_no: row.get(0),
            run_id: row.get(1),
            epoch: row.get(2),
            fence: row.get(3),
            blob: hash(row.get(4)),
            values_hash: hash(row.get(5)),
            rows: row.get(6),
        };
        Ok(rows.iter().map(publication).collect())
    }

    /// Of these staged (number, id, epoch, fence), those of our runs that no publication names and no live lease can
    /// still publish. What belongs to no run of this database is somebody else's, and none of ours to judge.
    pub async fn orphans_among(
        &self,
        staged: &[(i64, &str, i64, i64)],
    ) -> Result<Vec<usize>, Error> {
        let run_nos: Vec<i64> = staged.iter().map(|staged| staged.0).collect();
        let run_ids: Vec<&str> = staged.iter().map(|staged| staged.1).collect();
        let epochs: Vec<i64> = staged.iter().map(|staged| staged.2).collect();
        let fences: Vec<i64> = staged.iter().map(|staged| staged.3).collect();
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT i.ord - 1 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[])
                        WITH ORDINALITY AS i (run_no, epoch, fence, run_id, ord)
                 JOIN finaz.api_runs AS own ON own.run_no = i.run_no AND own.run_id = i.run_id
                 WHERE NOT EXISTS (SELECT 1 FROM finaz.publications AS p
                           WHERE p.run_no = i.run_no AND p.epoch = i.epoch AND p.fence = i.fence)
                   AND NOT EXISTS (SELECT 1 FROM finaz.api_runs AS r JOIN finaz.leases AS l USING (lease_no)
                           WHERE r.run_no = i.run_no AND r.state = 'RUNNING' AND r.fence = i.fence
                             AND NOT l.closed AND l.expires_at > clock_timestamp())
                 ORDER BY i.ord",
                &[&run_nos, &epochs, &fences, &run_ids],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().filter_map(|row| usize::try_from(row.get::<_, i64>(0)).ok()).collect())
    }

    /// Runs SUCCEEDED without a publication, and publications of runs that did not succeed.
    pub async fn inconsistent_runs(&self, limit: i64) -> Result<Vec<(String, String)>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT r.run_id, CASE WHEN p.run_no IS NULL THEN 'SUCCEEDED without a publication'
                                       ELSE 'published, but ' || r.state END
                 FROM finaz.api_runs AS r LEFT JOIN finaz.publications AS p USING (run_no)
                 WHERE (r.state = 'SUCCEEDED') <> (p.run_no IS NOT NULL) ORDER BY r.run_no LIMIT $1",
                &[&limit],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Every blob that the database names: results, the flows and snapshots of all runs, what the heads of streams
    /// and their checkpoints need, and what was handed over. A stream's blobs that are being committed at this moment are not named yet: they were written, or found
    /// and touched, by that commit or by a merge less than a minute before it, so they are younger than what `gc` removes.
    pub async fn named_blobs(&self) -> Result<Vec<Hash>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT ref FROM finaz.publications
                 UNION SELECT flow FROM finaz.api_runs UNION SELECT snapshot FROM finaz.api_runs
                 UNION SELECT flow FROM finaz.streams UNION SELECT unnest(blobs) FROM finaz.streams
                 UNION SELECT manifest FROM finaz.handoffs
                 UNION SELECT unnest(blobs) FROM finaz.checkpoints
                 UNION SELECT snapshot FROM finaz.handoffs WHERE snapshot IS NOT NULL",
                &[],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().filter_map(|row| Hash::from_digest(row.get(0))).collect())
    }
}
