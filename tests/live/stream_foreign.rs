//! Journals that meet another log than their own, or one that lost what they need: refused, never jumped over.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::instance::{Instance, kill};
use crate::process::until;
use crate::stage::Stage;
use crate::topics::{Log, counts};

const SOON: Duration = Duration::from_secs(60);

/// Events of one instrument at these seconds.
fn write(log: &Log, seconds: std::ops::Range<i64>) {
    log.write(seconds.map(|at| log.record(&format!("e{at}"), "i", at)).collect());
}

fn pointer(stage: &Stage) -> Vec<Vec<String>> {
    stage.sql("SELECT fence, seq, head FROM finaz.streams")
}

#[track_caller]
fn foreign(stage: &Stage, args: &[&str], field: &str) {
    let before = pointer(stage);
    let refused = stage.finaz(args).refuses(1, "JOURNAL_FOREIGN");
    assert_eq!(refused["field"], field, "{refused}");
    assert_eq!(pointer(stage), before, "{field}: it was touched");
    assert_eq!(stage.json(&["lease", "list", "--active"])["leases"], json!([]), "{field}");
}

#[test]
fn a_topic_made_anew_under_the_same_name_is_foreign() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..10);
    stage.finaz(&log.stream(&flow, &["--once-n", "10"])).exits(0);
    log.delete();
    log.make();
    write(&log, 0..20);
    for n in ["20", "11"] {
        foreign(&stage, &log.stream(&flow, &["--once-n", n]), "topic_id");
    }
    // Nor does a daemon wait for it to become another.
    foreign(&stage, &log.stream(&flow, &[]), "topic_id");
    let report = stage.json(&log.stream(&flow, &["--once-n", "20", "--run-id", "new"]));
    assert_eq!(counts(&report), [20, 0, 0, 0, 0], "{report}");
    // Nor is one that has fewer partitions than the journal.
    log.delete();
    log.make_with(1);
    for more in [&["--once-n", "11"][..], &[]] {
        foreign(&stage, &log.stream(&flow, more), "topic_id");
    }
}

#[test]
fn a_topic_made_anew_under_a_running_daemon_ends_it() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..10);
    let more = ["--run-id", "r", "--commit-every", "0.05"];
    let daemon = stage.start(&log.stream(&flow, &more));
    until("it commits", SOON, || (read(&stage) == 10).then_some(()));
    log.delete();
    log.make();
    write(&log, 100..130);
    let ended = daemon.wait(Duration::from_secs(120));
    // It may have looked between the two.
    let code = ended.json()["error"]["code"].take();
    assert!(
        [(Some(1), json!("JOURNAL_FOREIGN")), (Some(2), json!("TOPIC_UNKNOWN"))]
            .contains(&(ended.exit, code)),
        "{ended:?}"
    );
    assert_eq!(read(&stage), 10, "it read of the other one");
    foreign(&stage, &log.stream(&flow, &more), "topic_id");
}

fn read(stage: &Stage) -> usize {
    stage.count("SELECT coalesce(max((report::json->>'read')::int), 0) FROM finaz.streams")
}

#[test]
fn another_topic_group_or_flow_under_the_same_run_is_foreign() {
    let Some(log) = Log::new(2) else { return };
    let Some(other) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let (flow, another) = (stage.live_flow("f", &["i"]), stage.live_flow("g", &["i"]));
    let text = fs::read_to_string(&flow).expect("the flow").replace("period: 3", "period: 4");
    let edited = stage.file("edited.yaml", text);
    write(&log, 0..10);
    write(&other, 0..20);
    let run = ["--run-id", "r", "--once-n", "10"];
    stage.finaz(&log.stream(&flow, &run)).exits(0);
    let more = ["--run-id", "r", "--once-n", "11"];
    let before = pointer(&stage);
    let refused = stage.finaz(&other.stream(&flow, &more)).refuses(1, "JOURNAL_FOREIGN");
    assert!(["topic", "topic_id"].map(Value::from).contains(&refused["field"]), "{refused}");
    foreign(&stage, &log.stream(&another, &more), "flow_name");
    foreign(&stage, &log.stream(&edited, &more), "flow");
    let mut args = log.stream(&flow, &more);
    let group = args.iter().position(|arg| *arg == "g").expect("the group");
    args[group] = "h";
    foreign(&stage, &args, "group");
    assert_eq!(pointer(&stage), before);
    let report = stage.json(&log.stream(&flow, &run));
    assert_eq!(counts(&report), [10, 0, 0, 0, 0]);
}

/// It says that recovery is blocked, and both offsets.
#[track_caller]
fn blocked(stage: &Stage, log: &Log, flow: &str, offsets: (i64, i64)) {
    // Restarts do not make it look well.
    for more in [&["--run-id", "r", "--once-n", "40"][..], &["--run-id", "r"], &["--run-id", "r"]] {
        let refused = stage.finaz(&log.stream(flow, more)).refuses(1, "RECOVERY_BLOCKED");
        let seen = (&refused["needed"], &refused["earliest"]);
        assert_eq!(seen, (&json!(offsets.0), &json!(offsets.1)), "{refused}");
        let status = stage.standing("r", 1);
        assert_eq!(status["state"], "RECOVERY_BLOCKED", "{status}");
        let reason = status["reason"].as_str().expect("a reason");
        for offset in [offsets.0, offsets.1] {
            assert!(reason.contains(&offset.to_string()), "no {offset}: {reason}");
        }
    }
}

