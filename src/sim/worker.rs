//! A worker: claims batches, carries them, renews its leases, sweeps what others left. The steps and their order are
//! those of `control/worker.rs` and `control/batch.rs`; what they decide is decided by the same rules.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use super::Mistake;
use super::kernel::{Kernel, Taken, Turn};
use super::seen::Seen;
use super::world::{Fault, Proc};
use crate::flow::{self, FeatureBatch, Flow};
use crate::ids::{Hash, Owner};
use crate::rules::queue::Floor;
use crate::rules::settle::{self, Next, Told};
use crate::store::{Claim, ClaimedRun, Ended, Error, Published, RunResult, Swept};

/// Sweeps after which events of old runs are looked at too.
const FULL_SWEEP: u32 = 120;
const SWEEP_MAX: u64 = 5_000_000;
const SWEEP_MIN: u64 = 100_000;
const PAUSE_MIN: u64 = 200_000;
const PAUSE_MAX: u64 = 5_000_000;

/// What a worker knows.
struct Worker {
    me: Proc,
    owner: Owner,
    ttl: Duration,
    kept: RefCell<BTreeSet<i64>>,
    in_flight: Cell<u64>,
    claiming: Turn,
    /// How often a service was met that is away.
    away: Cell<u32>,
    drains: Rc<Cell<bool>>,
}

/// A lease that is renewed until this is dropped.
struct Kept {
    worker: Rc<Worker>,
    lease_no: i64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.worker.kept.borrow_mut().remove(&self.lease_no);
    }
}

struct Computed {
    run: ClaimedRun,
    batch: Rc<FeatureBatch>,
    blob: Vec<u8>,
    hash: Hash,
}

impl Computed {
    fn result(&self) -> RunResult {
        RunResult {
            run_no: self.run.run_no,
            run_id: self.run.run_id.clone(),
            fence: self.run.fence,
            blob: self.hash,
            values_hash: self.batch.values_hash,
            rows: i64::try_from(self.batch.rows()).unwrap_or(i64::MAX),
        }
    }
}

/// Works until it is told to end, or cannot go on. `token` is that of this very process.
pub(super) async fn work(me: Proc, token: String, drains: Rc<Cell<bool>>) {
    let worker = Rc::new(Worker {
        owner: Owner::from_token(&token),
        ttl: Duration::from_millis(me.sim.options.ttl_ms),
        me: me.clone(),
        kept: RefCell::default(),
        in_flight: Cell::new(0),
        claiming: Turn::default(),
        away: Cell::new(0),
        drains,
    });
    me.spawn(beat(Rc::clone(&worker)));
    me.spawn(sweep(Rc::clone(&worker)));
    claim_loop(&worker).await;
    while worker.in_flight.get() > 0 {
        me.sleep(10_000).await;
    }
    me.note("has drained");
    me.exit();
}

async fn claim_loop(worker: &Rc<Worker>) {
    let mut floor = Floor::default();
    while !worker.drains.get() {
        worker.pause().await;
        if worker.in_flight.get() >= worker.me.sim.options.in_flight {
            worker.me.sleep(5_000).await;
            continue;
        }
        let from = floor.begin();
        match worker.claim(from).await {
            Ok(Some((claim, kept))) => {
                floor.found(from, claim.runs.first().map(|run| run.event_id));
                worker.launch(claim, kept);
            }
            Ok(None) if floor.missed(from) => {}
            Ok(None) => {
                worker.away.set(0);
                if !worker.suspect().await {
                    let poll = worker.me.sim.options.poll_ms * 1_000;
                    worker.me.sleep(poll - worker.me.sim.between(0, poll / 5)).await;
                }
            }
            Err(_away) => worker.away.set(worker.away.get() + 1),
        }
    }
}

impl Worker {
    fn kernel(&self) -> &Kernel {
        &self.me.sim.kernel
    }

    async fn pause(&self) {
        let times = self.away.get();
        if times > 0 {
            let wait = (PAUSE_MIN << times.min(6)).min(PAUSE_MAX);
            self.me.sleep(wait - self.me.sim.between(0, wait / 5)).await;
        }
    }

    fn keep(self: &Rc<Self>, lease_no: i64) -> Kept {
        self.kept.borrow_mut().insert(lease_no);
        Kept { worker: Rc::clone(self), lease_no }
    }

