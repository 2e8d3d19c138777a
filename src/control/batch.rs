//! One claimed batch, from the artifact store through the nodes to the fenced publication.
//!
//! Used by the worker for many runs and by `run-once` for one. Nothing here decides whether a run is still
//! ours: every write asks the database.

use std::collections::HashMap;
use std::io::{BufReader, Cursor};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::Error;
use crate::artifacts::{self, Artifacts};
use crate::flow::{self, FeatureBatch, Flow};
use crate::ids::Hash;
use crate::points::{Point, reach};
use crate::store::{self, Claim, ClaimedRun, Ended, RunResult, Store, TakenOn};
use crate::warehouse::{StagedRun, Warehouse};

/// Snapshots up to this many bytes are kept in memory while runs over them come in.
const SNAPSHOT_KEPT_BYTES_MAX: u64 = 32 << 20;
/// Bytes of snapshots, and flows, kept from batch to batch.
const KEPT_BYTES_MAX: usize = 64 << 20;
const FLOWS_KEPT_MAX: usize = 1_000;

/// The rooms that a batch passes through.
#[derive(Clone, Debug)]
pub(super) struct Rooms {
    pub store: Store,
    pub artifacts: Arc<Artifacts>,
    /// `None`: results are in the artifact store alone.
    pub warehouse: Option<Warehouse>,
    kept: Arc<Mutex<Kept>>,
    ready: Option<Arc<Ready>>,
}

/// A result that was computed before its run is claimed: taken on from a checkpoint.
#[derive(Debug)]
pub(super) struct Ready {
    shared: Shared,
    taken_on: TakenOn,
}

impl Ready {
    pub(super) fn new(batch: FeatureBatch, taken_on: TakenOn) -> Self {
        Self { shared: Shared::new(batch), taken_on }
    }

    /// Of its blob.
    pub(super) fn hash(&self) -> Hash {
        self.shared.hash
    }
}

/// What batches have in common, read and verified once.
#[derive(Debug, Default)]
struct Kept {
    flows: HashMap<Hash, Arc<Flow>>,
    snapshots: HashMap<Hash, Arc<Vec<u8>>>,
    bytes: usize,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Outcome {
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Refused by the fence: somebody else owns the run now.
    pub stale: u64,
}

/// Why a run has no result.
enum Unable {
    /// The run itself is at fault: it would fail the same way again.
    Run(String),
    /// The machine is: a full disk, an unreadable folder. The run is not at fault.
    Machine(artifacts::Error),
}

struct Computed {
    run: ClaimedRun,
    batch: Arc<FeatureBatch>,
    blob: Arc<Vec<u8>>,
    hash: Hash,
}

/// Results of a batch and the runs that have none.
#[derive(Default)]
struct Work {
    computed: Vec<Computed>,
    failed: Vec<(i64, i64, Option<String>)>,
}

impl Rooms {
    pub(super) fn new(
        store: Store,
        artifacts: Arc<Artifacts>,
        warehouse: Option<Warehouse>,
    ) -> Self {
        Self { store, artifacts, warehouse, kept: Arc::default(), ready: None }
    }

    /// The same, for one run of which the result is there.
    pub(super) fn with(self, ready: Ready) -> Self {
        Self { ready: Some(Arc::new(ready)), ..self }
    }

    /// Carries a claim to its end. On an error the runs are given back first, if they are still ours.
    pub(super) async fn process(&self, claim: &Claim, gates: &Gates) -> Result<Outcome, Error> {
        match self.carry(claim, gates).await {
            Ok(outcome) => Ok(outcome),
            Err(error) => {
                self.give_back(claim, &error).await;
                Err(error)
            }
        }
    }

