//! Leases by hand: list, show, acquire, renew, release, new epoch.

use std::time::Duration;

use serde::Serialize;

use super::journal::fenced;
use super::{ArtifactsError, Control, Error};
use crate::ids::Owner;
use crate::invalid::Invalid;
use crate::points::{Point, reach};
use crate::rules::lease::{Grant, HighWater, Refusal};
use crate::store::{LeaseRow, Store, StreamLease};

/// Bytes of a lease's name.
const NAME_BYTES_MAX: usize = 200;

/// Leases as they stand.
#[derive(Clone, Debug, Serialize)]
pub struct LeasesReport {
    pub leases: Vec<LeaseView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LeaseView {
    pub name: String,
    /// The owner token: who shows it, acts as this owner.
    pub owner: Owner,
    pub fence: i64,
    pub epoch: i64,
    pub expires_at: String,
    pub live: bool,
}

impl From<LeaseRow> for LeaseView {
    fn from(row: LeaseRow) -> Self {
        Self {
            name: row.name,
            owner: row.owner,
            fence: row.fence,
            epoch: row.epoch,
            expires_at: row.expires_at,
            live: row.live,
        }
    }
}

fn one(row: LeaseRow) -> LeasesReport {
    LeasesReport { leases: vec![row.into()] }
}

/// Leases whose name begins with `prefix`, the newest first.
pub async fn list(
    control: &Control,
    prefix: &str,
    live_only: bool,
    limit: i64,
) -> Result<LeasesReport, Error> {
    let rows = control.ready_store().await?.leases(prefix, live_only, limit).await?;
    Ok(LeasesReport { leases: rows.into_iter().map(LeaseView::from).collect() })
}

/// One lease, by its name or by the id of a run that is or was under it.
pub async fn show(control: &Control, name: &str) -> Result<LeasesReport, Error> {
    let row = control.ready_store().await?.lease(name).await?;
    row.map(one).ok_or_else(|| Error::LeaseMissing { name: name.to_owned() })
}

/// Takes a lease, or renews one's own. Without `owner` the asker is a new owner, whose token is in the report.
pub async fn acquire(
    control: &Control,
    name: &str,
    owner: Option<&str>,
    ttl: Duration,
) -> Result<LeasesReport, Error> {
    check_name(name)?;
    let owner = match owner {
        Some(token) => Owner::from_token(token),
        None => Owner::of_process(&control.settings.owner),
    };
    let known = high_water(control, name)?;
    let (grant, row) = control.ready_store().await?.acquire(name, &owner, ttl, known).await?;
    match grant {
        Grant::Claim { epoch, fence } => {
            if is_stream(name) {
                // Durable before the first effect under it: a database restored from an older backup is then told.
                if let Err(error) = raise(control, name, epoch, fence) {
                    let lease = StreamLease { name: name.to_owned(), owner, epoch, fence };
                    let store = control.ready_store().await?;
                    return Err(Box::pin(unmarked(store, &lease, error)).await);
                }
                reach(Point::LeaseMarked);
            }
            Ok(one(row))
        }
        Grant::Renew => Ok(one(row)),
        Grant::Held => Err(Error::LeaseHeld {
            name: row.name,
            owner: row.owner,
            fence: row.fence,
            expires_at: row.expires_at,
        }),
        Grant::Regression { next, known } => Err(Error::FenceRegression {
            name: name.to_owned(),
            epoch: next.epoch,
            fence: next.fence,
            known_epoch: known.epoch,
            known_fence: known.fence,
        }),
        Grant::Exhausted => Err(Error::FenceExhausted { name: name.to_owned() }),
    }
}

/// What it means that a fence could not be marked. A higher mark is that of who took the lease over while this process stood
/// still, if the lease is theirs; only if it is not did the database go back. Nothing was done under the lease: nobody shall
/// wait for it to run out.
async fn unmarked(store: &Store, lease: &StreamLease, error: Error) -> Error {
    let is_lower = matches!(error, Error::Artifacts(ArtifactsError::FenceRegression { .. }));
    let run_id = lease.name.split('/').nth(1).unwrap_or_default();
    if is_lower
        && let Ok(Err(refusal)) = store.ask_stream(lease, run_id).await
        && refusal.owner.as_ref() != Some(&lease.owner)
    {
        return fenced(lease, refusal);
    }
    if let Err(error) = store.release(&lease.name, &lease.owner).await {
        tracing::warn!(%error, "the lease runs out by itself");
    }
    error
}

/// Gives a lease that is still the owner's more time.
pub async fn renew(
    control: &Control,
    name: &str,
    owner: &str,
    ttl: Duration,
) -> Result<LeasesReport, Error> {
    let owner = Owner::from_token(owner);
    match control.ready_store().await?.renew(name, &owner, ttl).await? {
        Ok(row) => Ok(one(row)),
        Err((refusal, row)) => Err(refused(name, owner, refusal, row)),
    }
}

/// Expires a lease that is still the owner's; the fence stays.
pub async fn release(control: &Control, name: &str, owner: &str) -> Result<LeasesReport, Error> {
    let owner = Owner::from_token(owner);
    match control.ready_store().await?.release(name, &owner).await? {
        Ok(row) => Ok(one(row)),
        Err((refusal, row)) => Err(refused(name, owner, refusal, row)),
    }
}

/// What a new epoch began.
#[derive(Clone, Debug, Serialize)]
pub struct EpochReport {
    pub leases: Vec<LeaseView>,
    /// The lease's name; absent: all batch and run leases to come.
    pub name: Option<String>,
    pub epoch: i64,
    pub reason: String,
}

/// Begins a new epoch, above all that was handed out, after a restored backup.
pub async fn new_epoch(
    control: &Control,
    name: Option<&str>,
    reason: &str,
) -> Result<EpochReport, Error> {
    if reason.trim().is_empty() {
        return Err(Error::Invalid(Invalid::new(
            "REASON_EMPTY",
            "--reason",
            "is empty",
            "say why the epoch has to change; it is kept for whoever asks later",
        )));
    }
    let known = match name {
        None => None,
        Some(name) => {
            check_name(name)?;
            high_water(control, name)?
        }
    };
    let store = control.ready_store().await?;
    let epoch = store.new_epoch(name, &control.settings.owner, reason, known).await?;
    let leases = match name {
        Some(name) => store.lease(name).await?.map(LeaseView::from).into_iter().collect(),
        None => Vec::new(),
    };
    Ok(EpochReport { leases, name: name.map(str::to_owned), epoch, reason: reason.to_owned() })
}

/// Leases whose fences are noted outside of the database too: those of streams, which write files.
fn is_stream(name: &str) -> bool {
    name.starts_with("stream/")
}

fn raise(control: &Control, name: &str, epoch: i64, fence: i64) -> Result<(), Error> {
    Ok(control.artifacts()?.raise_fence_high_water(name, epoch, fence)?)
}

fn high_water(control: &Control, name: &str) -> Result<Option<HighWater>, Error> {
    if !is_stream(name) {
        return Ok(None);
    }
    let mark = control.artifacts()?.fence_high_water(name)?;
    Ok(mark.map(|(epoch, fence)| HighWater { epoch, fence }))
}

fn refused(name: &str, yours: Owner, refusal: Refusal, row: Option<LeaseRow>) -> Error {
    match (refusal, row) {
        (Refusal::Stale, Some(row)) => {
            Error::StaleFence { name: row.name, owner: row.owner, fence: row.fence, yours }
        }
        (Refusal::Expired, Some(row)) => {
            Error::LeaseExpired { name: row.name, expires_at: row.expires_at }
        }
        (Refusal::Missing | Refusal::Stale | Refusal::Expired, _) => {
            Error::LeaseMissing { name: name.to_owned() }
        }
    }
}

fn check_name(name: &str) -> Result<(), Invalid> {
    let wrong = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("has {} bytes, more than {NAME_BYTES_MAX}", name.len())
    } else if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        "has a space or a control character".to_owned()
    } else if !name.contains('/') || name.starts_with('/') || name.ends_with('/') {
        "is not `kind/id`".to_owned()
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(40).collect();
    Err(Invalid::new(
        "LEASE_NAME_INVALID",
        format!("lease name {shown:?}"),
        wrong,
        "write it as run/<id>, batch/<id>, stream/<run id> or another kind/id",
    ))
}
