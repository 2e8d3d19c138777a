//! A stream taken back to one of its checkpoints: to exactly that one, under a new fence, on record with who and why.

use std::sync::Arc;

use serde::Serialize;

use super::{CheckpointView, RowView, faults, find, head_of, manifest_of, standing};
use crate::broker::{Broker, Edge};
use crate::control::journal;
use crate::control::stream::report::Counts;
use crate::control::stream::{Held, Setup, StreamRequest, owners, prepare, session};
use crate::control::{Control, Error};
use crate::invalid::Invalid;
use crate::journal::{Checkpoint, HandoffPart, Head};
use crate::store::Restored;
use crate::stream::Engine;

/// What an owner that took a stream back says it leaves.
const RESTORED: &str = "RESTORED";

/// Which checkpoint, and why.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// An id, a `manifest_hash`, or the beginning of one.
    pub checkpoint: String,
    pub reason: String,
    /// The epoch that it was made in, where that is another than the stream's.
    pub epoch: Option<i64>,
}

/// A stream that was taken back.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreReport {
    #[serde(flatten)]
    pub view: CheckpointView,
    pub restored: RestoredView,
}

/// How it stands now.
#[derive(Clone, Debug, Serialize)]
pub struct RestoredView {
    /// The commits: where it stood, and the one that took it back.
    pub from_seq: i64,
    pub seq: i64,
    pub epoch: i64,
    pub fence: i64,
    pub who: String,
    pub reason: String,
}

/// What a restore would do, for whoever has to agree to it.
#[derive(Clone, Debug, Serialize)]
pub struct RestorePlan {
    #[serde(flatten)]
    pub row: RowView,
    /// The commit at which the stream stands; absent where nothing is left of it.
    pub stands_at: Option<i64>,
    /// Who has it.
    pub owner: Option<String>,
}

impl RestoreRequest {
    /// What it would do. Changes nothing.
    pub async fn plan(&self, control: &Control) -> Result<RestorePlan, Error> {
        let row = find(control, &self.checkpoint).await?;
        let stands = standing(control, &row.name).await?;
        let owner = stands.as_ref().filter(|view| view.live).and_then(|view| view.owner.clone());
        Ok(RestorePlan {
            row: row.into(),
            stands_at: stands.map(|view| view.row.seq),
            owner: owner.map(|owner| owner.to_string()),
        })
    }
}

/// Takes a stream back. Nobody may have it; the log must be the one it read, and still have what comes after.
///
/// # Errors
/// [`Error::CheckpointIncompatible`] with the field that differs, [`Error::CheckpointDamaged`] with the blob, both before
/// anything is taken; [`Error::StreamHeld`]; [`Error::RecoveryBlocked`] where retention took what would be read again.
pub async fn restore(control: &Control, request: &RestoreRequest) -> Result<RestoreReport, Error> {
    if request.reason.trim().is_empty() {
        let hint = "say why it goes back; it is kept for whoever asks later";
        return Err(Invalid::new("REASON_EMPTY", "--reason", "is empty", hint).into());
    }
    let row = find(control, &request.checkpoint).await?;
    let artifacts = Arc::clone(control.artifacts()?);
    let manifest = manifest_of(&artifacts, &row)?;
    let head = whole(&artifacts, &manifest)?;
    if let Some(other) = manifest.foreign() {
        let (field, held, offered) = (other.field, other.held, other.offered);
        return Err(Error::CheckpointIncompatible { id: row.id, field, held, offered });
    }
    let (setup, broker) = setup(control, &manifest).await?;
    let mut held = Held::acquire(control, &setup.hearts, &row.name).await?;
    let under = Under { control, setup: &setup, broker: &broker, held: &held, request };
    let done = Box::pin(under.take_back(&manifest, head)).await;
    held.release().await;
    let restored = done?;
    Ok(RestoreReport { view: CheckpointView::of(row, manifest), restored })
}