    async fn carry(&self, claim: &Claim, gates: &Gates) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        let (cancelled, runs): (Vec<_>, Vec<_>) =
            claim.runs.iter().cloned().partition(|run| run.cancel_requested);
        let ended = self.end(claim, &cancelled, Ended::Cancelled).await?;
        outcome.cancelled += count(ended);
        let mut since = Instant::now();
        let work = {
            let _turn = gates.compute.acquire().await.expect("never closed");
            let rooms = self.clone();
            // A panic in the work is the work's: the guard of its lease goes with it, and the sweep finds the runs.
            tokio::task::spawn_blocking(move || rooms.compute(runs))
                .await
                .map_err(|panic| Error::Panicked { what: panic.to_string() })?
        };
        let work = work.map_err(Error::Artifacts)?;
        let compute_us = lap(&mut since);
        if !work.failed.is_empty() {
            let ended = self.store.finish(claim, &work.failed, Ended::Failed).await?;
            outcome.failed += count(ended.len());
            let lost = lost(work.failed.iter().map(|run| run.0), &ended);
            outcome.stale += self.refuse(claim, "failure", &lost).await?;
        }
        if work.computed.is_empty() {
            self.store.close(claim).await?;
            return Ok(outcome);
        }
        let staged = self.stage(claim, &work.computed, gates).await?;
        reach(Point::BatchStaged);
        let stage_us = lap(&mut since);
        let _turn = gates.publish.acquire().await.expect("never closed");
        self.publish(claim, &work.computed, staged, &mut outcome).await?;
        let publish_us = lap(&mut since);
        tracing::debug!(
            runs = claim.runs.len(),
            compute_us,
            stage_us,
            publish_us,
            "a batch is done"
        );
        Ok(outcome)
    }

    /// Publishes what was computed. A run that is published with another content already is FAILED and says so;
    /// the others go on.
    async fn publish(
        &self,
        claim: &Claim,
        computed: &[Computed],
        staged: Instant,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let mut results: Vec<RunResult> = computed.iter().map(result).collect();
        let taken_on = self.ready.as_ref().map(|ready| &ready.taken_on);
        loop {
            let ago = staged.elapsed().as_secs_f64();
            let conflict = match self.store.publish(claim, &results, (ago, true), taken_on).await {
                Ok(done) => {
                    outcome.succeeded += count(done.published.len());
                    outcome.cancelled += count(done.cancelled.len());
                    outcome.stale += self.refuse(claim, "publication", &done.left).await?;
                    return Ok(());
                }
                Err(conflict @ store::Error::PublicationConflict { .. }) => conflict,
                Err(error) => return Err(error.into()),
            };
            let said = format!("PUBLICATION_CONFLICT: {conflict}");
            let store::Error::PublicationConflict { run_id, .. } = conflict else { continue };
            let (other, rest): (Vec<_>, Vec<_>) =
                results.into_iter().partition(|result| result.run_id == run_id);
            let failed: Vec<_> = other
                .iter()
                .map(|result| (result.run_no, result.fence, Some(said.clone())))
                .collect();
            outcome.failed += count(self.store.finish(claim, &failed, Ended::Failed).await?.len());
            results = rest;
        }
    }

    /// Ends runs of the claim without a result; gives how many were still ours.
    async fn end(&self, claim: &Claim, runs: &[ClaimedRun], how: Ended) -> Result<usize, Error> {
        if runs.is_empty() {
            return Ok(0);
        }
        let runs: Vec<_> = runs.iter().map(|run| (run.run_no, run.fence, None)).collect();
        Ok(self.store.finish(claim, &runs, how).await?.len())
    }

    /// Records what the fence refused; gives how many.
    async fn refuse(&self, claim: &Claim, effect: &str, run_nos: &[i64]) -> Result<u64, Error> {
        if !run_nos.is_empty() {
            tracing::warn!(runs = run_nos.len(), effect, "refused: another owner has these runs");
            self.store.record_refused(claim, effect, run_nos).await?;
        }
        Ok(count(run_nos.len()))
    }

    /// Puts the runs of a failed attempt back into the queue. Without a database they are the sweep's.
    pub(super) async fn give_back(&self, claim: &Claim, error: &Error) {
        if matches!(error, Error::Panicked { .. }) {
            tracing::error!(%error, runs = claim.runs.len(), "left to the sweep");
            if let Err(error) = self.store.disown(claim).await {
                tracing::debug!(%error, "the lease runs out by itself");
            }
            return;
        }
        let why = Some(error.to_string());
        let runs: Vec<_> =
            claim.runs.iter().map(|run| (run.run_no, run.fence, why.clone())).collect();
        match self.store.finish(claim, &runs, Ended::GivenBack).await {
            Ok(given) => {
                tracing::warn!(runs = given.len(), %error, "given back to the queue");
                if let Err(error) = self.store.close(claim).await {
                    tracing::debug!(%error, "the lease runs out by itself");
                }
            }
            Err(lost) => tracing::warn!(%error, %lost, "left to the sweep"),
        }
    }

