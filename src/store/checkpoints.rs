//! Checkpoints: commits of a stream, and published runs, that stay named. One of a stream is written while its pointer stands
//! at it, one of a run while its publication is the one that it is of; so what it needs is named at every moment.

use tokio_postgres::types::ToSql;

use super::streams::{LOCK_LEASE, judged, under_lease};
use super::{Error, Store, StreamLease, StreamRefusal};
use crate::ids::Hash;

/// The effect that a refusal is on record as.
const CHECKPOINT: &str = "checkpoint";

/// From the row that it is of, as long as that is at the commit.
const INSERT: &str = "
        INSERT INTO finaz.checkpoints AS checkpoints (id, name, run_id, epoch, fence, seq, manifest, manifest_hash, blobs,
                                       next_offsets, periodic, made_by, reason)
        SELECT {values} FROM {at}
        ON CONFLICT (id) DO {known} RETURNING id";

/// The stream `$1`, if its pointer stands at the commit `$2` to `$5`.
const OF_STREAM: &str = "finaz.streams AS s WHERE s.name = $1
        AND (s.epoch, s.fence, s.seq) = ($2::bigint, $3::bigint, $4::bigint) AND s.head = $5::bytea";

/// The run `$7`, if it was published under `$2` and `$3` and is `$5`.
const OF_RUN: &str =
    "finaz.api_runs AS r JOIN finaz.publications AS p USING (run_no) WHERE r.run_id = $7
        AND (p.epoch, p.fence) = ($2::bigint, $3::bigint) AND p.ref = $5::bytea";

/// One that the stream made by itself is its asker's from now on: it is not forgotten with the others.
const PIN: &str =
    "UPDATE SET periodic = false, made_by = excluded.made_by, reason = excluded.reason
        WHERE checkpoints.periodic AND checkpoints.manifest_hash = excluded.manifest_hash";

const COLUMNS: &str = "
    c.id, c.name, c.run_id, c.epoch, c.fence, c.seq, c.manifest, c.manifest_hash, c.next_offsets, c.periodic, c.made_by,
    c.reason, to_char(c.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";

/// What a checkpoint is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    Stream,
    /// A run that was published.
    Run,
}

/// A checkpoint to be named.
#[derive(Clone, Debug)]
pub struct NewCheckpoint {
    pub id: String,
    pub source: Source,
    /// The stream's, or made of the run's.
    pub name: String,
    pub run_id: String,
    /// The commit that it is.
    pub epoch: i64,
    pub fence: i64,
    pub seq: i64,
    /// Where the pointer of the stream stands, or what was published.
    pub head: Hash,
    pub manifest: Hash,
    pub manifest_hash: Hash,
    /// Everything that it needs, the manifest included.
    pub blobs: Vec<Hash>,
    /// A JSON object.
    pub next_offsets: String,
    pub made_by: String,
    pub reason: Option<String>,
}

/// A checkpoint as its row has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckpointRow {
    pub id: String,
    pub name: String,
    pub run_id: String,
    pub epoch: i64,
    pub fence: i64,
    pub seq: i64,
    pub manifest: Hash,
    pub manifest_hash: Hash,
    pub next_offsets: String,
    /// Made by a stream, from time to time.
    pub periodic: bool,
    pub made_by: String,
    pub reason: Option<String>,
    /// RFC 3339, UTC, by the database.
    pub created_at: String,
}

/// A stream that was taken back, or a run that was taken on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RestoreRow {
    pub name: String,
    pub run_id: String,
    pub checkpoint: String,
    pub manifest_hash: Hash,
    pub from_seq: i64,
    pub seq: i64,
    pub fence: i64,
    pub who: String,
    pub reason: String,
    /// RFC 3339, UTC, by the database.
    pub restored_at: String,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Named {
    New,
    /// One of this id is there; its `manifest_hash`.
    Known(Hash),
    /// The stream stands elsewhere by now.
    Moved,
}

