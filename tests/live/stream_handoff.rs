//! A stream handed over: from a snapshot to its log, and from one owner to the next.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::until;
use crate::stage::Stage;
use crate::topics::{Log, counts, event, lasting};

const SOON: Duration = Duration::from_secs(60);
const RUN: [&str; 2] = ["--run-id", "r"];

/// A snapshot of these events, as a file that needs no flags.
fn snapshot(stage: &Stage, name: &str, seconds: impl Iterator<Item = i64>) -> String {
    let mut lines = String::new();
    for at in seconds {
        writeln!(lines, "{}", event(&format!("e{at}"), instrument(at), at)).expect("a string");
    }
    stage.file(&format!("{name}.jsonl"), lines)
}

fn instrument(second: i64) -> &'static str {
    if second % 2 == 0 { "even" } else { "odd" }
}

/// The value that a record of an event has: the canonical one of its snapshot.
fn canonical(second: i64) -> String {
    let given: Value =
        serde_json::from_str(&event(&format!("e{second}"), instrument(second), second))
            .expect("JSON");
    let mut sorted: BTreeMap<String, Value> = serde_json::from_value(given).expect("an object");
    // An import counts the events of each instrument.
    sorted.insert("seq".to_owned(), json!(second / 2));
    serde_json::to_string(&sorted).expect("JSON")
}

fn write(log: &Log, seconds: impl Iterator<Item = i64>) {
    log.write(seconds.map(|at| log.valued(instrument(at), canonical(at))).collect());
}

/// `finaz stream handoff` over this log.
fn handoff<'a>(log: &'a Log, flow: &'a str, snapshot: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let args = ["stream", "handoff", "--topic", &log.topic, "--group", "g", "--flow", flow];
    [&args[..], &RUN, &["--snapshot", snapshot], more].concat()
}

fn stream<'a>(log: &'a Log, flow: &'a str, once: &'a str) -> Vec<&'a str> {
    log.stream(flow, &[&RUN[..], &["--once-n", once]].concat())
}

/// What batch makes of the events of these seconds.
fn batch(stage: &Stage, flow: &str, seconds: std::ops::Range<i64>) -> Value {
    let all = snapshot(stage, "all", seconds);
    let run = stage.json(&["run-once", "--dry-run", "--flow", flow, "--snapshot", &all]);
    run["result"].clone()
}

/// How each handoff of the run came about, and whether both have signed it.
#[track_caller]
fn chain(stage: &Stage) -> Vec<(String, bool)> {
    let shown = stage.json(&["stream", "handoff", "--show", "--run-id", "r"]);
    assert_eq!(shown["chain_ok"], true, "{shown}");
    let list = shown["handoffs"].as_array().expect("a list").iter();
    let one = |handoff: &Value| {
        let how = handoff["how"].as_str().expect("text").to_owned();
        (how, handoff["signed_by_both"].as_bool().expect("a truth"))
    };
    list.map(one).collect()
}

fn of(how: &str, both: bool) -> (String, bool) {
    (how.to_owned(), both)
}

/// Two instruments that the partitioner puts apart, or not: both lie somewhere.
fn places(log: &Log) -> Option<(Stage, String)> {
    let stage = Stage::for_log(log)?;
    let flow = stage.live_flow("f", &["even", "odd"]);
    Some((stage, flow))
}

