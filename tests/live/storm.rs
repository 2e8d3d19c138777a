//! Everything at once: workers, cancellations, admissions of the same keys, reconcilers and sweeps. No deadlock that shows,
//! and every run ends once.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::dice::Dice;
use crate::process::{Process, until};
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(90);

#[test]
fn runs_end_once_among_workers_cancellations_and_reconcilers_that_meet() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.05");
    stage.snapshot("load", 50_000);
    let mut dice = Dice::new("storm");
    let runs = stage.admit("a", 200, "load");
    let workers: Vec<Process> =
        (0..3).map(|n| stage.start(&["worker", "--batch", &(3 + 10 * n).to_string()])).collect();
    let (mut cancelled, mut others) = (Vec::new(), Vec::new());
    while stage.runs("QUEUED") > 0 {
        let run = &runs[dice.pick(0..runs.len())];
        cancelled.push(stage.start(&["runs", "cancel", run]));
        others.push(stage.start(&["reconcile"]));
        let file = stage.path("a.requests").to_string_lossy().into_owned();
        others.push(stage.start(&["admit", "--from", &file]));
        for process in cancelled.iter_mut().chain(&mut others) {
            until("it ends", SOON, || (!process.is_running()).then_some(()));
        }
    }
    until("all have ended", SOON, || {
        (stage.runs("SUCCEEDED") + stage.runs("CANCELLED") == runs.len()).then_some(())
    });
    for process in others {
        process.wait(SOON).exits(0);
    }
    for process in cancelled {
        let ended = process.wait(SOON);
        let late = ended.exit == Some(1) && ended.out.contains("CANCEL_TOO_LATE");
        assert!(late || ended.exit == Some(0), "{ended:?}");
    }
    let (mut succeeded, mut dropped) = (0, 0);
    for mut worker in workers {
        worker.signal(Signal::TERM);
        let report = worker.wait(SOON).exits(0).json();
        assert_eq!((&report["failed"], &report["stale"]), (&0.into(), &0.into()), "{report}");
        succeeded += report["succeeded"].as_u64().expect("a number");
        dropped += report["cancelled"].as_u64().expect("a number");
    }
    let count = |state: &str| u64::try_from(stage.runs(state)).expect("a count");
    assert_eq!(succeeded, count("SUCCEEDED"), "done twice, or not known to be done");
    assert!(dropped <= count("CANCELLED"));
    let ends = "SELECT DISTINCT run_revision, attempts FROM finaz.api_runs";
    assert_eq!(stage.sql(ends), [["1", "0"]], "revision, attempts");
    let both = "SELECT count(*) FROM finaz.publications JOIN finaz.api_runs USING (run_no)
                WHERE state <> 'SUCCEEDED'";
    assert_eq!(stage.count(both), 0, "cancelled, and published");
    let found = stage.json(&["reconcile"]);
    assert_eq!((&found["mismatches"], &found["repaired"]), (&json!([]), &0.into()), "{found}");
}
