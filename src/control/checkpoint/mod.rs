//! Checkpoints: made, listed, looked at, held against what is stored, forgotten. What is done with those of streams is in
//! `control/stream/checkpoint.rs`, with those of batch runs here.

mod diff;
mod onward;
mod restore;
mod run;
mod verify;

use std::collections::BTreeMap;

use serde::Serialize;

pub use crate::journal::Manifest;
pub use diff::{DiffReport, DifferenceView, diff};
pub use restore::{RestorePlan, RestoreReport, RestoreRequest, RestoreWay, RestoredView, restore};
pub use verify::{VerifiedView, VerifyReport, verify};

use super::stream::name_commit;
use super::{Control, Error};
use crate::artifacts::Artifacts;
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::journal::BlobRef;
use crate::store::{CheckpointRow, RestoreRow};

/// A checkpoint, with all that it names.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointView {
    #[serde(flatten)]
    pub row: RowView,
    pub blobs: Vec<BlobRef>,
    /// Of all of them together.
    pub bytes: u64,
    #[serde(rename = "of")]
    pub manifest: Manifest,
}

/// A checkpoint as a list has it.
#[derive(Clone, Debug, Serialize)]
pub struct RowView {
    /// Its id: the run, the partition of a split stream, `@`, the commit.
    pub checkpoint: String,
    pub run_id: String,
    /// Of everything in the manifest but itself.
    pub manifest_hash: Hash,
    /// The blob that is the manifest.
    pub manifest: Hash,
    pub epoch: i64,
    pub fence: i64,
    /// The commit.
    pub seq: i64,
    /// By partition.
    pub next_offsets: BTreeMap<String, i64>,
    /// Made by the stream, from time to time; it forgets the oldest of these.
    pub periodic: bool,
    pub made_by: String,
    pub reason: Option<String>,
    /// RFC 3339, UTC, by the database.
    pub created_at: String,
}

/// A checkpoint that was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct CommitReport {
    #[serde(flatten)]
    pub view: CheckpointView,
    /// The stream has not moved since it was made; a run never does.
    pub already_present: bool,
}

/// Checkpoints, by stream or run and in the order made; the streams that were taken back to one, and the runs that were
/// taken on from one.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointsReport {
    pub checkpoints: Vec<RowView>,
    pub restores: Vec<RestoreView>,
}

/// A stream that was taken back, or a batch run that was taken on.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreView {
    /// The stream, or the run that was published.
    pub run_id: String,
    pub checkpoint: String,
    /// The commits: where it stood, and the one that took it back. Of a run: the number of the first event that was computed,
    /// and of events in all.
    pub from_seq: i64,
    pub seq: i64,
    pub fence: i64,
    pub who: String,
    pub reason: String,
    /// RFC 3339, UTC, by the database.
    pub restored_at: String,
}

/// A checkpoint that is forgotten.
#[derive(Clone, Debug, Serialize)]
pub struct DropReport {
    pub checkpoint: String,
    pub manifest_hash: Hash,
}

impl From<CheckpointRow> for RowView {
    fn from(row: CheckpointRow) -> Self {
        Self {
            checkpoint: row.id,
            run_id: row.run_id,
            manifest_hash: row.manifest_hash,
            manifest: row.manifest,
            epoch: row.epoch,
            fence: row.fence,
            seq: row.seq,
            next_offsets: serde_json::from_str(&row.next_offsets).unwrap_or_default(),
            periodic: row.periodic,
            made_by: row.made_by,
            reason: row.reason,
            created_at: row.created_at,
        }
    }
}

impl From<RestoreRow> for RestoreView {
    fn from(row: RestoreRow) -> Self {
        Self {
            run_id: row.run_id,
            checkpoint: row.checkpoint,
            from_seq: row.from_seq,
            seq: row.seq,
            fence: row.fence,
            who: row.who,
            reason: row.reason,
            restored_at: row.restored_at,
        }
    }
}

