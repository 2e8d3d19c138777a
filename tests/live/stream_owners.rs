//! Two owners of one stream: one is turned away, takes over, or is refused; never both.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::drill_matrix::mark;
use crate::process::{elapsed, until};
use crate::stage::Stage;
use crate::topics::{Log, counts, lasting};

const SOON: Duration = Duration::from_secs(60);
const RUN: [&str; 2] = ["--run-id", "r"];

/// Writes events of two instruments at these seconds.
fn write(log: &Log, seconds: std::ops::Range<i64>) {
    let records = seconds.map(|at| {
        let instrument = if at % 2 == 0 { "even" } else { "odd" };
        log.record(&format!("e{at}"), instrument, at)
    });
    log.write(records.collect());
}

fn read(stage: &Stage) -> u64 {
    let run = stage.finaz(&["stream", "status", "--run-id", "r"]);
    // Before the first owner has opened it there is no such stream.
    if run.exit == Some(0) {
        run.json()["streams"][0]["read"].as_u64().expect("a count")
    } else {
        0
    }
}

/// Waits until so many records are committed.
#[track_caller]
fn committed(stage: &Stage, records: u64) {
    until("it commits", SOON, || (read(stage) >= records).then_some(()));
}

fn pointer(stage: &Stage) -> Vec<Vec<String>> {
    stage.sql("SELECT epoch, fence, seq, head, state, report FROM finaz.streams")
}

#[test]
fn a_second_owner_is_turned_away_and_emits_nothing() {
    let Some(log) = Log::new(4) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["even", "odd"]);
    write(&log, 0..40);
    let mut first =
        stage.start(&log.stream(&flow, &[&RUN[..], &["--commit-every", "0.05"]].concat()));
    committed(&stage, 40);
    let before = pointer(&stage);
    let emit = stage.path("second.jsonl");
    let emit = emit.to_str().expect("a path");
    let more = [&RUN[..], &["--once-n", "40", "--emit", emit]].concat();
    let refused = stage.finaz(&log.stream(&flow, &more)).refuses(1, "STREAM_LEASE_OCUPADO");
    assert_eq!((&refused["name"], &refused["fence"]), (&"stream/r".into(), &1.into()), "{refused}");
    assert!(!stage.path("second.jsonl").exists(), "it emitted");
    assert_eq!(pointer(&stage), before);
    assert!(first.is_running());
    // Another group over the same topic is nobody's business.
    let mut args = log.stream(&flow, &["--run-id", "other", "--once-n", "40"]);
    let group = args.iter().position(|arg| *arg == "g").expect("the group");
    args[group] = "h";
    stage.finaz(&args).exits(0);
}

#[test]
fn a_daemon_told_to_end_gives_its_lease_back_and_its_successor_starts_at_once() {
    let Some(log) = Log::new(4) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "600");
    let flow = stage.live_flow("f", &["even", "odd"]);
    write(&log, 0..40);
    // Its first commit by time would be far away: what it read is kept by the one at the end.
    let mut daemon =
        stage.start(&log.stream(&flow, &[&RUN[..], &["--commit-every", "0.05"]].concat()));
    committed(&stage, 40);
    daemon.signal(Signal::TERM);
    let report = daemon.wait(SOON).exits(0).json();
    assert_eq!(
        (&report["state"], counts(&report)),
        (&"DRAINED".into(), [40, 0, 0, 0, 0]),
        "{report}"
    );
    assert_eq!(stage.json(&["lease", "list", "--active"])["leases"], json!([]));
    assert!(report["waiting"].as_u64() > Some(0), "nothing was applied early: {report}");
    write(&log, 40..60);
    let mut next = Value::Null;
    let took = elapsed(|| {
        next = stage.json(&log.stream(&flow, &[&RUN[..], &["--once-n", "60"]].concat()));
    });
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!((&next["fence"], counts(&next)), (&2.into(), [60, 0, 0, 0, 0]), "{next}");
    let whole = stage.json(&log.stream(&flow, &["--run-id", "whole", "--once-n", "60"]));
    assert_eq!(lasting(&next), lasting(&whole));
}

#[test]
fn an_owner_stopped_past_its_lease_is_refused_and_its_successor_s_journal_stays() {
    let Some(log) = Log::new(4) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    let flow = stage.live_flow("f", &["even", "odd"]);
    write(&log, 0..40);
    let emit = stage.path("stopped.jsonl");
    let emit = emit.to_str().expect("a path").to_owned();
    let more =
        [&RUN[..], &["--commit-every", "0.05", "--owner", "stopped", "--emit", &emit]].concat();
    let mut stopped = stage.start(&log.stream(&flow, &more));
    committed(&stage, 40);
    stopped.signal(Signal::STOP);
    write(&log, 40..80);
    let more = [&RUN[..], &["--once-n", "80", "--owner", "heir"]].concat();
    let heir = until("the lease has run out", SOON, || {
        let run = stage.finaz(&log.stream(&flow, &more));
        if run.exit == Some(1) {
            run.refuses(1, "STREAM_LEASE_OCUPADO");
            return None;
        }
        Some(run.exits(0).json())
    });
    assert_eq!((&heir["fence"], counts(&heir)), (&2.into(), [80, 0, 0, 0, 0]), "{heir}");
    let before = pointer(&stage);
    stopped.signal(Signal::CONT);
    let refused = stopped.wait(SOON).refuses(1, "STREAM_FENCE_OBSOLETO");
    assert_eq!(refused["fence"], 1, "{refused}");
    assert_eq!(pointer(&stage), before, "touched by a stale owner");
    assert!(!stage.path("stopped.jsonl").exists(), "it emitted");
    let listed = stage.json(&["refused", "list"])["refused"].take();
    let listed = listed.as_array().expect("a list");
    assert!(!listed.is_empty(), "the refusal is not on record");
    for entry in listed {
        assert_eq!(
            (&entry["effect"], &entry["run_id"]),
            (&"journal".into(), &"r".into()),
            "{entry}"
        );
        assert!(
            entry["owner"].as_str().is_some_and(|owner| owner.starts_with("stopped/")),
            "{entry}"
        );
    }
    let whole = stage.json(&log.stream(&flow, &["--run-id", "whole", "--once-n", "80"]));
    assert_eq!(lasting(&heir), lasting(&whole));
}

