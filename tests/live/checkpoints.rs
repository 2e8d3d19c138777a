//! Checkpoints: a commit kept by name, while its stream goes on; and a stream taken back to exactly that one.

use std::collections::BTreeSet;
use std::fs::{self, FileTimes, OpenOptions};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::until;
use crate::stage::Stage;
use crate::topics::{Log, lasting};

const SOON: Duration = Duration::from_secs(30);

/// Events of two instruments, one of them not the flow's, some twice, some rubbish.
fn write(log: &Log, seconds: std::ops::Range<i64>) {
    let record = |at: i64| match at % 8 {
        0 => log.valued("i", format!("rubbish {at}")),
        1 => log.record(&format!("e{at}"), "other", at),
        2 => log.record(&format!("e{}", at - 3), "i", at - 3),
        _ => log.record(&format!("e{at}"), "i", at),
    };
    log.write(seconds.map(record).collect());
}

/// A stream with a checkpoint every twelve records, read to the end of 96; their ids, and what it came to.
fn checkpointed(log: &Log, stage: &Stage, flow: &str) -> (Vec<String>, Value) {
    write(log, 0..96);
    let mut ids = Vec::new();
    let mut last = Value::Null;
    for n in 1..=8 {
        let count = (n * 12).to_string();
        last = stage.json(&log.stream(flow, &["--run-id", "r", "--once-n", &count]));
        let made = stage.json(&["checkpoint", "commit", "--run-id", "r", "--reason", "a step"]);
        assert_eq!(made["already_present"], false, "{made}");
        ids.push(made["checkpoint"].as_str().expect("an id").to_owned());
    }
    (ids, last)
}

/// Files of the artifact store look as old as any, which is what `cas gc` waits for.
pub(crate) fn age(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            age(&path);
        } else {
            let old = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
            let file = OpenOptions::new().append(true).open(&path).expect("a file");
            file.set_times(FileTimes::new().set_modified(old)).expect("a time");
        }
    }
}

#[test]
fn a_stream_taken_back_to_any_checkpoint_has_its_state_to_the_bit_and_comes_to_the_same_end() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let (ids, whole) = checkpointed(&log, &stage, &flow);
    let explained = stage.explain("r", "e37");
    // Not in order: each time exactly the one that was asked for, never the newest.
    for (at, id) in [6, 0, 4, 2, 7, 1].into_iter().map(|at| (at, &ids[at])) {
        let before = stage.standing("r", 0);
        let told = ["checkpoint", "restore", id, "--reason", "to see", "--yes"];
        let back = stage.json(&told);
        let restored = &back["restored"];
        assert_eq!(restored["from_seq"], before["seq"], "{back}");
        assert!(restored["seq"].as_i64() > before["seq"].as_i64(), "{back}");
        assert!(restored["fence"].as_i64() > before["fence"].as_i64(), "{back}");
        assert_eq!(back["next_offsets"].as_object().map(|map| map.len()), Some(2), "{back}");
        let again = stage.json(&["checkpoint", "commit", "--run-id", "r"]);
        let diff = stage.json(&["checkpoint", "diff", id, again["checkpoint"].as_str().unwrap()]);
        assert_eq!((&diff["same_state"], &diff["instruments"]), (&json!(true), &json!([])));
        let fields: BTreeSet<&str> = diff["differences"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|difference| difference["field"].as_str().expect("a name"))
            .collect();
        assert_eq!(fields, BTreeSet::from(["fence", "head", "seq"]), "{diff}");
        let count = ((at + 1) * 12).to_string();
        assert_eq!(stage.standing("r", 0)["read"].to_string(), count);
        let end = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "96"]));
        assert_eq!(lasting(&end), lasting(&whole), "from {id}");
        let whose: Vec<_> = stage.explain("r", "e37");
        assert_eq!(whose, explained, "from {id}");
    }
    let list = stage.json(&["checkpoint", "list", "--run-id", "r"]);
    let restores = list["restores"].as_array().expect("a list");
    assert_eq!(restores.len(), 6, "{list}");
    assert_eq!(
        (&restores[0]["checkpoint"], &restores[0]["reason"]),
        (&json!(ids[6]), &json!("to see"))
    );
    assert!(restores.iter().all(|row| row["who"].as_str().is_some_and(|who| !who.is_empty())));
    stage.finaz(&["stream", "handoff", "--show", "--run-id", "r"]).exits(0);
}

