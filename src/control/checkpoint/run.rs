//! Checkpoints of batch runs: made of a publication by computing it anew, and read to go on from.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CheckpointView, CommitReport, find};
use crate::artifacts::Artifacts;
use crate::control::journal::{blocking, keep_manifest, same};
use crate::control::{Control, Error, inputs, runs};
use crate::flow::{self, Begun, FeatureBatch, Flow, Projection, Reached};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::journal::{
    self, BatchCheckpoint, BatchSink, BatchState, BlobRef, InstrumentKept, LastEvent, Manifest,
    PublishedRun,
};
use crate::store::{self, Named, RunRow};
use crate::stream::Ledger;

/// The run that this text names, if it is the id of a batch run, or the beginning of one, and no stream is called so.
pub(super) async fn named(control: &Control, text: &str) -> Result<Option<RunRow>, Error> {
    if !text.starts_with("run_") {
        return Ok(None);
    }
    let store = control.ready_store().await?;
    if !store.streams(Some(text), None).await?.is_empty() {
        return Ok(None);
    }
    runs::find(control, text).await.map(Some)
}

/// Keeps what a run has computed, and its nodes as they are behind the last event of its snapshot.
///
/// # Errors
/// [`Error::NotPublished`]; `PUBLICATION_CONFLICT` where what comes out now is not what was published.
pub(super) async fn commit(
    control: &Control,
    run: RunRow,
    partition: Option<u32>,
    reason: Option<&str>,
) -> Result<CommitReport, Error> {
    if let Some(partition) = partition {
        let (place, hint) = (format!("--partition {partition}"), "leave it out");
        let message = "a batch run has no partitions";
        return Err(Invalid::new("PARTITION_UNKNOWN", place, message, hint).into());
    }
    let artifacts = Arc::clone(control.artifacts()?);
    let (owner, reason) = (control.settings.owner.clone(), reason.map(str::to_owned));
    let (run_id, state) = (run.run_id.clone(), run.state.clone());
    let (manifest, new) = blocking(move || {
        let manifest = Manifest::Run(Box::new(computed(&artifacts, run)?));
        let new = keep_manifest(&artifacts, &manifest, &owner, reason.as_deref())?;
        Ok((manifest, new))
    })
    .await?;
    let already_present = match control.ready_store().await?.add_checkpoint(&new).await? {
        Named::New => false,
        Named::Known(held) => {
            same(&new, held)?;
            true
        }
        // It was published under this fence a moment ago, and nobody but a restored backup undoes that.
        Named::Moved => return Err(Error::NotPublished { run_id, state }),
    };
    let row = find(control, &new.id).await?;
    Ok(CommitReport { view: CheckpointView::of(row, manifest), already_present })
}

/// Computes a published run anew, holds that against what was published, and keeps the state.
fn computed(artifacts: &Artifacts, run: RunRow) -> Result<BatchCheckpoint, Error> {
    let Some((epoch, fence, result, values_hash, rows)) = run.publication else {
        return Err(Error::NotPublished { run_id: run.run_id, state: run.state });
    };
    let size = |hash: Hash| -> Result<BlobRef, Error> {
        Ok(BlobRef { hash, bytes: artifacts.reader(&hash)?.size() })
    };
    let flow = Flow::parse(&artifacts.get(&run.flow)?, &run.flow.to_string())?;
    let projection = inputs::project(artifacts, &flow, run.snapshot)?;
    let begun = flow::compute_kept(&flow, run.snapshot, &projection)?;
    // What is named must be whole, also where only its name would do.
    artifacts.get(&result)?;
    let offered = Hash::of(&begun.batch.to_blob());
    if offered != result {
        return Err(Error::Store(store::Error::PublicationConflict {
            run_id: run.run_id,
            held: result.to_string(),
            offered: offered.to_string(),
        }));
    }
    let ledger = ledger(&projection);
    let state = state(&flow, &begun);
    let bytes = state.to_bytes();
    let blob = BlobRef { hash: artifacts.put(&bytes)?, bytes: bytes.len() as u64 };
    let published = PublishedRun {
        run_id: run.run_id,
        flow_name: flow.name,
        epoch,
        fence,
        ledger,
        flow: size(run.flow)?,
        snapshot: size(run.snapshot)?,
        result: size(result)?,
        sink: BatchSink {
            dataset: flow.dataset,
            result,
            values_hash,
            rows: u64::try_from(rows).unwrap_or_default(),
        },
    };
    Ok(BatchCheckpoint::of(published, &state, blob))
}

