//! The journal on disk and as a file: damage is found and never loaded; what was exported goes on elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use finaz::artifacts::Artifacts;
use finaz::ids::Hash;
use finaz::journal::{Head, Kind};
use serde_json::json;

use crate::process::Run;
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

/// The head of the stream, and the hash of it.
fn head(stage: &Stage) -> (Hash, Head) {
    let hash = stage.value("SELECT encode(head, 'hex') FROM finaz.streams");
    let hash = format!("sha256:{hash}").parse().expect("a hash");
    let artifacts = Artifacts::open(&stage.artifacts()).expect("the store");
    let head = Head::parse(&artifacts.get(&hash).expect("the head"), "head");
    (hash, head.expect("a head"))
}

/// The blobs that the head names, of these kinds.
fn named(head: &Head, kinds: &[Kind]) -> Vec<Hash> {
    kinds.iter().flat_map(|kind| head.segments.of(*kind)).map(|segment| segment.hash).collect()
}

fn file(stage: &Stage, hash: &Hash) -> PathBuf {
    let hex = hash.hex();
    stage.artifacts().join("cas/sha256").join(&hex[..2]).join(&hex[2..])
}

/// Damages a file in this way, and puts it back after the look at it.
fn damaged(blob: &Path, mut look: impl FnMut(&str)) {
    let whole = fs::read(blob).expect("a blob");
    let write = |bytes: &[u8]| {
        fs::remove_file(blob).expect("removed");
        fs::write(blob, bytes).expect("written");
    };
    let mut ways = vec![("empty", Vec::new()), ("longer", [&whole[..], b"\n"].concat())];
    // Its header, its middle, its end.
    for at in [3, whole.len() / 2, whole.len() - 1] {
        let mut turned = whole.clone();
        turned[at] ^= 1;
        ways.extend([("turned", turned), ("cut", whole[..at].to_vec())]);
    }
    for (how, bytes) in ways {
        write(&bytes);
        look(&format!("{how} {}", blob.display()));
    }
    write(&whole);
}

/// It ends 1 and says what is damaged.
#[track_caller]
fn refused(how: &str, run: &Run) {
    assert_eq!(run.exit, Some(1), "{how}: {run:?}");
    let code = run.json()["error"]["code"].take();
    assert!(code.is_string() && code != "INTERNAL", "{how}: {run:?}");
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
    let pointer = || stage.sql("SELECT fence, seq, head, state, report FROM finaz.streams");
    let (before, (hash, head)) = (pointer(), head(&stage));
    // What it goes on with is read before anything is done.
    let needed = [&[hash][..], &named(&head, &[Kind::Identities, Kind::Accepted])].concat();
    assert!(needed.len() >= 3, "{needed:?}");
    for hash in needed {
        damaged(&file(&stage, &hash), |how| {
            refused(how, &run("60"));
            assert_eq!(pointer(), before, "{how}");
        });
    }
    // What is read where it is asked for, is refused there.
    for (kind, args) in [
        (Kind::Fates, ["stream", "explain", "e1", "--run-id", "r"]),
        (Kind::Quarantined, ["stream", "quarantine", "list", "--run-id", "r"]),
    ] {
        for hash in named(&head, &[kind]) {
            damaged(&file(&stage, &hash), |how| refused(how, &stage.finaz(&args)));
        }
        stage.finaz(&args).exits(0);
    }
    let emit = stage.path("values.jsonl");
    for hash in named(&head, &[Kind::Applied]) {
        damaged(&file(&stage, &hash), |how| {
            let args = ["--run-id", "r", "--once-n", "40", "--emit", "values.jsonl"];
            refused(how, &stage.finaz(&log.stream(&flow, &args)));
            assert!(!emit.exists(), "{how}: values of a damaged journal");
        });
    }
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
    let (hash, head) = head(&stage);
    let place = stage.path("aside");
    for hash in [&[hash][..], &named(&head, &[Kind::Identities, Kind::Accepted])].concat() {
        let blob = file(&stage, &hash);
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
    // Taking it in is a commit.
    let seq = half["seq"].as_i64().expect("a number") + 1;
    assert_eq!((&imported["seq"], &imported["already_present"]), (&json!(seq), &json!(false)));
    assert_eq!(other.json(&["stream", "import", file])["already_present"], true);
    for id in ["e1", "e2", "e3", "e39", "never"] {
        assert_eq!(other.explain("r", id), stage.explain("r", id), "{id}");
    }
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
        assert_eq!(refused.exit, Some(2), "{refused:?}");
        assert!(refused.json()["error"]["code"].is_string(), "{refused:?}");
    }
    let kept = "SELECT count(*) FROM finaz.streams WHERE head IS NOT NULL";
    assert_eq!(other.count(kept), 0, "loaded all the same");
}
