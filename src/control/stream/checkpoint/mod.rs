//! Checkpoints of streams: made, listed, looked at, held against what is stored, forgotten.

mod diff;
mod restore;

use std::collections::BTreeMap;

use serde::Serialize;

pub use diff::{DiffReport, DifferenceView, diff};
pub use restore::{RestorePlan, RestoreReport, RestoreRequest, restore};

use super::{look, moves};
use crate::artifacts::{self, Artifacts};
use crate::control::journal::{self, read_manifest};
use crate::control::{Control, Error};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::journal::{BlobRef, Checkpoint, Head};
use crate::store::{CheckpointRow, Named, RestoreRow, StreamView};

/// Times that a stream that commits while its last commit is being named is looked at anew.
const TRIES: u32 = 10;

/// A checkpoint, with all that it names.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointView {
    #[serde(flatten)]
    pub row: RowView,
    pub blobs: Vec<BlobRef>,
    /// Of all of them together.
    pub bytes: u64,
    #[serde(rename = "of")]
    pub manifest: Checkpoint,
}

/// A checkpoint as a list has it.
#[derive(Clone, Debug, Serialize)]
pub struct RowView {
    /// Its id: the run, the partition of a split one, `@`, the commit.
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
    /// The stream has not moved since it was made.
    pub already_present: bool,
}

/// Checkpoints, by stream and in the order made, and the streams that were taken back to one.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointsReport {
    pub checkpoints: Vec<RowView>,
    pub restores: Vec<RestoreView>,
}

/// A stream that was taken back.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreView {
    pub checkpoint: String,
    /// The commits: where it stood, and the one that took it back.
    pub from_seq: i64,
    pub seq: i64,
    pub fence: i64,
    pub who: String,
    pub reason: String,
    /// RFC 3339, UTC, by the database.
    pub restored_at: String,
}

/// A checkpoint held against what is stored.
#[derive(Clone, Debug, Serialize)]
pub struct VerifiedView {
    #[serde(flatten)]
    pub row: RowView,
    pub ok: bool,
    pub blobs: Vec<BlobRef>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Each names its blob.
    pub faults: Vec<String>,
}

/// Checkpoints held against what is stored.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    pub ok: bool,
    pub checkpoints: Vec<VerifiedView>,
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
    fn of(row: CheckpointRow, manifest: Checkpoint) -> Self {
        let blobs = manifest.blobs.clone();
        let bytes = blobs.iter().map(|blob| blob.bytes).sum();
        Self { row: row.into(), blobs, bytes, manifest }
    }
}

/// Names the last commit of a run, of a split run that of one partition. The stream may be running: it is not stopped,
/// and not asked.
pub async fn commit(
    control: &Control,
    run_id: Option<&str>,
    partition: Option<u32>,
    reason: Option<&str>,
) -> Result<CommitReport, Error> {
    let store = control.ready_store().await?;
    let artifacts = control.artifacts()?;
    for _ in 0..TRIES {
        let view = moves::one_of(look::find(control, run_id).await?, partition)?;
        let Some(head) = journal::head(artifacts, &view.row)? else {
            return Err(moves::empty(view.row.identity.run_id).into());
        };
        let snapshot = journal::Handing::of(store, &view.row.name).await?.snapshot();
        let checkpoint = journal::manifest(artifacts, &head, snapshot)?;
        let owner = &control.settings.owner;
        let new = journal::keep_manifest(artifacts, &checkpoint, owner, reason)?;
        let already_present = match store.add_checkpoint(&new).await? {
            Named::New => false,
            Named::Known(held) => {
                journal::same(&new, held)?;
                true
            }
            Named::Moved => continue,
        };
        let row = find(control, &new.id).await?;
        return Ok(CommitReport { view: CheckpointView::of(row, checkpoint), already_present });
    }
    Err(Error::Store(crate::store::Error::Busy))
}

