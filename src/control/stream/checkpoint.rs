//! Checkpoints of streams: the last commit named, and a stream taken back to one of them, to exactly that one, under a new
//! fence, on record with who and why.

use std::sync::Arc;

use super::report::Counts;
use super::{Held, Setup, StreamRequest, look, moves, owners, prepare, session};
use crate::artifacts::Artifacts;
use crate::broker::{Broker, Edge};
use crate::control::checkpoint::{
    self, CheckpointView, CommitReport, RestoreRequest, RestoredView,
};
use crate::control::journal;
use crate::control::{Control, Error};
use crate::journal::{Checkpoint, HandoffPart, Head};
use crate::store::{Named, Restored, StreamView};
use crate::stream::Engine;

/// What an owner that took a stream back says it leaves.
const RESTORED: &str = "RESTORED";
/// Times that a stream that commits while its last commit is being named is looked at anew.
const TRIES: u32 = 10;

/// Names the last commit of a run, of a split run that of one partition. The stream may be running: it is not stopped,
/// and not asked.
pub(in crate::control) async fn name_commit(
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
        let manifest = journal::manifest(artifacts, &head, snapshot)?;
        let owner = &control.settings.owner;
        let new = journal::keep_manifest(artifacts, &manifest, owner, reason)?;
        let already_present = match store.add_checkpoint(&new).await? {
            Named::New => false,
            Named::Known(held) => {
                journal::same(&new, held)?;
                true
            }
            Named::Moved => continue,
        };
        let row = checkpoint::find(control, &new.id).await?;
        return Ok(CommitReport { view: CheckpointView::of(row, manifest), already_present });
    }
    Err(Error::Store(crate::store::Error::Busy))
}

/// The head that a manifest names, found to be the one it was made of, with every segment.
pub(in crate::control) fn head_of(
    artifacts: &Artifacts,
    manifest: &Checkpoint,
) -> Result<Head, Error> {
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
pub(in crate::control) async fn standing(
    control: &Control,
    name: &str,
) -> Result<Option<StreamView>, Error> {
    Ok(control.ready_store().await?.stream(name).await?)
}

/// Takes a stream back. Nobody may have it; the log must be the one it read, and still have what comes after.
///
/// # Errors
/// [`Error::CheckpointIncompatible`] with the field that differs, [`Error::CheckpointDamaged`] with the blob, both before
/// anything is taken; [`Error::StreamHeld`]; [`Error::RecoveryBlocked`] where retention took what would be read again.
pub(in crate::control) async fn take_back(
    control: &Control,
    request: &RestoreRequest,
    manifest: &Checkpoint,
) -> Result<RestoredView, Error> {
    let head = head_of(control.artifacts()?, manifest)?;
    let (setup, broker) = setup(control, manifest).await?;
    let mut held = Held::acquire(control, &setup.hearts, &manifest.identity.lease_name()).await?;
    let under = Under { control, setup: &setup, broker: &broker, held: &held, request };
    let done = Box::pin(under.take_back(manifest, head)).await;
    held.release().await;
    done
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
        self.request.check_epoch(&manifest.id(), manifest.epoch, lease.epoch)?;
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
