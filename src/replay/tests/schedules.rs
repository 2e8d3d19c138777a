//! Reading schedules: what is accepted, and what each refusal says.

use super::*;

#[track_caller]
fn refused(text: &str, code: &str, place: &str) -> Invalid {
    let refused = Schedule::parse(text.as_bytes(), "f.yaml").expect_err(text);
    assert_eq!((refused.code, refused.place.as_str()), (code, place), "{refused:?}");
    assert!(!refused.hint.is_empty());
    refused
}

/// The refusal of one fault, at the last place of `at` in it (its beginning when empty).
#[track_caller]
fn refused_fault(fault: &str, code: &str, at: &str) -> Invalid {
    let column = if at.is_empty() { 5 } else { fault.rfind(at).expect("it is there") + 6 };
    let text = format!("kind: FaultSchedule\nseed: 1\nfaults:\n  - {{{fault}}}\n");
    refused(&text, code, &format!("f.yaml:4:{column}"))
}

#[test]
fn the_fixture_reads_as_written() {
    let fixture = fixture();
    assert_eq!(fixture.name.as_deref(), Some("fixture.faults.01"));
    assert_eq!(fixture.snapshot.as_deref(), Some("fixture.snapshot.01"));
    assert_eq!((fixture.seed, fixture.faults.len()), (7, 7));
    assert_eq!(fixture.faults[1].kind, Kind::Delay { delay_ms: 2_000 });
    assert_eq!(fixture.faults[3].kind, Kind::Revision { after_ms: 120_000, close: Some(102.5) });
    assert_eq!(fixture.faults[5].kind, Kind::Burst { count: 3 });
    assert_eq!(fixture.hash, Hash::of(&fixture.canonical));
}

#[test]
fn yaml_json_and_the_canonical_form_are_one() {
    let fixture = fixture();
    for (text, place) in [
        (fixture.canonical.clone(), "f.json"),
        (fixture.to_lines(), "f.json"),
        (fixture.to_lines(), "sha256:00"),
    ] {
        let again = Schedule::parse(&text, place).unwrap();
        assert_eq!((again.hash, &again.faults), (fixture.hash, &fixture.faults));
    }
    assert_eq!(fixture.to_lines().iter().filter(|byte| **byte == b'\n').count(), 9);
}

#[test]
fn an_unknown_type_or_field_is_refused_with_what_was_meant() {
    let refused = refused_fault("type: DELLAY, event_id: e", "FAULTS_TYPE", "DELLAY");
    assert!(refused.hint.contains("DELAY"), "{refused:?}");
    let refused =
        refused_fault("type: DELAY, event_id: e, delay: 3", "FAULTS_UNKNOWN_FIELD", "delay");
    assert!(refused.hint.contains("delay_ms"), "{refused:?}");
    refused_fault("type: GAP, event_id: e, delay_ms: 3", "FAULTS_UNKNOWN_FIELD", "delay_ms");
    let text = "kind: FaultSchedule\nsede: 1\nfaults: []\n";
    assert!(self::refused(text, "FAULTS_UNKNOWN_FIELD", "f.yaml:2:1").hint.contains("seed"));
}

