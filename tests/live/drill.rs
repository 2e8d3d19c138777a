//! `finaz drill`: all of it passes, in places of its own that are gone afterwards; what is not marked is refused; what a
//! killed drill leaves goes with the next one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Process, until};
use crate::setting;
use crate::stage::Stage;

pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Of a fast drill, on a machine that is busy with other tests.
const DRILL: Duration = Duration::from_secs(240);

/// A stage whose drills are on the servers of `make up`, in a temporary folder of the test's own.
pub(crate) fn stage() -> Option<(Stage, PathBuf)> {
    let mut stage = Stage::without_warehouse()?;
    stage.set("FINAZ_BROKERS", &setting("FINAZ_BROKERS")?);
    let temporary = stage.path("temporary");
    fs::create_dir(&temporary).expect("a folder");
    stage.set("TMPDIR", temporary.to_str().expect("a path"));
    Some((stage, temporary))
}

/// Databases of drills with this nonce.
pub(crate) fn databases(stage: &Stage, nonce: &str) -> usize {
    stage.count(&format!("SELECT count(*) FROM pg_database WHERE datname = 'finaz_drill_{nonce}'"))
}

/// The folders of drills that are there.
pub(crate) fn folders(temporary: &Path) -> Vec<String> {
    let entries = fs::read_dir(temporary).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// The nonce of the drill whose folder is there.
pub(crate) fn nonce(temporary: &Path) -> Option<String> {
    let name = folders(temporary).pop()?;
    // Made before its mark is written.
    temporary.join(&name).join("flow.yaml").exists().then_some(())?;
    Some(name.trim_start_matches("finaz-drill-").to_owned())
}

/// The processes that belong to a folder.
pub(crate) fn processes(folder: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let ours = numbers.filter(|number| {
        let place = fs::read_link(format!("/proc/{number}/cwd"));
        place.is_ok_and(|place| place.to_string_lossy().contains(folder))
    });
    ours.collect()
}

#[test]
fn the_drill_of_two_owners_passes_and_leaves_only_its_evidence() {
    let Some((stage, temporary)) = stage() else { return };
    let out = stage.path("evidence");
    let out = out.to_str().expect("a path");
    let drill = stage.start(&["drill", "2owners", "--fast", "--seed", "7", "--out", out]);
    let run = drill.wait(DRILL);
    let report = run.json();
    let open: Vec<&Value> = report["checks"].as_array().expect("checks").iter().collect();
    let open: Vec<&&Value> = open.iter().filter(|check| check["pass"] != true).collect();
    assert_eq!((run.exit, &report["verdict"]), (Some(0), &"PASS".into()), "{open:#?}");
    assert!(report["checks"].as_array().expect("checks").len() >= 60);
    let ledger = &report["ledger"];
    assert_eq!((&ledger["attempted"], &ledger["acked"]), (&598.into(), &598.into()), "{ledger}");
    for none in ["lost", "unexpected", "duplicated"] {
        assert_eq!(ledger[none], 0, "{ledger}");
    }
    let nonce = report["nonce"].as_str().expect("a nonce");
    assert_eq!((databases(&stage, nonce), folders(&temporary)), (0, Vec::new()));
    let history = fs::read(stage.path("evidence/2owners.history.jsonl")).expect("the history");
    assert_eq!(report["history_hash"], finaz::ids::Hash::of(&history).to_string());
    let document = fs::read(stage.path("evidence/2owners.json")).expect("the document");
    let document: Value = serde_json::from_slice(&document).expect("JSON");
    assert_eq!((&document["checks"], &document["nonce"]), (&report["checks"], &report["nonce"]));
    let page = fs::read_to_string(stage.path("evidence/2owners.html")).expect("the page");
    assert!(page.contains("<svg") && !page.contains("<script"), "{page}");
    let secret = url::Url::parse(stage.pg_url()).expect("a URL");
    let secret = secret.password().expect("a password");
    let all = format!("{page}{document}{}{}", run.err, String::from_utf8_lossy(&history));
    assert!(!all.contains(secret), "a password is in the evidence");
}

#[test]
fn a_database_that_is_not_a_drill_s_is_refused_and_left_as_it_is() {
    let Some((stage, temporary)) = stage() else { return };
    let tables =
        "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                  WHERE n.nspname LIKE 'finaz%'";
    let before = stage.count(tables);
    let with = [("FINAZ_DATABASE", stage.pg_url())];
    let drill = || stage.start_with(&with, &["drill", "2owners", "--fast"]).wait(SOON);
    let refused = drill().refuses(2, "DRILL_UNMARKED");
    assert!(!refused["hint"].as_str().expect("a hint").is_empty(), "{refused}");
    // Marked, and somebody's all the same.
    stage.sql(
        "DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE %I IS ''finaz drill''', current_database()); END $$",
    );
    drill().refuses(2, "DRILL_NOT_EMPTY");
    assert_eq!((stage.count(tables), folders(&temporary)), (before, Vec::new()));
    let typed = ["drill", "2owners", "--database", "postgresql://u:hunter2@127.0.0.1/d"];
    let refused = stage.finaz(&typed);
    assert!(!refused.out.contains("hunter2") && !refused.err.contains("hunter2"), "{refused:?}");
    refused.refuses(2, "SECRET_ON_COMMAND_LINE");
}

/// Starts a drill, and waits until owners of it are at work.
fn begun(stage: &Stage, temporary: &Path) -> (Process, String) {
    let drill = stage.start(&["drill", "2owners"]);
    let nonce = until("its folder is there", SOON, || nonce(temporary));
    until("its processes are at work", SOON, || (processes(&nonce).len() > 1).then_some(()));
    (drill, nonce)
}

#[test]
fn a_drill_that_is_killed_takes_its_processes_along_and_the_next_one_removes_the_rest() {
    let Some((stage, temporary)) = stage() else { return };
    let (mut drill, dead) = begun(&stage, &temporary);
    drill.kill();
    until("its processes are gone", SOON, || processes(&dead).is_empty().then_some(()));
    // One that lives is left alone, whoever comes: it is the next one that buries the dead.
    let mut living = stage.start(&["drill", "2owners"]);
    let nonce = until("the next one's folder is there", SOON, || {
        nonce(&temporary).filter(|nonce| *nonce != dead)
    });
    until("nothing of the dead one is left", SOON, || {
        let folder = temporary.join(format!("finaz-drill-{dead}"));
        (databases(&stage, &dead) == 0 && !folder.exists()).then_some(())
    });
    let other = stage.path("other");
    fs::create_dir(&other).expect("a folder");
    let elsewhere = [("TMPDIR", other.to_str().expect("a path"))];
    let mut third = stage.start_with(&elsewhere, &["drill", "2owners"]);
    let theirs = until("a third one's folder is there", SOON, || self::nonce(&other));
    assert_eq!((databases(&stage, &nonce), living.is_running()), (1, true));
    third.signal(Signal::TERM);
    third.wait(SOON).refuses(143, "INTERRUPTED");
    assert_eq!((databases(&stage, &theirs), folders(&other)), (0, Vec::new()));
    // Told to end, it leaves nothing.
    living.signal(Signal::INT);
    living.wait(SOON).refuses(130, "INTERRUPTED");
    assert_eq!((databases(&stage, &nonce), folders(&temporary)), (0, Vec::new()));
    until("its processes are gone", SOON, || processes(&nonce).is_empty().then_some(()));
}