#[test]
fn the_record_at_the_captured_high_water_is_applied_once_and_all_is_as_batch_over_the_union() {
    let Some(log) = Log::new(4) else { return };
    let Some((stage, flow)) = places(&log) else { return };
    // What lies in the log below its captured end is of the snapshot; the snapshot begins before the log.
    write(&log, 10..40);
    let past = snapshot(&stage, "past", 0..40);
    let report = stage.json(&handoff(&log, &flow, &past, &[]));
    assert_eq!((&report["already_done"], &report["events"]), (&false.into(), &40.into()));
    assert_eq!((&report["known"], &report["missing"]), (&30.into(), &0.into()), "{report}");
    assert_eq!(report["differs"], 0, "{report}");
    assert_eq!(report["next_offsets"], report["high_waters"], "{report}");
    let ends: i64 =
        report["high_waters"].as_object().expect("ends").values().filter_map(Value::as_i64).sum();
    assert_eq!(ends, 30);
    // At the high-water: a record that the snapshot has, then those that it has not, once more an old one.
    write(&log, [38, 39].into_iter().chain(40..70).chain([12, 69]));
    let next = stage.json(&stream(&log, &flow, "34"));
    assert_eq!(counts(&next), [30, 0, 4, 0, 0], "{next}");
    assert_eq!((&next["conflicts"], &next["history"]), (&0.into(), &40.into()), "{next}");
    let whole = batch(&stage, &flow, 0..70);
    assert_eq!(
        (&next["values_hash"], &next["rows"]),
        (&whole["values_hash"], &70.into()),
        "{next}"
    );
    let explained = stage.json(&["stream", "explain", "e12", "--run-id", "r"]);
    assert_eq!(explained["history"], true, "{explained}");
    assert_eq!(explained["seen"].as_array().map(Vec::len), Some(1), "{explained}");
    let explained = stage.json(&["stream", "explain", "e69", "--run-id", "r"]);
    assert_eq!(explained["history"], false, "{explained}");
    assert_eq!(chain(&stage), [of("HISTORY", true), of("DRAINED", false)]);
    // A handoff that is done is done, whatever the run has come to since.
    let again = stage.json(&handoff(&log, &flow, &past, &[]));
    assert_eq!(again["already_done"], true, "{again}");
    assert_eq!((&again["manifest"], &again["fence"]), (&report["manifest"], &report["fence"]));
}

#[test]
fn records_below_the_high_water_that_the_snapshot_lacks_are_read_and_none_is_lost() {
    let Some(log) = Log::new(4) else { return };
    let Some((stage, flow)) = places(&log) else { return };
    write(&log, 0..40);
    // The snapshot is from a while ago: the stream opens at the first record that it lacks.
    let past = snapshot(&stage, "past", 0..33);
    let report = stage.json(&handoff(&log, &flow, &past, &[]));
    assert_eq!((&report["known"], &report["missing"]), (&33.into(), &7.into()), "{report}");
    assert_eq!(report["late"], 0, "{report}");
    write(&log, 40..50);
    let next = stage.json(&stream(&log, &flow, "17"));
    assert_eq!(counts(&next), [17, 0, 0, 0, 0], "{next}");
    let whole = batch(&stage, &flow, 0..50);
    assert_eq!(next["values_hash"], whole["values_hash"], "{next}");
}

#[test]
fn a_snapshot_with_a_hole_or_that_does_not_reach_the_log_is_refused_and_leaves_nothing() {
    let Some(log) = Log::new(1) else { return };
    let Some((stage, flow)) = places(&log) else { return };
    write(&log, 0..60);
    let hole = snapshot(&stage, "hole", (0..60).filter(|at| *at != 20));
    let refused = stage.finaz(&handoff(&log, &flow, &hole, &[])).refuses(1, "HANDOFF_GAP");
    assert_eq!(
        (&refused["late"], &refused["first_missing"], &refused["apart"]),
        (&1.into(), &"0:20".into(), &json!([])),
        "{refused}"
    );
    assert_eq!(stage.count("SELECT count(*) FROM finaz.streams"), 0);
    assert_eq!(stage.count("SELECT count(*) FROM finaz.handoffs"), 0);
    // Retention has taken what the snapshot may lack: its end is before the first record that is left.
    log.delete_before(0, 30);
    let short = snapshot(&stage, "short", 0..30);
    let refused = stage.finaz(&handoff(&log, &flow, &short, &[])).refuses(1, "HANDOFF_GAP");
    assert_eq!((&refused["late"], &refused["apart"]), (&0.into(), &json!([0])), "{refused}");
    let accepted = stage.json(&handoff(&log, &flow, &short, &["--accept-gap"]));
    assert_eq!((&accepted["accepted_gap"], &accepted["missing"]), (&true.into(), &30.into()));
    let next = stage.json(&stream(&log, &flow, "30"));
    assert_eq!(counts(&next), [30, 0, 0, 0, 0], "{next}");
    assert_eq!(next["values_hash"], batch(&stage, &flow, 0..60)["values_hash"], "{next}");
}

