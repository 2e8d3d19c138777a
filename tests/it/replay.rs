//! Replays without a server: the log, its hash, drawn schedules, and all that is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Place, repository, tree};

const SCHEDULE: &str = "fixtures/fixture.faults.01.yaml";

fn import_fixture(place: &Place) -> Value {
    let file = repository("fixtures/fixture.snapshot.01.jsonl");
    let args = ["snapshot", "import", &file, "--name", "fixture.snapshot.01", "--json"];
    place.finaz(&args).exits(0).json()
}

fn frozen() -> String {
    let text =
        fs::read_to_string(repository("fixtures/fixture.log_hash")).expect("the frozen hash");
    text.trim().to_owned()
}

fn dry(place: &Place, more: &[&str]) -> Value {
    place.finaz(&[&["replay", "--dry-run", "--json"][..], more].concat()).exits(0).json()
}

#[test]
fn the_fixture_replays_into_23_arrivals_with_7_faults_and_the_frozen_hash() {
    let place = Place::new();
    let imported = import_fixture(&place);
    let schedule = repository(SCHEDULE);
    let replayed = dry(&place, &["--faults", &schedule]);
    assert_eq!(replayed["arrivals"], 23);
    assert_eq!(replayed["faults_applied"], 7);
    assert_eq!(replayed["log_hash"], frozen());
    assert_eq!(replayed["snapshot"], imported["snapshot"]);
    assert_eq!((&replayed["published"], &replayed["republished"]), (&json!(0), &json!(0)));
    assert_eq!(replayed["partitions"], json!({"0": 6, "3": 17}));
    assert_eq!((&replayed["seed"], &replayed["dry_run"]), (&json!(7), &json!(true)));
    let faults = replayed["faults"].as_array().expect("a list");
    let told: Vec<(&str, &str)> = faults
        .iter()
        .map(|fault| {
            assert!(fault["effect"].as_str().is_some_and(|effect| effect.len() > 10), "{fault}");
            (fault["event_id"].as_str().expect("an id"), fault["type"].as_str().expect("a type"))
        })
        .collect();
    assert_eq!(
        told,
        [
            ("fixture.event.0.2", "DUPLICATE"),
            ("fixture.event.0.3", "DELAY"),
            ("fixture.event.1.1", "GAP"),
            ("fixture.event.2.2", "REVISION"),
            ("fixture.event.0.4", "PAUSE"),
            ("fixture.event.2.4", "BURST"),
            ("fixture.event.1.4", "SOURCE_FAILURE"),
        ]
    );
    // Now it is known by name and by hash as well.
    let hash = replayed["schedule"].as_str().expect("a hash");
    for reference in ["fixture.faults.01", hash] {
        assert_eq!(dry(&place, &["--faults", reference])["log_hash"], frozen());
    }
    let people = place.finaz(&["replay", "--dry-run", "--faults", &schedule]).exits(0);
    assert!(people.out.contains(&frozen()) && people.out.contains("REVISION"), "{}", people.out);
    assert!(people.out.lines().all(|line| line.chars().count() <= 80), "{}", people.out);
}

#[test]
fn the_log_in_a_file_is_what_the_hash_is_of_at_every_speed_and_seed() {
    let place = Place::new();
    import_fixture(&place);
    let (schedule, out) = (repository(SCHEDULE), place.file("log.jsonl", "an older log"));
    for more in
        [&["--speed", "max"][..], &["--speed", "realtime"], &["--speed", "x2.5", "--seed", "8"]]
    {
        let args = [&["--faults", schedule.as_str(), "--out", out.as_str()][..], more].concat();
        assert_eq!(dry(&place, &args)["log_hash"], frozen(), "{more:?}");
        let log = fs::read(&out).expect("the log");
        let lines: Vec<Value> = String::from_utf8(log)
            .expect("UTF-8")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 23);
        assert_eq!(lines[22]["event"]["event_id"], "fixture.event.2.2.r1");
        let mode = fs::metadata(&out).expect("the log").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(sha256(&out), frozen());
    let left: Vec<_> =
        tree(place.0.path()).into_iter().filter(|name| name.ends_with("tmp")).collect();
    assert_eq!(left, Vec::<String>::new());
}

