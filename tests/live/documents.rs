//! The documents that callers rely on: every field that is promised is in what comes out.

use serde_json::Value;

use crate::load::{GOLDEN, project};
use crate::stage::Stage;

#[track_caller]
fn has(document: &Value, fields: &str) {
    for field in fields.split(' ') {
        assert!(document.get(field).is_some(), "no `{field}` in {document}");
    }
}

#[test]
fn every_document_has_the_fields_that_are_promised() {
    let Some(stage) = Stage::new() else { return };
    let flow = stage.fixture();
    let done = stage.json(&["run-once", "--flow", &flow]);
    has(&done, "run_id state fence run_revision result already_done");
    has(&done["result"], "ref values_hash rows values series");
    has(&done["result"]["series"][0], "instrument node rows values_hash");
    assert_eq!(done["result"]["values_hash"], GOLDEN);
    let run = done["run_id"].as_str().expect("an id");

    let prices = project("fixtures/fixture.snapshot.01.jsonl");
    let imported = stage.json(&["snapshot", "import", &prices, "--name", "again"]);
    has(&imported, "snapshot name events instruments already_present");
    assert_eq!(imported["already_present"], true);
    let admitted = stage.json(&["admit", "--flow", &flow, "--key", "k"]);
    has(&admitted, "run_id body_hash created state");
    let line = format!("{{\"flow\":\"{flow}\",\"key\":\"k\"}}\n");
    let set = stage.json(&["admit", "--from", &stage.file("set", line)]);
    has(&set, "created existing conflicts");
    let worker = stage.json(&["worker", "--drain"]);
    has(&worker, "claimed succeeded failed cancelled recovered seconds");

    for args in [&["runs", "list"][..], &["runs", "show", run], &["runs", "wait", run]] {
        let runs = stage.json(args);
        has(&runs["runs"][0], "run_id state fence run_revision attempts error result");
    }
    has(&stage.json(&["runs", "trace", run])["events"][0], "at what fence owner");
    has(&stage.json(&["outbox", "list"])["events"][0], "id type run_id state claimed_by");
    has(&stage.json(&["refused", "list"]), "refused");
    has(&stage.json(&["lease", "list"])["leases"][0], "name owner fence epoch expires_at live");
    has(&stage.json(&["reconcile", "--dry-run"]), "checked repaired mismatches orphans");
    let doctor = stage.json(&["doctor"]);
    has(&doctor["checks"][0], "id ok expected seen hint");
    has(&stage.json(&["db", "status"]), "schema binary checks");
}

#[test]
fn what_people_read_fits_80_columns() {
    let Some(stage) = Stage::new() else { return };
    let flow = stage.fixture();
    let run = stage.json(&["run-once", "--flow", &flow])["run_id"].as_str().map(str::to_owned);
    let run = run.expect("an id");
    stage.json(&["lease", "acquire", "stream/of-a-rather-long-name-for-a-lease"]);
    for args in [
        &["runs", "list"][..],
        &["runs", "show", &run],
        &["runs", "trace", &run],
        &["outbox", "list"],
        &["lease", "list"],
        &["lease", "show", "stream/of-a-rather-long-name-for-a-lease"],
        &["db", "status"],
        &["doctor"],
        &["reconcile", "--dry-run"],
        &["cas", "verify"],
        &["run-once", "--flow", &flow],
    ] {
        let mut command = stage.command(args);
        command.env("FINAZ_JSON", "0").env("COLUMNS", "80");
        let output = command.output().expect("finaz starts");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(!text.is_empty(), "{args:?}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
    }
}