#[test]
fn a_running_stream_is_checkpointed_without_a_stop_and_makes_its_own_from_time_to_time() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let more = [
        "--run-id",
        "r",
        "--commit-every",
        "0.05",
        "--checkpoint-every",
        "0.05",
        "--checkpoint-keep",
        "3",
    ];
    let mut running = stage.start(&log.stream(&flow, &more));
    let mut ids = BTreeSet::new();
    for round in 0..8 {
        write(&log, round * 16..(round + 1) * 16);
        let read = (round + 1) * 16;
        until("it has read that", SOON, || {
            let said = stage.finaz(&["stream", "status", "--run-id", "r"]);
            let done = said.exit == Some(0) && said.json()["streams"][0]["read"] == read;
            done.then_some(())
        });
        let made = stage.json(&["checkpoint", "commit", "--run-id", "r", "--reason", "by hand"]);
        ids.insert(made["checkpoint"].as_str().expect("an id").to_owned());
    }
    // Nobody asks for these: they are its own, and it keeps three.
    let own = "SELECT count(*) FROM finaz.checkpoints WHERE periodic";
    for round in 8..16 {
        let before = stage.value("SELECT max(seq) FROM finaz.checkpoints");
        write(&log, round * 16..(round + 1) * 16);
        let newer =
            format!("SELECT count(*) FROM finaz.checkpoints WHERE periodic AND seq > {before}");
        until("it makes one of its own", SOON, || {
            // One commit may come before the time of the next checkpoint: another follows.
            if stage.count(&newer) == 0 {
                write(&log, 1_000 + round..1_001 + round);
            }
            (stage.count(&newer) > 0).then_some(())
        });
        assert!((1..=3).contains(&stage.count(own)), "{} of its own", stage.count(own));
    }
    assert!(running.is_running(), "{}", running.said());
    let owners = stage.count("SELECT count(DISTINCT fence) FROM finaz.checkpoints");
    assert_eq!(owners, 1, "the stream was never stopped");
    running.signal(Signal::TERM);
    running.wait(SOON).exits(0);
    let asked = stage.count("SELECT count(*) FROM finaz.checkpoints WHERE reason = 'by hand'");
    assert!(asked > 0, "those that were asked for are not forgotten");
    let verified = stage.json(&["checkpoint", "verify"]);
    assert_eq!(verified["ok"], true, "{verified}");
}

#[test]
fn what_a_checkpoint_names_outlives_gc_until_it_is_dropped() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let (ids, whole) = checkpointed(&log, &stage, &flow);
    // The stream has gone far beyond the first ones, and merged what they named.
    stage.json(&["checkpoint", "restore", &ids[0], "--reason", "to move on", "--yes"]);
    stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "96"]));
    let gc = || {
        age(&stage.artifacts());
        stage.json(&["cas", "gc", "--min-age-sec", "300"])["removed"].as_u64().expect("a number")
    };
    gc();
    let verified = stage.json(&["checkpoint", "verify"]);
    assert_eq!(verified["ok"], true, "{verified}");
    stage.json(&["checkpoint", "restore", &ids[3], "--reason", "after gc", "--yes"]);
    let end = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "96"]));
    assert_eq!(lasting(&end), lasting(&whole));
    for id in &ids {
        stage.json(&["checkpoint", "drop", id]);
    }
    assert!(gc() > 0, "what only they named is gone");
    stage.finaz(&["checkpoint", "show", &ids[3]]).refuses(2, "CHECKPOINT_UNKNOWN");
    assert_eq!(stage.standing("r", 0)["ledger_ok"], true);
}

