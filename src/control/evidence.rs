//! The queue and what fences refused, as lists.

use serde::Serialize;

use super::{Control, Error};

/// Rows of a list, at most.
pub const LIST_MAX: i64 = 10_000;

/// Events of the outbox, first the newest.
#[derive(Clone, Debug, Serialize)]
pub struct OutboxReport {
    pub events: Vec<OutboxEvent>,
}

#[derive(Clone, Debug, Serialize)]
pub struct OutboxEvent {
    pub id: i64,
    #[serde(rename = "type")]
    pub kind: String,
    pub run_id: String,
    /// `pending`, `claimed` or `delivered`.
    pub state: String,
    pub claimed_by: Option<String>,
}

/// Effects that a fence refused, first the newest.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedReport {
    pub refused: Vec<RefusedEffect>,
}

#[derive(Clone, Debug, Serialize)]
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

/// Lists the outbox; `pending_only` leaves out what is delivered.
pub async fn outbox(
    control: &Control,
    pending_only: bool,
    limit: i64,
) -> Result<OutboxReport, Error> {
    let rows = control.ready_store().await?.outbox(pending_only, limit.min(LIST_MAX)).await?;
    let event = |row: crate::store::OutboxEvent| OutboxEvent {
        id: row.id,
        kind: row.kind,
        run_id: row.run_id,
        state: row.state,
        claimed_by: row.claimed_by,
    };
    Ok(OutboxReport { events: rows.into_iter().map(event).collect() })
}

/// Lists refused effects.
pub async fn refused(control: &Control, limit: i64) -> Result<RefusedReport, Error> {
    let rows = control.ready_store().await?.refused(limit.min(LIST_MAX)).await?;
    let effect = |row: crate::store::RefusedEffect| RefusedEffect {
        at: row.at,
        effect: row.effect,
        run_id: row.run_id,
        lease: row.lease,
        owner: row.owner,
        fence: row.fence,
        current_owner: row.current_owner,
        current_fence: row.current_fence,
    };
    Ok(RefusedReport { refused: rows.into_iter().map(effect).collect() })
}
