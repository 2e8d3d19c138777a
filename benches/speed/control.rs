//! The control layer alone: claim committed, then fenced publication; two durable transactions a batch of 500.

use std::sync::Arc;
use std::time::{Duration, Instant};

use finaz::ids::{Hash, Owner};
use finaz::rules::admission::Request;
use finaz::store::{Claim, RunResult, Store};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::figures::{Samples, Table, float, rate};
use crate::number;
use crate::servers::Servers;
use crate::stage::{Stage, request};
use crate::throughput::Peer;

const TTL: Duration = Duration::from_secs(30);
const BATCH: i64 = 500;
/// Runs admitted in one transaction.
const SET: usize = 2_000;
/// Claims ahead of the publication.
const AHEAD: usize = 2;
/// Sessions that claim.
const CLAIMERS: usize = 1;
/// Sessions that publish. A worker has one of each.
const PUBLISHERS: usize = 1;

#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) stage: Stage,
    runs: usize,
    rates: Samples,
    /// Bytes of log a run: right after a checkpoint, so with full pages, and long after one.
    log_fresh: Samples,
    log_steady: Samples,
}

impl Control {
    pub(crate) async fn open(servers: &Servers) -> Self {
        Self {
            stage: Stage::open(servers, "control").await,
            runs: number("BENCH_CONTROL_RUNS", 100_000),
            rates: Samples::default(),
            log_fresh: Samples::default(),
            log_steady: Samples::default(),
        }
    }

    /// One pass right after a checkpoint, which counts as graphile's does, and one without.
    pub(crate) async fn round(&mut self, servers: &Servers, round: usize) {
        let store = self.stage.store(TTL);
        for fresh in [true, false] {
            self.admit(&store, &format!("{round}/{fresh}")).await;
            if fresh {
                self.stage.database.settle().await;
            }
            let (used, log) = (servers.used(), self.stage.database.log().await);
            let own = crate::cpu::of(std::process::id());
            let started = Instant::now();
            let done = pass(&store).await;
            let seconds = started.elapsed().as_secs_f64();
            // Sessions report to the statistics when they have been idle for a second.
            tokio::time::sleep(Duration::from_millis(1100)).await;
            let (bytes, pages) = self.stage.database.log().await.since(log);
            let used = servers.used().since(used);
            let own = crate::cpu::of(std::process::id()) - own;
            assert_eq!(done, self.runs, "every run is published");
            let per_run = bytes / float(done);
            println!(
                "  {round}: control layer: {done} in {seconds:.2} s, {}; {per_run:.0} bytes of log a run, {pages:.0} full \
                 pages ({}); PostgreSQL {:.1} us of CPU a run, client {:.1}",
                rate(done, seconds),
                if fresh { "right after a checkpoint" } else { "no checkpoint since" },
                used.postgres * 1e6 / float(done),
                own * 1e6 / float(done),
            );
            if fresh {
                self.rates.add(float(done) / seconds);
                self.log_fresh.add(per_run);
            } else {
                self.log_steady.add(per_run);
            }
        }
        self.check().await;
    }

    async fn admit(&self, store: &Store, prefix: &str) {
        let (flow, snapshot) = (Hash::of(b"flow"), Hash::of(b"snapshot"));
        let requests: Vec<Request> =
            (0..self.runs).map(|n| request(&format!("{prefix}/{n}"), flow, snapshot)).collect();
        for set in requests.chunks(SET) {
            store.admit(set, false).await.expect("admitted");
        }
    }

    /// All of it happened: published, succeeded, delivered.
    async fn check(&self) {
        let left =
            "SELECT count(*) FROM finaz.outbox AS o JOIN finaz.api_runs AS r ON r.event_id = o.id
            LEFT JOIN finaz.publications AS p ON p.run_no = r.run_no
            WHERE o.delivered_at IS NULL OR r.state <> 'SUCCEEDED' OR p.run_no IS NULL";
        assert_eq!(self.stage.database.count(left, &[]).await, 0, "nothing is left");
    }

    pub(crate) fn report(&self, peer: &Peer, table: &mut Table) {
        peer.compare(table, "control layer alone, runs", &self.rates);
        let (fresh, steady) = (self.log_fresh.median(), self.log_steady.median());
        table.alone(
            "log of the control layer, a run",
            format!("{steady:.0} bytes; {fresh:.0} with the full pages after a checkpoint"),
        );
    }
}

/// Claims on some sessions and publishes on others, until nothing is queued.
async fn pass(store: &Store) -> usize {
    let owner = Owner::of_process("bench");
    let (sender, claims) = tokio::sync::mpsc::channel::<Claim>(AHEAD);
    let claims = Arc::new(Mutex::new(claims));
    let mut claimers = tokio::task::JoinSet::new();
    for _ in 0..number("BENCH_CLAIMERS", CLAIMERS) {
        claimers.spawn(claim(store.clone(), owner.clone(), sender.clone()));
    }
    drop(sender);
    let mut publishers = tokio::task::JoinSet::new();
    for _ in 0..number("BENCH_PUBLISHERS", PUBLISHERS) {
        publishers.spawn(publish(store.clone(), Arc::clone(&claims)));
    }
    let done = publishers.join_all().await.into_iter().sum();
    claimers.join_all().await;
    done
}

async fn claim(store: Store, owner: Owner, claims: Sender<Claim>) {
    let mut floor = 0;
    while let Some(claim) = store.claim(&owner, TTL, BATCH, floor).await.expect("claimed") {
        floor = claim.runs.first().map_or(floor, |run| run.event_id);
        claims.send(claim).await.expect("open");
    }
}

async fn publish(store: Store, claims: Arc<Mutex<Receiver<Claim>>>) -> usize {
    let mut done = 0;
    loop {
        let Some(claim) = claims.lock().await.recv().await else { return done };
        let results: Vec<RunResult> = claim
            .runs
            .iter()
            .map(|run| RunResult {
                run_no: run.run_no,
                run_id: run.run_id.clone(),
                fence: run.fence,
                blob: Hash::of(run.run_id.as_bytes()),
                values_hash: Hash::of(run.run_id.as_bytes()),
                rows: 6,
            })
            .collect();
        let published =
            store.publish(&claim, &results, (0.0, true), None).await.expect("published");
        done += published.published.len();
    }
}