#[test]
fn a_missing_or_changed_blob_is_named_and_nothing_else_is_restored_in_its_place() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let (ids, _) = checkpointed(&log, &stage, &flow);
    let view = stage.json(&["checkpoint", "show", &ids[2]]);
    let rows = || {
        stage.sql("SELECT s.*, l.fence FROM finaz.streams AS s JOIN finaz.leases AS l USING (name)")
    };
    let before = rows();
    let mut hashes: Vec<String> = view["blobs"]
        .as_array()
        .expect("blobs")
        .iter()
        .map(|blob| blob["hash"].as_str().expect("a hash").to_owned())
        .collect();
    hashes.push(view["manifest"].as_str().expect("a hash").to_owned());
    assert!(hashes.len() >= 5, "{view}");
    for hash in &hashes {
        let hex = hash.strip_prefix("sha256:").expect("a hash");
        let file = stage.artifacts().join("cas/sha256").join(&hex[..2]).join(&hex[2..]);
        let whole = fs::read(&file).expect("a blob");
        let mut turned = whole.clone();
        turned[whole.len() / 2] ^= 1;
        for damage in [None, Some(&turned[..]), Some(&whole[..whole.len() - 1])] {
            fs::remove_file(&file).expect("removed");
            if let Some(bytes) = damage {
                fs::write(&file, bytes).expect("written");
            }
            let args = ["checkpoint", "restore", &ids[2], "--reason", "x", "--yes"];
            let refused = stage.finaz(&args).refuses(1, "CHECKPOINT_DAMAGED");
            assert!(
                refused["message"].as_str().is_some_and(|said| said.contains(hex)),
                "{refused}"
            );
            let verified = stage.finaz(&["checkpoint", "verify", &ids[2]]);
            assert_eq!(verified.exit, Some(1), "{verified:?}");
            assert!(verified.json()["faults"].to_string().contains(hex), "{verified:?}");
            assert_eq!(rows(), before);
            let _gone = fs::remove_file(&file);
            fs::write(&file, &whole).expect("put back");
        }
    }
    stage.finaz(&["checkpoint", "verify", &ids[2]]).exits(0);
}

#[test]
fn a_checkpoint_of_another_log_engine_or_epoch_is_refused_with_the_field() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let (ids, whole) = checkpointed(&log, &stage, &flow);
    let args = ["checkpoint", "restore", &ids[1], "--reason", "x", "--yes"];
    let refused = |code: &str| stage.finaz(&args).refuses(1, code);

    // Somebody has it.
    let held = stage.json(&["lease", "acquire", "stream/r"]);
    let owner = held["leases"][0]["owner"].as_str().expect("a token").to_owned();
    refused("STREAM_LEASE_OCUPADO");
    stage.json(&["lease", "release", "stream/r", "--owner", &owner]);

    // The database began a new epoch.
    stage.json(&["lease", "new-epoch", "stream/r", "--reason", "a backup was restored"]);
    let other = refused("CHECKPOINT_INCOMPATIBLE");
    assert_eq!(
        (&other["field"], &other["held"], &other["offered"]),
        (&json!("epoch"), &json!("1"), &json!("2"))
    );
    let knowing = [&args[..], &["--epoch", "1"]].concat();
    stage.json(&knowing);
    let end = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "96"]));
    assert_eq!(lasting(&end), lasting(&whole));

    // Nor does that hold for the next time: it is asked anew.
    refused("CHECKPOINT_INCOMPATIBLE");

    // Retention took what would be read again; the stream itself needs none of it.
    log.delete_before(log.home("i"), 90);
    let blocked = stage.finaz(&knowing).refuses(1, "RECOVERY_BLOCKED");
    assert!(blocked["needed"].as_i64() < blocked["earliest"].as_i64(), "{blocked}");
    stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "96"]));

    // A topic of the same name.
    log.delete();
    log.make();
    write(&log, 0..96);
    assert_eq!(refused("CHECKPOINT_INCOMPATIBLE")["field"], "topic_id");
}

