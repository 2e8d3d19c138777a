//! One run a key, whoever asks, however often, whatever the network loses.

use std::time::Duration;

use crate::process::{Process, until};
use crate::proxy::{ADMISSION, Loss, Proxy};
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_hundred_processes_that_admit_one_key_at_once_make_one_run() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.fixture();
    // Those that are there meet at the same lock; it is held for less than they are willing to wait.
    let gate = stage.session();
    gate.sql("BEGIN; LOCK TABLE finaz.admission IN SHARE ROW EXCLUSIVE MODE");
    let mut asking: Vec<Process> = Vec::new();
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..100 {
        asking.push(stage.start(&["admit", "--flow", &flow, "--key", "one"]));
        if asking.len() == 20 {
            until("twenty wait", SOON, || (stage.count(waiting) == 20).then_some(()));
            gate.sql("COMMIT");
        }
    }
    let mut created = 0;
    let mut ids: Vec<String> = Vec::new();
    for process in asking {
        let answer = process.wait(SOON).exits(0).json();
        created += usize::from(answer["created"] == true);
        ids.push(answer["run_id"].as_str().expect("a run id").to_owned());
    }
    ids.dedup();
    assert_eq!((ids.len(), created), (1, 1), "{ids:?}");
    for table in ["admission", "api_runs", "outbox"] {
        assert_eq!(stage.count(&format!("SELECT count(*) FROM finaz.{table}")), 1, "{table}");
    }
}

#[test]
fn a_key_used_with_another_body_is_a_conflict_that_shows_both_hashes() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.fixture();
    let first = stage.json(&["admit", "--flow", &flow, "--key", "k"]);
    let again = stage.json(&["admit", "--flow", &flow, "--key", "k"]);
    assert_eq!((&again["run_id"], &again["created"]), (&first["run_id"], &false.into()));
    let other = stage.flow("other", "fixture.snapshot.01");
    let refused = stage.finaz(&["admit", "--flow", &other, "--key", "k"]);
    let refused = refused.refuses(1, "IDEMPOTENCY_CONFLICT");
    assert_eq!(refused["status"], 409);
    assert_eq!(refused["other_hash"], first["body_hash"]);
    assert_ne!(refused["body_hash"], first["body_hash"]);
    // And in a set, where the rest is admitted.
    let lines = format!(
        "{{\"flow\":\"{other}\",\"key\":\"k\"}}\n{{\"flow\":\"{other}\",\"key\":\"k2\"}}\n"
    );
    let file = stage.file("set.jsonl", lines);
    let set = stage.finaz(&["admit", "--from", &file]).exits(1).json();
    assert_eq!((&set["created"], &set["existing"]), (&1.into(), &0.into()));
    let conflict = &set["conflicts"][0];
    assert_eq!((&conflict["line"], &conflict["other_hash"]), (&1.into(), &first["body_hash"]));
    assert_eq!(stage.count("SELECT count(*) FROM finaz.api_runs"), 2);
    // Another key, principal or operation is another run.
    for more in [["--key", "k3"], ["--principal", "p"], ["--operation", "o"]] {
        let args = [&["admit", "--flow", &flow][..], &more].concat();
        assert_eq!(stage.json(&args)["created"], true, "{more:?}");
    }
}

#[test]
fn a_lost_reply_to_the_commit_of_an_admission_is_a_success_and_not_a_conflict() {
    for loss in [Loss::Reply, Loss::Request] {
        let Some(mut stage) = Stage::without_warehouse() else { return };
        let flow = stage.fixture();
        let proxy = Proxy::to(&stage, stage.pg_url());
        let direct = stage.pg_url().to_owned();
        stage.set("FINAZ_PG_URL", &proxy.url(&direct));
        proxy.trap(ADMISSION, loss);
        let answer = stage.json(&["admit", "--flow", &flow, "--key", "k"]);
        assert!(proxy.is_sprung(), "{loss:?}: nothing was lost");
        assert_eq!((&answer["created"], &answer["state"]), (&true.into(), &"QUEUED".into()));
        // The same for a set, in which another is there already.
        let other = stage.flow("other", "fixture.snapshot.01");
        let file = stage.file(
            "set.jsonl",
            format!(
                "{{\"flow\":\"{other}\",\"key\":\"n\"}}\n{{\"flow\":\"{flow}\",\"key\":\"k\"}}\n"
            ),
        );
        proxy.trap(ADMISSION, loss);
        let set = stage.json(&["admit", "--from", &file]);
        assert!(proxy.is_sprung(), "{loss:?}: nothing was lost");
        assert_eq!((&set["created"], &set["existing"]), (&1.into(), &1.into()), "{loss:?}");
        for table in ["admission", "api_runs", "outbox"] {
            assert_eq!(stage.count(&format!("SELECT count(*) FROM finaz.{table}")), 2, "{table}");
        }
    }
}

#[test]
fn a_flow_over_a_field_that_no_event_has_is_refused_before_anything_is_admitted() {
    let Some(stage) = Stage::without_warehouse() else { return };
    stage.fixture();
    let manifest = "kind: Flow\nname: f\nsource: {snapshot: fixture.snapshot.01}\ninstruments: [sim.alpha]\n\
                    nodes: [{id: e, type: ema, period: 3, input: clsoe}]\nsink: {dataset: d}\n";
    let flow = stage.file("f.yaml", manifest);
    for verb in ["admit", "run-once"] {
        let refused = stage.finaz(&[verb, "--flow", &flow]).refuses(2, "FIELD_UNKNOWN");
        assert!(refused["hint"].as_str().is_some_and(|hint| hint.contains("close")), "{refused}");
    }
    assert_eq!(stage.count("SELECT count(*) FROM finaz.api_runs"), 0);
}
