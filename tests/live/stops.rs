//! Owners that are stopped, cut off, or told to end: what they hold is taken over or released, never kept.

use std::time::Duration;

use rustix::process::Signal;

use crate::process::until;
use crate::proxy::{Loss, Mode, PUBLICATION, Proxy};
use crate::stage::Stage;
use crate::topics::Log;

const SOON: Duration = Duration::from_secs(60);

/// Everything that a reader may see.
fn published(stage: &Stage) -> Vec<Vec<String>> {
    stage.sql("SELECT * FROM finaz.publications ORDER BY run_no")
}

/// Waits until the effects of an owner on these runs are refused and listed, each against the one who has the run now.
#[track_caller]
fn refusals(stage: &Stage, runs: &[String], stale: &str, current: &str) {
    let refused = until("the refusals are listed", SOON, || {
        let listed = stage.json(&["refused", "list"])["refused"].take();
        let listed = listed.as_array().expect("a list").clone();
        (listed.len() >= runs.len()).then_some(listed)
    });
    assert_eq!(refused.len(), runs.len(), "{refused:?}");
    for entry in &refused {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        assert!(runs.contains(&text("run_id")) && text("effect") == "publication", "{entry}");
        assert!(text("owner").starts_with(stale), "{entry}");
        assert!(text("current_owner").starts_with(current), "{entry}");
        assert!(entry["fence"].as_i64() < entry["current_fence"].as_i64(), "{entry}");
    }
    let trace = stage.json(&["runs", "trace", &runs[0]]);
    assert!(trace["events"].to_string().contains("refused publication"), "{trace}");
}

#[test]
fn a_worker_stopped_past_its_lease_publishes_nothing_when_it_goes_on() {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 10);
    let runs = stage.admit("a", 4, "load");
    let direct = stage.clickhouse_url().to_owned();
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let mut stopped = stage.start(&["worker", "--owner", "stopped"]);
    clickhouse.springs();
    stopped.signal(Signal::STOP);
    stage.set("FINAZ_CLICKHOUSE_URL", &direct);
    let heir = stage.start(&["worker", "--drain", "--owner", "heir"]).wait(SOON).exits(0).json();
    assert_eq!((&heir["succeeded"], &heir["recovered"]), (&4.into(), &4.into()), "{heir}");
    let before = published(&stage);
    clickhouse.set(Mode::Pass);
    stopped.signal(Signal::CONT);
    refusals(&stage, &runs, "stopped/", "heir/");
    assert_eq!(published(&stage), before, "overwritten by a stale owner");
    let ends = "SELECT DISTINCT state, run_revision FROM finaz.api_runs";
    assert_eq!(stage.sql(ends), [["SUCCEEDED", "1"]]);
    // Its rows are there, under its own fence, and no reader's.
    let found = stage.json(&["reconcile", "--dry-run"]);
    assert_eq!(found["mismatches"], serde_json::json!([]), "{found}");
    // It is still a worker, and knows what it has not done.
    stage.admit("b", 1, "load");
    until("it works on", SOON, || (stage.runs("SUCCEEDED") == 5).then_some(()));
    stopped.signal(Signal::TERM);
    let report = stopped.wait(SOON).exits(0).json();
    assert_eq!((&report["succeeded"], &report["stale"]), (&1.into(), &4.into()), "{report}");
}