#[test]
fn a_handoff_killed_at_each_of_its_steps_ends_the_same_when_it_is_repeated() {
    let Some(log) = Log::new(4) else { return };
    let Some((mut stage, flow)) = places(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    write(&log, 10..40);
    let past = snapshot(&stage, "past", 0..40);
    let args = handoff(&log, &flow, &past, &[]);
    let waiting =
        "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let waits = format!("SELECT count(*) {waiting}");
    let kill_at = |lock: &str| {
        let session = stage.session();
        session.sql(&format!("BEGIN; {lock}"));
        let mut victim = until("the lease runs out", SOON, || {
            let mut victim = stage.start(&args);
            let stalled = until("it stalls or is refused", SOON, || {
                let stalled = stage.count(&waits) > 0;
                (stalled || !victim.is_running()).then_some(stalled)
            });
            stalled.then_some(victim)
        });
        victim.kill();
        // What it has sent would be done once the lock is free.
        stage.sql(&format!("SELECT pg_terminate_backend(pid) {waiting}"));
        until("nobody waits", SOON, || (stage.count(&waits) == 0).then_some(()));
        session.sql("ROLLBACK");
    };
    // Before the ends are captured; then before anything is committed; then before the manifest is signed.
    kill_at("LOCK TABLE finaz.handoffs IN SHARE MODE");
    let captured = "SELECT count(*) FROM finaz.handoffs WHERE part = 'CAPTURED'";
    assert_eq!(stage.count(captured), 0);
    kill_at("SELECT FROM finaz.streams FOR NO KEY UPDATE");
    assert_eq!((stage.count(captured), stage.count("SELECT max(seq) FROM finaz.streams")), (1, 0));
    // The ends stay as they were captured, whatever has come since.
    write(&log, 40..50);
    let refused = until("the lease runs out", SOON, || {
        let run = stage.finaz(&stream(&log, &flow, "10"));
        let refused = run.json()["error"].take();
        (refused["code"] != "STREAM_LEASE_OCUPADO").then_some(refused)
    });
    assert_eq!(refused["code"], "HANDOFF_INCOMPLETE", "{refused}");
    let other = snapshot(&stage, "other", 0..39);
    stage.finaz(&handoff(&log, &flow, &other, &[])).refuses(1, "HANDOFF_CONFLICT");
    kill_at("LOCK TABLE finaz.handoffs IN SHARE MODE");
    assert_eq!(stage.count("SELECT max(seq) FROM finaz.streams"), 1);
    let report = until("the lease runs out", SOON, || {
        let run = stage.finaz(&args);
        if run.exit == Some(0) {
            return Some(run.json());
        }
        run.refuses(1, "STREAM_LEASE_OCUPADO");
        None
    });
    let ends = report["high_waters"].as_object().expect("ends").values();
    assert_eq!(ends.filter_map(Value::as_i64).sum::<i64>(), 30, "{report}");
    assert_eq!((&report["events"], &report["missing"]), (&40.into(), &0.into()), "{report}");
    let next = stage.json(&stream(&log, &flow, "10"));
    assert_eq!(counts(&next), [10, 0, 0, 0, 0], "{next}");
    assert_eq!(next["values_hash"], batch(&stage, &flow, 0..50)["values_hash"], "{next}");
}

#[test]
fn another_flow_snapshot_or_topic_is_refused_and_so_is_a_run_that_has_begun() {
    let (Some(log), Some(other_log)) = (Log::new(4), Log::new(4)) else { return };
    let Some((stage, flow)) = places(&log) else { return };
    write(&log, 0..20);
    write(&other_log, 0..20);
    let past = snapshot(&stage, "past", 0..20);
    // Nothing to hand over, or not to this flow.
    stage.finaz(&handoff(&log, &flow, "no-such", &[])).refuses(2, "SNAPSHOT_UNKNOWN");
    let stranger = stage.live_flow("stranger", &["even", "nobody"]);
    stage.finaz(&handoff(&log, &stranger, &past, &[])).refuses(2, "INSTRUMENT_UNKNOWN");
    let mut nowhere = handoff(&log, &flow, &past, &[]);
    nowhere[3] = "no-such-topic";
    stage.finaz(&nowhere).refuses(2, "TOPIC_UNKNOWN");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.streams"), 0);
    stage.json(&handoff(&log, &flow, &past, &[]));
    // A run keeps to what it was handed.
    let shorter = snapshot(&stage, "shorter", 0..19);
    let refused = stage.finaz(&handoff(&log, &flow, &shorter, &[])).refuses(1, "HANDOFF_CONFLICT");
    assert!(refused["held"] != refused["offered"], "{refused}");
    let narrow = stage.live_flow("narrow", &["even"]);
    stage.finaz(&handoff(&log, &narrow, &past, &[])).refuses(1, "JOURNAL_FOREIGN");
    stage.finaz(&handoff(&other_log, &flow, &past, &[])).refuses(1, "JOURNAL_FOREIGN");
    stage
        .finaz(&other_log.stream(&flow, &[&RUN[..], &["--once-n", "1"]].concat()))
        .refuses(1, "JOURNAL_FOREIGN");
    // One that began with its topic alone has its past already.
    let begun = ["--run-id", "begun", "--once-n", "3"];
    stage.json(&log.stream(&flow, &begun));
    let mut late = handoff(&log, &flow, &past, &[]);
    late.splice(8..10, ["--run-id", "begun"]);
    let refused = stage.finaz(&late).refuses(1, "HANDOFF_CONFLICT");
    assert_eq!(refused["held"], Value::Null, "{refused}");
    // And one whose owner lives is not to be touched.
    let mut daemon = stage.start(&log.stream(&flow, &["--run-id", "live"]));
    let owner = "SELECT count(*) FROM finaz.streams WHERE run_id = 'live'";
    until("it has begun", SOON, || (stage.count(owner) > 0).then_some(()));
    late.splice(8..10, ["--run-id", "live"]);
    stage.finaz(&late).refuses(1, "STREAM_LEASE_OCUPADO");
    daemon.signal(Signal::TERM);
    daemon.wait(SOON).exits(0);
}

#[test]
fn a_drained_owner_and_its_successor_have_both_signed_the_same_offsets() {
    let Some(log) = Log::new(4) else { return };
    let Some((mut stage, flow)) = places(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "600");
    write(&log, 0..40);
    let mut first =
        stage.start(&log.stream(&flow, &[&RUN[..], &["--commit-every", "0.05"]].concat()));
    let read = "SELECT coalesce(max((report::json->>'read')::int), 0) FROM finaz.streams";
    until("it commits", SOON, || (stage.count(read) >= 40).then_some(()));
    assert_eq!(chain(&stage), [of("BEGUN", false)]);
    first.signal(Signal::TERM);
    first.wait(SOON).exits(0);
    assert_eq!(chain(&stage), [of("BEGUN", false), of("DRAINED", false)]);
    write(&log, 40..60);
    let next = stage.json(&stream(&log, &flow, "60"));
    assert_eq!(counts(&next), [60, 0, 0, 0, 0], "{next}");
    let expected = [of("BEGUN", false), of("DRAINED", true), of("DRAINED", false)];
    assert_eq!(chain(&stage), expected);
    let shown = stage.json(&["stream", "handoff", "--show", "--run-id", "r"]);
    let (gave, took) = (&shown["handoffs"][1]["giver"], &shown["handoffs"][1]["taker"]);
    assert_eq!((&gave["fence"], &took["fence"]), (&1.into(), &2.into()), "{shown}");
    assert_eq!(took["given"], gave["manifest"], "{shown}");
    assert_eq!(
        (&took["commit"], &gave["commit"]["fence"]),
        (&gave["commit"], &1.into()),
        "{shown}"
    );
    assert!(gave["owner"] != took["owner"], "{shown}");
    // A part that was changed is no part: its blob is not what the row names.
    stage.sql(
        "UPDATE finaz.handoffs SET owner = 'somebody/else' WHERE part = 'GIVEN' AND fence = 1",
    );
    let run = stage.finaz(&["stream", "handoff", "--show", "--run-id", "r"]).exits(1);
    assert_eq!(run.json()["chain_ok"], false);
    // Blobs of handoffs are named: the collector leaves them.
    stage.json(&["cas", "gc"]);
    stage.finaz(&["stream", "handoff", "--show", "--run-id", "r"]).exits(1);
}

#[test]
fn an_owner_that_was_killed_or_stopped_gives_nothing_and_its_successor_goes_on_from_its_commit() {
    for is_killed in [true, false] {
        let Some(log) = Log::new(4) else { return };
        let Some((mut stage, flow)) = places(&log) else { return };
        stage.set("FINAZ_LEASE_TTL_SEC", "1");
        write(&log, 0..40);
        let more = [&RUN[..], &["--commit-every", "0.05", "--owner", "lost"]].concat();
        let mut lost = stage.start(&log.stream(&flow, &more));
        let read = "SELECT coalesce(max((report::json->>'read')::int), 0) FROM finaz.streams";
        until("it commits", SOON, || (stage.count(read) >= 40).then_some(()));
        if is_killed {
            lost.kill();
        } else {
            lost.signal(Signal::STOP);
        }
        write(&log, 40..60);
        let heir = until("the lease runs out", SOON, || {
            let run = stage.finaz(&stream(&log, &flow, "60"));
            if run.exit == Some(0) {
                return Some(run.json());
            }
            run.refuses(1, "STREAM_LEASE_OCUPADO");
            None
        });
        assert_eq!((&heir["fence"], counts(&heir)), (&2.into(), [60, 0, 0, 0, 0]), "{heir}");
        let expected = [of("BEGUN", false), of("UNDRAINED", false), of("DRAINED", false)];
        assert_eq!(chain(&stage), expected);
        if !is_killed {
            lost.signal(Signal::CONT);
            lost.wait(SOON).refuses(1, "STREAM_FENCE_OBSOLETO");
            assert_eq!(chain(&stage), expected, "a stale owner has signed");
        }
        let whole = stage.json(&log.stream(&flow, &["--run-id", "whole", "--once-n", "60"]));
        assert_eq!(lasting(&heir), lasting(&whole));
    }
}

#[test]
fn an_owner_that_was_killed_before_it_committed_gives_nothing_of_what_it_was_given() {
    let Some(log) = Log::new(4) else { return };
    let Some((mut stage, flow)) = places(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    write(&log, 0..40);
    let killed = |fence: u32| {
        let live =
            "SELECT count(*) FROM finaz.leases WHERE NOT closed AND expires_at > clock_timestamp()";
        until("the lease runs out", SOON, || (stage.count(live) == 0).then_some(()));
        let more = [&RUN[..], &["--commit-every", "600"]].concat();
        let mut lost = stage.start(&log.stream(&flow, &more));
        let taken =
            format!("SELECT count(*) FROM finaz.handoffs WHERE part = 'TAKEN' AND fence = {fence}");
        until("it has taken the stream", SOON, || (stage.count(&taken) > 0).then_some(()));
        lost.kill();
    };
    // The first of all dies, and one that was given something.
    killed(1);
    let heir = |wanted: &str| {
        until("the lease runs out", SOON, || {
            let run = stage.finaz(&stream(&log, &flow, wanted));
            if run.exit == Some(0) {
                return Some(run.json());
            }
            run.refuses(1, "STREAM_LEASE_OCUPADO");
            None
        })
    };
    heir("40");
    let begun = [of("BEGUN", false), of("UNDRAINED", false), of("DRAINED", false)];
    assert_eq!(chain(&stage), begun);
    killed(3);
    write(&log, 40..60);
    let last = heir("60");
    assert_eq!(counts(&last), [60, 0, 0, 0, 0], "{last}");
    let all = [
        of("BEGUN", false),
        of("UNDRAINED", false),
        of("DRAINED", true),
        of("UNDRAINED", false),
        of("DRAINED", false),
    ];
    assert_eq!(chain(&stage), all);
    let shown = stage.json(&["stream", "handoff", "--show", "--run-id", "r"]);
    assert_eq!(shown["chain_ok"], true, "{shown}");
}

#[test]
fn a_marker_at_the_end_of_the_log_is_left_to_the_stream_which_ends_by_it() {
    let Some(log) = Log::new(1) else { return };
    let Some((stage, flow)) = places(&log) else { return };
    write(&log, 0..20);
    stage.json(&["stream", "mark", "END_OF_BOUNDED_SOURCE", "--topic", &log.topic]);
    let past = snapshot(&stage, "past", 0..20);
    let report = stage.json(&handoff(&log, &flow, &past, &[]));
    assert_eq!(
        (&report["high_waters"]["0"], &report["next_offsets"]["0"]),
        (&21.into(), &20.into()),
        "{report}"
    );
    let ended = stage.json(&log.stream(&flow, &RUN));
    assert_eq!((&ended["state"], &ended["read"]), (&"ENDED".into(), &0.into()), "{ended}");
    assert_eq!((&ended["final"], &ended["waiting"]), (&20.into(), &0.into()), "{ended}");
    assert_eq!(ended["values_hash"], batch(&stage, &flow, 0..20)["values_hash"], "{ended}");
    assert_eq!(chain(&stage), [of("HISTORY", true), of("DRAINED", false)]);
}

#[test]
fn an_open_transaction_lies_behind_the_end_that_counts_and_is_read_once_it_is_over() {
    let Some(log) = Log::new(1) else { return };
    let Some((stage, flow)) = places(&log) else { return };
    write(&log, 0..20);
    let producer = log.runtime.block_on(async {
        let producer = log.kafka.producer().build_transactional(&log.topic).await;
        let producer = producer.expect("a transactional producer");
        producer.begin().expect("begun");
        let record = log.valued(instrument(20), canonical(20));
        assert!(producer.send(record).await.expect("written").is_persisted());
        producer.flush().await.expect("written");
        producer
    });
    write(&log, 21..23);
    // The snapshot has what the topic does not give yet.
    let past = snapshot(&stage, "past", 0..22);
    let report = stage.json(&handoff(&log, &flow, &past, &[]));
    let partition = &report["per_partition"][0];
    assert_eq!(
        (&partition["stable"], &partition["high_water"], &partition["next_offset"]),
        (&20.into(), &23.into(), &20.into()),
        "{report}"
    );
    log.runtime.block_on(async {
        producer.commit().await.expect("committed");
        producer.close().await.expect("closed");
    });
    let next = stage.json(&stream(&log, &flow, "3"));
    assert_eq!((counts(&next), &next["history"]), ([1, 0, 2, 0, 0], &22.into()), "{next}");
    assert_eq!(next["values_hash"], batch(&stage, &flow, 0..23)["values_hash"], "{next}");
}

#[test]
fn a_handoff_told_to_end_gives_its_lease_back_and_can_be_repeated_at_once() {
    let Some(log) = Log::new(1) else { return };
    let Some((mut stage, flow)) = places(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "600");
    write(&log, 0..20);
    let past = snapshot(&stage, "past", 0..20);
    let args = handoff(&log, &flow, &past, &[]);
    let session = stage.session();
    session.sql("BEGIN; LOCK TABLE finaz.handoffs IN SHARE MODE");
    let mut told = stage.start(&args);
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("it waits for the lock", SOON, || (stage.count(waits) > 0).then_some(()));
    told.signal(Signal::TERM);
    session.sql("ROLLBACK");
    let ended = told.wait(SOON);
    // It may have been done before it was heard.
    assert!(matches!(ended.exit, Some(0 | 143)), "{ended:?}");
    assert_eq!(stage.json(&["lease", "list", "--active"])["leases"], json!([]));
    let report = stage.json(&args);
    assert_eq!((&report["events"], &report["known"]), (&20.into(), &20.into()), "{report}");
}
