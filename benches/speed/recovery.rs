//! A worker with 60 runs in flight is killed, another lives: seconds until all are done.

use std::time::{Duration, Instant};

use finaz::rules::admission::Request;

use crate::figures::{Samples, Table, float};
use crate::number;
use crate::servers::Servers;
use crate::stage::{Running, Stage, request, snapshot, until};

const RUNS: usize = 60;
const TTL_SEC: f64 = 2.0;
/// A worker looks for orphans this often, for that TTL.
const SWEEP_SEC: f64 = TTL_SEC / 3.0;
/// Events of a snapshot, a third of them the flow's: a batch of 60 takes long enough to be caught at work.
const EVENTS: usize = 60_000;

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let rounds = number("BENCH_ROUNDS", 3);
    let events = number("BENCH_EVENTS", EVENTS);
    println!("recovery: {RUNS} runs of {events} events, TTL {TTL_SEC} s, kill -9; {rounds} rounds");
    let stage = Stage::open(servers, "recovery").await;
    let (mut taken, mut work) = (Samples::default(), Samples::default());
    for round in 0..rounds {
        for killed in [false, true] {
            let seconds = once(&stage, events, round, killed).await;
            let what = if killed { "after the kill" } else { "without a kill, from admission" };
            println!("  {round}: all done {seconds:.2} s {what}");
            if killed { taken.add(seconds) } else { work.add(seconds) }
        }
    }
    table.alone(
        &format!("{RUNS} runs after kill -9"),
        format!(
            "{:.2} s [to {:.2}]: TTL {TTL_SEC} + sweep {SWEEP_SEC:.2} + {:.2}; the runs themselves {:.2}",
            taken.median(),
            taken.most(),
            taken.median() - TTL_SEC - SWEEP_SEC,
            work.median()
        ),
    );
    stage.close(servers).await;
}

/// Seconds from the kill, or from the admission, until all runs are done.
async fn once(stage: &Stage, events: usize, round: usize, killed: bool) -> f64 {
    let ttl = TTL_SEC.to_string();
    let environment = [("FINAZ_LEASE_TTL_SEC", ttl.as_str())];
    let mut workers: Vec<Running> = ["first", "second"]
        .iter()
        .map(|name| stage.start(&["worker", "--owner", name], &environment))
        .collect();
    let database = &stage.database;
    let listening = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    until("two workers that listen", Duration::from_millis(20), async || {
        database.count(listening, &[]).await == 2
    })
    .await;
    let store = stage.store(Duration::from_secs_f64(TTL_SEC));
    let body = snapshot(round, u64::try_from(events / 3).expect("small"));
    let snapshot = stage.artifacts().put(&body).expect("a kept snapshot");
    let set: Vec<Request> = (0..RUNS)
        .map(|n| {
            // Flows of different names have results of their own, so each run is computed.
            let flow = stage.flow(&format!(
                "kind: Flow\nname: r{round}.{n}.{killed}\ninstruments: [sim.alpha]\n\
                 clock: {{allowed_lateness: 5s}}\n\
                 nodes: [{{id: ema3, type: ema, period: 3, input: close}}]\nsink: {{dataset: features}}\n"
            ));
            request(&format!("{round}/{killed}/{n}"), flow, snapshot)
        })
        .collect();
    let mut started = Instant::now();
    store.admit(&set, true).await.expect("admitted");
    if killed {
        let held = "SELECT count(*) FROM finaz.api_runs WHERE state = 'RUNNING'";
        until("runs in flight", Duration::from_millis(1), async || {
            database.count(held, &[]).await == i64::try_from(RUNS).expect("small")
        })
        .await;
        let first = "SELECT count(*) FROM finaz.leases WHERE NOT closed AND owner LIKE 'first/%'";
        let victim = usize::from(database.count(first, &[]).await == 0);
        started = Instant::now();
        workers[victim].kill();
    }
    let left = "SELECT count(*) FROM finaz.api_runs WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')";
    until("all done", Duration::from_millis(5), async || database.count(left, &[]).await == 0)
        .await;
    let seconds = started.elapsed().as_secs_f64();
    let all = "SELECT count(*) FROM finaz.api_runs WHERE state <> 'SUCCEEDED'";
    assert_eq!(database.count(all, &[]).await, 0, "every run succeeded");
    let orphaned = "SELECT count(*) FROM finaz.api_runs WHERE attempts > 0";
    println!(
        "     {:.0} runs so far were orphans",
        float(usize::try_from(database.count(orphaned, &[]).await).expect("a count"))
    );
    seconds
}