/// By another program than ours.
fn sha256(path: &str) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().expect("sha256sum");
    let text = String::from_utf8(output.stdout).expect("text");
    format!("sha256:{}", text.split(' ').next().expect("a hash"))
}

#[test]
fn a_schedule_is_drawn_from_a_seed_and_written_down() {
    let place = Place::new();
    import_fixture(&place);
    let flow = repository("manifests/fixture.01_A_feature.yaml");
    let drawn = place.path("drawn.json").display().to_string();
    let args = ["--snapshot", "fixture.snapshot.01", "--generate", "12", "--seed", "3"];
    let args = [&args[..], &["--flow", &flow]].concat();
    let first = dry(&place, &[&args[..], &["--faults-out", &drawn]].concat());
    assert_eq!((&first["faults_applied"], &first["seed"]), (&json!(12), &json!(3)));
    let again = dry(&place, &args);
    assert_eq!(again["log_hash"], first["log_hash"]);
    // From the file, without being told the snapshot.
    let read = dry(&place, &["--faults", &drawn]);
    for key in ["log_hash", "schedule", "snapshot", "seed", "faults"] {
        assert_eq!(read[key], first[key], "{key}");
    }
    for fault in first["faults"].as_array().expect("a list") {
        let of_flow = fault["event_id"].as_str().expect("an id").starts_with("fixture.event.0.");
        let harmful = ["GAP", "REVISION"].contains(&fault["type"].as_str().expect("a type"));
        assert!(!(of_flow && harmful), "{fault}");
    }
    let other =
        dry(&place, &["--snapshot", "fixture.snapshot.01", "--generate", "12", "--seed", "4"]);
    assert_ne!(other["log_hash"], first["log_hash"]);
    let many = ["--snapshot", "fixture.snapshot.01", "--generate", "19", "--json", "--dry-run"];
    assert_eq!(place.finaz(&[&["replay"][..], &many].concat()).exits(2).refusal(), "FAULTS_MANY");
}

/// The refusal of a replay, which must leave nothing behind.
#[track_caller]
fn refused(place: &Place, args: &[&str], at: &str) -> String {
    let before = tree(place.0.path());
    let run = place.finaz(&[&["replay", "--json"][..], args].concat()).exits(2);
    let code = run.refusal();
    let document = run.json();
    let error = &document["error"];
    assert!(error["message"].as_str().is_some_and(|text| text.contains(at)), "`{at}`: {run:?}");
    assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{run:?}");
    assert_eq!(tree(place.0.path()), before, "something was left behind");
    code
}