#[test]
fn an_owner_overtaken_behind_its_last_commit_puts_no_values_in_the_place_of_its_successor_s() {
    let Some(log) = Log::new(4) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["even", "odd"]);
    write(&log, 0..40);
    // With its last commit its lease is somebody else's: nothing is left to do but to emit.
    stage.sql(
        "CREATE FUNCTION finaz.overtake() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE finaz.leases SET owner = 'heir/1', fence = fence + 1 WHERE name = NEW.name;
             RETURN NEW;
         END $$;
         CREATE TRIGGER overtake AFTER UPDATE ON finaz.streams FOR EACH ROW
             WHEN (NEW.state = 'STOPPED') EXECUTE FUNCTION finaz.overtake()",
    );
    for (run, more) in [("whole", &[][..]), ("split", &["--partitions", "0,1,2,3"])] {
        let emit = stage.file("values.jsonl", "the successor's");
        let args = ["--run-id", run, "--once-n", "40", "--emit", &emit];
        let run = stage.finaz(&log.stream(&flow, &[&args[..], more].concat()));
        let refused = run.refuses(1, "STREAM_FENCE_OBSOLETO");
        assert_eq!(refused["current_owner"], "heir/1", "{refused}");
        let left = std::fs::read_to_string(&emit).expect("the file");
        assert_eq!(left, "the successor's", "it was overwritten");
        stage.sql("UPDATE finaz.leases SET expires_at = clock_timestamp()");
    }
    let listed = stage.json(&["refused", "list"])["refused"].take();
    let listed = listed.as_array().expect("a list").clone();
    let of = |effect: &str| listed.iter().filter(|entry| entry["effect"] == effect).count();
    assert_eq!((of("emit"), of("emit") + of("handoff")), (2, listed.len()), "{listed:?}");
    let beside = std::fs::read_dir(stage.path("")).expect("the folder");
    let names = beside.map(|entry| entry.expect("an entry").file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_owner_overtaken_before_it_marked_its_fence_is_fenced_and_takes_it_for_no_restored_backup() {
    let Some(log) = Log::new(2) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    let flow = stage.live_flow("f", &["even", "odd"]);
    write(&log, 0..20);
    let folder = stage.path("held");
    std::fs::create_dir(&folder).expect("a folder");
    mark(&stage, "a1b2", &folder);
    let run = |owner: &'static str, more: &[&'static str]| {
        let args = log.stream(&flow, &[&RUN[..], &["--owner", owner], more].concat());
        let held = (owner == "stopped").then_some(("FINAZ_DRILL_POINT", "lease.granted:1:a1b2"));
        stage.start_with(held.as_slice(), &args)
    };
    run("first", &["--once-n", "5"]).wait(SOON).exits(0);
    // It stops itself with its lease granted, and nothing noted of that.
    let mut stopped = run("stopped", &[]);
    let says = until("it stands there", SOON, || {
        let mut files = std::fs::read_dir(&folder).expect("a folder");
        files.next().map(|entry| entry.expect("an entry").path())
    });
    let live =
        "SELECT count(*) FROM finaz.leases WHERE expires_at > clock_timestamp() AND NOT closed";
    until("its lease has run out", SOON, || (stage.count(live) == 0).then_some(()));
    run("taker", &["--once-n", "10"]).wait(SOON).exits(0);
    std::fs::remove_file(&says).expect("the file is there");
    stopped.signal(Signal::CONT);
    let refused = stopped.wait(SOON).refuses(1, "STREAM_FENCE_OBSOLETO");
    assert_eq!((&refused["fence"], &refused["current_fence"]), (&2.into(), &3.into()), "{refused}");
    let listed = stage.json(&["refused", "list"])["refused"].take();
    let found = listed.as_array().expect("refusals").iter().find(|one| one["effect"] == "lease");
    let found = found.unwrap_or_else(|| panic!("not on record: {listed}"));
    assert_eq!((&found["fence"], &found["current_fence"]), (&2.into(), &3.into()), "{found}");
    assert_eq!(counts(&run("last", &["--once-n", "20"]).wait(SOON).exits(0).json())[0], 20);
}

#[test]
fn the_status_tells_the_fence_of_who_has_a_stream_from_that_of_its_last_commit() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["even", "odd"]);
    write(&log, 0..4);
    stage.json(&log.stream(&flow, &[&RUN[..], &["--once-n", "4"]].concat()));
    let fences = || {
        let view = stage.standing("r", 0);
        (view["fence"].clone(), view["lease_fence"].clone())
    };
    assert_eq!(fences(), (json!(1), Value::Null), "nobody has it");
    // As an owner that has not committed yet.
    stage.json(&["lease", "acquire", "stream/r"]);
    assert_eq!(fences(), (json!(1), json!(2)));
}