/// Everything that a checkpoint names, read; its head.
fn whole(artifacts: &crate::artifacts::Artifacts, manifest: &Checkpoint) -> Result<Head, Error> {
    let id = manifest.id();
    if let Some(what) = faults(artifacts, manifest, &mut |_bytes| {})?.into_iter().next() {
        let named = manifest.blobs.iter().map(|blob| blob.hash);
        let blob = named.into_iter().find(|hash| what.contains(&hash.to_string()));
        return Err(Error::CheckpointDamaged { id, blob, what });
    }
    head_of(artifacts, manifest)
}

/// The stream that the checkpoint is of, as it would be begun now; refused where it is another by now.
async fn setup(control: &Control, manifest: &Checkpoint) -> Result<(Setup, Broker), Error> {
    let identity = &manifest.identity;
    let request = StreamRequest {
        topic: identity.topic.clone(),
        group: identity.group.clone(),
        flow: identity.flow.to_string(),
        run_id: Some(identity.run_id.clone()),
        ..StreamRequest::plain()
    };
    let (mut setup, broker) = prepare(control, request).await?;
    setup.identity.partitions.clone_from(&identity.partitions);
    if let Some((field, held, offered)) = identity.difference(&setup.identity) {
        return Err(Error::CheckpointIncompatible { id: manifest.id(), field, held, offered });
    }
    Ok((setup, broker))
}

/// What is done while the lease is held.
struct Under<'a> {
    control: &'a Control,
    setup: &'a Setup,
    broker: &'a Broker,
    held: &'a Held,
    request: &'a RestoreRequest,
}

impl Under<'_> {
    async fn take_back(&self, manifest: &Checkpoint, head: Head) -> Result<RestoredView, Error> {
        let lease = &self.held.lease;
        self.check_epoch(manifest)?;
        let artifacts = Arc::clone(self.control.artifacts()?);
        let loaded = journal::loaded(&artifacts, &head)?;
        let engine = session::resumed(self.setup, loaded)?;
        let partitions: Vec<i32> = engine.standings().iter().map(|lane| lane.partition).collect();
        let edges = self.broker.edges(&self.setup.topic, &partitions).await?;
        session::check_log(self.setup, self.broker, &engine, &edges).await?;
        let (who, reason) = (self.control.settings.owner.clone(), self.request.reason.clone());
        let (_, manifest_hash) = manifest.to_bytes();
        let restored = Restored {
            checkpoint: manifest.id(),
            manifest_hash,
            who: who.clone(),
            reason: reason.clone(),
        };
        // Without the rows in ClickHouse: they may be of what is taken back, and are staged anew, under a later fence.
        let report = serde_json::to_string(&Counts::of(&engine, &[], &edges)).ok();
        let store = self.control.ready_store().await?;
        let (journal, from_seq) =
            journal::restore(artifacts, store, lease, (head, report), restored).await?;
        self.sign(&journal, &engine, &edges).await;
        let commit = journal.commit_made().expect("the commit that was just made");
        let (epoch, fence, seq) = (commit.epoch, commit.fence, commit.seq);
        Ok(RestoredView { from_seq, seq, epoch, fence, who, reason })
    }

    /// A checkpoint of another epoch is of another history of the database: only whoever says so goes back to it.
    fn check_epoch(&self, manifest: &Checkpoint) -> Result<(), Error> {
        let now = self.held.lease.epoch;
        if manifest.epoch == now || self.request.epoch == Some(manifest.epoch) {
            return Ok(());
        }
        let (held, offered) = (manifest.epoch.to_string(), now.to_string());
        Err(Error::CheckpointIncompatible { id: manifest.id(), field: "epoch", held, offered })
    }

    /// Says what it leaves, as every owner does.
    async fn sign(&self, journal: &journal::Journal, engine: &Engine, edges: &[Edge]) {
        let mut given = journal.draft(HandoffPart::Given);
        given.reason = Some(RESTORED.to_owned());
        given.watermark = engine.watermark();
        given.partitions = owners::partitions(engine, edges);
        if let Err(error) = journal.sign(&given).await {
            tracing::warn!(%error, "the handoff is not on record, the restore is");
        }
    }
}
