//! The daemon: claims batches, keeps several in flight, sweeps orphans, and stops cleanly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::batch::{Gates, Outcome, Rooms};
use super::heart::{Heart, Kept};
use super::{Control, Error};
use crate::ids::Owner;
use crate::points::{Point, reach};
use crate::rules::queue::Floor;
use crate::store::{Claim, Store};

/// Batches in flight: one in each stage (compute, stage, publish) and one being claimed.
const IN_FLIGHT_MAX: u32 = 4;
/// Sweeps after which events of old runs are looked at too, not only of the newest.
const FULL_SWEEP: u32 = 120;
const SWEEP_MAX: Duration = Duration::from_secs(5);
/// How long the end waits for a sweep under way.
const SWEEP_AWAITED: Duration = Duration::from_secs(1);
const SWEEP_MIN: Duration = Duration::from_millis(100);
/// While a service is away nothing is claimed for this long, doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How a worker works.
#[derive(Clone, Copy, Debug)]
pub struct WorkerRequest {
    /// Stop when the queue is empty and nobody holds a run any more.
    pub drain: bool,
    /// Runs in one claim.
    pub batch: u32,
}

/// What a worker did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkerReport {
    pub owner: String,
    pub claimed: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Orphans of dead owners that it returned to the queue.
    pub recovered: u64,
    /// Orphans that had killed too many owners.
    pub poisoned: u64,
    /// Effects that a fence refused.
    pub stale: u64,
    pub seconds: f64,
}

/// How far a stop has gone.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stop {
    No,
    /// Claim nothing more; finish and release what is in flight. The signal that asked for it.
    Drain(i32),
    /// At once.
    Now(i32),
}

#[derive(Debug, Default)]
struct Counts {
    claimed: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    stale: AtomicU64,
    recovered: AtomicU64,
    poisoned: AtomicU64,
}

impl Counts {
    fn add(&self, outcome: Outcome) {
        self.succeeded.fetch_add(outcome.succeeded, Ordering::Relaxed);
        self.failed.fetch_add(outcome.failed, Ordering::Relaxed);
        self.cancelled.fetch_add(outcome.cancelled, Ordering::Relaxed);
        self.stale.fetch_add(outcome.stale, Ordering::Relaxed);
    }
}

/// A service that is away: since when, and how often that was met.
struct Away {
    since: Instant,
    times: u32,
}

struct Worker {
    rooms: Rooms,
    owner: Owner,
    ttl: Duration,
    poll: Duration,
    request: WorkerRequest,
    /// Who drains is waited for by somebody: a service that is away this long ends it, and the runs stay queued.
    patience: Duration,
    gates: Gates,
    heart: Heart,
    counts: Counts,
    in_flight: Arc<Semaphore>,
    wake: Notify,
    /// Held from a claim to the start of its renewal, so that the sweep does not take it for a lost one.
    claiming: tokio::sync::Mutex<()>,
    /// Held while a sweep is made and counted.
    sweeping: tokio::sync::Mutex<()>,
    away: Mutex<Option<Away>>,
    /// What no retry can mend; ends the worker.
    fatal: Mutex<Option<Error>>,
    failed: Notify,
}