    async fn claim(self: &Rc<Self>, floor: i64) -> Result<Option<(Claim, Kept)>, Error> {
        let claiming = self.claiming.take(self.kernel()).await;
        let (owner, ttl) = (self.owner.clone(), self.ttl);
        let batch = i64::try_from(self.me.sim.options.batch).unwrap_or(1);
        let claim =
            self.me.store("claims", move |s, now| s.claim(now, &owner, (ttl, batch), floor));
        let claim = claim.await?;
        let kept = claim.map(|claim| {
            let kept = self.keep(claim.lease_no);
            (claim, kept)
        });
        drop(claiming);
        Ok(kept)
    }

    fn launch(self: &Rc<Self>, claim: Claim, kept: Kept) {
        self.in_flight.set(self.in_flight.get() + 1);
        let worker = Rc::clone(self);
        self.me.spawn(async move {
            worker.carry(claim, kept).await;
            worker.in_flight.set(worker.in_flight.get() - 1);
        });
    }

    /// Takes one run that an owner died with, with nothing else in flight.
    async fn suspect(self: &Rc<Self>) -> bool {
        while self.in_flight.get() > 0 {
            self.me.sleep(5_000).await;
        }
        let claiming: Taken<'_> = self.claiming.take(self.kernel()).await;
        let (owner, ttl) = (self.owner.clone(), self.ttl);
        let claimed =
            self.me.store("claims a suspect", move |s, now| s.claim_suspect(now, &owner, ttl));
        match claimed.await {
            Ok(Some(claim)) => {
                let kept = self.keep(claim.lease_no);
                drop(claiming);
                self.carry(claim, kept).await;
                true
            }
            Ok(None) => false,
            Err(_away) => {
                self.away.set(self.away.get() + 1);
                false
            }
        }
    }

    async fn carry(self: &Rc<Self>, claim: Claim, kept: Kept) {
        let done = self.process(&claim).await;
        match done {
            Ok(()) => {
                drop(kept);
                self.away.set(0);
            }
            Err(Fault::Fsync) => {
                self.me.note("ends: an fsync failed");
                self.me.exit();
                std::future::pending::<()>().await;
            }
            Err(fault) => {
                self.give_back(&claim, &fault).await;
                drop(kept);
                if fault.is_away() {
                    self.away.set(self.away.get() + 1);
                }
            }
        }
    }

    async fn process(&self, claim: &Claim) -> Result<(), Fault> {
        let (cancelled, runs): (Vec<_>, Vec<_>) =
            claim.runs.iter().cloned().partition(|run| run.cancel_requested);
        if !cancelled.is_empty() {
            let ended = cancelled.iter().map(|run| (run.run_no, run.fence, None)).collect();
            self.finish(claim, ended, Ended::Cancelled).await?;
        }
        self.me.sleep(self.me.sim.between(500, 60_000)).await;
        if self.me.sim.hits(self.me.sim.options.panics) {
            self.me.sim.saw(Seen::Panicked);
            return Err(Fault::Panicked);
        }
        if runs.iter().any(|run| self.me.sim.killer.get() == Some(run.flow)) {
            self.me.note("is killed by what it computes");
            self.me.exit();
            std::future::pending::<()>().await;
        }
        let (computed, failed) = self.compute(runs)?;
        if !failed.is_empty() {
            let run_nos: Vec<i64> = failed.iter().map(|run| run.0).collect();
            let ended = self.finish(claim, failed, Ended::Failed).await?;
            let lost = run_nos.into_iter().filter(|no| !ended.contains(no)).collect();
            self.refuse(lost).await?;
        }
        if computed.is_empty() {
            let claim = claim.clone();
            self.me.store("closes", move |s, now| s.close(now, &claim)).await?;
            return Ok(());
        }
        self.stage(claim, &computed).await?;
        self.publish_all(claim, &computed).await
    }

    async fn finish(
        &self,
        claim: &Claim,
        runs: Vec<(i64, i64, Option<String>)>,
        how: Ended,
    ) -> Result<Vec<i64>, Error> {
        let claim = claim.clone();
        self.me.store("finishes", move |s, now| s.finish(now, &claim, &runs, how)).await
    }

    async fn refuse(&self, runs: Vec<i64>) -> Result<(), Error> {
        if runs.is_empty() {
            return Ok(());
        }
        let note = move |s: &mut super::SimStore, _| s.record_refused(&runs);
        self.me.store("notes a refusal", note).await.map(|_refused| ())
    }

