//! What `reconcile` finds and mends, and what it leaves alone.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::until;
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);

/// Three published runs.
fn published(stage: &Stage) -> Vec<String> {
    stage.snapshot("load", 10);
    let runs = stage.admit("a", 3, "load");
    stage.start(&["worker", "--drain"]).wait(SOON).exits(0);
    runs
}

/// Everything that must not change in a dry run.
fn state(stage: &Stage) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for table in ["api_runs", "outbox", "leases", "publications", "run_history"] {
        all.extend(stage.sql(&format!("SELECT * FROM finaz.{table} ORDER BY 1")));
    }
    let rows = "SELECT groupArray(tuple(*)) FROM (SELECT * EXCEPT (staged_at) FROM {db}.staging ORDER BY ALL)";
    all.push(vec![stage.clickhouse(rows)]);
    all
}

/// A dry run, which changes nothing, and then a real one, which finds the same.
#[track_caller]
fn reconcile(stage: &Stage, exit: i32) -> Value {
    let before = state(stage);
    let dry = stage.finaz(&["reconcile", "--dry-run"]).exits(exit).json();
    assert_eq!(state(stage), before, "a dry run changed something");
    let real = stage.finaz(&["reconcile"]).exits(exit).json();
    for key in ["checked", "repaired", "mismatches", "orphans"] {
        assert_eq!(dry[key], real[key], "{key} of the dry run and of the real one");
    }
    real
}

#[test]
fn what_is_in_order_is_left_alone() {
    let Some(stage) = Stage::new() else { return };
    published(&stage);
    let before = state(&stage);
    let found = reconcile(&stage, 0);
    assert_eq!((&found["checked"], &found["repaired"]), (&3.into(), &0.into()));
    assert_eq!((&found["mismatches"], &found["orphans"]), (&json!([]), &json!([])));
    assert_eq!(state(&stage), before);
}

#[test]
fn an_event_that_was_claimed_and_never_delivered_is_given_back() {
    let Some(stage) = Stage::new() else { return };
    published(&stage);
    let run = stage.admit("late", 1, "load").remove(0);
    stage.sql(&format!("UPDATE finaz.outbox SET claimed = true WHERE run_id = '{run}'"));
    let found = reconcile(&stage, 0);
    assert_eq!(found["repaired"], 1, "{found}");
    let pending = stage.json(&["outbox", "list", "--pending"]);
    assert_eq!(pending["events"][0]["state"], "pending", "{pending}");
    assert_eq!(stage.finaz(&["reconcile"]).exits(0).json()["repaired"], 0, "mended twice");
    stage.start(&["worker", "--drain"]).wait(SOON).exits(0);
    assert_eq!(stage.runs("SUCCEEDED"), 4);
}

#[test]
fn rows_that_clickhouse_lost_are_staged_again() {
    let Some(stage) = Stage::new() else { return };
    let runs = published(&stage);
    let rows = "SELECT groupArray(tuple(*)) FROM (SELECT * EXCEPT (staged_at) FROM {db}.staging ORDER BY ALL)";
    let before = stage.clickhouse(rows);
    stage.clickhouse(&format!("DELETE FROM {{db}}.staging WHERE run_id = '{}'", runs[1]));
    until("the rows are gone", SOON, || (stage.clickhouse(rows) != before).then_some(()));
    let found = reconcile(&stage, 0);
    assert_eq!((&found["repaired"], &found["mismatches"]), (&1.into(), &json!([])), "{found}");
    assert_eq!(stage.clickhouse(rows), before, "other rows than before");
}

#[test]
fn rows_that_are_not_what_was_published_are_a_mismatch() {
    let Some(stage) = Stage::new() else { return };
    let runs = published(&stage);
    stage.clickhouse(&format!(
        "ALTER TABLE {{db}}.staging UPDATE value = 7.25 WHERE run_id = '{}' AND seq = 7 SETTINGS mutations_sync = 2",
        runs[1]
    ));
    let found = reconcile(&stage, 1);
    let mismatch = &found["mismatches"][0];
    assert_eq!((&mismatch["run_id"], &mismatch["place"]), (&json!(runs[1]), &json!("warehouse")));
}