impl Store {
    /// Names the commit at which a stream stands, for whoever asks: it was made under its own fence. Its pointer is kept
    /// where it is meanwhile. Or names a run, of which the publication never changes.
    pub async fn add_checkpoint(&self, new: &NewCheckpoint) -> Result<Named, Error> {
        let values = "$6, $1, $7, $2, $3, $4, $8, $9, $10, $11, false, $12, $13";
        let at = match new.source {
            Source::Stream => OF_STREAM,
            Source::Run => OF_RUN,
        };
        let statement =
            INSERT.replace("{values}", values).replace("{at}", at).replace("{known}", PIN);
        let head: &[u8] = new.head.as_bytes();
        let manifest: &[u8] = new.manifest.as_bytes();
        let manifest_hash: &[u8] = new.manifest_hash.as_bytes();
        let blobs: Vec<&[u8]> = new.blobs.iter().map(|hash| &hash.as_bytes()[..]).collect();
        let added = self
            .on_row(&new.name, async {
                let mut client = self.client().await?;
                let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
                let lock = transaction.execute(LOCK_LEASE, &[&new.name]).await;
                lock.map_err(|error| self.error(&error))?;
                let all: [&(dyn ToSql + Sync); 13] = [
                    &new.name,
                    &new.epoch,
                    &new.fence,
                    &new.seq,
                    &head,
                    &new.id,
                    &new.run_id,
                    &manifest,
                    &manifest_hash,
                    &blobs,
                    &new.next_offsets,
                    &new.made_by,
                    &new.reason,
                ];
                let added = transaction.execute(&statement, &all).await;
                let added = added.map_err(|error| self.error(&error))?;
                transaction.commit().await.map_err(|error| self.commit_error(&error))?;
                Ok(added)
            })
            .await;
        match added {
            Ok(1..) => return Ok(Named::New),
            // A lost reply to COMMIT is settled by what is there.
            Err(error) if !error.is_away() => return Err(error),
            Ok(0) | Err(_) => {}
        }
        Ok(self.known(&new.id).await?.unwrap_or(Named::Moved))
    }