    /// Computes every run; runs over the same flow and snapshot share one result.
    #[expect(clippy::type_complexity, reason = "results, and runs that have none with the reason")]
    fn compute(
        &self,
        runs: Vec<ClaimedRun>,
    ) -> Result<(Vec<Computed>, Vec<(i64, i64, Option<String>)>), Fault> {
        let mut shared: BTreeMap<(Hash, Hash), Result<Rc<FeatureBatch>, String>> = BTreeMap::new();
        let (mut computed, mut failed) = (Vec::new(), Vec::new());
        for run in runs {
            let key = (run.flow, run.snapshot);
            let known = shared.entry(key).or_insert_with(|| self.compute_one(key));
            match known {
                Ok(batch) => {
                    let (batch, blob) = (Rc::clone(batch), batch.to_blob());
                    computed.push(Computed { run, batch, hash: Hash::of(&blob), blob });
                }
                Err(why) => failed.push((run.run_no, run.fence, Some(why.clone()))),
            }
        }
        Ok((computed, failed))
    }

    fn compute_one(&self, (flow, snapshot): (Hash, Hash)) -> Result<Rc<FeatureBatch>, String> {
        let disk = self.me.sim.disk.borrow();
        let get = |hash: &Hash| disk.get(hash).map_err(|fault| fault.to_string());
        let flow = Flow::parse(&get(&flow)?, "flow").map_err(|invalid| invalid.to_string())?;
        let body = get(&snapshot)?;
        let projection = flow::project(&flow, &mut body.as_slice(), "snapshot");
        let projection = projection.map_err(|error| error.to_string())?;
        let batch = flow::compute(&flow, snapshot, &projection);
        batch.map(Rc::new).map_err(|invalid| invalid.to_string())
    }

    /// Makes the results durable before anything refers to them.
    async fn stage(&self, claim: &Claim, computed: &[Computed]) -> Result<(), Fault> {
        let blobs = computed.iter().map(|computed| computed.blob.clone()).collect();
        self.me.put_many(blobs).await?;
        self.me.sleep(self.me.sim.between(500, 20_000)).await;
        if !self.me.sim.warehouse_up.get() {
            self.me.sim.saw(Seen::WarehouseAway);
            return Err(Fault::WarehouseAway);
        }
        let mut warehouse = self.me.sim.warehouse.borrow_mut();
        for Computed { run, batch, .. } in computed {
            warehouse.insert((run.run_no, claim.epoch, run.fence), batch.values_hash);
        }
        drop(warehouse);
        self.me.note("has staged");
        Ok(())
    }

