//! Services that go away in the middle of a batch: runs wait, nothing half is visible, all is done when they are back.

use std::time::Duration;

use serde_json::json;

use crate::instance::{Instance, kill};
use crate::process::{Process, poll, until};
use crate::proxy::{Mode, Proxy};
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(90);
/// What a one-shot command may take to give up, and a busy machine besides.
const GIVES_UP: Duration = Duration::from_secs(40);

/// All succeeded, each once, and nobody is blamed for a service that was away.
#[track_caller]
fn all_well(stage: &Stage, runs: usize) {
    until("all succeed", SOON, || (stage.runs("SUCCEEDED") == runs).then_some(()));
    let ends = "SELECT DISTINCT run_revision, attempts, error FROM finaz.api_runs";
    assert_eq!(stage.sql(ends), [["1", "0", ""]], "revision, attempts, error");
    let found = stage.json(&["reconcile", "--dry-run"]);
    assert_eq!((&found["checked"], &found["mismatches"]), (&runs.into(), &json!([])), "{found}");
}

/// Waits until so many have succeeded.
#[track_caller]
fn works(stage: &Stage, runs: usize) {
    until("it works", SOON, || (stage.runs("SUCCEEDED") >= runs).then_some(()));
}

#[test]
fn a_worker_outlives_restarts_of_postgresql() {
    let Some(instance) = Instance::new() else { return };
    instance.run("pg-up");
    let mut stage = Stage::on(&instance.setting("FINAZ_PG_URL"), None);
    stage.finaz(&["db", "migrate"]).exits(0);
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 300_000);
    stage.admit("a", 60, "load");
    let mut worker = stage.start(&["worker", "--batch", "4"]);
    for restart in 1..=3 {
        works(&stage, restart * 5);
        until("some are in flight", SOON, || (stage.runs("RUNNING") > 0).then_some(()));
        // No farewell to its sessions; the log is replayed at the next start.
        kill(instance.pid("postgres"));
        instance.run("pg-up");
        stage.reconnect();
    }
    all_well(&stage, 60);
    assert!(worker.is_running(), "it gave up");
}

#[test]
fn a_worker_outlives_the_end_of_its_sessions() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 300_000);
    stage.admit("a", 60, "load");
    let mut worker = stage.start(&["worker", "--batch", "4"]);
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for round in 1..=5 {
        works(&stage, round * 5);
        until("it has sessions", SOON, || (stage.count(terminate) > 0).then_some(()));
    }
    all_well(&stage, 60);
    assert!(worker.is_running(), "it gave up");
}

#[test]
fn an_outage_longer_than_a_lease_is_held_against_nobody() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 300_000);
    stage.admit("a", 40, "load");
    let direct = stage.pg_url().to_owned();
    let proxy = Proxy::to(&stage, &direct);
    let proxied = proxy.url(&direct);
    let mut worker = stage.start_with(&[("FINAZ_PG_URL", &proxied)], &["worker"]);
    for _ in 0..3 {
        until("runs are in flight", SOON, || (stage.runs("RUNNING") > 0).then_some(()));
        proxy.set(Mode::Cut);
        let live = "SELECT count(*) FROM finaz.leases WHERE NOT closed
                    AND expires_at > clock_timestamp() - interval '500 ms'";
        until("its leases are long over", SOON, || (stage.count(live) == 0).then_some(()));
        proxy.set(Mode::Pass);
    }
    all_well(&stage, 40);
    assert!(worker.is_running(), "it gave up");
}

#[test]
fn runs_wait_for_a_clickhouse_that_stopped_in_mid_batch() {
    let Some(instance) = Instance::new() else { return };
    instance.run("pg-up");
    instance.run("clickhouse-up");
    let clickhouse = instance.setting("FINAZ_CLICKHOUSE_URL");
    let mut stage = Stage::on(&instance.setting("FINAZ_PG_URL"), Some(&clickhouse));
    stage.finaz(&["db", "migrate"]).exits(0);
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 300_000);
    stage.admit("a", 40, "load");
    let mut worker = stage.start(&["worker", "--batch", "4"]);
    works(&stage, 1);
    kill(instance.pid("clickhouse"));
    until("it is given back", SOON, || {
        let given = "SELECT count(*) FROM finaz.run_history WHERE starts_with(what, 'given back')";
        (stage.count(given) > 0).then_some(())
    });
    // What was staged before is published; nothing else, for as long as it is away.
    until("nothing is in flight", SOON, || (stage.runs("RUNNING") == 0).then_some(()));
    let before = stage.count("SELECT count(*) FROM finaz.publications");
    let flow = stage.flow("alone", "load");
    let refused = stage.start(&["run-once", "--flow", &flow]).wait(GIVES_UP);
    refused.refuses(75, "WAREHOUSE_AWAY");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.publications"), before, "unstaged results");
    assert!(worker.is_running(), "it gave up");
    instance.run("clickhouse-up");
    let admitted = stage.count("SELECT count(*) FROM finaz.api_runs");
    all_well(&stage, admitted);
}

