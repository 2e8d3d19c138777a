//! Records that were omitted and are taken after all: once, in time order, on record.

use serde_json::{Value, json};

use crate::stage::Stage;
use crate::topics::{Log, closing, counts, event, lasting};

/// What a retry says.
#[track_caller]
fn retry(stage: &Stage, more: &[&str]) -> Value {
    stage.json(&[&["stream", "quarantine", "retry", "--run-id", "r"], more].concat())
}

/// What became of each record that was tried: place, why it was omitted, what it is.
fn rows(report: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let row = |row: &Value| {
        let place = format!("{}:{}", row["partition"], row["offset"]);
        (place, text(&row["was"]), text(&row["treatment"]))
    };
    report["records"].as_array().expect("a list").iter().map(row).collect()
}

fn row(place: &str, was: &str, is: &str) -> (String, String, String) {
    (place.to_owned(), was.to_owned(), is.to_owned())
}

#[test]
fn a_record_too_far_ahead_is_taken_once_by_a_retry_that_allows_more_and_all_is_on_record() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    log.write(vec![
        log.record("a", "i", 0),
        log.valued("i", "no json"),
        log.record("b", "i", 5),
        log.record("far", "i", 7_200),
        log.valued("i", closing("gap", "i", 7_201, "null")),
    ]);
    let stream = |run: &str, jump: &str, n: &str| {
        stage.json(&log.stream(&flow, &["--run-id", run, "--max-jump", jump, "--once-n", n]))
    };
    let before = stream("r", "1h", "5");
    assert_eq!(counts(&before), [2, 0, 0, 0, 3], "{before}");
    // As it is, nothing can be taken; with more allowed it could; only looked at, nothing is.
    let same = retry(&stage, &["--max-jump", "1h", "--reason", "x"]);
    assert_eq!((&same["tried"], &same["taken"]), (&json!(3), &json!(0)), "{same}");
    let looked = retry(&stage, &["--dry-run"]);
    let expected = [
        row("0:1", "unreadable", "omitted"),
        row("0:3", "time_jump", "consumed"),
        row("0:4", "time_jump", "consumed"),
    ];
    assert_eq!(rows(&looked), expected, "{looked}");
    let seq = stage.standing("r", 0)["seq"].clone();
    assert_eq!(seq, before["seq"], "a look committed something");
    let taken = retry(&stage, &["--reason", "the feed was right"]);
    assert_eq!((rows(&taken), &taken["taken"]), (expected.to_vec(), &json!(2)), "{taken}");
    let view = stage.standing("r", 0);
    assert_eq!(counts(&view), [4, 0, 0, 0, 1], "{view}");
    assert_eq!((&view["ledger_ok"], &view["gaps"]), (&json!(true), &json!(1)), "{view}");
    assert_eq!((&view["state"], &view["live"]), (&json!("STOPPED"), &json!(false)), "{view}");
    // The second time there is nothing to do.
    let again = retry(&stage, &["--reason", "again"]);
    assert_eq!(again["taken"], 0, "{again}");
    assert_eq!(stage.standing("r", 0)["seq"], view["seq"], "nothing was committed");
    let named = retry(&stage, &["0:3", "--reason", "again"]);
    assert_eq!(named["records"][0]["detail"], "it was taken before", "{named}");
    // Who, why and when.
    let explained = stage.json(&["stream", "explain", "far", "--run-id", "r"]);
    let seen = explained["seen"].as_array().expect("a list");
    assert_eq!(seen.len(), 2, "{explained}");
    assert_eq!((&seen[0]["reason"], &seen[1]["reason"]), (&json!("time_jump"), &json!("retried")));
    let said = |value: &Value| value.as_str().expect("text").contains("the feed was right");
    assert!(said(&seen[1]["detail"]) && seen[1]["at"].as_i64() > seen[0]["at"].as_i64());
    let list = stage.json(&["stream", "quarantine", "list", "--run-id", "r"]);
    assert_eq!((&list["total"], &list["retried"]), (&json!(3), &json!(2)), "{list}");
    let shown = stage.json(&["stream", "quarantine", "show", "0:3", "--run-id", "r"]);
    assert!(said(&shown["retried"]) && shown["value"].is_string(), "{shown}");
    // It goes on, and comes to what a run comes to that allowed as much from the start.
    log.write(vec![log.record("c", "i", 7_202), log.record("far", "i", 7_200)]);
    let (after, whole) = (stream("r", "1h", "7"), stream("whole", "10h", "7"));
    assert_eq!(lasting(&after), lasting(&whole));
    assert_eq!(counts(&after), [5, 0, 1, 0, 1], "{after}");
}