/// What became of each event: a stream over them would say the same.
fn ledger(projection: &Projection) -> Ledger {
    let mut ledger = Ledger { read: projection.reached.events, ..Ledger::default() };
    for columns in &projection.instruments {
        let events = columns.event_time.len();
        ledger.consumed += events as u64;
        let null = |event: &usize| columns.fields.values().any(|field| field[*event].is_nan());
        ledger.gaps += (0..events).filter(null).count() as u64;
    }
    ledger.filtered = ledger.read - ledger.consumed;
    ledger
}

fn state(flow: &Flow, begun: &Begun) -> BatchState {
    let Reached { events, event_time, instrument, seq } = begun.reached.clone();
    let instruments = begun.batch.times.iter().map(|times| InstrumentKept {
        name: times.instrument.clone(),
        events: times.event_time.len() as u64,
        last_event_time: times.event_time.last().copied().unwrap_or_default(),
        nodes: begun.nodes[&times.instrument].state(),
    });
    BatchState {
        nodes: flow.nodes.iter().map(|node| node.id.clone()).collect(),
        events,
        last: LastEvent { event_time, instrument, seq },
        instruments: instruments.collect(),
    }
}

/// What a checkpoint was made of, read and found to be of one piece: the flow, what it had computed, its nodes.
///
/// # Errors
/// [`Error::Journal`] with the blob of the state where they are not; what is wrong with a blob by itself.
pub(super) fn begun(
    artifacts: &Artifacts,
    manifest: &BatchCheckpoint,
) -> Result<(Flow, Begun), Error> {
    let (plan, result) = (manifest.plan.to_string(), manifest.sink.result.to_string());
    let place = manifest.state.to_string();
    let flow = Flow::parse(&artifacts.get(&manifest.plan)?, &plan)?;
    let batch = FeatureBatch::from_blob(&artifacts.get(&manifest.sink.result)?, &result)?;
    let state = BatchState::parse(&artifacts.get(&manifest.state)?, &place)?;
    let damaged = |what: String| {
        Error::Journal(journal::Error::Damaged { place: manifest.state.to_string(), what })
    };
    if !manifest.is_of(&state) || !fits(manifest, &flow, &batch) || !is_of(&state, &flow, &batch) {
        return Err(damaged(format!("is not the state that {} was made of", manifest.id())));
    }
    let mut nodes = BTreeMap::new();
    for instrument in state.instruments {
        let resumed = flow.resume(&instrument.nodes).map_err(|error| damaged(error.to_string()))?;
        nodes.insert(instrument.name, resumed);
    }
    let LastEvent { event_time, instrument, seq } = state.last;
    let reached = Reached { events: state.events, event_time, instrument, seq };
    Ok((flow, Begun { reached, nodes, batch }))
}

/// Whether a manifest is of this flow and this result.
fn fits(manifest: &BatchCheckpoint, flow: &Flow, batch: &FeatureBatch) -> bool {
    (batch.flow, batch.snapshot) == (manifest.plan, manifest.snapshot)
        && (batch.values_hash, batch.rows()) == (manifest.sink.values_hash, manifest.sink.rows)
        && (&flow.name, &flow.dataset) == (&manifest.flow_name, &manifest.sink.dataset)
}

/// Whether a state is of the nodes of this flow behind the events of this result.
fn is_of(state: &BatchState, flow: &Flow, batch: &FeatureBatch) -> bool {
    let stands = |(kept, times): (&InstrumentKept, &flow::Times)| {
        kept.name == times.instrument
            && kept.events == times.event_time.len() as u64
            && Some(&kept.last_event_time) == times.event_time.last()
    };
    flow.nodes.iter().map(|node| &node.id).eq(&state.nodes)
        && state.instruments.len() == batch.times.len()
        && state.instruments.iter().zip(&batch.times).all(stands)
}
