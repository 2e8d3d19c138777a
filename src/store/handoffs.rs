//! Handoffs: what an owner of a stream says when it takes it and when it gives it away, written under its own fence.

use tokio_postgres::types::ToSql;

use super::streams::{judged, under_lease};
use super::{Error, Store, StreamLease, StreamRefusal};
use crate::ids::{Hash, Owner};

/// The effect that a refusal is on record as.
const HANDOFF: &str = "handoff";

/// Behind `under_lease`: notes a part of a handoff. One that is there stays as it is: an owner takes once and gives once,
/// and the high-waters of a history are captured once.
const NOTE: &str = "
    u AS (
        INSERT INTO finaz.handoffs (name, part, owner, epoch, fence, seq, manifest, snapshot)
        SELECT $1, $6::text, $2, $3, $4, $7::bigint, $8::bytea, $9::bytea FROM v
        ON CONFLICT DO NOTHING
    )
    SELECT EXISTS (SELECT FROM v), l.owner, l.fence
    FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = $1";

/// Behind `under_lease`: removes a stream whose handoff from history was begun and not ended, with what is noted of it.
const FORGET: &str = "
    u AS (
        DELETE FROM finaz.streams AS s USING v WHERE s.name = v.name
          AND EXISTS (SELECT FROM finaz.handoffs AS h WHERE h.name = s.name AND h.part = 'CAPTURED')
          AND NOT EXISTS (SELECT FROM finaz.handoffs AS h
                          WHERE h.name = s.name AND h.part = 'GIVEN' AND h.snapshot IS NOT NULL)
    )
    SELECT EXISTS (SELECT FROM v), l.owner, l.fence
    FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = $1";

const COLUMNS: &str = "
    h.name, h.part, h.owner, h.epoch, h.fence, h.seq, h.manifest, h.snapshot,
    to_char(h.signed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";

/// A part of a handoff, to be written down.
#[derive(Clone, Debug)]
pub struct HandoffNote {
    /// `CAPTURED`, `GIVEN` or `TAKEN`.
    pub part: &'static str,
    /// The commit that is handed over; 0 before the first.
    pub seq: i64,
    /// The blob that says it all.
    pub manifest: Hash,
    /// Of a handoff from history.
    pub snapshot: Option<Hash>,
}

/// A part of a handoff as it was written down.
#[derive(Clone, Debug)]
pub struct HandoffRow {
    /// The stream's.
    pub name: String,
    pub part: String,
    pub owner: Owner,
    pub epoch: i64,
    pub fence: i64,
    pub seq: i64,
    pub manifest: Hash,
    pub snapshot: Option<Hash>,
    /// RFC 3339, UTC, by the database.
    pub signed_at: String,
}

impl Store {
    /// Writes a part down, under the lease of its owner; where this owner has written the same part before, that one
    /// stands.
    pub async fn note_handoff(
        &self,
        lease: &StreamLease,
        run_id: &str,
        note: &HandoffNote,
    ) -> Result<Result<(), StreamRefusal>, Error> {
        let statement = under_lease(HANDOFF, NOTE);
        let manifest: &[u8] = note.manifest.as_bytes();
        let snapshot: Option<&[u8]> = note.snapshot.as_ref().map(|hash| &hash.as_bytes()[..]);
        let more: [&(dyn ToSql + Sync); 5] = [&run_id, &note.part, &note.seq, &manifest, &snapshot];
        let row = self.under_lease(lease, &statement, &more).await?;
        Ok(judged(&row))
    }

    /// Forgets a handoff from history that was refused, under its lease: the run can begin anew.
    pub async fn forget_handoff(
        &self,
        lease: &StreamLease,
        run_id: &str,
    ) -> Result<Result<(), StreamRefusal>, Error> {
        let row = self.under_lease(lease, &under_lease(HANDOFF, FORGET), &[&run_id]).await?;
        Ok(judged(&row))
    }

    /// The parts that matter to whoever opens this stream: those of its history, and those of the owner that committed
    /// last; in the order written.
    pub async fn handoffs_at(&self, name: &str) -> Result<Vec<HandoffRow>, Error> {
        self.handoffs_where(
            "h.name = $1 AND (h.snapshot IS NOT NULL OR (h.epoch, h.fence) = (s.epoch, s.fence))",
            name,
        )
        .await
    }

    /// All parts of a run, in the order written.
    pub async fn handoffs_of(&self, run_id: &str) -> Result<Vec<HandoffRow>, Error> {
        self.handoffs_where("s.run_id = $1", run_id).await
    }

    async fn handoffs_where(&self, which: &str, value: &str) -> Result<Vec<HandoffRow>, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let rows = client
                .query(
                    &format!(
                        "SELECT {COLUMNS} FROM finaz.handoffs AS h JOIN finaz.streams AS s USING (name)
                         WHERE {which} ORDER BY h.handoff_no"
                    ),
                    &[&value],
                )
                .await
                .map_err(|error| self.error(&error))?;
            Ok(rows.iter().map(handoff_row).collect())
        })
        .await
    }
}

fn handoff_row(row: &tokio_postgres::Row) -> HandoffRow {
    let hash = |bytes: &[u8]| Hash::from_digest(bytes).expect("the column is checked");
    HandoffRow {
        name: row.get(0),
        part: row.get(1),
        owner: Owner::from_token(row.get(2)),
        epoch: row.get(3),
        fence: row.get(4),
        seq: row.get(5),
        manifest: hash(row.get(6)),
        snapshot: row.get::<_, Option<&[u8]>>(7).map(hash),
        signed_at: row.get(8),
    }
}