#[test]
fn an_owner_cut_off_between_its_lock_and_its_commit_holds_nobody_up_and_publishes_nothing() {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 10);
    let runs = stage.admit("a", 3, "load");
    let direct = stage.pg_url().to_owned();
    let proxy = Proxy::to(&stage, &direct);
    proxy.trap(PUBLICATION, Loss::Time);
    let proxied = proxy.url(&direct);
    let mut cut = stage.start_with(&[("FINAZ_PG_URL", &proxied)], &["worker", "--owner", "cut"]);
    until("it is about to commit", SOON, || proxy.is_sprung().then_some(()));
    // It holds the row of its lease, and its session idles in that transaction.
    let heir = stage.start(&["worker", "--drain", "--owner", "heir"]).wait(SOON).exits(0).json();
    assert_eq!(heir["succeeded"], 3, "{heir}");
    let before = published(&stage);
    proxy.set(Mode::Pass);
    refusals(&stage, &runs, "cut/", "heir/");
    assert_eq!(published(&stage), before, "overwritten by a stale owner");
    cut.signal(Signal::TERM);
    cut.wait(SOON).exits(0);
}

/// Nothing runs, and nobody holds anything.
#[track_caller]
fn released(stage: &Stage) {
    assert_eq!(stage.runs("RUNNING"), 0);
    let live = stage.json(&["lease", "list", "--active"]);
    assert_eq!(live["leases"], serde_json::json!([]), "held by one who has ended");
}

#[test]
fn a_worker_told_to_end_finishes_what_it_began_and_releases_it() {
    let Some(mut stage) = Stage::new() else { return };
    stage.snapshot("load", 10);
    stage.admit("a", 40, "load");
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let mut worker = stage.start(&["worker", "--batch", "2"]);
    clickhouse.springs();
    worker.signal(Signal::TERM);
    until("it says so", SOON, || worker.said().contains("stopping in order").then_some(()));
    clickhouse.set(Mode::Pass);
    let report = worker.wait(SOON).exits(0).json();
    assert_eq!(report["succeeded"], report["claimed"], "{report}");
    released(&stage);
    let left = stage.runs("QUEUED");
    assert_eq!(report["succeeded"], 40 - left, "{report}");
    assert!(left > 0, "it went on claiming");
    // Nobody waits for an expiry: what is left is done at once.
    let next = stage.start(&["worker", "--drain"]).wait(SOON).exits(0).json();
    assert_eq!((&next["succeeded"], &next["recovered"]), (&left.into(), &0.into()));
}

#[test]
fn a_second_signal_ends_a_worker_at_once() {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.snapshot("load", 10);
    stage.admit("a", 20, "load");
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let mut worker = stage.start(&["worker"]);
    clickhouse.springs();
    // Two signals that are pending together are one; so again until it heeds the second.
    until("it ends", SOON, || {
        worker.signal(Signal::TERM);
        (!worker.is_running()).then_some(())
    });
    worker.wait(SOON).exits(143);
    assert_eq!(stage.runs("SUCCEEDED"), 0, "it finished first");
    clickhouse.set(Mode::Cut);
    clickhouse.set(Mode::Pass);
    stage.start(&["worker", "--drain"]).wait(SOON).exits(0);
    assert_eq!(stage.runs("SUCCEEDED"), 20);
}

#[test]
fn a_second_signal_ends_a_stream_at_once_while_postgresql_is_silent() {
    let Some(log) = Log::new(1) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "60");
    let server = stage.pg_url().to_owned();
    let postgres = Proxy::to(&stage, &server);
    stage.set("FINAZ_PG_URL", &postgres.url(&server));
    let flow = stage.live_flow("f", &["i"]);
    let mut stream = stage.start(&log.stream(&flow, &["--run-id", "r"]));
    let opened = "SELECT count(*) FROM finaz.streams";
    until("it has its stream", SOON, || (stage.count(opened) > 0).then_some(()));
    // Its own patience with what does not answer is half a minute.
    postgres.set(Mode::Hold);
    until("it ends", Duration::from_secs(15), || {
        stream.signal(Signal::TERM);
        (!stream.is_running()).then_some(())
    });
    stream.wait(SOON).refuses(143, "INTERRUPTED");
}

