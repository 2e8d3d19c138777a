//! A batch run that goes on from a checkpoint over a longer snapshot: only what is new goes through the nodes, and what comes
//! out is what the whole would have given, bit for bit. It is published like any other run, under its own fence.

use std::io::{self, BufRead as _};
use std::sync::Arc;

use tokio::sync::watch;

use super::restore::{RestoreRequest, RestoredView};
use super::run;
use crate::artifacts::{self, Artifacts, BlobReader};
use crate::control::admit::{OPERATION, PRINCIPAL};
use crate::control::batch::Ready;
use crate::control::journal::blocking;
use crate::control::run_once::{RunOnce, stopped, to_its_end};
use crate::control::worker::Stop;
use crate::control::{Control, Error, inputs};
use crate::flow::{self, FeatureBatch};
use crate::ids::Hash;
use crate::journal::BatchCheckpoint;
use crate::rules::admission::Request;
use crate::store::{self, Restored, TakenOn};

/// Takes a run on over a snapshot: computes it, then admits and publishes it as a run of its own. One that is published
/// already must be the same.
pub(super) async fn go_on(
    control: &Control,
    request: &RestoreRequest,
    manifest: &BatchCheckpoint,
    stop: &mut watch::Receiver<Stop>,
) -> Result<(Option<RestoredView>, RunOnce), Error> {
    let store = control.ready_store().await?;
    request.check_epoch(&manifest.id(), manifest.epoch, store.runs_epoch().await?)?;
    let snapshot = request.snapshot_of(control, manifest.snapshot)?;
    let flow = inputs::load_flow(control, &manifest.plan.to_string())?;
    let golden = inputs::golden_for(control, &flow, snapshot);
    let named = Request::new(PRINCIPAL, OPERATION, request.key.as_deref(), flow.hash, snapshot)?;
    let (artifacts, of) = (Arc::clone(control.artifacts()?), manifest.clone());
    let computing = blocking(move || continued(&artifacts, &of, snapshot));
    let (batch, events) = tokio::select! {
        done = computing => done?,
        signal = stopped(stop) => return Err(Error::Interrupted { signal }),
    };
    let (who, reason) = (control.settings.owner.clone(), request.reason.clone());
    let (_, manifest_hash) = manifest.to_bytes();
    let (checkpoint, from) = (manifest.id(), manifest.next());
    let restored = Restored { checkpoint, manifest_hash, who: who.clone(), reason: reason.clone() };
    let ready = Ready::new(batch, TakenOn { restored, from, to: events });
    let offered = ready.hash();
    let rooms = control.rooms().await?.with(ready);
    let run = to_its_end(control, &rooms, &named, golden, stop).await?;
    if run.result.blob != offered {
        return Err(Error::Store(store::Error::PublicationConflict {
            run_id: run.run_id,
            held: run.result.blob.to_string(),
            offered: offered.to_string(),
        }));
    }
    let restored = run.ours.map(|epoch| RestoredView {
        from_seq: from,
        seq: events,
        epoch,
        fence: run.fence,
        who,
        reason,
    });
    Ok((restored, run))
}

/// The result over a snapshot that begins as that of the checkpoint did, and how many events that has.
fn continued(
    artifacts: &Artifacts,
    manifest: &BatchCheckpoint,
    snapshot: Hash,
) -> Result<(FeatureBatch, i64), Error> {
    let (flow, begun) = run::begun(artifacts, manifest)?;
    let mut body = artifacts.reader(&snapshot)?;
    let mut held = artifacts.reader(&manifest.snapshot)?;
    let place = snapshot.to_string();
    let failed = |source| Error::Artifacts(artifacts::Error::Io { place: place.clone(), source });
    let apart = difference(&mut held, &mut body).map_err(failed)?;
    let projection = match apart {
        None => Some(flow::project_rest(&flow, &mut body, &place, &begun)),
        Some(_) => None,
    };
    // First whether what was read is what the hashes name: damage explains all else.
    held.finish()?;
    body.finish()?;
    let Some(projection) = projection.transpose()? else {
        return Err(Error::SnapshotApart {
            id: manifest.id(),
            held: manifest.snapshot,
            offered: snapshot,
            event: apart.unwrap_or_default(),
        });
    };
    let events = i64::try_from(projection.reached.events).expect("no snapshot is that long");
    Ok((flow::compute_on(&flow, snapshot, &projection, begun)?, events))
}

/// The number of the first event of `held` that `body` does not have at its place; `None`: it begins with all of them, and is
/// read up to there.
fn difference(held: &mut BlobReader, body: &mut BlobReader) -> io::Result<Option<u64>> {
    let lines = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
    let mut events = 0;
    loop {
        let (left, right) = (held.fill_buf()?, body.fill_buf()?);
        if left.is_empty() {
            return Ok(None);
        }
        let length = left.len().min(right.len());
        if length == 0 || left[..length] != right[..length] {
            let same = left.iter().zip(right).take_while(|(a, b)| a == b).count();
            return Ok(Some(events + lines(&left[..same])));
        }
        events += lines(&left[..length]);
        held.consume(length);
        body.consume(length);
    }
}