#[test]
fn names_that_no_checkpoint_has_are_refused_and_a_beginning_must_be_of_one() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    stage.finaz(&["checkpoint", "commit"]).refuses(2, "STREAM_UNKNOWN");
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..8);
    stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "8"]));
    stage.finaz(&["checkpoint", "commit", "--partition", "0"]).refuses(2, "PARTITION_UNKNOWN");
    let made = stage.json(&["checkpoint", "commit"]);
    let hash = made["manifest_hash"].as_str().expect("a hash");
    for name in [hash, &hash[7..], &hash[7..15], &hash[..15]] {
        assert_eq!(stage.json(&["checkpoint", "show", name])["checkpoint"], made["checkpoint"]);
    }
    let long = "a".repeat(100_000);
    for name in ["", "r", "r@2", "../r@1", "%", "_", &hash[7..14], "r@1' OR true --", &long] {
        for verb in [&["show"][..], &["verify"], &["drop"], &["restore", "--reason", "x", "--yes"]]
        {
            let args = [&["checkpoint"], verb, &[name]].concat();
            stage.finaz(&args).refuses(2, "CHECKPOINT_UNKNOWN");
        }
    }
    let asks = stage.finaz(&["checkpoint", "restore", "r@1", "--reason", "x"]);
    asks.refuses(2, "CONSENT_MISSING");
    let empty = ["checkpoint", "restore", "r@1", "--reason", " ", "--yes"];
    stage.finaz(&empty).refuses(2, "REASON_EMPTY");
    for more in [["--checkpoint-every", "0"], ["--checkpoint-every", "nan"]] {
        let refused = stage.finaz(&log.stream(&flow, &more));
        refused.refuses(2, "CHECKPOINT_EVERY_INVALID");
    }
    let few = ["--checkpoint-every", "1", "--checkpoint-keep", "1"];
    stage.finaz(&log.stream(&flow, &few)).refuses(2, "CHECKPOINT_KEEP_INVALID");
}

#[test]
fn a_stream_and_a_batch_run_are_not_compared_and_no_snapshot_takes_a_stream_back() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..8);
    stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "8"]));
    stage.json(&["checkpoint", "commit", "--run-id", "r"]);
    let run = stage.json(&["run-once", "--flow", &stage.fixture()]);
    let run = run["run_id"].as_str().expect("an id");
    stage.json(&["checkpoint", "commit", "--run-id", run]);
    for pair in [["r@1", run], [run, "r@1"]] {
        let diff = [&["checkpoint", "diff"], &pair[..]].concat();
        stage.finaz(&diff).refuses(2, "CHECKPOINT_KINDS_DIFFER");
    }
    for (flag, code) in [("--snapshot", "SNAPSHOT_UNUSED"), ("--key", "KEY_UNUSED")] {
        let with = ["checkpoint", "restore", "r@1", "--reason", "x", flag, "s", "--yes"];
        stage.finaz(&with).refuses(2, code);
    }
    let list = stage.json(&["checkpoint", "list"]);
    assert_eq!(list["checkpoints"].as_array().map(Vec::len), Some(2), "{list}");
    assert_eq!(stage.json(&["checkpoint", "verify"])["ok"], true);
}

#[test]
fn on_a_terminal_a_stream_goes_back_only_for_the_name_of_the_checkpoint() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..8);
    stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "8"]));
    let made = stage.json(&["checkpoint", "commit"]);
    let id = made["checkpoint"].as_str().expect("an id");
    let args = ["checkpoint", "restore", id, "--reason", "x"];
    for typed in ["", "yes\n", "r\n", "r@2\n"] {
        let said = stage.on_terminal(&args, typed).exits(1);
        assert!(said.out.contains("CONSENT_REFUSED"), "{said:?}");
        assert_eq!(stage.count("SELECT count(*) FROM finaz.restores"), 0);
    }
    let said = stage.on_terminal(&args, &format!("{id}\n")).exits(0);
    assert!(said.out.contains(&format!("type {id} to go back: ")), "{said:?}");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.restores"), 1);
}
