//! Evidence, read back: the outbox, refused effects, the life of a run.

use super::{Error, Store};

/// An event of the outbox.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutboxEvent {
    pub id: i64,
    pub kind: String,
    pub run_id: String,
    /// `pending`, `claimed` or `delivered`.
    pub state: String,
    pub claimed_by: Option<String>,
}

/// An effect that a fence refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusedEffect {
    pub at: String,
    pub effect: String,
    pub run_id: Option<String>,
    pub lease: String,
    pub owner: String,
    pub fence: i64,
    pub current_owner: Option<String>,
    pub current_fence: Option<i64>,
}

/// One thing that happened to a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TraceEvent {
    pub at: String,
    pub what: String,
    pub fence: Option<i64>,
    pub owner: Option<String>,
}

/// A time for people and programs: RFC 3339, UTC, microseconds.
const AT: &str = "'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'";

impl Store {
    /// The newest events, first the newest; `pending_only` leaves out what is delivered.
    pub async fn outbox(&self, pending_only: bool, limit: i64) -> Result<Vec<OutboxEvent>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT o.id, o.type, o.run_id,
                        CASE WHEN o.delivered_at IS NOT NULL THEN 'delivered'
                             WHEN o.claimed THEN 'claimed' ELSE 'pending' END, l.owner
                 FROM finaz.outbox AS o
                 LEFT JOIN finaz.leases AS l ON l.lease_no = o.lease_no AND o.claimed
                 WHERE NOT $1 OR o.delivered_at IS NULL ORDER BY o.id DESC LIMIT $2",
                &[&pending_only, &limit],
            )
            .await
            .map_err(|error| self.error(&error))?;
        let event = |row: &tokio_postgres::Row| OutboxEvent {
            id: row.get(0),
            kind: row.get(1),
            run_id: row.get(2),
            state: row.get(3),
            claimed_by: row.get(4),
        };
        Ok(rows.iter().map(event).collect())
    }

    /// The newest refused effects, first the newest.
    pub async fn refused(&self, limit: i64) -> Result<Vec<RefusedEffect>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                &format!(
                    "SELECT to_char(at AT TIME ZONE 'UTC', {AT}), effect, run_id, lease, owner, fence,
                            current_owner, current_fence
                     FROM finaz.refused_effects ORDER BY id DESC LIMIT $1"
                ),
                &[&limit],
            )
            .await
            .map_err(|error| self.error(&error))?;
        let effect = |row: &tokio_postgres::Row| RefusedEffect {
            at: row.get(0),
            effect: row.get(1),
            run_id: row.get(2),
            lease: row.get(3),
            owner: row.get(4),
            fence: row.get(5),
            current_owner: row.get(6),
            current_fence: row.get(7),
        };
        Ok(rows.iter().map(effect).collect())
    }

    /// The whole life of a run, in order of time.
    pub async fn trace(&self, run_no: i64) -> Result<Vec<TraceEvent>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                &format!(
                    "WITH r AS (SELECT * FROM finaz.api_runs WHERE run_no = $1), e AS (
                         SELECT admitted_at AS at, 0 AS rank, 'admitted' AS what, NULL::bigint AS fence, NULL AS owner
                         FROM r
                         UNION ALL SELECT l.acquired_at, 1, 'claimed under ' || l.name, r.fence, l.owner
                         FROM r JOIN finaz.leases AS l USING (lease_no)
                         -- The parts of one commit have the time of one of them, and the order of what they mean.
                         UNION ALL SELECT least(l.staged_at, r.finished_at), 2, 'staged', r.fence, l.owner
                         FROM r JOIN finaz.leases AS l USING (lease_no) JOIN finaz.publications USING (run_no)
                         WHERE l.staged_at IS NOT NULL
                         UNION ALL SELECT coalesce(r.finished_at, p.published_at), 3,
                                'published sha256:' || encode(p.ref, 'hex'), p.fence, l.owner
                         FROM r JOIN finaz.publications AS p USING (run_no) LEFT JOIN finaz.leases AS l USING (lease_no)
                         UNION ALL SELECT r.finished_at, 4, lower(r.state), r.fence, NULL
                         FROM r WHERE r.state IN ('SUCCEEDED', 'CANCELLED')
                         UNION ALL SELECT coalesce(r.finished_at, o.delivered_at), 5, 'delivered', r.fence, NULL
                         FROM r JOIN finaz.outbox AS o ON o.id = r.event_id WHERE o.delivered_at IS NOT NULL
                         UNION ALL SELECT h.at, 3, h.what, h.fence, h.owner
                         FROM r JOIN finaz.run_history AS h USING (run_no) WHERE h.what <> 'cancelled'
                         UNION ALL SELECT f.at, 6, 'refused ' || f.effect, f.fence, f.owner
                         FROM r JOIN finaz.refused_effects AS f USING (run_id)
                     )
                     SELECT to_char(at AT TIME ZONE 'UTC', {AT}), what, fence, owner FROM e ORDER BY e.at, rank"
                ),
                &[&run_no],
            )
            .await
            .map_err(|error| self.error(&error))?;
        let event = |row: &tokio_postgres::Row| TraceEvent {
            at: row.get(0),
            what: row.get(1),
            fence: row.get(2),
            owner: row.get(3),
        };
        Ok(rows.iter().map(event).collect())
    }
}