/// Works until told to stop, or until the queue is empty when draining.
pub async fn work(
    control: &Control,
    request: WorkerRequest,
    stop: watch::Receiver<Stop>,
) -> Result<WorkerReport, Error> {
    let started = Instant::now();
    let Some(rooms) = open_rooms(control, request, stop.clone()).await? else {
        return Ok(WorkerReport::default());
    };
    let owner = Owner::of_process(&control.settings.owner);
    // A pool of its own: work that has all sessions must not keep a lease from being renewed.
    let heart = Heart::start(control.second_store()?, owner.clone(), control.settings.lease_ttl);
    let worker = Arc::new(Worker {
        rooms,
        owner: owner.clone(),
        ttl: control.settings.lease_ttl,
        poll: control.settings.worker_poll,
        request,
        patience: control.settings.service_timeout,
        gates: Gates::new(),
        heart,
        counts: Counts::default(),
        in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX as usize)),
        wake: Notify::new(),
        claiming: tokio::sync::Mutex::new(()),
        sweeping: tokio::sync::Mutex::new(()),
        away: Mutex::new(None),
        fatal: Mutex::new(None),
        failed: Notify::new(),
    });
    reach(Point::WorkerReady);
    let helpers =
        [tokio::spawn(sweep(Arc::clone(&worker))), tokio::spawn(listen(Arc::clone(&worker)))];
    let ended = supervise(&worker, stop.clone()).await;
    if ended.is_ok() {
        // What a sweep has committed belongs into the report; one that hangs does not keep us.
        let _late = tokio::time::timeout(SWEEP_AWAITED, worker.sweeping.lock()).await;
    }
    for helper in &helpers {
        helper.abort();
    }
    ended?;
    reach(Point::WorkerDrained);
    if let (true, Stop::Drain(signal)) = (request.drain, *stop.borrow())
        && worker.rooms.store.has_work().await?
    {
        // Asked to empty the queue and told to stop before it was.
        return Err(Error::Interrupted { signal });
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = &worker.counts;
    Ok(WorkerReport {
        owner: owner.token().to_owned(),
        claimed: count(&counts.claimed),
        succeeded: count(&counts.succeeded),
        failed: count(&counts.failed),
        cancelled: count(&counts.cancelled),
        recovered: count(&counts.recovered),
        poisoned: count(&counts.poisoned),
        stale: count(&counts.stale),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Opens what a run passes through. A daemon waits for a service that is away; who drains gives up in time.
async fn open_rooms(
    control: &Control,
    request: WorkerRequest,
    mut stop: watch::Receiver<Stop>,
) -> Result<Option<Rooms>, Error> {
    let started = Instant::now();
    let patience = control.settings.service_timeout;
    let mut pause = PAUSE_MIN;
    loop {
        if *stop.borrow_and_update() != Stop::No {
            return Ok(None);
        }
        match control.rooms().await {
            Ok(rooms) => return Ok(Some(rooms)),
            Err(error) if !error.is_away() => return Err(error),
            Err(error) if request.drain && started.elapsed() >= patience => {
                return Err(error);
            }
            Err(error) => tracing::warn!(%error, "waiting for a service"),
        }
        tokio::select! {
            () = tokio::time::sleep(jittered(pause)) => {}
            _changed = stop.changed() => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Runs the loop until it ends by itself, is told to stop, or cannot go on.
async fn supervise(worker: &Arc<Worker>, mut stop: watch::Receiver<Stop>) -> Result<(), Error> {
    let draining = stop.clone();
    let claiming = claim_loop(worker, draining);
    tokio::pin!(claiming);
    let cut = tokio::select! {
        done = &mut claiming => { done?; None }
        signal = stopped_now(&mut stop) => Some(Error::Interrupted { signal }),
        () = worker.failed.notified() => worker.take_fatal(),
    };
    if let Some(error) = cut {
        return Err(error);
    }
    // What is in flight is finished and released before we go.
    let drained = worker.in_flight.acquire_many(IN_FLIGHT_MAX);
    tokio::select! {
        all = drained => drop(all.expect("never closed")),
        signal = stopped_now(&mut stop) => return Err(Error::Interrupted { signal }),
    }
    worker.take_fatal().map_or(Ok(()), Err)
}

async fn stopped_now(stop: &mut watch::Receiver<Stop>) -> i32 {
    loop {
        if let Stop::Now(signal) = *stop.borrow_and_update() {
            return signal;
        }
        if stop.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Claims while there is something to claim and a place for it; the place comes first, so that no lease waits.
async fn claim_loop(worker: &Arc<Worker>, mut stop: watch::Receiver<Stop>) -> Result<(), Error> {
    let mut floor = Floor::default();
    loop {
        if *stop.borrow_and_update() != Stop::No {
            return Ok(());
        }
        worker.pause(&mut stop).await;
        let place = Arc::clone(&worker.in_flight).acquire_owned().await.expect("never closed");
        let from = floor.begin();
        match worker.claim(from).await {
            Ok(Some((claim, kept))) => {
                floor.found(from, claim.runs.first().map(|run| run.event_id));
                worker.launch(claim, kept, place);
            }
            Ok(None) if floor.missed(from) => {}
            Ok(None) => {
                drop(place);
                // The database answers and nothing was given back: whoever comes next need not wait.
                *locked(&worker.away) = None;
                if worker.suspect().await? {
                    continue;
                }
                if worker.request.drain && worker.is_drained().await {
                    return Ok(());
                }
                worker.wait(&mut stop).await;
            }
            Err(error) => {
                drop(place);
                worker.met(error)?;
            }
        }
    }
}

impl Worker {
    async fn claim(&self, floor: i64) -> Result<Option<(Claim, Kept)>, Error> {
        let batch = i64::from(self.request.batch);
        let _claiming = self.claiming.lock().await;
        let claim = self.rooms.store.claim(&self.owner, self.ttl, batch, floor).await?;
        Ok(claim.map(|claim| {
            let kept = self.heart.keep(claim.lease_no);
            (claim, kept)
        }))
    }

    /// Carries a claim in a task of its own; the lease is renewed for exactly as long.
    fn launch(self: &Arc<Self>, claim: Claim, kept: Kept, place: OwnedSemaphorePermit) {
        let worker = Arc::clone(self);
        tokio::spawn(async move {
            worker.carry(&claim, kept).await;
            drop(place);
            worker.wake.notify_one();
        });
    }

    async fn carry(&self, claim: &Claim, kept: Kept) {
        let runs = u64::try_from(claim.runs.len()).unwrap_or(u64::MAX);
        self.counts.claimed.fetch_add(runs, Ordering::Relaxed);
        reach(Point::ClaimKept);
        let done = self.rooms.process(claim, &self.gates).await;
        drop(kept);
        reach(Point::BatchDone);
        match done {
            Ok(outcome) => {
                *locked(&self.away) = None;
                self.counts.add(outcome);
            }
            Err(error) => {
                if let Err(fatal) = self.met(error) {
                    tracing::error!(%fatal, "the worker cannot go on");
                    *locked(&self.fatal) = Some(fatal);
                    self.failed.notify_one();
                }
            }
        }
    }

    /// Takes one run that an owner died with, with nothing else in flight: if it kills again, it kills alone.
    async fn suspect(self: &Arc<Self>) -> Result<bool, Error> {
        let alone = self.in_flight.acquire_many(IN_FLIGHT_MAX).await.expect("never closed");
        let claiming = self.claiming.lock().await;
        let claimed = self.rooms.store.claim_suspect(&self.owner, self.ttl).await;
        match claimed {
            Ok(Some(claim)) => {
                let kept = self.heart.keep(claim.lease_no);
                drop(claiming);
                self.carry(&claim, kept).await;
                drop(alone);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => self.met(error.into()).map(|()| false),
        }
    }

    /// What an error means for the worker: away is waited for, the rest ends it.
    fn met(&self, error: Error) -> Result<(), Error> {
        if !error.is_away() && !matches!(error, Error::Panicked { .. }) {
            return Err(error);
        }
        let mut away = locked(&self.away);
        match &mut *away {
            Some(away) if self.request.drain && away.since.elapsed() >= self.patience => {
                return Err(error);
            }
            Some(away) => away.times += 1,
            None => {
                tracing::warn!(%error, "waiting for a service");
                *away = Some(Away { since: Instant::now(), times: 1 });
            }
        }
        Ok(())
    }

    fn take_fatal(&self) -> Option<Error> {
        locked(&self.fatal).take()
    }

    /// While a service is away the queue is left alone, longer each time.
    async fn pause(&self, stop: &mut watch::Receiver<Stop>) {
        let Some(times) = locked(&self.away).as_ref().map(|away| away.times) else { return };
        let doubled = PAUSE_MIN.saturating_mul(1 << times.min(6));
        let wait = jittered(doubled.min(PAUSE_MAX));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _changed = stop.changed() => {}
        }
    }

    /// Waits for a wake-up, the next poll, or the order to stop.
    async fn wait(&self, stop: &mut watch::Receiver<Stop>) {
        tokio::select! {
            () = self.wake.notified() => {}
            () = tokio::time::sleep(jittered(self.poll)) => {}
            _changed = stop.changed() => {}
        }
    }

    /// Whether nothing is left to do: nothing in flight here, nothing queued, nobody holding a run.
    async fn is_drained(&self) -> bool {
        let Ok(_alone) = self.in_flight.try_acquire_many(IN_FLIGHT_MAX) else { return false };
        match self.rooms.store.has_work().await {
            Ok(work) => !work,
            Err(error) => {
                tracing::debug!(%error, "is the queue empty?");
                false
            }
        }
    }

    /// Before any sweep: what we merely lost track of is no orphan.
    async fn give_back_lost(&self) -> Result<u64, Error> {
        let _claiming = self.claiming.lock().await;
        Ok(self.rooms.store.give_back_own(&self.owner, &self.heart.kept()).await?)
    }

    fn sweep_period(&self) -> Duration {
        (self.ttl / 3).clamp(SWEEP_MIN, SWEEP_MAX)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Up to a fifth less: workers that started together do not poll together for ever.
fn jittered(period: Duration) -> Duration {
    let draw = uuid::Uuid::new_v4().as_bytes()[0];
    period.mul_f64(1.0 - f64::from(draw) / 1280.0)
}

/// Returns the runs of dead owners to the queue, at start and periodically.
async fn sweep(worker: Arc<Worker>) {
    let (mut floor, mut sweeps) = (0, 0);
    loop {
        sweeps = (sweeps + 1) % FULL_SWEEP;
        match worker.give_back_lost().await {
            Ok(0) => {}
            Ok(runs) => tracing::info!(runs, "given back: we had lost track of them"),
            Err(error) => tracing::debug!(%error, "nothing given back"),
        }
        let from = if sweeps == 0 { 0 } else { floor };
        let sweeping = worker.sweeping.lock().await;
        match sweep_once(&worker.rooms.store, (&worker.owner, worker.ttl), from).await {
            Ok((swept, next)) => {
                floor = next;
                worker.counts.recovered.fetch_add(swept.requeued, Ordering::Relaxed);
                worker.counts.poisoned.fetch_add(swept.poisoned, Ordering::Relaxed);
                if swept != crate::store::Swept::default() {
                    tracing::info!(?swept, "orphans returned to the queue");
                    worker.wake.notify_one();
                }
            }
            Err(error) => tracing::debug!(%error, "no sweep"),
        }
        drop(sweeping);
        tokio::time::sleep(jittered(worker.sweep_period())).await;
    }
}

pub(super) async fn sweep_once(
    store: &Store,
    (sweeper, ttl): (&Owner, Duration),
    floor: i64,
) -> Result<(crate::store::Swept, i64), Error> {
    let mut swept = store.sweep_orphans(sweeper, ttl).await?;
    let (mended, next) = store.mend_events(floor).await?;
    swept.mended = mended;
    Ok((swept, next))
}

/// Turns notifications into wake-ups; a session that broke or fell silent is opened again.
async fn listen(worker: Arc<Worker>) {
    loop {
        if let Ok(mut listener) = worker.rooms.store.listen().await {
            // What came while nobody listened.
            worker.wake.notify_one();
            loop {
                match tokio::time::timeout(SWEEP_MAX, listener.wait()).await {
                    Ok(true) => worker.wake.notify_one(),
                    Ok(false) => break,
                    Err(_quiet) if listener.is_alive().await => {}
                    Err(_quiet) => break,
                }
            }
        }
        tokio::time::sleep(jittered(Duration::from_secs(1))).await;
    }
}
