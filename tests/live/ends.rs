//! How a run ends: once, with the known result, cancelled, or in conflict; and that all of it can be read afterwards.

use std::time::Duration;

use serde_json::{Value, json};

use crate::load::GOLDEN;
use crate::process::Process;
use crate::proxy::{Mode, Proxy};
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn run_once_gives_the_golden_result_and_the_second_time_the_same_without_doing_it() {
    let Some(stage) = Stage::new() else { return };
    let flow = stage.fixture();
    let dry = stage.json(&["run-once", "--flow", &flow, "--dry-run"]);
    assert_eq!(dry["result"]["values_hash"], GOLDEN);
    assert_eq!(stage.count("SELECT count(*) FROM finaz.api_runs"), 0, "a dry run left something");
    let first = stage.json(&["run-once", "--flow", &flow]);
    let seen = (&first["state"], &first["run_revision"], &first["already_done"]);
    assert_eq!(seen, (&"SUCCEEDED".into(), &1.into(), &false.into()), "{first}");
    assert_eq!(first["result"]["values_hash"], GOLDEN);
    assert_eq!(first["result"]["values"], json!([null, null, 2.0, 3.0, 4.0, 5.0]));
    let again = stage.json(&["run-once", "--flow", &flow]);
    assert_eq!(again["already_done"], true);
    for key in ["run_id", "fence", "run_revision", "result"] {
        assert_eq!(again[key], first[key], "{key}");
    }
    assert_eq!(stage.count("SELECT count(*) FROM finaz.publications"), 1);
    assert_eq!(stage.clickhouse("SELECT count() FROM {db}.staging"), "6", "staged again");
}

#[test]
fn of_many_run_once_of_one_key_at_once_one_publishes_and_all_show_it() {
    let Some(stage) = Stage::new() else { return };
    let flow = stage.fixture();
    let once: Vec<Process> = (0..8).map(|_| stage.start(&["run-once", "--flow", &flow])).collect();
    let mut refs: Vec<Value> = Vec::new();
    for process in once {
        let done = process.wait(SOON).exits(0).json();
        assert_eq!(done["run_revision"], 1, "{done}");
        refs.push(done["result"]["ref"].clone());
    }
    refs.dedup();
    assert_eq!(refs.len(), 1, "{refs:?}");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.publications"), 1);
    assert_eq!(stage.sql("SELECT fence, attempts FROM finaz.api_runs"), [["1", "0"]]);
    assert_eq!(stage.json(&["refused", "list"])["refused"], json!([]));
}

#[test]
fn a_trace_tells_the_whole_life_of_a_run_in_order() {
    let Some(stage) = Stage::new() else { return };
    let flow = stage.fixture();
    let run = stage.json(&["run-once", "--flow", &flow])["run_id"].clone();
    let trace = stage.json(&["runs", "trace", run.as_str().expect("a run id")]);
    let events = trace["events"].as_array().expect("events").clone();
    let mut at = 0;
    for what in ["admitted", "claimed", "staged", "published", "delivered"] {
        let found = events[at..]
            .iter()
            .position(|event| event["what"].as_str().expect("text").starts_with(what));
        at += found.unwrap_or_else(|| panic!("no {what}, or out of order: {trace}"));
        let event = &events[at];
        assert!(what == "admitted" || event["fence"] == 1, "{event}");
        assert!(what != "claimed" || event["owner"].is_string(), "{event}");
    }
    let times: Vec<&str> = events.iter().filter_map(|event| event["at"].as_str()).collect();
    assert!(times.is_sorted() && times.len() == events.len(), "{times:?}");
}

#[test]
fn a_run_is_cancelled_before_its_start_and_not_after_its_publication() {
    let Some(stage) = Stage::new() else { return };
    stage.snapshot("load", 10);
    let runs = stage.admit("a", 2, "load");
    let cancelled = stage.json(&["runs", "cancel", &runs[0]]);
    assert_eq!(cancelled["runs"][0]["state"], "CANCELLED");
    let report = stage.start(&["worker", "--drain"]).wait(SOON).exits(0).json();
    assert_eq!((&report["claimed"], &report["succeeded"]), (&1.into(), &1.into()), "it was run");
    let late = stage.finaz(&["runs", "cancel", &runs[1]]).refuses(1, "CANCEL_TOO_LATE");
    assert_eq!(late["state"], "SUCCEEDED");
    stage.json(&["runs", "cancel", &runs[0]]);
    stage.finaz(&["runs", "wait", &runs[0]]).refuses(1, "RUN_CANCELLED");
    let ends = "SELECT state, run_revision FROM finaz.api_runs ORDER BY state";
    assert_eq!(stage.sql(ends), [["CANCELLED", "1"], ["SUCCEEDED", "1"]]);
    let pending = "SELECT count(*) FROM finaz.outbox WHERE delivered_at IS NULL";
    assert_eq!(stage.count(pending), 0);
}

