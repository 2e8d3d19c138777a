//! `finaz drill kill-matrix`: some of its runs, and that nothing but such a drill can hold a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Process, until};
use crate::setting;
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);
/// On a machine that is busy with other tests.
const MATRIX: Duration = Duration::from_secs(300);

/// A stage whose drills are on the servers of `make up`, in a temporary folder of the test's own.
fn stage() -> Option<(Stage, PathBuf)> {
    let mut stage = Stage::new()?;
    stage.set("FINAZ_BROKERS", &setting("FINAZ_BROKERS")?);
    let temporary = stage.path("temporary");
    fs::create_dir(&temporary).expect("a folder");
    stage.set("TMPDIR", temporary.to_str().expect("a path"));
    Some((stage, temporary))
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("a folder").next().is_none()
}

/// Databases that drills of these nonces left, in PostgreSQL and in ClickHouse.
fn left(stage: &Stage, nonces: &[String]) -> (usize, String) {
    let names: Vec<String> = nonces.iter().map(|nonce| format!("'finaz_drill_{nonce}'")).collect();
    let names = names.join(", ");
    let here = format!("SELECT count(*) FROM pg_database WHERE datname IN ({names})");
    let there = format!("SELECT count() FROM system.databases WHERE name IN ({names})");
    (stage.count(&here), stage.clickhouse(&there).trim().to_owned())
}

#[test]
fn a_process_held_at_any_of_its_points_under_any_fault_loses_and_doubles_nothing() {
    let Some((stage, temporary)) = stage() else { return };
    let out = stage.path("evidence");
    let mut args =
        vec!["drill", "kill-matrix", "--seed", "7", "--out", out.to_str().expect("UTF-8")];
    for point in ["publish.made", "blob.half", "fence.made", "commit.sent", "emit.named"] {
        args.extend(["--only", point]);
    }
    let run = stage.start(&args).wait(MATRIX);
    let report = run.json();
    let runs = report["runs"].as_array().expect("runs");
    let open: Vec<&Value> = runs.iter().filter(|run| run["verdict"] != "PASS").collect();
    assert_eq!((run.exit, &report["verdict"]), (Some(0), &"PASS".into()), "{open:#?}");
    // A blob is kept by workers and by streams.
    assert_eq!((runs.len(), &report["whole"]), (6 * 4, &false.into()));
    let checks = report["checks"].as_array().expect("checks");
    assert!(checks.len() == 8 && checks.iter().all(|check| check["pass"] == true), "{checks:?}");
    let ledger = &report["ledger"];
    for none in ["lost", "unexpected", "duplicated"] {
        assert_eq!(ledger[none], 0, "{ledger}");
    }
    assert_eq!(ledger["attempted"], 4 * 4 * 46, "{ledger}");
    let nonces = report["nonces"].as_array().expect("nonces").iter();
    let nonces: Vec<String> =
        nonces.map(|nonce| nonce.as_str().expect("a nonce").to_owned()).collect();
    assert_eq!(left(&stage, &nonces), (0, "0".to_owned()));
    assert!(is_empty(&temporary));
    let history = fs::read(out.join("kill-matrix.history.jsonl")).expect("the history");
    assert_eq!(report["history_hash"], finaz::ids::Hash::of(&history).to_string());
    let page = fs::read_to_string(out.join("kill-matrix.html")).expect("the page");
    assert!(page.contains("publish.made") && page.contains("<svg") && !page.contains("<script"));
}

#[test]
fn a_matrix_that_is_told_to_end_leaves_nothing_and_takes_no_database_that_is_not_a_drill_s() {
    let Some((stage, temporary)) = stage() else { return };
    let with = [("FINAZ_DATABASE", stage.pg_url())];
    let drill = ["drill", "kill-matrix", "--only", "commit.sent"];
    stage.start_with(&with, &drill).wait(SOON).refuses(2, "DRILL_UNMARKED");
    let mut drill = stage.start(&drill);
    let nonces = until("its folders are there", SOON, || {
        let names = fs::read_dir(&temporary).expect("a folder");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        let nonces: Vec<String> = names
            .map(|name| name.to_string_lossy().trim_start_matches("finaz-drill-").to_owned())
            .collect();
        (nonces.len() == 4).then_some(nonces)
    });
    drill.signal(Signal::INT);
    drill.wait(SOON).refuses(130, "INTERRUPTED");
    assert_eq!(left(&stage, &nonces), (0, "0".to_owned()));
    assert!(is_empty(&temporary));
}