#[test]
fn run_once_ends_75_when_postgresql_falls_silent_while_it_has_its_run() {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_SERVICE_TIMEOUT_SEC", "1");
    stage.snapshot("load", 10);
    let flow = stage.flow("silent", "load");
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let server = stage.pg_url().to_owned();
    let postgres = Proxy::to(&stage, &server);
    stage.set("FINAZ_PG_URL", &postgres.url(&server));
    let once = stage.start(&["run-once", "--flow", &flow]);
    clickhouse.springs();
    // Every connection stays, and nothing comes through any more: not an error, and not an answer.
    postgres.set(Mode::Hold);
    once.wait(SOON).refuses(75, "PG_AWAY");
    assert_eq!(stage.runs("SUCCEEDED"), 0);
}

#[test]
fn run_once_told_to_end_releases_its_run() {
    let Some(mut stage) = Stage::new() else { return };
    stage.snapshot("load", 10);
    let flow = stage.flow("slow", "load");
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let mut once = stage.start(&["run-once", "--flow", &flow]);
    clickhouse.springs();
    once.signal(Signal::TERM);
    once.wait(SOON).exits(143);
    released(&stage);
    clickhouse.set(Mode::Cut);
    clickhouse.set(Mode::Pass);
    // The lease would have lived for 30 s: whoever asks next does not wait for that.
    let done = stage.start(&["run-once", "--flow", &flow]).wait(Duration::from_secs(20));
    let done = done.exits(0).json();
    assert_eq!((&done["state"], &done["run_revision"]), (&"SUCCEEDED".into(), &1.into()));
    assert_eq!(stage.value("SELECT attempts FROM finaz.api_runs"), "0", "nobody died");
}

#[test]
fn a_lease_deleted_under_a_running_owner_takes_its_effects_and_not_its_runs() {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 10);
    let runs = stage.admit("a", 3, "load");
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let mut worker = stage.start(&["worker"]);
    clickhouse.springs();
    stage.sql("DELETE FROM finaz.leases");
    until("they are taken from it", SOON, || (stage.runs("QUEUED") == 3).then_some(()));
    clickhouse.set(Mode::Pass);
    until("they succeed", SOON, || (stage.runs("SUCCEEDED") == 3).then_some(()));
    let listed = until("the refusals are listed", SOON, || {
        let listed = stage.json(&["refused", "list"])["refused"].take();
        (listed.as_array().map(Vec::len) == Some(3)).then_some(listed)
    });
    assert!(runs.iter().all(|run| listed.to_string().contains(run)), "{listed}");
    let fences = "SELECT DISTINCT fence > 1, run_revision FROM finaz.api_runs";
    assert_eq!(stage.sql(fences), [["t", "1"]], "published under the deleted lease");
    assert!(worker.is_running(), "it gave up");
}

#[test]
fn two_workers_of_one_name_share_the_work_and_never_act_as_each_other() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.set("FINAZ_WORKER_POLL_SEC", "0.05");
    stage.set("FINAZ_OWNER", "twin");
    stage.snapshot("load", 20_000);
    let twins =
        [stage.start(&["worker", "--batch", "3"]), stage.start(&["worker", "--batch", "3"])];
    stage.admit("a", 200, "load");
    until("all is done", SOON, || (stage.runs("SUCCEEDED") == 200).then_some(()));
    let mut shares = Vec::new();
    for mut twin in twins {
        twin.signal(Signal::TERM);
        let report = twin.wait(SOON).exits(0).json();
        assert_eq!((&report["claimed"], &report["stale"]), (&report["succeeded"], &0.into()));
        shares.push(report["succeeded"].as_u64().expect("a number"));
    }
    assert_eq!(shares.iter().sum::<u64>(), 200, "{shares:?}");
    let once = "SELECT DISTINCT fence, run_revision, attempts FROM finaz.api_runs";
    assert_eq!(stage.sql(once), [["1", "1", "0"]]);
    let owners = "SELECT count(DISTINCT owner) FROM finaz.leases WHERE starts_with(owner, 'twin/')";
    assert_eq!(stage.count(owners), 2, "{shares:?}");
}