/// The checkpoints of a run, or all.
pub async fn list(control: &Control, run_id: Option<&str>) -> Result<CheckpointsReport, Error> {
    let store = control.ready_store().await?;
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

/// Reads all that a checkpoint names, or that all do; `progress` is told the bytes that were read.
pub async fn verify(
    control: &Control,
    id: Option<&str>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<VerifyReport, Error> {
    let rows = match id {
        Some(id) => vec![find(control, id).await?],
        None => control.ready_store().await?.checkpoints(None).await?,
    };
    let artifacts = control.artifacts()?;
    let mut read = 0;
    let mut checkpoints = Vec::with_capacity(rows.len());
    for row in rows {
        let mut view = VerifiedView {
            row: row.clone().into(),
            ok: false,
            blobs: Vec::new(),
            bytes: 0,
            faults: Vec::new(),
        };
        match manifest_of(artifacts, &row) {
            Err(error) => view.faults.push(error.to_string()),
            Ok(manifest) => {
                view.faults = faults(artifacts, &manifest, &mut |bytes| {
                    view.bytes += bytes;
                    read += bytes;
                    progress(read);
                })?;
                view.blobs = manifest.blobs;
            }
        }
        view.ok = view.faults.is_empty();
        checkpoints.push(view);
    }
    Ok(VerifyReport { ok: checkpoints.iter().all(|one| one.ok), checkpoints })
}

/// Forgets a checkpoint.
pub async fn drop(control: &Control, id: &str) -> Result<DropReport, Error> {
    let row = find(control, id).await?;
    control.ready_store().await?.drop_checkpoint(&row.id).await?;
    Ok(DropReport { checkpoint: row.id, manifest_hash: row.manifest_hash })
}

/// The one that this text names, and no other: never the newest instead.
async fn find(control: &Control, text: &str) -> Result<CheckpointRow, Error> {
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
fn manifest_of(artifacts: &Artifacts, row: &CheckpointRow) -> Result<Checkpoint, Error> {
    read_manifest(artifacts, row).map_err(|error| {
        let damaged = matches!(&error, Error::Artifacts(error) if is_of_blob(error))
            || matches!(error, Error::Journal(_));
        if !damaged {
            return error;
        }
        let (id, what) = (row.id.clone(), error.to_string());
        Error::CheckpointDamaged { id, blob: Some(row.manifest), what }
    })
}

/// Whether a blob is at fault, and not the disk.
fn is_of_blob(error: &artifacts::Error) -> bool {
    matches!(
        error,
        artifacts::Error::Missing { .. }
            | artifacts::Error::Corrupt { .. }
            | artifacts::Error::PackCorrupt { .. }
    )
}

/// What is wrong with what a manifest names; `read` is told the bytes of each blob.
fn faults(
    artifacts: &Artifacts,
    manifest: &Checkpoint,
    read: &mut dyn FnMut(u64),
) -> Result<Vec<String>, Error> {
    let mut faults = Vec::new();
    for blob in &manifest.blobs {
        match size_of(artifacts, &blob.hash) {
            Ok(bytes) if bytes == blob.bytes => read(bytes),
            Ok(bytes) => {
                faults.push(format!("{} has {bytes} bytes, not {}", blob.hash, blob.bytes));
            }
            Err(error) if is_of_blob(&error) => faults.push(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    if faults.is_empty() {
        match head_of(artifacts, manifest) {
            Ok(_head) => {}
            Err(error @ Error::Journal(_)) => faults.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(faults)
}

/// The bytes of a blob, all of which were read and are what its name says.
fn size_of(artifacts: &Artifacts, hash: &Hash) -> Result<u64, artifacts::Error> {
    let mut reader = artifacts.reader(hash)?;
    let place = hash.to_string();
    let bytes = std::io::copy(&mut reader, &mut std::io::sink())
        .map_err(|source| artifacts::Error::Io { place, source })?;
    reader.finish()?;
    Ok(bytes)
}

/// The head that a manifest names, found to be the one it was made of, with every segment.
fn head_of(artifacts: &Artifacts, manifest: &Checkpoint) -> Result<Head, Error> {
    let place = manifest.head.to_string();
    let head = Head::parse(&artifacts.get(&manifest.head)?, &place)?;
    if !manifest.is_of(&head) {
        let what = format!("is not the head that checkpoint {} was made of", manifest.id());
        return Err(Error::Journal(crate::journal::Error::Damaged { place, what }));
    }
    journal::check_segments(artifacts, &head)?;
    Ok(head)
}

/// Where a stream stands, if it is there.
async fn standing(control: &Control, name: &str) -> Result<Option<StreamView>, Error> {
    Ok(control.ready_store().await?.stream(name).await?)
}
