//! One run in the foreground: admitted, claimed by us, carried to its publication.

use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use super::admit::{AdmitRequest, admit_one, resolve};
use super::batch::{Gates, Rooms};
use super::heart::Heart;
use super::runs::find;
use super::worker::Stop;
use super::{Control, Error, inputs};
use crate::flow::FeatureBatch;
use crate::ids::{Hash, Owner};
use crate::rules::admission::Request;
use crate::rules::run::State;
use crate::store::{self, RunRow};

/// Values are shown up to this many rows.
const VALUES_SHOWN_MAX: u64 = 1_000;
/// How often we look at a run that somebody else is carrying.
const LOOK: Duration = Duration::from_millis(100);

/// A run that is over.
#[derive(Clone, Debug, Serialize)]
pub struct RunOnce {
    pub run_id: String,
    pub state: String,
    pub fence: i64,
    pub run_revision: i64,
    pub result: ResultView,
    /// It was published before this command came.
    pub already_done: bool,
    /// `EQUAL` or `DIFFERS`, when the flow names a golden and ran over its own snapshot.
    pub golden: Option<&'static str>,
    /// The epoch, where it was published here and now.
    #[serde(skip)]
    pub(super) ours: Option<i64>,
}

/// A result, with its values when they are few.
#[derive(Clone, Debug, Serialize)]
pub struct ResultView {
    /// The FeatureBatch in the artifact store.
    #[serde(rename = "ref")]
    pub blob: Hash,
    pub values_hash: Hash,
    pub rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Box<serde_json::value::RawValue>>,
    pub series: Vec<SeriesView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SeriesView {
    pub instrument: String,
    pub node: String,
    pub rows: u64,
    pub values_hash: Hash,
    /// The last value, for people: the indicator as it stands.
    pub last: Option<f64>,
}

impl ResultView {
    pub(super) fn of(blob: Hash, batch: &FeatureBatch) -> Self {
        let values = (batch.rows() <= VALUES_SHOWN_MAX).then(|| {
            let text =
                String::from_utf8(batch.values_bytes().to_vec()).expect("FINAZ_JSON_V1 is UTF-8");
            serde_json::value::RawValue::from_string(text).expect("FINAZ_JSON_V1 is JSON")
        });
        let series = batch
            .series
            .iter()
            .map(|series| SeriesView {
                instrument: series.instrument.clone(),
                node: series.node.clone(),
                rows: u64::try_from(series.values.len()).unwrap_or(u64::MAX),
                values_hash: series.values_hash,
                last: series.values.last().copied().filter(|value| value.is_finite()),
            })
            .collect();
        Self { blob, values_hash: batch.values_hash, rows: batch.rows(), values, series }
    }
}

/// Admits a run and carries it to its end here. One that is published already is shown as it is; one that
/// somebody else is carrying is waited for.
///
/// A stop gives the run back to the queue and releases its lease.
pub async fn run_once(
    control: &Control,
    request: &AdmitRequest,
    mut stop: watch::Receiver<Stop>,
) -> Result<RunOnce, Error> {
    let named = resolve(control, request)?;
    let flow = inputs::load_flow(control, &request.flow)?;
    let golden = inputs::golden_for(control, &flow, named.snapshot);
    let rooms = control.rooms().await?;
    to_its_end(control, &rooms, &named, golden, &mut stop).await
}

/// Admits a run, carries it to its end, and holds what it came to against the golden.
pub(super) async fn to_its_end(
    control: &Control,
    rooms: &Rooms,
    named: &Request,
    golden: Option<Hash>,
    stop: &mut watch::Receiver<Stop>,
) -> Result<RunOnce, Error> {
    let admitted = admit_one(&rooms.store, named, false).await?;
    let already_done = admitted.state == State::Succeeded.name();
    let (row, ours) = if already_done {
        (find(control, &admitted.run_id).await?, false)
    } else {
        carry(control, rooms, (admitted.run_no, &admitted.run_id), stop).await?
    };
    match row.state.as_str() {
        "FAILED" => {
            Err(Error::RunFailed { run_id: row.run_id, error: row.error.unwrap_or_default() })
        }
        "CANCELLED" => Err(Error::RunCancelled { run_id: row.run_id }),
        _ => report(rooms, row, (already_done, ours), golden),
    }
}

/// Claims the run and processes it, or waits for whoever has it; sweeps, so that a dead owner is not waited for. Also says
/// whether it was us who published it.
async fn carry(
    control: &Control,
    rooms: &Rooms,
    (run_no, run_id): (i64, &str),
    stop: &mut watch::Receiver<Stop>,
) -> Result<(RunRow, bool), Error> {
    let mut ours = false;
    let owner = Owner::of_process(&control.settings.owner);
    let ttl = control.settings.lease_ttl;
    let heart = Heart::start(control.second_store()?, owner.clone(), ttl);
    loop {
        if let Some(claim) = rooms.store.claim_one(&owner, ttl, run_no).await? {
            let kept = heart.keep(claim.lease_no);
            let gates = Gates::new();
            // Its lease is over by then, and nothing that it did could be published.
            let limit = ttl + control.settings.service_timeout;
            tokio::select! {
                () = heart.is_unheard_for(limit) => {
                    let place = rooms.store.place().to_owned();
                    let why = "no renewal of the lease was answered".to_owned();
                    return Err(store::Error::Away { place, why }.into());
                }
                done = rooms.process(&claim, &gates) => ours = done?.succeeded > 0,
                signal = stopped(stop) => {
                    let error = Error::Interrupted { signal };
                    rooms.give_back(&claim, &error).await;
                    return Err(error);
                }
            }
            drop(kept);
            // Still ours though over: our lease ran out, and no sweep of ours takes it.
            rooms.store.give_back_own(&owner, &[]).await?;
        }
        let row = find(control, run_id).await?;
        if row.state.parse::<State>().is_ok_and(State::is_final) {
            return Ok((row, ours));
        }
        rooms.store.sweep_orphans(&owner, ttl).await?;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            signal = stopped(stop) => return Err(Error::Interrupted { signal }),
        }
    }
}

/// Resolves when somebody wants us to stop, with the signal.
pub(super) async fn stopped(stop: &mut watch::Receiver<Stop>) -> i32 {
    loop {
        if let Stop::Drain(signal) | Stop::Now(signal) = *stop.borrow_and_update() {
            return signal;
        }
        if stop.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn report(
    rooms: &Rooms,
    row: RunRow,
    (already_done, ours): (bool, bool),
    golden: Option<Hash>,
) -> Result<RunOnce, Error> {
    let Some((epoch, fence, blob, ..)) = row.publication else {
        return Err(Error::NotPublished { run_id: row.run_id, state: row.state });
    };
    let bytes = rooms.artifacts.get(&blob)?;
    let batch = FeatureBatch::from_blob(&bytes, &blob.to_string())?;
    let golden = golden.map(|golden| if golden == batch.values_hash { "EQUAL" } else { "DIFFERS" });
    Ok(RunOnce {
        run_id: row.run_id,
        state: row.state,
        fence,
        run_revision: row.run_revision,
        result: ResultView::of(blob, &batch),
        already_done,
        golden,
        ours: ours.then_some(epoch),
    })
}
