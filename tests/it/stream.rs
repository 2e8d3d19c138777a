//! `finaz stream` and `finaz parity` as far as they come without a server.

use crate::{Place, left_in_store, repository};

const FAULTS: &str = "fixtures/fixture.faults.01.yaml";
const FLOW: &str = "manifests/fixture.01_A_feature.yaml";
const GOLDEN: &str = "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877";

/// Settings under which anything that asks a server ends 75.
const AWAY: [(&str, &str); 4] = [
    ("FINAZ_JSON", "1"),
    ("FINAZ_PG_URL", "postgresql://nobody@127.0.0.1:1/none"),
    ("FINAZ_BROKERS", "127.0.0.1:1"),
    ("FINAZ_SERVICE_TIMEOUT_SEC", "1"),
];

#[track_caller]
fn refused(place: &Place, more: &[&str], code: &str) {
    let flow = repository(FLOW);
    let mut args = vec!["stream", "--topic", "t", "--group", "g", "--flow", &flow];
    for pair in more.chunks(2) {
        match args.iter().position(|arg| *arg == pair[0]) {
            Some(at) => args[at + 1] = pair[1],
            None => args.extend(pair),
        }
    }
    let run = place.finaz_with(&AWAY, &args).exits(2);
    assert_eq!(run.refusal(), code, "{more:?}: {run:?}");
    assert!(!run.out.contains('\u{1b}') && run.out.len() < 2_000, "{more:?}: {run:?}");
}

#[test]
fn what_cannot_be_streamed_is_refused_before_any_server_is_asked() {
    let place = Place::new();
    let long = "x".repeat(300);
    for group in ["", ".", "..", "../x", "a/b", "a b", "a\nb", "\u{1b}[2J", "é", &long] {
        refused(&place, &["--group", group], "GROUP_INVALID");
        refused(&place, &["--run-id", group], "RUN_ID_INVALID");
    }
    refused(&place, &["--once-n", "0"], "ONCE_N_INVALID");
    for every in ["0", "-1", "nan", "inf", "1e9"] {
        refused(&place, &["--commit-every", every], "COMMIT_EVERY_INVALID");
    }
    for flag in ["--pause-in-flight", "--pause-free-disk"] {
        refused(&place, &[flag, "18446744073709551615"], "PAUSE_INVALID");
    }
    for jump in ["", "0s", "401d", "soon"] {
        refused(&place, &["--max-jump", jump], "MAX_JUMP_INVALID");
    }
    assert_eq!(left_in_store(&place), Vec::<String>::new());
}

#[test]
fn a_name_that_no_topic_can_have_and_a_flow_that_is_none_are_refused() {
    let place = Place::new();
    let long = "x".repeat(300);
    for topic in ["", "..", "../x", "a/b", "a b", &long] {
        let flow = repository(FLOW);
        let args = ["stream", "--topic", topic, "--group", "g", "--flow", &flow];
        place.finaz_with(&AWAY, &args).exits(2).refusal();
    }
    for flow in ["no.such.flow", "", FAULTS] {
        let flow = if flow == FAULTS { repository(FAULTS) } else { flow.to_owned() };
        let args = ["stream", "--topic", "t", "--group", "g", "--flow", &flow];
        place.finaz_with(&AWAY, &args).exits(2).refusal();
    }
}

#[test]
fn arguments_that_are_missing_or_no_numbers_are_usage_errors() {
    let place = Place::new();
    for args in [
        &["stream"][..],
        &["stream", "--topic", "t"],
        &["stream", "--topic", "t", "--group", "g", "--flow", "f", "--once-n", "-1"],
        &["stream", "--topic", "t", "--group", "g", "--flow", "f", "--once-n", "x"],
        &["stream", "--topic", "t", "--group", "g", "--flow", "f", "--commit-every", "x"],
        &["stream", "--topic", "t", "--group", "g", "--flow", "f", "--pause-lag", "-1"],
        &["stream", "mark", "IDLE_CONFIRMED"],
        &["stream", "mark", "IDLE_CONFIRMED", "--topic", "t", "--partition", "-1"],
        &["stream", "--topic", "t", "--group", "g", "--flow", "f", "--auto", "--partitions", "0"],
        &["stream", "--topic", "t", "--group", "g", "--flow", "f", "--auto", "--once-n", "1"],
        &["stream", "explain"],
        &["stream", "quarantine"],
        &["stream", "quarantine", "show"],
        &["stream", "quarantine", "retry"],
        &["stream", "export"],
        &["stream", "import"],
        &["parity", "--flow", "f"],
    ] {
        place.finaz_with(&AWAY, args).exits(2);
    }
}