#[test]
fn a_bad_schedule_is_refused_with_its_line_and_leaves_nothing() {
    let place = Place::new();
    import_fixture(&place);
    let head = "kind: FaultSchedule\nsnapshot: fixture.snapshot.01\nseed: 7\nfaults:\n";
    let out = place.path("log.jsonl").display().to_string();
    for (fault, code, line) in [
        ("{type: DELLAY, event_id: fixture.event.0.2}", "FAULTS_TYPE", 5),
        ("{type: DELAY, event_id: fixture.event.0.2, delay_ms: -1}", "FAULTS_PARAMETER", 5),
        ("{type: DELAY, event_id: fixture.event.0.2}", "FAULTS_MISSING_FIELD", 5),
        ("{type: GAP, event_id: fixture.event.0.9}", "FAULTS_EVENT_UNKNOWN", 5),
        (
            "{type: GAP, event_id: fixture.event.0.2}\n  - {type: PAUSE, event_id: fixture.event.0.2, pause_ms: 1}",
            "FAULTS_DUPLICATE",
            6,
        ),
        ("{type: GAP, event_id: fixture.event.0.2, evnt: x}", "FAULTS_UNKNOWN_FIELD", 5),
    ] {
        let file = place.file("f.yaml", format!("{head}  - {fault}\n"));
        let args = ["--dry-run", "--faults", &file, "--out", &out];
        assert_eq!(refused(&place, &args, &format!("f.yaml:{line}:")), code, "{fault}");
    }
    assert_eq!(
        refused(&place, &["--dry-run", "--faults", "./no.yaml"], "no.yaml"),
        "FAULTS_UNREADABLE"
    );
    assert_eq!(refused(&place, &["--dry-run", "--faults", "unknown"], "unknown"), "FAULTS_UNKNOWN");
    let file = place.file("f.json", r#"{"kind":"FaultSchedule","faults":[]}"#);
    assert_eq!(refused(&place, &["--dry-run", "--faults", &file], "snapshot"), "SNAPSHOT_MISSING");
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    let place = Place::new();
    import_fixture(&place);
    let schedule = repository(SCHEDULE);
    let with = |more: &[&'static str]| [&["--faults", schedule.as_str()][..], more].concat();
    assert_eq!(refused(&place, &with(&["--speed", "x0", "--dry-run"]), "--speed"), "SPEED_INVALID");
    assert_eq!(
        refused(&place, &with(&["--speed", "fast", "--dry-run"]), "--speed"),
        "SPEED_INVALID"
    );
    assert_eq!(refused(&place, &["--dry-run"], "--faults"), "USAGE");
    assert_eq!(refused(&place, &with(&["--generate", "3"]), "--generate"), "USAGE");
    assert_eq!(refused(&place, &with(&["--seed", "-1", "--dry-run"]), "--seed"), "USAGE");
    assert_eq!(refused(&place, &with(&[]), "broker"), "BROKERS_UNSET");
    let brokers = |more: &[&'static str]| [&with(&["--brokers", "127.0.0.1:1"])[..], more].concat();
    for topic in ["../x", "a/b", "", "__consumer_offsets", "a b"] {
        let args = [&brokers(&[])[..], &["--topic", topic]].concat();
        assert_eq!(refused(&place, &args, "--topic"), "TOPIC_INVALID", "{topic}");
    }
    assert_eq!(refused(&place, &with(&["--brokers", "here"]), "--brokers"), "BROKERS_INVALID");
    assert_eq!(
        refused(&place, &with(&["--brokers", "kafka.invalid:9092", "--broker-tls", "off"]), "TLS"),
        "PLAINTEXT_REFUSED"
    );
    assert_eq!(
        refused(&place, &brokers(&["--broker-user", "u"]), "--broker-password-file"),
        "BROKER_LOGIN_INCOMPLETE"
    );
    let folder = place.0.path().display().to_string();
    let args = [&with(&["--dry-run"])[..], &["--out", &folder]].concat();
    assert_eq!(refused(&place, &args, &folder), "FILE_NOT_PLAIN");
    // What is no plain file stays what it is, and so does a link to it.
    let (socket, link) = (place.path("socket"), place.path("link"));
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    std::os::unix::fs::symlink(&socket, &link).expect("a link");
    for option in ["--out", "--faults-out", "--metrics-file"] {
        let args = [&with(&["--dry-run"])[..], &[option, link.to_str().expect("UTF-8")]].concat();
        let run = place.finaz(&[&["replay", "--json"][..], &args].concat());
        assert_eq!(run.exits(2).refusal(), "FILE_NOT_PLAIN", "{option}");
    }
    assert!(link.is_symlink() && !fs::metadata(&socket).expect("a socket").is_file());
    let nowhere = place.path("no/where").display().to_string();
    let args = [&with(&["--dry-run"])[..], &["--out", &nowhere]].concat();
    assert_eq!(
        place.finaz(&[&["replay", "--json"][..], &args].concat()).exits(2).refusal(),
        "FILE_UNWRITABLE"
    );
}

#[test]
fn a_damaged_snapshot_is_told_from_a_bad_schedule() {
    let place = Place::new();
    let imported = import_fixture(&place);
    let hex = imported["snapshot"].as_str().and_then(|hash| hash.strip_prefix("sha256:"));
    let (first, rest) = hex.expect("a hash").split_at(2);
    let blob = place.path("artifacts").join("cas/sha256").join(first).join(rest);
    let text = fs::read_to_string(&blob)
        .expect("a loose blob")
        .replace("fixture.event.2.2", "fixture.event.2.9");
    fs::remove_file(&blob).expect("ours");
    fs::write(&blob, text).expect("ours");
    let out = place.path("log.jsonl").display().to_string();
    let args = ["replay", "--dry-run", "--faults", &repository(SCHEDULE), "--out", &out, "--json"];
    assert_eq!(place.finaz(&args).exits(1).refusal(), "ARTIFACT_CORRUPT");
    assert!(!place.path("log.jsonl").exists());
}

#[test]
fn a_monitor_is_told_how_it_went_without_home_and_terminal() {
    let place = Place::new();
    import_fixture(&place);
    let metrics = place.path("replay.prom");
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        command.env_remove("HOME").env_remove("COLUMNS").env_remove("TERM");
        command.output().expect("finaz can be started")
    };
    let file = metrics.display().to_string();
    let schedule = repository(SCHEDULE);
    let good = run(&["replay", "--dry-run", "--faults", &schedule, "--metrics-file", &file]);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let text = fs::read_to_string(&metrics).expect("metrics");
    for line in
        ["finaz_replay_success 1", "finaz_replay_arrivals 23", "finaz_replay_faults_applied 7"]
    {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
    let bad = run(&["replay", "--dry-run", "--faults", "unknown", "--metrics-file", &file]);
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
    let text = fs::read_to_string(&metrics).expect("metrics");
    assert!(text.contains("finaz_replay_success 0") && !text.contains("arrivals"), "{text}");
}

/// A process that goes with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Looks until there is something to see.
#[expect(clippy::disallowed_methods, reason = "a test waits by the wall clock")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_absent_broker_is_75_in_bounded_time_and_two_replays_of_a_topic_do_not_overlap() {
    let place = Place::new();
    import_fixture(&place);
    // Nobody listens on port 1: the first one waits, and has the turn.
    let args = ["replay", "--faults", &repository(SCHEDULE), "--topic", "overlap", "--json"];
    let away = |seconds: &'static str| {
        [("FINAZ_BROKERS", "127.0.0.1:1"), ("FINAZ_SERVICE_TIMEOUT_SEC", seconds)]
    };
    let mut command = place.command(&args);
    command.envs(away("20")).stdout(Stdio::null()).stderr(Stdio::null());
    let first = Running(command.spawn().expect("finaz can be started"));
    let lock = place.path("artifacts/replay/overlap.lock");
    let pid = first.0.id().to_string();
    until("the first has the turn", || {
        fs::read_to_string(&lock).is_ok_and(|text| text.trim() == pid).then_some(())
    });
    let run = place.finaz_with(&away("1"), &args).exits(1);
    assert_eq!(run.refusal(), "REPLAY_RUNNING");
    let error = &run.json()["error"];
    assert_eq!(error["pid"], first.0.id());
    assert!(error["age_seconds"].as_f64().is_some_and(|age| (0.0..60.0).contains(&age)), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains(&pid)), "{error}");
    // Killed, it has the turn no more.
    drop(first);
    let run = place.finaz_with(&away("1"), &args).exits(75);
    assert_eq!(run.refusal(), "BROKER_AWAY");
    assert!(run.out.contains("refused"), "the cause is kept: {run:?}");
    // Nothing was written, so there is no mark.
    assert!(!place.path("artifacts/replay/overlap.mark").exists());
}

#[test]
fn a_log_for_a_file_needs_no_broker() {
    let place = Place::new();
    import_fixture(&place);
    let out = place.path("log.jsonl").display().to_string();
    let args = ["replay", "--faults", &repository(SCHEDULE), "--out", &out, "--json"];
    let replayed = place.finaz(&args).exits(0).json();
    assert_eq!((&replayed["topic"], &replayed["published"]), (&Value::Null, &json!(0)));
    assert_eq!(sha256(&out), frozen());
}