#[test]
fn a_few_rows_that_clickhouse_lost_are_staged_again_wherever_they_were() {
    let Some(stage) = Stage::new() else { return };
    let runs = published(&stage);
    let rows = "SELECT count() FROM (SELECT DISTINCT run_no, seq FROM {db}.staging)";
    let whole = stage.clickhouse(rows);
    for lost in ["seq = 0", "seq = 1", "seq >= 2", "run_no % 2 = 0"] {
        let delete =
            format!("ALTER TABLE {{db}}.staging DELETE WHERE {lost} SETTINGS mutations_sync = 2");
        stage.clickhouse(&delete);
        let found = reconcile(&stage, 0);
        assert_eq!(found["mismatches"], json!([]), "{lost}: {found}");
        let repaired = found["repaired"].as_u64().expect("a number");
        assert!((1..=runs.len() as u64).contains(&repaired), "{lost}: {found}");
        assert_eq!(stage.clickhouse(rows), whole, "{lost}");
        assert_eq!(reconcile(&stage, 0)["repaired"], 0, "{lost}");
    }
}

#[test]
fn a_store_is_not_cleaned_on_the_word_of_another_database() {
    let Some(stage) = Stage::new() else { return };
    let Some(other) = Stage::new() else { return };
    let runs = published(&stage);
    let clean = ["cas", "gc", "--min-age-sec", "60"];
    for more in [&[][..], &["--dry-run"]] {
        let args = [&clean[..], more].concat();
        let asked = stage.finaz_with(&[("FINAZ_PG_URL", other.pg_url())], &args);
        asked.refuses(2, "CAS_STORE_OF_ANOTHER");
    }
    // A store of both is nobody's to clean.
    stage.finaz(&clean).exits(0);
    let worker = ["worker", "--drain", "--warehouse", "none"];
    stage.finaz_with(&[("FINAZ_PG_URL", other.pg_url())], &worker).exits(0);
    stage.finaz(&clean).refuses(2, "CAS_STORE_OF_ANOTHER");
    let file = stage.path("out.csv").to_string_lossy().into_owned();
    stage.finaz(&["runs", "export", &runs[0], "--out", &file]).exits(0);
}

/// Every file of the artifact store that holds blobs.
fn blobs(stage: &Stage) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![stage.artifacts().join("cas")];
    while let Some(folder) = queue.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { queue.push(path) } else { found.push(path) }
        }
    }
    found
}

#[test]
fn a_flipped_bit_in_a_published_blob_is_a_mismatch_and_no_reader_gets_it() {
    let Some(stage) = Stage::new() else { return };
    let runs = published(&stage);
    let shown = stage.json(&["runs", "show", &runs[0]]);
    let hash = shown["runs"][0]["result"]["ref"].as_str().expect("a hash").to_owned();
    let hex = hash.strip_prefix("sha256:").expect("a hash");
    let named = |path: &PathBuf| path.to_string_lossy().replace('/', "").ends_with(hex);
    let path = blobs(&stage).into_iter().find(named).expect("the blob of the result");
    let mut bytes = fs::read(&path).expect("a readable blob");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(&path).expect("a blob that can be replaced");
    fs::write(&path, bytes).expect("a written file");
    let found = reconcile(&stage, 1);
    let mismatch = &found["mismatches"][0];
    assert_eq!((&mismatch["run_id"], &mismatch["place"]), (&json!(runs[0]), &json!("artifacts")));
    assert_eq!(found["checked"], 3, "{found}");
    stage.finaz(&["cas", "verify"]).exits(1);
    let file = stage.path("out.csv").to_string_lossy().into_owned();
    let export = ["runs", "export", &runs[0], "--out", &file];
    assert_ne!(stage.finaz(&export).exit, Some(0), "a damaged result was exported");
}