    /// Makes the results durable: one round for the artifact store and one insert, side by side.
    async fn stage(
        &self,
        claim: &Claim,
        computed: &[Computed],
        gates: &Gates,
    ) -> Result<Instant, Error> {
        let _turn = gates.stage.acquire().await.expect("never closed");
        let artifacts = Arc::clone(&self.artifacts);
        let mut blobs: Vec<(Hash, Arc<Vec<u8>>)> =
            computed.iter().map(|computed| (computed.hash, Arc::clone(&computed.blob))).collect();
        blobs.sort_unstable_by_key(|blob| blob.0);
        blobs.dedup_by_key(|blob| blob.0);
        let keep = tokio::task::spawn_blocking(move || {
            let blobs: Vec<Vec<u8>> = blobs.into_iter().map(|blob| blob.1.to_vec()).collect();
            artifacts.put_many(&blobs)
        });
        let mut since = Instant::now();
        let rows = async {
            match &self.warehouse {
                Some(warehouse) => warehouse.stage(&staged_runs(claim, computed)).await,
                None => Ok(()),
            }
        };
        let mut artifacts_since = since;
        let keep = async { (keep.await, lap(&mut artifacts_since)) };
        let rows = async { (rows.await, lap(&mut since)) };
        let ((kept, artifacts_us), (staged, warehouse_us)) = tokio::join!(keep, rows);
        tracing::debug!(artifacts_us, warehouse_us, "staged");
        kept.map_err(|panic| Error::Panicked { what: panic.to_string() })?
            .map_err(Error::Artifacts)?;
        staged.map_err(Error::Warehouse)?;
        Ok(Instant::now())
    }

    /// Computes every run; runs over the same flow and snapshot share one result.
    fn compute(&self, runs: Vec<ClaimedRun>) -> Result<Work, artifacts::Error> {
        let mut work = Work::default();
        let mut shared: HashMap<(Hash, Hash), Result<Shared, String>> = HashMap::new();
        for run in runs {
            let key = (run.flow, run.snapshot);
            let known = match shared.get(&key) {
                Some(known) => known.clone(),
                None => {
                    let fresh = match self.compute_one(run.flow, run.snapshot) {
                        Ok(shared) => Ok(shared),
                        Err(Unable::Run(why)) => Err(why),
                        Err(Unable::Machine(error)) => return Err(error),
                    };
                    shared.insert(key, fresh.clone());
                    fresh
                }
            };
            match known {
                Ok(Shared { batch, blob, hash }) => {
                    work.computed.push(Computed { run, batch, blob, hash });
                }
                Err(why) => work.failed.push((run.run_no, run.fence, Some(why))),
            }
        }
        Ok(work)
    }

    fn compute_one(&self, flow: Hash, snapshot: Hash) -> Result<Shared, Unable> {
        if let Some(ready) = &self.ready {
            return Ok(ready.shared.clone());
        }
        let flow = self.flow(flow)?;
        reach(Point::FlowRead);
        let place = snapshot.to_string();
        let projection = if let Some(body) = self.snapshot(snapshot)? {
            reach(Point::SnapshotRead);
            flow::project(&flow, &mut Cursor::new(body.as_slice()), &place)
        } else {
            let mut reader = BufReader::new(self.artifacts.reader(&snapshot).map_err(at_fault)?);
            let projection = flow::project(&flow, &mut reader, &place);
            // A damaged body may look like a bad event: the hash has the first word.
            reader.into_inner().finish().map_err(at_fault)?;
            projection
        };
        let projection = projection.map_err(unprojected)?;
        reach(Point::SnapshotProjected);
        let batch = flow::compute(&flow, snapshot, &projection);
        reach(Point::NodesComputed);
        batch.map(Shared::new).map_err(|invalid| invalid_run(&invalid))
    }