#[test]
fn a_run_cancelled_while_it_runs_ends_cancelled_at_its_boundary_and_its_mates_succeed() {
    let Some(mut stage) = Stage::new() else { return };
    stage.snapshot("load", 10);
    let runs = stage.admit("a", 4, "load");
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let worker = stage.start(&["worker", "--drain"]);
    clickhouse.springs();
    let asked = stage.json(&["runs", "cancel", &runs[2]]);
    clickhouse.set(Mode::Pass);
    let asked = &asked["runs"][0];
    assert_eq!((&asked["state"], &asked["cancel_requested"]), (&"RUNNING".into(), &true.into()));
    let report = worker.wait(SOON).exits(0).json();
    assert_eq!((&report["succeeded"], &report["cancelled"]), (&3.into(), &1.into()), "{report}");
    let ends = "SELECT state, count(*) FROM finaz.api_runs GROUP BY state ORDER BY state";
    assert_eq!(stage.sql(ends), [["CANCELLED", "1"], ["SUCCEEDED", "3"]]);
    let published = format!("SELECT count(*) FROM finaz.publications WHERE run_id = '{}'", runs[2]);
    assert_eq!(stage.count(&published), 0, "published, though cancelled");
    assert_eq!(stage.json(&["refused", "list"])["refused"], json!([]));
}

/// What a bug or a computation that is not pure would have left behind.
fn forge(stage: &Stage, run: &str) {
    stage.sql(&format!(
        "INSERT INTO finaz.publications (run_no, epoch, fence, rows, ref, values_hash, run_id)
         SELECT run_no, 1, 1, 8, sha256('forged'), sha256('forged'), run_id
         FROM finaz.api_runs WHERE run_id = '{run}'"
    ));
}

#[test]
fn a_publication_with_another_hash_is_a_conflict_that_fails_its_run_alone_and_is_never_overwritten()
{
    let Some(stage) = Stage::new() else { return };
    stage.snapshot("load", 10);
    let runs = stage.admit("a", 5, "load");
    forge(&stage, &runs[3]);
    let worker = stage.start(&["worker", "--drain"]).wait(SOON).exits(0).json();
    assert_eq!((&worker["succeeded"], &worker["failed"]), (&4.into(), &1.into()), "{worker}");
    let (held, offered) = (stage.value("SELECT 'sha256:' || encode(sha256('forged'), 'hex')"), {
        // The same request under another key has the same result.
        let flow = stage.flow("a.0003", "load");
        let done = stage.json(&["run-once", "--flow", &flow, "--key", "other"]);
        done["result"]["ref"].as_str().expect("a hash").to_owned()
    });
    let found = stage.sql(&format!(
        "SELECT state, run_revision, error FROM finaz.api_runs WHERE run_id = '{}'",
        runs[3]
    ));
    let [state, revision, error] = &found[0][..] else { panic!("{found:?}") };
    assert_eq!((state.as_str(), revision.as_str()), ("FAILED", "1"), "{error}");
    assert!(error.contains("PUBLICATION_CONFLICT"), "{error}");
    assert!(error.contains(&held) && error.contains(&offered), "not both hashes: {error}");
    let kept = "SELECT count(*) FROM finaz.publications WHERE ref = sha256('forged')";
    assert_eq!(stage.count(kept), 1, "overwritten");
    // In the foreground the same, said at once.
    let flow = stage.flow("alone", "load");
    let run = stage.json(&["admit", "--flow", &flow])["run_id"].clone();
    forge(&stage, run.as_str().expect("a run id"));
    let refused = stage.finaz(&["run-once", "--flow", &flow]).exits(1);
    assert!(refused.out.contains("PUBLICATION_CONFLICT"), "{refused:?}");
}
