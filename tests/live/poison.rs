//! A run that kills its worker: it ends FAILED, and takes nobody with it.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use crate::process::{Process, until};
use crate::proxy::Proxy;
use crate::stage::Stage;

const SIGABRT: i32 = 6;
const SOON: Duration = Duration::from_secs(60);
/// Address space of a worker: enough for ordinary runs, too little for the greedy one.
const MEMORY: &str = "--as=300000000";

/// A flow of so many nodes that its result does not fit into a worker's memory, though its snapshot is small.
fn greedy(stage: &Stage, snapshot: &str) -> String {
    let mut text = format!(
        "kind: Flow\nname: greedy\nsource: {{snapshot: {snapshot}}}\ninstruments: [bulk]\n\
         clock: {{allowed_lateness: 0s}}\nsink: {{dataset: features}}\nnodes:\n"
    );
    for node in 0..400 {
        writeln!(text, "  - {{id: n{node}, type: stddev, period: {}, input: close}}", 2 + node)
            .expect("a string takes all");
    }
    stage.file("greedy.yaml", text)
}

/// A worker that has so much memory and no more.
fn confined(stage: &Stage) -> Process {
    let mut command = Command::new("prlimit");
    stage.furnish(&mut command);
    // As on a small machine: on a large one the threads alone take up more.
    command.env("MALLOC_ARENA_MAX", "1").env("TOKIO_WORKER_THREADS", "2");
    command.args([MEMORY, env!("CARGO_BIN_EXE_finaz"), "worker", "--drain"]);
    stage.spawn(command)
}

#[test]
fn a_run_that_kills_its_worker_three_times_fails_and_the_others_go_on() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 50_000);
    let mates = stage.admit("a", 20, "load");
    let flow = greedy(&stage, "load");
    let poison = stage.json(&["admit", "--flow", &flow]);
    let poison = poison["run_id"].as_str().expect("a run id");
    let late = stage.admit("b", 20, "load");
    // Whoever supervises it starts it again, however often it dies.
    let mut deaths = 0;
    let last = loop {
        let ended = confined(&stage).wait(SOON);
        if ended.exit.is_some() {
            break ended.exits(0).json();
        }
        // What a process does that gets no memory.
        assert_eq!(ended.signal, Some(SIGABRT), "{ended:?}");
        deaths += 1;
        assert!(deaths <= 3, "it kills without end");
    };
    assert_eq!((deaths, &last["poisoned"]), (3, &1.into()), "{last}");
    let state = |run: &str| {
        let columns = "state, attempts, run_revision, error";
        stage.sql(&format!("SELECT {columns} FROM finaz.api_runs WHERE run_id = '{run}'")).remove(0)
    };
    let ended = state(poison);
    assert_eq!(&ended[..3], ["FAILED", "3", "1"], "{ended:?}");
    assert!(ended[3].contains("POISON_RUN"), "{ended:?}");
    for run in mates.iter().chain(&late) {
        let ended = state(run);
        assert!(ended[0] == "SUCCEEDED" && ended[2] == "1", "{ended:?}");
        // It was in flight with the poison once at most, and never again.
        assert!(ended[1] == "0" || ended[1] == "1", "{ended:?}");
    }
    let waited = stage.finaz(&["runs", "wait", poison]).refuses(1, "RUN_FAILED");
    assert!(waited["error"].as_str().expect("text").contains("POISON_RUN"), "{waited}");
    let pending = "SELECT count(*) FROM finaz.outbox WHERE delivered_at IS NULL";
    assert_eq!(stage.count(pending), 0, "its event comes again and again");
}

#[test]
fn a_run_whose_worker_is_killed_each_time_fails_at_the_third_death_and_not_before() {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 10);
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let run = stage.admit("a", 1, "load").remove(0);
    for death in 1..=3 {
        let mut worker = stage.start(&["worker"]);
        // Swept by this worker, and taken by it: under the next fence.
        let found = ["RUNNING".to_owned(), (death - 1).to_string(), death.to_string()];
        until("it runs", SOON, || {
            let run = stage.sql("SELECT state, attempts, fence FROM finaz.api_runs").remove(0);
            (run == found).then_some(())
        });
        clickhouse.springs();
        worker.kill();
        clickhouse.hold_staging();
    }
    let last = stage.start(&["worker", "--drain"]).wait(SOON).exits(0).json();
    assert_eq!((&last["succeeded"], &last["poisoned"]), (&0.into(), &1.into()), "{last}");
    stage.finaz(&["runs", "wait", &run]).refuses(1, "RUN_FAILED");
    // The same request again is the same run: it does not kill a fourth.
    let flow = stage.flow("a.0000", "load");
    let again = stage.json(&["admit", "--flow", &flow, "--key", "a.0000"]);
    assert_eq!((&again["created"], &again["state"]), (&false.into(), &"FAILED".into()));
    stage.finaz(&["run-once", "--flow", &flow, "--key", "a.0000"]).refuses(1, "RUN_FAILED");
}