#[test]
fn what_is_late_by_now_or_was_late_then_is_not_taken_and_says_why() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let mut records = vec![log.record("a", "i", 0), log.record("far", "i", 7_200)];
    records.extend([3_000, 6_000, 9_000].map(|at| log.record(&format!("e{at}"), "i", at)));
    records.push(log.record("late", "i", 8_000));
    records.push(log.valued("i", event("a", "i", 0).replace(".25", ".5")));
    log.write(records);
    let args = ["--run-id", "r", "--max-jump", "1h", "--once-n", "7"];
    let before = stage.json(&log.stream(&flow, &args));
    assert_eq!(counts(&before), [4, 0, 1, 1, 1], "{before}");
    let report = retry(&stage, &["0:1", "0:5", "0:6", "--reason", "all of them"]);
    let expected = [
        row("0:1", "time_jump", "late"),
        row("0:5", "", "late"),
        row("0:6", "payload_differs", "duplicates_skipped"),
    ];
    assert_eq!((rows(&report), &report["taken"]), (expected.to_vec(), &json!(0)), "{report}");
    let details = report["records"].as_array().expect("a list");
    assert!(details.iter().all(|row| row["detail"] != ""), "{report}");
    assert_eq!(counts(&stage.standing("r", 0)), counts(&before));
}

#[test]
fn a_retry_is_refused_while_somebody_runs_the_stream_and_for_what_is_not_there() {
    let Some(log) = Log::new(4) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "30");
    let flow = stage.live_flow("f", &["i", "j"]);
    log.write(vec![
        log.record("a", "i", 0),
        log.record("far", "i", 7_200),
        log.record("b", "j", 0),
    ]);
    let all = ["--run-id", "r", "--partitions", "0,1,2,3", "--max-jump", "1h"];
    let args = [&all[..], &["--once-n", "3"]].concat();
    let before = stage.json(&log.stream(&flow, &args));
    assert_eq!(counts(&before), [2, 0, 0, 0, 1], "{before}");
    let refuses = |more: &[&str], exit: i32, code: &str| {
        let mut args = vec!["stream", "quarantine", "retry", "--run-id", "r"];
        if !more.contains(&"--reason") {
            args.extend(["--reason", "x"]);
        }
        args.extend(more);
        stage.finaz(&args).refuses(exit, code)
    };
    refuses(&["0:99"], 2, "QUARANTINE_UNKNOWN");
    refuses(&["3"], 2, "PLACE_INVALID");
    refuses(&["--max-jump", "soon"], 2, "MAX_JUMP_INVALID");
    refuses(&["--reason", " "], 2, "REASON_MISSING");
    let other = stage.live_flow("other", &["j"]);
    refuses(&["--flow", &other], 1, "JOURNAL_FOREIGN");
    let place = format!("{}:1", log.home("i"));
    let daemon = stage.start(&log.stream(&flow, &all));
    crate::process::until("it runs", std::time::Duration::from_secs(60), || {
        (stage.json(&["stream", "status"])["total"]["live"] == 4).then_some(())
    });
    refuses(&[&place], 1, "STREAM_LEASE_OCUPADO");
    assert_eq!(retry(&stage, &["--dry-run"])["taken"], 1);
    let mut daemon = daemon;
    daemon.signal(rustix::process::Signal::TERM);
    let _ended = daemon.wait(std::time::Duration::from_secs(60)).exits(0);
    // Of a split run each partition is a stream of its own.
    assert_eq!(retry(&stage, &[&place, "--reason", "x"])["taken"], 1);
    let status = stage.json(&["stream", "status", "--run-id", "r"]);
    assert_eq!(counts(&status["total"]), [3, 0, 0, 0, 0], "{status}");
    assert_eq!(status["total"]["ledger_ok"], true, "{status}");
}