    fn flow(&self, hash: Hash) -> Result<Arc<Flow>, Unable> {
        if let Some(known) = self.kept().flows.get(&hash) {
            return Ok(Arc::clone(known));
        }
        let bytes = self.artifacts.get(&hash).map_err(at_fault)?;
        let flow =
            Flow::parse(&bytes, &hash.to_string()).map_err(|invalid| invalid_run(&invalid))?;
        let flow = Arc::new(flow);
        let mut kept = self.kept();
        if kept.flows.len() >= FLOWS_KEPT_MAX {
            kept.flows.clear();
        }
        kept.flows.insert(hash, Arc::clone(&flow));
        Ok(flow)
    }

    /// A snapshot's body in memory; `None` when it is too large for that.
    fn snapshot(&self, hash: Hash) -> Result<Option<Arc<Vec<u8>>>, Unable> {
        if let Some(known) = self.kept().snapshots.get(&hash) {
            return Ok(Some(Arc::clone(known)));
        }
        let read = self.artifacts.get_within(&hash, SNAPSHOT_KEPT_BYTES_MAX).map_err(at_fault)?;
        let Some(body) = read else { return Ok(None) };
        let body = Arc::new(body);
        let mut kept = self.kept();
        if kept.bytes + body.len() > KEPT_BYTES_MAX {
            kept.snapshots.clear();
            kept.bytes = 0;
        }
        kept.bytes += body.len();
        kept.snapshots.insert(hash, Arc::clone(&body));
        Ok(Some(body))
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Microseconds since the last lap.
fn lap(since: &mut Instant) -> u128 {
    let now = Instant::now();
    now.duration_since(std::mem::replace(since, now)).as_micros()
}

/// Lets one batch at a time into each stage, so that several are in flight without fighting over it.
#[derive(Debug)]
pub(super) struct Gates {
    compute: tokio::sync::Semaphore,
    stage: tokio::sync::Semaphore,
    publish: tokio::sync::Semaphore,
}

impl Gates {
    pub(super) fn new() -> Self {
        let gate = || tokio::sync::Semaphore::new(1);
        Self { compute: gate(), stage: gate(), publish: gate() }
    }
}

/// A result, as the runs over one flow and snapshot share it.
#[derive(Clone, Debug)]
struct Shared {
    batch: Arc<FeatureBatch>,
    blob: Arc<Vec<u8>>,
    hash: Hash,
}

impl Shared {
    fn new(batch: FeatureBatch) -> Self {
        let blob = batch.to_blob();
        Self { hash: Hash::of(&blob), blob: Arc::new(blob), batch: Arc::new(batch) }
    }
}

fn result(computed: &Computed) -> RunResult {
    RunResult {
        run_no: computed.run.run_no,
        run_id: computed.run.run_id.clone(),
        fence: computed.run.fence,
        blob: computed.hash,
        values_hash: computed.batch.values_hash,
        rows: i64::try_from(computed.batch.rows()).expect("rows of a result fit"),
    }
}

fn staged_runs<'a>(claim: &Claim, computed: &'a [Computed]) -> Vec<StagedRun<'a>> {
    let staged = |computed: &'a Computed| StagedRun {
        run_no: computed.run.run_no,
        run_id: &computed.run.run_id,
        epoch: claim.epoch,
        fence: computed.run.fence,
        series: super::reconcile::series(&computed.batch),
    };
    computed.iter().map(staged).collect()
}

fn lost(run_nos: impl Iterator<Item = i64>, kept: &[i64]) -> Vec<i64> {
    run_nos.filter(|run_no| !kept.contains(run_no)).collect()
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn unprojected(error: flow::Error) -> Unable {
    match error {
        flow::Error::Invalid(invalid) => invalid_run(&invalid),
        flow::Error::Io { place, source } => {
            Unable::Machine(artifacts::Error::Io { place, source })
        }
    }
}

fn invalid_run(invalid: &crate::invalid::Invalid) -> Unable {
    Unable::Run(format!("{}: {invalid}", invalid.code))
}

/// Whose fault a failed read is: a blob that is missing or damaged is the run's, the rest the machine's.
fn at_fault(error: artifacts::Error) -> Unable {
    if matches!(error, artifacts::Error::Missing { .. }) {
        return Unable::Run(format!("ARTIFACT_MISSING: {error}"));
    }
    if matches!(error, artifacts::Error::Corrupt { .. } | artifacts::Error::PackCorrupt { .. }) {
        return Unable::Run(format!("ARTIFACT_CORRUPT: {error}"));
    }
    Unable::Machine(error)
}