#[test]
fn a_parameter_that_cannot_be_is_refused() {
    for x in ["-1", "0", "34560000001", "99999999999999999999"] {
        let fault = format!("type: DELAY, event_id: e, delay_ms: {x}");
        let code = if x.len() > 19 { "FAULTS_SYNTAX" } else { "FAULTS_PARAMETER" };
        refused_fault(&fault, code, x);
    }
    for (fault, code, column) in [
        ("type: DELAY, event_id: e, delay_ms: 1.5", "FAULTS_WRONG_TYPE", "1.5"),
        ("type: DELAY, event_id: e, delay_ms: '1'", "FAULTS_WRONG_TYPE", "'1'"),
        ("type: DELAY, event_id: e", "FAULTS_MISSING_FIELD", ""),
        ("type: BURST, event_id: e, count: -3", "FAULTS_PARAMETER", "-3"),
        ("type: BURST, event_id: e, count: 10001", "FAULTS_PARAMETER", "10001"),
        ("type: PAUSE, event_id: e, pause_ms: 86400001", "FAULTS_PARAMETER", "86400001"),
        ("type: SOURCE_FAILURE, event_id: e, down_ms: 0", "FAULTS_PARAMETER", "0"),
        ("type: REVISION, event_id: e, after_ms: 1", "FAULTS_MISSING_FIELD", ""),
        ("type: REVISION, event_id: e, after_ms: 1, close: high", "FAULTS_WRONG_TYPE", "high"),
        ("type: REVISION, event_id: e, after_ms: 1, close: .nan", "FAULTS_SYNTAX", ".nan"),
        ("event_id: e", "FAULTS_MISSING_FIELD", ""),
        ("type: GAP", "FAULTS_MISSING_FIELD", ""),
        ("type: GAP, event_id: 7", "FAULTS_WRONG_TYPE", "7"),
        ("type: GAP, event_id: ''", "FAULTS_NAME", "''"),
        ("type: GAP, type: GAP, event_id: e", "FAULTS_DUPLICATE_KEY", "type"),
    ] {
        refused_fault(fault, code, column);
    }
}

#[test]
fn two_faults_of_one_event_are_refused_at_the_second() {
    let text = "kind: FaultSchedule\nfaults:\n  - {type: GAP, event_id: e}\n  - {event_id: e, type: DUPLICATE}\n";
    let refused = refused(text, "FAULTS_DUPLICATE", "f.yaml:4:16");
    assert!(refused.message.contains("GAP"), "{refused}");
}

#[test]
fn what_is_no_schedule_is_refused() {
    refused("kind: Flow\nfaults: []\n", "FAULTS_KIND", "f.yaml:1:7");
    refused("kind: FaultSchedule\n", "FAULTS_MISSING_FIELD", "f.yaml:1:1");
    refused("kind: FaultSchedule\nfaults: {}\n", "FAULTS_WRONG_TYPE", "f.yaml:2:9");
    refused("kind: FaultSchedule\nfaults: [x]\n", "FAULTS_WRONG_TYPE", "f.yaml:2:10");
    refused("kind: FaultSchedule\nfaults: []\nseed: -1\n", "FAULTS_SEED", "f.yaml:3:7");
    refused("kind: FaultSchedule\nfaults: []\nseed: 1.0\n", "FAULTS_WRONG_TYPE", "f.yaml:3:7");
    refused("kind: FaultSchedule\nfaults: []\nname: ''\n", "FAULTS_NAME", "f.yaml:3:7");
    refused("- a\n", "FAULTS_WRONG_TYPE", "f.yaml:1:1");
    for bad in [&b"{\"kind\":"[..], b"\xff\xfe", b"", b"\xef\xbb\xbf{}"] {
        let refused = Schedule::parse(bad, "f.json").expect_err("not JSON");
        assert!(refused.code.starts_with("FAULTS_"), "{refused:?}");
    }
}

#[test]
fn a_bomb_is_given_up_early() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, below) in "bcdefghij".chars().zip("abcdefghi".chars()) {
        bomb.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{below}"); 10].join(", ")));
    }
    let refused = Schedule::parse(bomb.as_bytes(), "f.yaml").expect_err("a bomb");
    assert_eq!(refused.code, "FAULTS_TOO_COMPLEX");
    let deep = "[".repeat(100_000);
    for place in ["f.yaml", "f.json"] {
        let refused = Schedule::parse(deep.as_bytes(), place).expect_err("deep");
        assert_eq!(refused.code, "FAULTS_TOO_COMPLEX", "{refused:?}");
    }
    let large = vec![b' '; (16 << 20) + 1];
    assert_eq!(
        Schedule::parse(&large, "f.yaml").map_err(|e| e.code).err(),
        Some("FAULTS_TOO_LARGE")
    );
}