/// Marks the test's database as a drill's, as a drill does it.
pub(crate) fn mark(stage: &Stage, nonce: &str, folder: &Path) {
    stage.sql("DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE %I IS ''finaz drill''', current_database()); END $$");
    stage.sql(&format!(
        "CREATE SCHEMA finaz_drill;
         CREATE TABLE finaz_drill.mark (nonce text PRIMARY KEY, topics text NOT NULL, folder text NOT NULL);
         INSERT INTO finaz_drill.mark VALUES ('{nonce}', 'finaz-drill-{nonce}.', '{}')",
        folder.display()
    ));
}

/// A worker of which somebody wants that it is held before it claims anything.
fn wished(stage: &Stage, nonce: &str) -> Process {
    let wish = format!("worker.ready:1:{nonce}");
    stage.start_with(&[("FINAZ_DRILL_POINT", &wish)], &["worker", "--drain"])
}

#[test]
fn a_process_is_held_in_the_database_of_the_drill_that_asks_and_nowhere_else() {
    let Some((stage, folder)) = stage() else { return };
    let passes = |nonce: &str| {
        let run = wished(&stage, nonce).wait(SOON).exits(0);
        assert!(is_empty(&folder), "{run:?}");
        assert!(run.err.contains("not the drill's"), "{run:?}");
    };
    // No mark; then a drill's, of another nonce.
    passes("a1b2");
    mark(&stage, "a1b2", &folder);
    passes("c3d4");
    // What is not understood is nothing, and is said.
    let odd = [("FINAZ_DRILL_POINT", "no.such:1:a1b2")];
    let run = stage.start_with(&odd, &["worker", "--drain"]).wait(SOON).exits(0);
    assert!(is_empty(&folder) && run.err.contains("FINAZ_DRILL_POINT"), "{run:?}");
    let mut held = wished(&stage, "a1b2");
    let says = until("it says where it is", SOON, || {
        let mut files = fs::read_dir(&folder).expect("a folder");
        files.next().map(|entry| entry.expect("an entry").path())
    });
    let pid = says.extension().expect("a number").to_string_lossy().into_owned();
    until("it is stopped", SOON, || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
        stat.rsplit_once(") ")?.1.starts_with('T').then_some(())
    });
    assert_eq!(fs::read_to_string(&says).expect("the file"), "worker.ready");
    // Woken by somebody else it goes no further; when the drill lets it go, it does.
    held.signal(Signal::CONT);
    until("it is awake", SOON, || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
        (!stat.rsplit_once(") ")?.1.starts_with('T')).then_some(())
    });
    assert!(held.is_running());
    fs::remove_file(&says).expect("the file is there");
    held.wait(SOON).exits(0);
}

#[test]
fn an_owner_that_is_stopped_while_it_notes_its_fence_holds_up_no_other_and_is_told() {
    let Some((stage, folder)) = stage() else { return };
    mark(&stage, "a1b2", &folder);
    let lease = "stream/held";
    let wish = [("FINAZ_DRILL_POINT", "fence.made:1:a1b2")];
    let take = ["lease", "acquire", lease, "--ttl", "1"];
    let mut first = stage.start_with(&wish, &take);
    let says = until("the first one is at the mark of its fence", SOON, || {
        let mut files = fs::read_dir(&folder).expect("a folder");
        files.next().map(|entry| entry.expect("an entry").path())
    });
    let expired = format!(
        "SELECT count(*) FROM finaz.leases WHERE name = '{lease}' AND expires_at <= clock_timestamp()"
    );
    until("its lease is over", SOON, || (stage.count(&expired) == 1).then_some(()));
    let taken = stage.finaz(&["lease", "acquire", lease, "--ttl", "60"]).exits(0).json();
    assert_eq!(taken["leases"][0]["fence"], 2, "{taken}");
    fs::remove_file(&says).expect("the file is there");
    first.signal(Signal::CONT);
    first.wait(SOON).refuses(1, "STREAM_FENCE_OBSOLETO");
    // What it noted late is not above its successor's.
    let owner = taken["leases"][0]["owner"].as_str().expect("a token").to_owned();
    stage.finaz(&["lease", "release", lease, "--owner", &owner]).exits(0);
    let again = stage.finaz(&["lease", "acquire", lease]).exits(0).json();
    assert_eq!(again["leases"][0]["fence"], 3, "{again}");
}