    /// The same for the owner, under its lease, right behind its commit; then only the newest `keep` of those that the
    /// stream made by itself stay.
    pub async fn add_periodic(
        &self,
        lease: &StreamLease,
        new: &NewCheckpoint,
        keep: i64,
    ) -> Result<Result<Named, StreamRefusal>, Error> {
        let values = "$6::text, $1, $5, $3, $4, $7::bigint, $8::bytea, $9::bytea, $10::bytea[], $11::text, true, $2, NULL";
        let at = "finaz.streams AS s WHERE s.name = $1 AND (s.epoch, s.fence, s.seq) = ($3, $4, $7::bigint)
                  AND EXISTS (SELECT FROM v)";
        let insert =
            INSERT.replace("{values}", values).replace("{at}", at).replace("{known}", "NOTHING");
        let then = format!(
            "u AS ({insert}), d AS (
                 DELETE FROM finaz.checkpoints AS c USING v WHERE c.name = v.name AND c.periodic AND c.seq < (
                     SELECT seq FROM finaz.checkpoints AS k WHERE k.name = $1 AND k.periodic
                     ORDER BY seq DESC OFFSET $12::bigint - 1 LIMIT 1)
             )
             SELECT EXISTS (SELECT FROM v), l.owner, l.fence, EXISTS (SELECT FROM u)
             FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = $1"
        );
        let manifest: &[u8] = new.manifest.as_bytes();
        let manifest_hash: &[u8] = new.manifest_hash.as_bytes();
        let blobs: Vec<&[u8]> = new.blobs.iter().map(|hash| &hash.as_bytes()[..]).collect();
        // The one that is being added is not seen by the count yet.
        let kept = (keep - 1).max(1);
        let more: [&(dyn ToSql + Sync); 8] = [
            &new.run_id,
            &new.id,
            &new.seq,
            &manifest,
            &manifest_hash,
            &blobs,
            &new.next_offsets,
            &kept,
        ];
        let row = self.under_lease(lease, &under_lease(CHECKPOINT, &then), &more).await?;
        if let Err(refusal) = judged(&row) {
            return Ok(Err(refusal));
        }
        if row.get(3) {
            return Ok(Ok(Named::New));
        }
        Ok(Ok(self.known(&new.id).await?.unwrap_or(Named::Moved)))
    }

    async fn known(&self, id: &str) -> Result<Option<Named>, Error> {
        let found = self.checkpoints_where("c.id = $1", id).await?.pop();
        Ok(found.map(|row| Named::Known(row.manifest_hash)))
    }

    /// Those that this text names: an id, a `manifest_hash`, or the beginning of one; of the id of a batch run's, whose
    /// commit may then be said or not, six digits at least.
    pub async fn checkpoints_named(&self, text: &str) -> Result<Vec<CheckpointRow>, Error> {
        let by_id = self.checkpoints_where("c.id = $1", text).await?;
        if !by_id.is_empty() {
            return Ok(by_id);
        }
        let run = text.strip_suffix("@1").unwrap_or(text);
        let digits = run.strip_prefix("run_").unwrap_or_default();
        if digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let begins = "starts_with(c.id, $1) AND starts_with(c.name, 'batch/')";
            return self.checkpoints_where(begins, &run.to_ascii_lowercase()).await;
        }
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let enough = digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !enough {
            return Ok(Vec::new());
        }
        let prefix = digits.to_ascii_lowercase();
        self.checkpoints_where("starts_with(encode(c.manifest_hash, 'hex'), $1)", &prefix).await
    }

    /// Of a run, or all: by stream, then in the order made.
    pub async fn checkpoints(&self, run_id: Option<&str>) -> Result<Vec<CheckpointRow>, Error> {
        match run_id {
            Some(run_id) => self.checkpoints_where("c.run_id = $1", run_id).await,
            None => self.checkpoints_where("$1::text = ''", "").await,
        }
    }

    async fn checkpoints_where(
        &self,
        which: &str,
        value: &str,
    ) -> Result<Vec<CheckpointRow>, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let sql = format!(
                "SELECT {COLUMNS} FROM finaz.checkpoints AS c WHERE {which} ORDER BY c.name, c.seq, c.id"
            );
            let rows = client.query(&sql, &[&value]).await.map_err(|error| self.error(&error))?;
            Ok(rows.iter().map(checkpoint_row).collect())
        })
        .await
    }

    /// The epoch that a run which is claimed now gets.
    pub async fn runs_epoch(&self) -> Result<i64, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let sql = "SELECT coalesce(max(epoch), 1) FROM finaz.epochs WHERE lease = ''";
            let row = client.query_one(sql, &[]).await.map_err(|error| self.error(&error))?;
            Ok(row.get(0))
        })
        .await
    }

    /// Forgets a checkpoint: `cas gc` may take what nothing else names.
    pub async fn drop_checkpoint(&self, id: &str) -> Result<bool, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let dropped =
                client.execute("DELETE FROM finaz.checkpoints WHERE id = $1", &[&id]).await;
            Ok(dropped.map_err(|error| self.error(&error))? > 0)
        })
        .await
    }

    /// When a run was taken back, or taken on or gone on from, or any; in order.
    pub async fn restores(&self, run_id: Option<&str>) -> Result<Vec<RestoreRow>, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let rows = client
                .query(
                    "SELECT name, checkpoint, manifest_hash, from_seq, seq, fence, who, reason,
                            to_char(restored_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), run_id
                     FROM finaz.restores
                     WHERE $1::text IS NULL OR run_id = $1 OR split_part(checkpoint, '@', 1) = $1 ORDER BY restore_no",
                    &[&run_id],
                )
                .await
                .map_err(|error| self.error(&error))?;
            Ok(rows.iter().map(restore_row).collect())
        })
        .await
    }
}

fn checkpoint_row(row: &tokio_postgres::Row) -> CheckpointRow {
    CheckpointRow {
        id: row.get(0),
        name: row.get(1),
        run_id: row.get(2),
        epoch: row.get(3),
        fence: row.get(4),
        seq: row.get(5),
        manifest: hash(row.get(6)),
        manifest_hash: hash(row.get(7)),
        next_offsets: row.get(8),
        periodic: row.get(9),
        made_by: row.get(10),
        reason: row.get(11),
        created_at: row.get(12),
    }
}

fn restore_row(row: &tokio_postgres::Row) -> RestoreRow {
    RestoreRow {
        name: row.get(0),
        checkpoint: row.get(1),
        manifest_hash: hash(row.get(2)),
        from_seq: row.get(3),
        seq: row.get(4),
        fence: row.get(5),
        who: row.get(6),
        reason: row.get(7),
        restored_at: row.get(8),
        run_id: row.get(9),
    }
}

fn hash(bytes: &[u8]) -> Hash {
    Hash::from_digest(bytes).expect("the column is checked")
}
