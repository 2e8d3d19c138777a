//! The same values three ways, with real servers.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use krafka::Kafka;
use serde_json::{Value, json};

use crate::process::{poll, until};
use crate::setting;
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(300);
const FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/fixture.faults.01.yaml");

fn stage() -> Option<Stage> {
    let mut stage = Stage::without_warehouse()?;
    stage.set("FINAZ_BROKERS", &setting("FINAZ_BROKERS")?);
    Some(stage)
}

/// Topics of comparisons that are there now: those of others, too, who compare at this moment.
fn topics(stage: &Stage) -> Vec<String> {
    let brokers = setting("FINAZ_BROKERS").expect("it is set");
    stage.runtime.block_on(async {
        let kafka = Kafka::builder(&brokers).connect().await.expect("a broker");
        let names = kafka.admin().list_topics(Default::default()).await.expect("topics");
        names.into_iter().filter(|name| name.starts_with("finaz-parity.")).collect()
    })
}

/// Nothing of a comparison is left: no row, no lease that lives. Its topic's name is its own, so one of ours that stays
/// stays for ever.
#[track_caller]
fn nothing_left(stage: &Stage) {
    assert_eq!(stage.count("SELECT count(*) FROM finaz.streams"), 0);
    assert_eq!(stage.json(&["lease", "list", "--active"])["leases"], json!([]));
    let seen = topics(stage);
    let gone = poll(PATIENCE, || {
        let now = topics(stage);
        seen.iter().all(|name| !now.contains(name)).then_some(())
    });
    assert!(gone.is_some(), "topics are left: {seen:?}");
}

/// Read, consumed, filtered, duplicates, late, omitted of a mode.
fn mode(report: &Value, name: &str) -> [u64; 6] {
    let modes = report["modes"].as_array().expect("modes");
    let mode = modes.iter().find(|mode| mode["mode"] == name).expect("the mode");
    ["read", "consumed", "filtered", "duplicates_skipped", "late", "omitted"]
        .map(|count| mode[count].as_u64().expect("a count"))
}

/// 50,000 events over 20 instruments, ten a second; a flow over eight of them.
fn long(stage: &Stage) -> (String, String) {
    let mut lines = String::new();
    for at in 0..50_000_u64 {
        let (instrument, seq) = (at % 20, at / 20);
        let time = 1_767_225_600_000_000_000 + at * 100_000_000;
        let close = (at * 7919) % 1000;
        writeln!(
            lines,
            r#"{{"event_id":"e{at}","instrument":"i{instrument:02}","seq":{seq},"event_time":{time},"close":{close}.25}}"#
        )
        .expect("a string takes all");
    }
    let file = stage.file("long.jsonl", lines);
    stage.finaz(&["snapshot", "import", &file, "--name", "long"]).exits(0);
    let flow = "kind: Flow\nname: long\nsource: {snapshot: long}\n\
                instruments: [i00, i01, i02, i03, i04, i05, i06, i07]\n\
                clock: {allowed_lateness: 60s}\n\
                nodes:\n  - {id: n, type: ema, period: 5, input: close}\n\
                sink: {dataset: features}\n";
    (stage.file("long.yaml", flow), file)
}

#[test]
fn the_fixture_comes_to_its_golden_in_all_three_modes() {
    let Some(stage) = stage() else { return };
    let flow = stage.fixture();
    for _ in 0..2 {
        let report = stage.json(&["parity", "--flow", &flow, "--faults", FAULTS]);
        assert_eq!(
            (&report["verdict"], &report["first_difference"]),
            (&"EQUAL".into(), &Value::Null)
        );
        let modes = report["modes"].as_array().expect("modes");
        assert_eq!(modes.len(), 3);
        for mode in modes {
            assert_eq!(mode["values_hash"], report["golden"], "{mode}");
        }
        assert_eq!(mode(&report, "batch"), [18, 6, 12, 0, 0, 0]);
        for name in ["replay", "stream"] {
            assert_eq!(mode(&report, name), [23, 6, 15, 1, 0, 1], "{name}");
        }
        nothing_left(&stage);
    }
}

#[test]
fn fifty_thousand_events_through_two_hundred_faults_are_equal_in_all_three_modes() {
    let Some(stage) = stage() else { return };
    let (flow, _) = long(&stage);
    let faults = stage.path("faults.json");
    let faults = faults.to_str().expect("a path");
    let args = [
        "replay",
        "--snapshot",
        "long",
        "--generate",
        "200",
        "--seed",
        "7",
        "--flow",
        &flow,
        "--faults-out",
        faults,
        "--dry-run",
    ];
    stage.finaz(&args).exits(0);
    let args = ["parity", "--flow", &flow, "--snapshot", "long", "--faults", faults];
    let report = stage.start(&args).wait(PATIENCE).exits(0).json();
    assert_eq!(report["verdict"], "EQUAL", "{report}");
    assert_eq!(mode(&report, "replay"), mode(&report, "stream"));
    let [read, consumed, _, duplicates, late, _] = mode(&report, "stream");
    assert!(read > 50_000 && duplicates > 0, "no faults: {report}");
    assert_eq!((consumed, late), (20_000, 0), "{report}");
    assert_eq!(report["modes"][0]["rows"], 20_000);
    nothing_left(&stage);
}