#[test]
fn a_file_that_is_no_journal_is_refused_before_any_server_is_asked() {
    let place = Place::new();
    for content in ["", "{}", "[]", "null", r#"{"kind":"StreamJournal"}"#, "\u{feff}{}", "{}{}"] {
        let file = place.file("journal.json", content);
        let run = place.finaz_with(&AWAY, &["stream", "import", &file]).exits(2);
        assert_eq!(run.refusal(), "JOURNAL_DAMAGED", "{content}");
    }
    assert_eq!(left_in_store(&place), Vec::<String>::new());
}

#[test]
fn no_broker_and_no_database_is_75_and_not_bad_input() {
    let place = Place::new();
    let flow = repository(FLOW);
    let stream = ["stream", "--topic", "t", "--group", "g", "--flow", &flow];
    let bounded = [&stream[..], &["--once-n", "3"]].concat();
    for args in [&stream[..], &bounded, &["stream", "status"], &["stream", "explain", "e"]] {
        place.finaz_with(&AWAY, args).exits(75);
    }
}

fn imported(place: &Place) {
    let events = repository("fixtures/fixture.snapshot.01.jsonl");
    place.finaz(&["snapshot", "import", &events, "--name", "fixture.snapshot.01"]).exits(0);
}

#[test]
fn parity_offline_needs_no_server_and_comes_to_the_golden() {
    let place = Place::new();
    imported(&place);
    let (flow, faults) = (repository(FLOW), repository(FAULTS));
    let args = ["parity", "--flow", &flow, "--faults", &faults, "--offline"];
    let report = place.finaz_with(&AWAY, &args).exits(0).json();
    assert_eq!(report["verdict"], "EQUAL", "{report}");
    assert_eq!(report["golden"], GOLDEN);
    let modes = report["modes"].as_array().expect("modes");
    let names: Vec<&str> = modes.iter().map(|mode| mode["mode"].as_str().expect("text")).collect();
    assert_eq!(names, ["batch", "replay"]);
    assert!(modes.iter().all(|mode| mode["values_hash"] == GOLDEN), "{report}");
    let counts = ["read", "consumed", "filtered", "duplicates_skipped", "late", "omitted"]
        .map(|name| modes[1][name].as_u64().expect("a count"));
    assert_eq!(counts, [23, 6, 15, 1, 0, 1]);
}

#[test]
fn parity_offline_names_the_first_difference_and_refuses_faults_that_change_the_batch() {
    let place = Place::new();
    imported(&place);
    let text = std::fs::read_to_string(repository(FLOW)).expect("the flow");
    let text = text.replace("allowed_lateness: 5s", "allowed_lateness: 1s");
    let flow = place.file("strict.yaml", text);
    let run = |fault: &str| {
        let text = format!(r#"{{"kind":"FaultSchedule","faults":[{fault}]}}"#);
        let faults = place.file("faults.json", text);
        let args = ["parity", "--flow", &flow, "--faults", &faults, "--offline"];
        place.finaz_with(&AWAY, &args)
    };
    // Past the second that this flow allows for.
    let delayed = r#"{"type":"DELAY","event_id":"fixture.event.0.2","delay_ms":600000}"#;
    let report = run(delayed).exits(1).json();
    assert_eq!(report["verdict"], "DIFFERENT", "{report}");
    let first = &report["first_difference"];
    assert_eq!((&first["mode"], &first["index"]), (&"replay".into(), &2.into()), "{report}");
    assert_eq!(first["batch"], 2.0);
    for fault in [
        r#"{"type":"GAP","event_id":"fixture.event.0.2"}"#,
        r#"{"type":"REVISION","event_id":"fixture.event.0.2","after_ms":1000,"close":7.5}"#,
    ] {
        assert_eq!(run(fault).exits(2).refusal(), "PARITY_FAULTS");
    }
    let unknown = run(r#"{"type":"GAP","event_id":"no.such.event"}"#).exits(2);
    assert!(!unknown.refusal().is_empty());
}
