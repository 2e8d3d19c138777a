//! `kill -9` of a worker with runs in flight: none lost, none double, nothing half-written.

use std::time::Duration;

use crate::dice::Dice;
use crate::process::{Process, elapsed, poll, until};
use crate::proxy::{CLAIM, Loss, Mode, PUBLICATION, Proxy};
use crate::stage::Stage;

const ROUNDS: usize = 10;
const SOON: Duration = Duration::from_secs(60);

/// Holds the database to what was acknowledged: every run that was admitted has succeeded once, is published once,
/// and its rows and its blob are there.
#[track_caller]
fn judge(stage: &Stage, acknowledged: &[String]) {
    let of =
        |table: &str| stage.column(&format!("SELECT run_id FROM finaz.{table} ORDER BY run_id"));
    let mut expected = acknowledged.to_vec();
    expected.sort();
    assert_eq!(of("api_runs"), expected, "runs that nobody admitted, or lost ones");
    assert_eq!(of("publications"), expected, "acknowledged, but not published exactly once");
    let ends = "SELECT DISTINCT state, run_revision, attempts <= 1 FROM finaz.api_runs";
    assert_eq!(stage.sql(ends), [["SUCCEEDED", "1", "t"]], "an end that is not one success");
    let pending = "SELECT count(*) FROM finaz.outbox WHERE delivered_at IS NULL";
    assert_eq!(stage.count(pending), 0, "events that are not delivered");
    // All flows compute the same.
    let hashes = "SELECT DISTINCT values_hash FROM finaz.publications";
    assert_eq!(stage.sql(hashes).len(), 1, "values that differ");
    let verified = stage.json(&["cas", "verify"]);
    assert_eq!(verified["damages"], 0, "{verified}");
    let found = stage.json(&["reconcile", "--dry-run"]);
    assert_eq!(found["checked"], expected.len(), "{found}");
    assert_eq!((&found["mismatches"], &found["repaired"]), (&serde_json::json!([]), &0.into()));
}

/// A worker of batches of this size.
fn worker(stage: &Stage, batch: usize) -> Process {
    stage.start(&["worker", "--batch", &batch.to_string()])
}

/// Rounds in each of which the only worker with runs in flight is killed at a random instant; another is alive in
/// every second round, in the others a fresh one is started afterwards.
fn rounds(in_flight: usize) {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 100_000);
    let mut dice = Dice::new(&format!("{in_flight} runs in flight"));
    let mut acknowledged = stage.admit("calm", in_flight, "load");
    let done =
        |acknowledged: &[String]| (stage.runs("SUCCEEDED") == acknowledged.len()).then_some(());
    // Or were already: on a busy machine we may look too late.
    let running = |acknowledged: &[String]| {
        let running = (stage.runs("RUNNING") == in_flight).then_some(());
        running.or_else(|| done(acknowledged))
    };
    // How long they are in flight when nobody is killed.
    let calm = worker(&stage, in_flight);
    until("the runs are in flight", SOON, || running(&acknowledged));
    let lasts = elapsed(|| until("they succeed", SOON, || done(&acknowledged)));
    drop(calm);
    let mut orphaned = 0;
    for round in 0..ROUNDS {
        acknowledged.extend(stage.admit(&format!("r{round:03}"), in_flight, "load"));
        // One batch, or several in all stages at once.
        let mut victim = worker(&stage, in_flight.div_ceil(dice.pick(1..5)));
        until("the runs are in flight", SOON, || running(&acknowledged));
        let alive = (round % 2 == 0).then(|| worker(&stage, in_flight));
        let instant = dice.instant(lasts);
        // Nothing to see: this is the wait.
        let _nothing: Option<()> = poll(instant, || None);
        victim.kill();
        orphaned += stage.runs("RUNNING");
        let heir = alive.unwrap_or_else(|| worker(&stage, in_flight));
        until(&format!("round {round}: all succeed"), SOON, || done(&acknowledged));
        drop(heir);
    }
    judge(&stage, &acknowledged);
    let all = in_flight * ROUNDS;
    assert!(orphaned >= all / 5, "only {orphaned} of {all} lost their worker: nothing was shown");
}

/// Kills the worker exactly there, and lets another finish.
fn killed_at(what: &str, trap: impl FnOnce(&mut Stage) -> Proxy) {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 10);
    let acknowledged = stage.admit("a", 6, "load");
    let (postgres, clickhouse) = (stage.pg_url().to_owned(), stage.clickhouse_url().to_owned());
    let proxy = trap(&mut stage);
    let mut victim = stage.start(&["worker", "--batch", "6"]);
    proxy.springs();
    victim.kill();
    // What was on its way arrives after its sender's death, or never.
    proxy.set(Mode::Pass);
    stage.set("FINAZ_PG_URL", &postgres);
    stage.set("FINAZ_CLICKHOUSE_URL", &clickhouse);
    let heir = stage.start(&["worker", "--drain"]).wait(SOON);
    assert_eq!(heir.exit, Some(0), "killed {what}: {heir:?}");
    judge(&stage, &acknowledged);
}

/// The worker's way to PostgreSQL, with a trap on it.
fn before(statement: &'static str) -> impl FnOnce(&mut Stage) -> Proxy {
    move |stage| {
        let direct = stage.pg_url().to_owned();
        let proxy = Proxy::to(stage, &direct);
        proxy.trap(statement, Loss::Time);
        stage.set("FINAZ_PG_URL", &proxy.url(&direct));
        proxy
    }
}

#[test]
fn a_worker_killed_between_any_two_of_its_effects_loses_and_doubles_nothing() {
    killed_at("before its claim was committed", before(CLAIM));
    killed_at("before its rows were staged", Proxy::held_at_staging);
    killed_at("before its publication was committed", before(PUBLICATION));
}

#[test]
fn a_run_once_that_was_killed_is_done_by_the_next_one() {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    let flow = stage.fixture();
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let mut victim = stage.start(&["run-once", "--flow", &flow]);
    clickhouse.springs();
    victim.kill();
    clickhouse.set(Mode::Pass);
    let done = stage.json(&["run-once", "--flow", &flow]);
    assert_eq!((&done["state"], &done["run_revision"]), (&"SUCCEEDED".into(), &1.into()), "{done}");
    assert_eq!(stage.sql("SELECT fence, attempts FROM finaz.api_runs"), [["2", "1"]]);
    assert_eq!(stage.count("SELECT count(*) FROM finaz.publications"), 1);
}

#[test]
fn twenty_runs_in_flight_survive_the_death_of_their_worker() {
    rounds(20);
}

#[test]
fn sixty_runs_in_flight_survive_the_death_of_their_worker() {
    rounds(60);
}
