//! A stream that holds back: it keeps what it has, says why, and goes on by itself.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::disk::Disk;
use crate::process::until;
use crate::stage::Stage;
use crate::topics::{Log, counts};

const SOON: Duration = Duration::from_secs(60);

/// Events of one instrument at these seconds.
fn write(log: &Log, seconds: std::ops::Range<i64>) {
    log.write(seconds.map(|at| log.record(&format!("e{at}"), "i", at)).collect());
}

/// Waits until the stream is in this state for a reason that says this.
#[track_caller]
fn says(stage: &Stage, state: &str, why: &str) -> Value {
    until(&format!("{state} {why}"), SOON, || {
        let view = stage.finaz(&["stream", "status", "--run-id", "r"]);
        let view = (view.exit == Some(0)).then(|| view.json()["streams"][0].take())?;
        let reason = view["reason"].as_str().unwrap_or_default();
        (view["state"] == state && reason.contains(why)).then_some(view)
    })
}

#[test]
fn a_disk_with_too_little_space_pauses_the_source_and_the_stream_goes_on_when_there_is_some() {
    let Some(log) = Log::new(1) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    let Some(disk) = Disk::new(&stage) else { return };
    let artifacts = disk.0.join("artifacts");
    stage.set("FINAZ_ARTIFACTS", artifacts.to_str().expect("a UTF-8 path"));
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    let ballast = disk.0.join("ballast");
    let more = ["--run-id", "r", "--commit-every", "0.05", "--pause-free-disk", "2"];
    let mut daemon = stage.start(&log.stream(&flow, &more));
    let read = || stage.count("SELECT (report::json->>'read')::int FROM finaz.streams");
    until("it reads", SOON, || {
        (stage.count("SELECT count(report) FROM finaz.streams") == 1 && read() == 20).then_some(())
    });
    fs::write(&ballast, vec![1; 3 << 20]).expect("a full disk");
    let view = says(&stage, "SOURCE_PAUSED", "free disk: 0 MiB");
    write(&log, 20..40);
    // More than at the first look, and still fewer than it needs to go on.
    fs::write(&ballast, vec![1; (2 << 20) - (200 << 10)]).expect("some space");
    let again = says(&stage, "SOURCE_PAUSED", "free disk: 2 MiB");
    assert_eq!((&again["seq"], &again["fence"]), (&view["seq"], &view["fence"]), "{again}");
    assert_eq!((&again["read"], &again["live"]), (&json!(20), &json!(true)), "{again}");
    fs::remove_file(&ballast).expect("space");
    until("it reads on", SOON, || (read() == 40).then_some(()));
    says(&stage, "FLOWING", "");
    assert!(daemon.is_running(), "it gave up: {}", daemon.said());
    daemon.signal(Signal::TERM);
    let report = daemon.wait(SOON).exits(0).json();
    assert_eq!((counts(&report), &report["fence"]), ([40, 0, 0, 0, 0], &json!(1)), "{report}");
}

#[test]
fn a_bounded_run_gives_up_on_a_full_disk_and_goes_on_later() {
    let Some(log) = Log::new(1) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_SERVICE_TIMEOUT_SEC", "1");
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    let bounded = ["--run-id", "r", "--once-n", "20"];
    // More than any disk has.
    let never = [&bounded[..], &["--pause-free-disk", "1000000000000"]].concat();
    let refused = stage.finaz(&log.stream(&flow, &never)).refuses(75, "SOURCE_PAUSED");
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("free disk")), "{refused}");
    let report = stage.json(&log.stream(&flow, &bounded));
    assert_eq!(counts(&report), [20, 0, 0, 0, 0], "{report}");
}