    async fn publish_all(&self, claim: &Claim, computed: &[Computed]) -> Result<(), Fault> {
        let mut results: Vec<RunResult> = computed.iter().map(Computed::result).collect();
        loop {
            match self.publish(claim, &results).await {
                Ok(done) => {
                    self.refuse(done.left).await?;
                    return Ok(());
                }
                Err(Error::PublicationConflict { run_id, .. }) => {
                    let (other, rest): (Vec<_>, Vec<_>) =
                        results.into_iter().partition(|result| result.run_id == run_id);
                    let said = Some("PUBLICATION_CONFLICT".to_owned());
                    let failed = other.iter().map(|r| (r.run_no, r.fence, said.clone())).collect();
                    self.finish(claim, failed, Ended::Failed).await?;
                    results = rest;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Publishes; what is not known to have been made is settled by reading back.
    async fn publish(&self, claim: &Claim, results: &[RunResult]) -> Result<Published, Error> {
        let (mut tries, mut keeps, mut unknown) = (0, false, false);
        loop {
            tries += 1;
            let (of, set) = (claim.clone(), results.to_vec());
            let once = move |s: &mut super::SimStore, now| s.publish(now, &of, &set, keeps);
            let tried = self.me.store("publishes", once).await.and_then(|done| done);
            if unknown && tried.is_ok() {
                self.me.sim.saw(Seen::SettledAgain);
            }
            match settle::after(tries, told(&tried), true) {
                Next::Take => return tried.map(|ended| Published::of(results, &ended)),
                Next::Compare => {
                    let set = results.to_vec();
                    let check = move |s: &mut super::SimStore, _| s.check_content(&set);
                    self.me.store("compares", check).await??;
                    keeps = true;
                }
                Next::ReadBack => {
                    let (of, set) = (claim.clone(), results.to_vec());
                    let read = move |s: &mut super::SimStore, _| s.ended_among(&of, &set);
                    unknown = true;
                    match self.me.store("reads back", read).await {
                        Ok(ended) if !ended.is_empty() => {
                            self.me.sim.saw(Seen::SettledDone);
                            return Ok(Published::of(results, &ended));
                        }
                        Ok(_none) => {}
                        Err(_away) => self.me.sleep(50_000 << tries.min(6)).await,
                    }
                }
            }
        }
    }

    /// Puts the runs of a failed attempt back into the queue. Without a database they are the sweep's.
    async fn give_back(&self, claim: &Claim, fault: &Fault) {
        let own = claim.clone();
        if matches!(fault, Fault::Panicked) {
            drop(self.me.store("disowns", move |s, now| s.disown(now, &own)).await);
            return;
        }
        self.me.note(&format!("gives back: {fault}"));
        let why = Some(fault.to_string());
        let runs = claim.runs.iter().map(|run| (run.run_no, run.fence, why.clone())).collect();
        if let Ok(given) = self.finish(claim, runs, Ended::GivenBack).await {
            if !given.is_empty() {
                self.me.sim.saw(Seen::ServiceAway);
            }
            drop(self.me.store("closes", move |s, now| s.close(now, &own)).await);
        }
    }
}

fn told<T>(tried: &Result<T, Error>) -> Told {
    match tried {
        Ok(_) => Told::Answered,
        Err(Error::Statement { sqlstate, .. }) if sqlstate == "23505" => Told::There,
        Err(error) if error.is_away() => Told::Unknown,
        Err(_) => Told::Impossible,
    }
}

async fn beat(worker: Rc<Worker>) {
    let third = worker.me.sim.options.ttl_ms * 1_000 / 3;
    loop {
        worker.me.sleep(third).await;
        let alive: Vec<i64> = worker.kept.borrow().iter().copied().collect();
        if alive.is_empty() {
            continue;
        }
        let (owner, ttl) = (worker.owner.clone(), worker.ttl);
        let renews = move |s: &mut super::SimStore, now| s.renew_many(now, &owner, &alive, ttl);
        // An error is tried again at the next beat: two may fail before a lease expires.
        drop(worker.me.store_within("renews", third, renews).await);
    }
}

async fn sweep(worker: Rc<Worker>) {
    let (mut floor, mut sweeps) = (0, 0);
    loop {
        sweeps = (sweeps + 1) % FULL_SWEEP;
        let given = give_back_lost(&worker).await;
        if given.is_ok_and(|given| given > 0) {
            worker.me.sim.saw(Seen::GivenBack);
        }
        let from = if sweeps == 0 { 0 } else { floor };
        if let Ok(next) = sweep_once(&worker, from).await {
            floor = next;
        }
        let ttl = worker.me.sim.options.ttl_ms * 1_000;
        let period = (ttl / 3).clamp(SWEEP_MIN, SWEEP_MAX);
        worker.me.sleep(period - worker.me.sim.between(0, period / 5)).await;
    }
}

/// Before any sweep: what we merely lost track of is no orphan.
async fn give_back_lost(worker: &Worker) -> Result<u64, Error> {
    let claiming = worker.claiming.take(worker.kernel()).await;
    let owner = worker.owner.clone();
    let kept: Vec<i64> = worker.kept.borrow().iter().copied().collect();
    let given = worker
        .me
        .store("gives back what it lost", move |s, now| s.give_back_own(now, &owner, &kept))
        .await;
    drop(claiming);
    given
}

async fn sweep_once(worker: &Worker, floor: i64) -> Result<i64, Error> {
    let skips = worker.me.sim.makes(Mistake::NoSweep);
    loop {
        let (owner, ttl) = (worker.owner.clone(), worker.ttl);
        let page = move |s: &mut super::SimStore, now| {
            if skips { (0, Swept::default()) } else { s.sweep_page(now, &owner, ttl) }
        };
        let (leases, swept) = worker.me.store("sweeps", page).await?;
        if swept != Swept::default() {
            worker.me.note(&format!("swept {} and {}", swept.requeued, swept.poisoned));
        }
        if leases < 20 {
            break;
        }
    }
    let mended = worker.me.store("mends", move |s, now| s.mend_events(now, floor)).await?;
    Ok(mended.1)
}
