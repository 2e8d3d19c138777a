//! What is restored from a checkpoint: a stream goes back, a batch run goes on.

use serde::Serialize;
use tokio::sync::watch;

use super::{CheckpointView, Manifest, RowView, find, manifest_of, onward, verify};
use crate::control::run_once::{RunOnce, stopped};
use crate::control::stream::{standing, take_back};
use crate::control::worker::Stop;
use crate::control::{Control, Error, inputs};
use crate::ids::Hash;
use crate::invalid::Invalid;

/// Which checkpoint, and why.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// An id, a `manifest_hash`, or the beginning of one.
    pub checkpoint: String,
    pub reason: String,
    /// The epoch that it was made in, where that is another than now.
    pub epoch: Option<i64>,
    /// Of a batch run: over which snapshot it goes on; absent: its own, where nothing follows.
    pub snapshot: Option<String>,
    /// Of a batch run: the idempotency key of the run that goes on, where one without a key has ended otherwise.
    pub key: Option<String>,
}

/// What a restore would do, for whoever has to agree to it.
#[derive(Clone, Debug)]
pub struct RestorePlan {
    pub row: RowView,
    pub way: RestoreWay,
}

/// Which way a restore goes.
#[derive(Clone, Debug)]
pub enum RestoreWay {
    /// A stream goes back: from the commit at which it stands, if anything is left of it; from whoever has it.
    Back { stands_at: Option<i64>, owner: Option<String> },
    /// A batch run goes on over this snapshot.
    On { snapshot: Hash },
}

/// A stream that was taken back, or a batch run that was taken on.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreReport {
    #[serde(flatten)]
    pub view: CheckpointView,
    /// Absent where a run was published before, by whomever: the result is what this would have given.
    pub restored: Option<RestoredView>,
    /// The run that went on; a stream has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunOnce>,
}

/// How it stands now.
#[derive(Clone, Debug, Serialize)]
pub struct RestoredView {
    /// The commits: where it stood, and the one that took it back. Of a run: the number of the first event that was computed,
    /// and of events in all.
    pub from_seq: i64,
    pub seq: i64,
    pub epoch: i64,
    pub fence: i64,
    pub who: String,
    pub reason: String,
}

impl RestoreRequest {
    /// What it would do. Changes nothing.
    pub async fn plan(&self, control: &Control) -> Result<RestorePlan, Error> {
        let row = find(control, &self.checkpoint).await?;
        let way = match manifest_of(control.artifacts()?, &row)? {
            Manifest::Run(manifest) => {
                RestoreWay::On { snapshot: self.snapshot_of(control, manifest.snapshot)? }
            }
            Manifest::Stream(manifest) => {
                self.refuse_unused(&manifest.id())?;
                let stands = standing(control, &row.name).await?;
                let held = stands.as_ref().filter(|view| view.live);
                let owner = held.and_then(|view| view.owner.as_ref()).map(ToString::to_string);
                RestoreWay::Back { stands_at: stands.map(|view| view.row.seq), owner }
            }
        };
        Ok(RestorePlan { row: row.into(), way })
    }

    /// The snapshot that was asked for, else the run's own.
    pub(super) fn snapshot_of(&self, control: &Control, own: Hash) -> Result<Hash, Error> {
        let asked = self.snapshot.as_deref().map(|text| inputs::find_snapshot(control, text));
        Ok(asked.transpose()?.unwrap_or(own))
    }

    fn refuse_unused(&self, id: &str) -> Result<(), Invalid> {
        let message = format!("{id} is of a stream, which goes on with its topic");
        if let Some(text) = &self.snapshot {
            let hint = "leave --snapshot out; `finaz stream handoff` begins a stream with one";
            return Err(Invalid::new("SNAPSHOT_UNUSED", text, message, hint));
        }
        match &self.key {
            Some(key) => Err(Invalid::new("KEY_UNUSED", key, message, "leave --key out")),
            None => Ok(()),
        }
    }

    /// A checkpoint of another epoch is of another history of the database: only whoever says so goes back to it.
    pub(in crate::control) fn check_epoch(
        &self,
        id: &str,
        made: i64,
        now: i64,
    ) -> Result<(), Error> {
        let offered = self.epoch.unwrap_or(now);
        if made == offered {
            return Ok(());
        }
        let (id, held, offered) = (id.to_owned(), made.to_string(), offered.to_string());
        Err(Error::CheckpointIncompatible { id, field: "epoch", held, offered })
    }
}

/// Takes a stream back, or a batch run on, to exactly the checkpoint that is named. A stop drops the one where it is, and gives
/// the other back to the queue.
///
/// # Errors
/// [`Error::CheckpointDamaged`] with the blob, [`Error::CheckpointIncompatible`] with the field that differs, both before
/// anything is taken. Of a stream: [`Error::StreamHeld`]; [`Error::RecoveryBlocked`] where retention took what would be read
/// again. Of a run: [`Error::SnapshotApart`]; that what is published is something else.
pub async fn restore(
    control: &Control,
    request: &RestoreRequest,
    mut stop: watch::Receiver<Stop>,
) -> Result<RestoreReport, Error> {
    if request.reason.trim().is_empty() {
        let hint = "say why it is restored; it is kept for whoever asks later";
        return Err(Invalid::new("REASON_EMPTY", "--reason", "is empty", hint).into());
    }
    let row = find(control, &request.checkpoint).await?;
    let artifacts = control.artifacts()?;
    let manifest = manifest_of(artifacts, &row)?;
    verify::require_whole(artifacts, &manifest)?;
    if let Some(other) = manifest.foreign() {
        let (field, held, offered) = (other.field, other.held, other.offered);
        return Err(Error::CheckpointIncompatible { id: row.id, field, held, offered });
    }
    let (restored, run) = match &manifest {
        Manifest::Stream(of) => {
            request.refuse_unused(&row.id)?;
            let restored = tokio::select! {
                done = Box::pin(take_back(control, request, of)) => done?,
                signal = stopped(&mut stop) => return Err(Error::Interrupted { signal }),
            };
            (Some(restored), None)
        }
        Manifest::Run(of) => {
            let (restored, run) = Box::pin(onward::go_on(control, request, of, &mut stop)).await?;
            (restored, Some(run))
        }
    };
    Ok(RestoreReport { view: CheckpointView::of(row, manifest), restored, run })
}