#[test]
fn bytes_in_flight_are_committed_before_their_time_and_a_lag_is_said_while_it_reads_on() {
    let Some(log) = Log::new(1) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    let flow = stage.live_flow("f", &["i"]);
    // Twelve mebibytes that nobody can read: each is kept until it is committed.
    let poison = || log.valued("i", vec![b'x'; 256 << 10]);
    for _ in 0..6 {
        log.write((0..8).map(|_| poison()).collect());
    }
    let mut more = vec!["--run-id", "r", "--commit-every", "3600", "--pause-in-flight", "1"];
    let held = stage.json(&log.stream(&flow, &[&more[..], &["--once-n", "40"]].concat()));
    assert_eq!(counts(&held), [0, 0, 0, 0, 40], "{held}");
    assert!(held["seq"].as_i64() > Some(3), "all was kept in memory: {held}");
    // 8 records are left, and 20 more than the limit come.
    write(&log, 0..100);
    more = vec!["--run-id", "r", "--commit-every", "0.05", "--pause-free-disk", "1000000000000"];
    more.extend(["--pause-lag", "100"]);
    // A full disk is what is said first.
    let paused = stage.start(&log.stream(&flow, &more));
    let view = says(&stage, "SOURCE_PAUSED", "free disk");
    assert_eq!((&view["read"], &view["lag"]), (&json!(40), &json!(108)), "{view}");
    drop(paused);
    let fast = ["--run-id", "r", "--pause-lag", "100", "--once-n", "148"];
    let report = until("the lease runs out", SOON, || {
        let run = stage.finaz(&log.stream(&flow, &fast));
        (run.exit == Some(0)).then(|| (run.json(), run.err))
    });
    assert_eq!(counts(&report.0), [100, 0, 0, 0, 48], "{report:?}");
    assert!(report.1.contains("lag: 108 records behind, over 100"), "{report:?}");
}

#[test]
fn retention_that_moves_on_is_said_before_it_blocks_and_blocks_a_stream_that_stands() {
    let Some(log) = Log::new(1) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..1_000);
    let report = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "900"]));
    assert_eq!(report["blocked_in_sec"], Value::Null, "{report}");
    // It stands at offset 900 and cannot go on.
    let mut more = vec!["--run-id", "r", "--commit-every", "0.05"];
    more.extend(["--pause-free-disk", "1000000000000"]);
    let daemon = stage.start(&log.stream(&flow, &more));
    let begins_at = |offset: i64| {
        until("the stream has seen where the log begins", SOON, || {
            let view = stage.standing("r", 0);
            (view["per_partition"][0]["earliest"] == offset).then_some(view)
        })
    };
    says(&stage, "SOURCE_PAUSED", "free disk");
    log.delete_before(0, 10);
    let once = begins_at(10);
    assert_eq!(once["blocked_in_sec"], Value::Null, "one move has no speed: {once}");
    log.delete_before(0, 20);
    let view = says(&stage, "SOURCE_PAUSED", "partition 0 is blocked in");
    let first = view["blocked_in_sec"].as_f64().expect("seconds");
    assert!(first > 0.0 && view["per_partition"][0]["retention_per_sec"].as_f64() > Some(0.0));
    let table = stage.finaz_with(&[("FINAZ_JSON", "0")], &["stream", "status"]).exits(0);
    assert!(table.out.contains(": blocked in "), "{table:?}");
    // Nobody runs it: it is still known, and comes nearer.
    drop(daemon);
    let left = until("nobody has it", SOON, || {
        let view = stage.standing("r", 0);
        (view["live"] == false).then(|| view["blocked_in_sec"].as_f64().expect("seconds"))
    });
    until("it comes nearer", SOON, || {
        (stage.standing("r", 0)["blocked_in_sec"].as_f64() < Some(left)).then_some(())
    });
    let daemon = stage.start(&log.stream(&flow, &more));
    begins_at(20);
    log.delete_before(0, 950);
    let refused = daemon.wait(SOON).refuses(1, "RECOVERY_BLOCKED");
    assert_eq!((&refused["needed"], &refused["earliest"]), (&json!(900), &json!(950)));
    let view = stage.standing("r", 1);
    assert_eq!((&view["state"], &view["read"]), (&json!("RECOVERY_BLOCKED"), &json!(900)));
}
