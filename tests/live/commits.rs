//! The reply to a COMMIT that never came: what is published is published once, and known to be.

use std::time::Duration;

use rustix::process::Signal;

use crate::process::until;
use crate::proxy::{CLAIM, END, Loss, Mode, PUBLICATION, Proxy};
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);

/// A worker does three runs by way of a proxy that loses this message of this statement's commit.
fn done_in_spite_of(statement: &'static str, loss: Loss) {
    let Some(stage) = Stage::new() else { return };
    stage.snapshot("load", 10);
    stage.admit("a", 3, "load");
    let direct = stage.pg_url().to_owned();
    let proxy = Proxy::to(&stage, &direct);
    proxy.trap(statement, loss);
    let proxied = proxy.url(&direct);
    let worker = stage.start_with(&[("FINAZ_PG_URL", &proxied)], &["worker", "--drain"]);
    // Long before the lease of 30 s ends.
    let report = worker.wait(Duration::from_secs(25)).exits(0).json();
    assert!(proxy.is_sprung(), "nothing was lost");
    assert_eq!((&report["succeeded"], &report["stale"]), (&3.into(), &0.into()), "{report}");
    let ends = "SELECT DISTINCT state, run_revision, attempts, error FROM finaz.api_runs";
    assert_eq!(stage.sql(ends), [["SUCCEEDED", "1", "0", ""]]);
    assert_eq!(stage.count("SELECT count(*) FROM finaz.publications"), 3);
    let refused = stage.json(&["refused", "list"]);
    assert_eq!(refused["refused"], serde_json::json!([]), "its own effect held against it");
}

#[test]
fn a_lost_reply_to_the_commit_of_a_publication_is_a_success_after_reading_back() {
    done_in_spite_of(PUBLICATION, Loss::Reply);
}

#[test]
fn a_lost_request_to_commit_a_publication_is_made_again() {
    done_in_spite_of(PUBLICATION, Loss::Request);
}

#[test]
fn a_lost_reply_to_a_claim_costs_no_lease_time_and_no_attempt() {
    done_in_spite_of(CLAIM, Loss::Reply);
}

#[test]
fn a_lost_request_to_claim_is_made_again() {
    done_in_spite_of(CLAIM, Loss::Request);
}

#[test]
fn a_lost_reply_to_the_commit_that_failed_a_run_fails_it_once_and_its_mates_succeed() {
    for loss in [Loss::Reply, Loss::Request] {
        let Some(stage) = Stage::new() else { return };
        stage.snapshot("load", 10);
        let runs = stage.admit("a", 4, "load");
        // The snapshot that it names is not there.
        stage.sql(&format!(
            "UPDATE finaz.api_runs SET snapshot = sha256('nothing') WHERE run_id = '{}'",
            runs[2]
        ));
        let direct = stage.pg_url().to_owned();
        let proxy = Proxy::to(&stage, &direct);
        proxy.trap(END, loss);
        let proxied = proxy.url(&direct);
        let worker = stage.start_with(&[("FINAZ_PG_URL", &proxied)], &["worker", "--drain"]);
        worker.wait(Duration::from_secs(25)).exits(0);
        assert!(proxy.is_sprung(), "{loss:?}: nothing was lost");
        let ends = "SELECT state, run_revision, attempts, count(*) FROM finaz.api_runs
                    GROUP BY 1, 2, 3 ORDER BY 1";
        let expected = [["FAILED", "1", "0", "1"], ["SUCCEEDED", "1", "0", "3"]];
        assert_eq!(stage.sql(ends), expected, "{loss:?}");
        assert_eq!(stage.json(&["refused", "list"])["refused"], serde_json::json!([]), "{loss:?}");
    }
}

#[test]
fn a_lost_reply_to_a_commit_that_also_cancelled_a_run_is_a_success() {
    let Some(mut stage) = Stage::new() else { return };
    stage.snapshot("load", 10);
    let runs = stage.admit("a", 4, "load");
    let clickhouse = Proxy::held_at_staging(&mut stage);
    let direct = stage.pg_url().to_owned();
    let proxy = Proxy::to(&stage, &direct);
    proxy.trap(PUBLICATION, Loss::Reply);
    let proxied = proxy.url(&direct);
    let mut worker = stage.start_with(&[("FINAZ_PG_URL", &proxied)], &["worker"]);
    clickhouse.springs();
    stage.finaz(&["runs", "cancel", &runs[1]]).exits(0);
    clickhouse.set(Mode::Pass);
    until("they have ended", SOON, || {
        (stage.runs("SUCCEEDED") == 3 && stage.runs("CANCELLED") == 1).then_some(())
    });
    worker.signal(Signal::TERM);
    let report = worker.wait(SOON).exits(0).json();
    assert!(proxy.is_sprung(), "nothing was lost");
    assert_eq!(
        (&report["succeeded"], &report["cancelled"], &report["stale"]),
        (&3.into(), &1.into(), &0.into()),
        "{report}"
    );
    let refused = stage.json(&["refused", "list"]);
    assert_eq!(refused["refused"], serde_json::json!([]), "its own publication held against it");
}

#[test]
fn run_once_with_a_lost_reply_shows_the_published_result() {
    for loss in [Loss::Reply, Loss::Request] {
        let Some(stage) = Stage::new() else { return };
        let flow = stage.fixture();
        let direct = stage.pg_url().to_owned();
        let proxy = Proxy::to(&stage, &direct);
        proxy.trap(PUBLICATION, loss);
        let proxied = proxy.url(&direct);
        let done = stage.finaz_with(&[("FINAZ_PG_URL", &proxied)], &["run-once", "--flow", &flow]);
        let done = done.exits(0).json();
        assert!(proxy.is_sprung(), "nothing was lost");
        let seen = (&done["state"], &done["run_revision"], &done["already_done"]);
        assert_eq!(seen, (&"SUCCEEDED".into(), &1.into(), &false.into()), "{loss:?}: {done}");
    }
}