#[test]
fn run_once_gives_up_on_a_clickhouse_that_accepts_and_never_answers() {
    let Some(mut stage) = Stage::new() else { return };
    let flow = stage.fixture();
    let direct = stage.clickhouse_url().to_owned();
    let proxy = Proxy::to(&stage, &direct);
    stage.set("FINAZ_CLICKHOUSE_URL", &proxy.url(&direct));
    for mode in [Mode::Hold, Mode::Cut] {
        proxy.set(mode);
        let refused = stage.start(&["run-once", "--flow", &flow]).wait(GIVES_UP);
        refused.refuses(75, "WAREHOUSE_AWAY");
        assert_eq!(stage.count("SELECT count(*) FROM finaz.publications"), 0);
        assert_eq!(stage.runs("RUNNING"), 0, "{mode:?}: held by one who has ended");
    }
    // It falls silent when the run is under way already.
    stage.snapshot("load", 10);
    let slow = stage.flow("slow", "load");
    proxy.hold_staging();
    let once = stage.start(&["run-once", "--flow", &slow]);
    proxy.springs();
    assert_eq!(stage.runs("RUNNING"), 1);
    once.wait(GIVES_UP).refuses(75, "WAREHOUSE_AWAY");
    assert_eq!((stage.runs("RUNNING"), stage.runs("SUCCEEDED")), (0, 0));
    proxy.set(Mode::Pass);
    for flow in [&flow, &slow] {
        let done = stage.json(&["run-once", "--flow", flow]);
        assert_eq!((&done["state"], &done["run_revision"]), (&"SUCCEEDED".into(), &1.into()));
    }
    all_well(&stage, 2);
}

#[test]
fn a_command_gives_up_on_a_postgresql_that_is_away_or_mute() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.fixture();
    let direct = stage.pg_url().to_owned();
    let proxy = Proxy::to(&stage, &direct);
    let proxied = proxy.url(&direct);
    let commands: [&[&str]; 5] = [
        &["run-once", "--flow", &flow],
        &["admit", "--flow", &flow],
        &["runs", "list"],
        &["doctor"],
        &["worker", "--drain"],
    ];
    for mode in [Mode::Cut, Mode::Hold] {
        proxy.set(mode);
        // All at once: most of the time nothing happens.
        let start = |args: &[&str]| stage.start_with(&[("FINAZ_PG_URL", &proxied)], args);
        let started: Vec<Process> = commands.iter().map(|args| start(args)).collect();
        for (args, process) in commands.iter().zip(started) {
            let given = process.wait(GIVES_UP).exits(75);
            assert!(args == &["doctor"] || given.json()["error"]["code"] == "PG_AWAY", "{given:?}");
        }
    }
    assert_eq!(stage.count("SELECT count(*) FROM finaz.api_runs"), 0);
}

#[test]
fn a_worker_waits_for_a_postgresql_that_is_not_there_yet() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.fixture();
    stage.finaz(&["admit", "--flow", &flow]).exits(0);
    let direct = stage.pg_url().to_owned();
    let proxy = Proxy::to(&stage, &direct);
    proxy.set(Mode::Cut);
    let proxied = proxy.url(&direct);
    let mut worker = stage.start_with(&[("FINAZ_PG_URL", &proxied)], &["worker"]);
    until("it says what it waits for", SOON, || worker.said().contains("waiting").then_some(()));
    assert_eq!(poll(Duration::from_secs(2), || (!worker.is_running()).then_some(())), None);
    proxy.set(Mode::Pass);
    all_well(&stage, 1);
}