#[test]
fn a_damaged_input_fails_its_own_runs_and_nobody_elses() {
    let Some(stage) = Stage::new() else { return };
    stage.snapshot("good", 10);
    stage.snapshot("bad", 3_000);
    let listed = stage.json(&["snapshot", "list"]);
    let bad = listed["snapshots"].as_array().expect("a list").iter().find(|it| it["name"] == "bad");
    let hash = bad.expect("it is listed")["snapshot"].as_str().expect("a hash").to_owned();
    let hex = hash.strip_prefix("sha256:").expect("a hash");
    let named = |path: &PathBuf| path.to_string_lossy().replace('/', "").ends_with(hex);
    let damaged = stage.admit("bad", 2, "bad");
    stage.admit("good", 3, "good");
    let path = blobs(&stage).into_iter().find(named).expect("the blob of the snapshot");
    let bytes = fs::read(&path).expect("a readable blob");
    fs::remove_file(&path).expect("a blob that can be replaced");
    // Still JSON lines: only the hash tells.
    let text = String::from_utf8(bytes).expect("text").replace("\"close\":", "\"close\":1");
    fs::write(&path, text).expect("a written file");
    let report = stage.start(&["worker", "--drain"]).wait(SOON).exits(0).json();
    assert_eq!((&report["succeeded"], &report["failed"]), (&3.into(), &2.into()), "{report}");
    let refused = stage.finaz(&["runs", "wait", &damaged[0]]).refuses(1, "RUN_FAILED");
    assert!(refused["error"].as_str().expect("text").contains("ARTIFACT_CORRUPT"), "{refused}");
}

#[test]
fn a_damaged_pack_of_old_results_stops_no_new_runs() {
    let Some(stage) = Stage::without_warehouse() else { return };
    stage.snapshot("load", 10);
    // More results at once than are kept one by one.
    let old = stage.admit("old", 150, "load");
    stage.start(&["worker", "--drain"]).wait(SOON).exits(0);
    let packs: Vec<PathBuf> = blobs(&stage)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "pack"))
        .collect();
    let [pack] = &packs[..] else { panic!("one pack: {packs:?}") };
    let mut bytes = fs::read(pack).expect("a readable pack");
    // In its index, so that nothing in it can be found.
    let at = bytes.len() - 60;
    bytes[at] ^= 1;
    fs::remove_file(pack).expect("a pack that can be replaced");
    fs::write(pack, bytes).expect("a written file");
    let flow = stage.flow("alone", "load");
    assert_eq!(stage.json(&["run-once", "--flow", &flow])["state"], "SUCCEEDED");
    stage.admit("new", 10, "load");
    let report = stage.start(&["worker", "--drain"]).wait(SOON).exits(0).json();
    assert_eq!(report["succeeded"], 10, "{report}");
    let found = stage.finaz(&["reconcile"]).exits(1).json();
    let mismatches = found["mismatches"].as_array().expect("a list");
    assert_eq!(mismatches.len(), old.len(), "{found}");
    stage.finaz(&["cas", "verify"]).exits(1);
}

#[test]
fn rows_of_an_attempt_that_was_never_published_are_listed_and_removed_only_on_demand() {
    let Some(stage) = Stage::new() else { return };
    let runs = published(&stage);
    // What a worker leaves that dies between its insert and its publication.
    let columns = stage.clickhouse(
        "SELECT arrayStringConcat(groupArray(name), ',') FROM system.columns
         WHERE database = '{db}' AND table = 'staging' AND name != 'fence' AND default_kind = ''",
    );
    stage.clickhouse(&format!(
        "INSERT INTO {{db}}.staging ({columns}, fence)
         SELECT {columns}, 77 FROM {{db}}.staging WHERE run_id = '{}'",
        runs[2]
    ));
    let count = "SELECT count() FROM {db}.staging";
    let before = stage.clickhouse(count);
    let found = reconcile(&stage, 0);
    let orphan = &found["orphans"][0];
    assert_eq!((&orphan["run_id"], &orphan["fence"]), (&json!(runs[2]), &json!(77)), "{found}");
    assert_eq!(found["orphans"].as_array().map(Vec::len), Some(1));
    assert_eq!(stage.clickhouse(count), before, "removed, though nobody asked");
    let removed = stage.json(&["reconcile", "--remove-orphans"]);
    assert_eq!(removed["removed"], 8, "{removed}");
    until("they are gone", SOON, || (stage.clickhouse(count) == "24").then_some(()));
    assert_eq!(stage.json(&["reconcile"])["orphans"], json!([]));
}