#[test]
fn offsets_that_retention_took_block_the_run_over_restarts_and_are_said() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    stage.finaz(&log.stream(&flow, &["--run-id", "r", "--once-n", "7"])).exits(0);
    log.delete_before(0, 13);
    blocked(&stage, &log, &flow, (7, 13));
    assert_eq!(counts(&stage.standing("r", 1)), [7, 0, 0, 0, 0]);
}

#[test]
fn offsets_of_a_partition_that_gave_nothing_yet_are_not_jumped_either() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    // One instrument a partition.
    let other = (0..).map(|at| format!("j{at}")).find(|name| log.home(name) != log.home("i"));
    let other = other.expect("one of many");
    let flow = stage.live_flow("f", &["i", &other]);
    write(&log, 0..7);
    stage.finaz(&log.stream(&flow, &["--run-id", "r", "--once-n", "7"])).exits(0);
    let records = (0..9).map(|at| log.record(&format!("o{at}"), &other, at));
    log.write(records.collect());
    // They came after the run had begun: it needs all of them.
    log.delete_before(log.home(&other), 4);
    blocked(&stage, &log, &flow, (0, 4));
}

#[test]
fn a_run_that_begins_after_retention_did_its_work_begins_with_what_is_there() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    log.delete_before(0, 13);
    let report = stage.json(&log.stream(&flow, &["--once-n", "7"]));
    assert_eq!((counts(&report), &report["next_offsets"]), ([7, 0, 0, 0, 0], &json!({"0": 20})));
}

#[test]
fn a_daemon_overtaken_by_retention_keeps_what_it_decided_and_ends_blocked() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    let more = ["--run-id", "r", "--commit-every", "0.05"];
    let mut daemon = stage.start(&log.stream(&flow, &more));
    until("it commits", SOON, || (read(&stage) == 20).then_some(()));
    daemon.signal(rustix::process::Signal::STOP);
    // The fetch that it has open brings it these; the next ones it has to ask for.
    write(&log, 20..30);
    write(&log, 30..40);
    log.delete_before(0, 35);
    daemon.signal(rustix::process::Signal::CONT);
    let refused = daemon.wait(SOON).refuses(1, "RECOVERY_BLOCKED");
    assert_eq!(refused["earliest"], 35, "{refused}");
    let needed = refused["needed"].as_i64().expect("an offset");
    blocked(&stage, &log, &flow, (needed, 35));
}

/// The log of a topic's only partition on the disk of the test's own broker.
fn files(instance: &Instance, log: &Log) -> std::path::PathBuf {
    instance.state().join("kafka/data").join(format!("{}-0", log.topic))
}

/// Puts the log of one topic in the place of another's, which keeps its name and its id.
fn refill(instance: &Instance, from: &Log, to: &Log) {
    kill(instance.pid("kafka"));
    let (from, to) = (files(instance, from), files(instance, to));
    for entry in fs::read_dir(&to).expect("the log") {
        let path = entry.expect("an entry").path();
        if path.file_name().is_some_and(|name| name != "partition.metadata") {
            fs::remove_file(path).expect("removed");
        }
    }
    let name = "00000000000000000000.log";
    fs::copy(from.join(name), to.join(name)).expect("copied");
    instance.run("kafka-up");
}

#[test]
fn a_topic_truncated_and_refilled_is_known_by_its_last_record_and_a_shorter_one_by_its_end() {
    let Some(instance) = Instance::new() else { return };
    instance.run("kafka-up");
    let brokers = instance.setting("FINAZ_BROKERS");
    let (log, other, short) = (Log::at(&brokers, 1), Log::at(&brokers, 1), Log::at(&brokers, 1));
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..10);
    write(&other, 50..70);
    write(&short, 0..3);
    let run = ["--run-id", "r", "--once-n"];
    stage.finaz(&log.stream(&flow, &[&run[..], &["10"]].concat())).exits(0);
    refill(&instance, &other, &log);
    let more = [&run[..], &["15"]].concat();
    let refused = until("the broker is back", SOON, || {
        let run = stage.finaz(&log.stream(&flow, &more));
        (run.exit != Some(75)).then_some(run)
    });
    let refused = refused.refuses(1, "JOURNAL_FOREIGN");
    assert_eq!(refused["field"], "anchor", "{refused}");
    foreign(&stage, &log.stream(&flow, &more), "anchor");
    refill(&instance, &short, &log);
    for _ in 0..2 {
        let refused = until("the broker is back", SOON, || {
            let run = stage.finaz(&log.stream(&flow, &more));
            (run.exit != Some(75)).then_some(run)
        });
        let refused = refused.refuses(1, "OFFSET_AHEAD");
        assert_eq!((&refused["needed"], &refused["end"]), (&json!(10), &json!(3)), "{refused}");
        assert_eq!(stage.standing("r", 1)["state"], "OFFSET_AHEAD");
    }
}
