//! The journal on disk and as a file: damage is found and never loaded; what was exported goes on elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::stage::Stage;
use crate::topics::{Log, lasting};

/// Events of two instruments, one of them not the flow's, and some rubbish.
fn write(log: &Log, seconds: std::ops::Range<i64>) {
    let record = |at: i64| match at % 4 {
        0 => log.valued("i", format!("rubbish {at}")),
        1 => log.record(&format!("e{at}"), "other", at),
        _ => log.record(&format!("e{at}"), "i", at),
    };
    log.write(seconds.map(record).collect());
}

/// All files below.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// The files of the blobs that the stream needs: its head, and those that the head names.
fn blobs(stage: &Stage) -> Vec<PathBuf> {
    let named: BTreeSet<String> = stage
        .column("SELECT encode(unnest(blobs), 'hex') FROM finaz.streams")
        .into_iter()
        .collect();
    assert!(named.len() > 4, "{named:?}");
    let all = files(&stage.artifacts());
    let name = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let folder = path.parent().and_then(Path::file_name).expect("a folder");
        [name.clone(), format!("{}{name}", folder.to_string_lossy())]
    };
    let of_ours = |path: &PathBuf| {
        let name = name(path);
        named.iter().any(|hash| name.iter().any(|name| name.contains(hash)))
    };
    let found: Vec<PathBuf> = all.into_iter().filter(of_ours).collect();
    assert_eq!(found.len(), named.len(), "blobs that are no files of their own");
    found
}

#[test]
fn a_blob_of_the_journal_that_was_turned_or_cut_is_refused_and_never_loaded() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..60);
    let run = |n: &str| stage.finaz(&log.stream(&flow, &["--run-id", "r", "--once-n", n]));
    run("20").exits(0);
    run("40").exits(0);
    let before = stage.sql("SELECT fence, seq, head, state, report FROM finaz.streams");
    let mut damaged = 0;
    for blob in blobs(&stage) {
        let whole = fs::read(&blob).expect("a blob");
        let writable = |bytes: &[u8]| {
            fs::remove_file(&blob).expect("removed");
            fs::write(&blob, bytes).expect("written");
        };
        let middle = whole.len() / 2;
        let mut turned = whole.clone();
        turned[middle] ^= 1;
        let cut = whole[..whole.len() - 1].to_vec();
        let longer = [&whole[..], b"\n"].concat();
        for (how, bytes) in
            [("turned", turned), ("cut", cut), ("empty", Vec::new()), ("longer", longer)]
        {
            writable(&bytes);
            let found = run("60");
            // What became of records and what was applied is read at the end, or where it is asked for.
            assert_eq!(found.exit, Some(1), "{how} {blob:?}: {found:?}");
            let code = found.json()["error"]["code"].take();
            assert_ne!(code, "INTERNAL", "{how} {blob:?}: {found:?}");
            damaged += 1;
            assert_eq!(
                stage.sql("SELECT fence, seq, head, state, report FROM finaz.streams"),
                before,
                "{how} {blob:?}"
            );
            writable(&whole);
        }
    }
    assert!(damaged >= 20);
    let report = run("60").exits(0).json();
    let calm = stage.json(&log.stream(&flow, &["--run-id", "calm", "--once-n", "60"]));
    assert_eq!(lasting(&report), lasting(&calm));
}

#[test]
fn a_blob_of_the_journal_that_is_gone_is_refused() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    let run = |n: &str| stage.finaz(&log.stream(&flow, &["--run-id", "r", "--once-n", n]));
    run("10").exits(0);
    // The cleaner knows them: it leaves them alone.
    stage.finaz(&["cas", "gc"]).exits(0);
    let blobs = blobs(&stage);
    let place = stage.path("aside");
    for blob in blobs {
        fs::copy(&blob, &place).expect("copied");
        fs::remove_file(&blob).expect("removed");
        let gone = run("12");
        assert_eq!(gone.exit, Some(1), "{blob:?}: {gone:?}");
        fs::copy(&place, &blob).expect("copied");
    }
    run("20").exits(0);
}

#[test]
fn a_journal_moves_to_an_empty_database_as_one_file_and_goes_on_there() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let Some(other) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..80);
    let run = |stage: &Stage, run: &str, n: &str| {
        stage.json(&log.stream(&flow, &["--run-id", run, "--once-n", n]))
    };
    run(&stage, "r", "15");
    let half = run(&stage, "r", "40");
    let file = stage.path("journal.json");
    let file = file.to_str().expect("a path");
    let exported = stage.json(&["stream", "export", "--out", file]);
    assert_eq!((&exported["run_id"], &exported["seq"]), (&"r".into(), &half["seq"]));
    let imported = other.json(&["stream", "import", file]);
    assert_eq!((&imported["seq"], &imported["already_present"]), (&half["seq"], &json!(false)));
    assert_eq!(other.json(&["stream", "import", file])["already_present"], true);
    for id in ["e1", "e2", "e3", "e39", "never"] {
        assert_eq!(other.explain("r", id), stage.explain("r", id), "{id}");
    }
    let again = other.path("again.json");
    other.json(&["stream", "export", "--out", again.to_str().expect("a path")]);
    let document = |path: &Path| -> Value {
        serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
    };
    assert_eq!(document(&again), document(Path::new(file)), "it changed on its way");
    let calm = run(&stage, "calm", "80");
    assert_eq!(lasting(&run(&other, "r", "80")), lasting(&calm));
    assert_eq!(lasting(&run(&stage, "r", "80")), lasting(&calm));
    // A journal that has gone on is not put back by an old file.
    let refused = other.finaz(&["stream", "import", file]);
    assert_ne!(refused.exit, Some(0), "{refused:?}");
    assert_eq!(run(&other, "r", "80")["read"], 80);
}

#[test]
fn a_file_that_was_turned_or_cut_is_no_journal() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let Some(other) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    stage.finaz(&log.stream(&flow, &["--run-id", "r", "--once-n", "20"])).exits(0);
    let file = stage.path("journal.json");
    stage.json(&["stream", "export", "--out", file.to_str().expect("a path")]);
    let whole = fs::read(&file).expect("a file");
    let mut bad =
        vec![Vec::new(), whole[..whole.len() - 2].to_vec(), [&whole[..], &whole].concat()];
    for step in 1..12 {
        let at = whole.len() * step / 12;
        let mut turned = whole.clone();
        turned[at] = if turned[at] == b'7' { b'8' } else { b'7' };
        bad.push(turned);
        bad.push(whole[..at].to_vec());
    }
    for bytes in bad {
        let file = other.file("bad.json", &bytes);
        let refused = other.finaz(&["stream", "import", &file]);
        assert!([Some(1), Some(2)].contains(&refused.exit), "{refused:?}");
        assert!(refused.json()["error"]["code"].is_string(), "{refused:?}");
    }
    let kept = "SELECT count(*) FROM finaz.streams WHERE head IS NOT NULL";
    assert_eq!(other.count(kept), 0, "loaded all the same");
}