#[test]
fn a_fault_that_changes_what_a_batch_gives_is_refused() {
    let Some(stage) = stage() else { return };
    let flow = stage.fixture();
    for fault in [
        r#"{"type":"GAP","event_id":"fixture.event.0.2"}"#,
        r#"{"type":"REVISION","event_id":"fixture.event.0.2","after_ms":1000,"close":7.5}"#,
    ] {
        let text = format!(r#"{{"kind":"FaultSchedule","faults":[{fault}]}}"#);
        let faults = stage.file("faults.json", text);
        let args = ["parity", "--flow", &flow, "--faults", &faults];
        stage.finaz(&args).refuses(2, "PARITY_FAULTS");
        nothing_left(&stage);
    }
}

#[test]
fn a_difference_is_named_with_its_place_and_both_values() {
    let Some(stage) = stage() else { return };
    let text = fs::read_to_string(stage.fixture()).expect("the flow");
    // Minutes late, where this flow allows for a second: the values after it are others.
    let text = text.replace("allowed_lateness: 5s", "allowed_lateness: 1s");
    let flow = stage.file("strict.yaml", text);
    let text = r#"{"kind":"FaultSchedule","faults":[{"type":"DELAY","event_id":"fixture.event.0.2","delay_ms":600000}]}"#;
    let faults = stage.file("faults.json", text);
    let report = stage.finaz(&["parity", "--flow", &flow, "--faults", &faults]).exits(1).json();
    assert_eq!(report["verdict"], "DIFFERENT", "{report}");
    assert_eq!(mode(&report, "stream"), [18, 5, 12, 0, 1, 0], "{report}");
    let first = &report["first_difference"];
    assert_eq!(
        (&first["instrument"], &first["node"], &first["index"]),
        (&"sim.alpha".into(), &"ema3".into(), &2.into()),
        "{first}"
    );
    assert_eq!(first["batch"], 2.0, "{first}");
    assert!(first["other"].is_number() && first["other"] != first["batch"], "{first}");
    nothing_left(&stage);
}

#[test]
fn a_comparison_told_to_end_says_nothing_of_a_difference_and_leaves_nothing() {
    let Some(stage) = stage() else { return };
    let (flow, _) = long(&stage);
    let faults = stage.file("faults.json", r#"{"kind":"FaultSchedule","faults":[]}"#);
    let args = ["parity", "--flow", &flow, "--snapshot", "long", "--faults", &faults];
    let mut process = stage.start(&args);
    until("the stream is opened", PATIENCE, || {
        (stage.count("SELECT count(*) FROM finaz.streams") > 0).then_some(())
    });
    process.signal(rustix::process::Signal::TERM);
    let run = process.wait(PATIENCE);
    // It may have had all of it already.
    assert!([Some(0), Some(143)].contains(&run.exit), "{run:?}");
    nothing_left(&stage);
}

#[test]
fn a_comparison_that_cannot_be_made_leaves_nothing() {
    let Some(mut stage) = stage() else { return };
    let flow = stage.fixture();
    let args = ["parity", "--flow", &flow, "--faults", FAULTS];
    // Its lease is somebody else's.
    let first = stage.json(&args);
    let parts: Vec<&str> = ["flow", "snapshot", "schedule"]
        .iter()
        .map(|name| first[*name].as_str().expect("a hash").trim_start_matches("sha256:"))
        .collect();
    let run = finaz::ids::Hash::of(parts.concat().as_bytes()).to_string();
    let lease = format!("stream/parity_{}", &run.trim_start_matches("sha256:")[..32]);
    stage.finaz(&["lease", "acquire", &lease, "--owner", "somebody"]).exits(0);
    let refused = stage.finaz(&args).exits(1).json();
    assert_eq!(refused["error"]["code"], "STREAM_LEASE_OCUPADO", "{refused}");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.streams"), 0);
    stage.set("FINAZ_BROKERS", "127.0.0.1:1");
    stage.set("FINAZ_SERVICE_TIMEOUT_SEC", "2");
    let away = stage.finaz(&args);
    assert_eq!(away.exit, Some(75), "{away:?}");
    let blobs: Vec<PathBuf> = fs::read_dir(stage.path(""))
        .expect("the folder")
        .map(|e| e.expect("an entry").path())
        .collect();
    assert!(blobs.iter().all(|path| !path.to_string_lossy().contains("parity")), "{blobs:?}");
}

#[test]
fn the_topic_of_a_comparison_that_was_killed_goes_with_the_next_one() {
    let Some(mut stage) = stage() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    let (flow, _) = long(&stage);
    let faults = stage.file("faults.json", r#"{"kind":"FaultSchedule","faults":[]}"#);
    let args = ["parity", "--flow", &flow, "--snapshot", "long", "--faults", &faults];
    let mut process = stage.start(&args);
    until("the stream is opened", PATIENCE, || {
        (stage.count("SELECT count(*) FROM finaz.streams") > 0).then_some(())
    });
    process.kill();
    let owner = stage.value("SELECT owner FROM finaz.leases WHERE name LIKE 'parity/%'");
    let topic = format!("finaz-parity.{}", owner.rsplit('/').next().expect("a part"));
    // It may have been as far as its last step.
    let left = topics(&stage).contains(&topic);
    // Another comparison: its own would find the topic as well.
    let fixture = stage.fixture();
    until("the lease has run out", PATIENCE, || {
        stage.json(&["parity", "--flow", &fixture, "--faults", FAULTS]);
        (!topics(&stage).contains(&topic)).then_some(())
    });
    assert!(left, "killed too late: nothing was shown");
    nothing_left(&stage);
}