impl CheckpointView {
    pub(super) fn of(row: CheckpointRow, manifest: Manifest) -> Self {
        let blobs = manifest.blobs().to_vec();
        let bytes = blobs.iter().map(|blob| blob.bytes).sum();
        Self { row: row.into(), blobs, bytes, manifest }
    }
}

/// Names the last commit of a stream, of a split one that of one partition; or a batch run that was published.
pub async fn commit(
    control: &Control,
    run_id: Option<&str>,
    partition: Option<u32>,
    reason: Option<&str>,
) -> Result<CommitReport, Error> {
    let batch = match run_id {
        Some(text) => run::named(control, text).await?,
        None => None,
    };
    match batch {
        Some(row) => run::commit(control, row, partition, reason).await,
        None => name_commit(control, run_id, partition, reason).await,
    }
}

/// The checkpoints of a run, or all.
pub async fn list(control: &Control, run_id: Option<&str>) -> Result<CheckpointsReport, Error> {
    let store = control.ready_store().await?;
    let batch = match run_id {
        Some(text) => run::named(control, text).await?.map(|row| row.run_id),
        None => None,
    };
    let run_id = batch.as_deref().or(run_id);
    let checkpoints = store.checkpoints(run_id).await?;
    let restores = store.restores(run_id).await?;
    Ok(CheckpointsReport {
        checkpoints: checkpoints.into_iter().map(RowView::from).collect(),
        restores: restores.into_iter().map(RestoreView::from).collect(),
    })
}

/// One, with all that it names.
pub async fn show(control: &Control, id: &str) -> Result<CheckpointView, Error> {
    let row = find(control, id).await?;
    let manifest = manifest_of(control.artifacts()?, &row)?;
    Ok(CheckpointView::of(row, manifest))
}

/// Forgets a checkpoint.
pub async fn drop(control: &Control, id: &str) -> Result<DropReport, Error> {
    let row = find(control, id).await?;
    control.ready_store().await?.drop_checkpoint(&row.id).await?;
    Ok(DropReport { checkpoint: row.id, manifest_hash: row.manifest_hash })
}

/// The one that this text names, and no other: never the newest instead.
pub(super) async fn find(control: &Control, text: &str) -> Result<CheckpointRow, Error> {
    let mut rows = control.ready_store().await?.checkpoints_named(text).await?;
    let shown: String = text.chars().take(120).collect();
    let (message, hint) = match (rows.pop(), rows.len()) {
        (Some(row), 0) => return Ok(row),
        (None, _) => ("no such checkpoint".to_owned(), "see `finaz checkpoint list`"),
        (Some(_), more) => (format!("{} begin like that", more + 1), "give more digits, or the id"),
    };
    Err(Invalid::new("CHECKPOINT_UNKNOWN", shown.escape_debug().to_string(), message, hint).into())
}

/// The manifest of a row.
fn manifest_of(artifacts: &Artifacts, row: &CheckpointRow) -> Result<Manifest, Error> {
    read_manifest(artifacts, row).map_err(|error| {
        let damaged = matches!(&error, Error::Artifacts(error) if verify::is_of_blob(error))
            || matches!(error, Error::Journal(_));
        if !damaged {
            return error;
        }
        let (id, what) = (row.id.clone(), error.to_string());
        Error::CheckpointDamaged { id, blob: Some(row.manifest), what }
    })
}

/// The manifest that a row names, found to be what it says.
fn read_manifest(artifacts: &Artifacts, row: &CheckpointRow) -> Result<Manifest, Error> {
    let place = row.manifest.to_string();
    let (manifest, hash) = Manifest::parse(&row.name, &artifacts.get(&row.manifest)?, &place)?;
    if hash == row.manifest_hash && manifest.id() == row.id {
        return Ok(manifest);
    }
    let what = format!("is not the manifest of {}, which names it", row.id);
    Err(Error::Journal(crate::journal::Error::Damaged { place, what }))
}
