//! What each fault does to the log, and the order of it.

use super::*;

/// `arrival_ns` after the first event in ms, event id and fault of each arrival.
fn told(log: &str) -> Vec<(i64, String, String)> {
    let first = 1_767_225_600_000_000_000_i64;
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
        let ms = (line["arrival_ns"].as_i64().unwrap() - first) / 1_000_000;
        (ms, text(&line["event"]["event_id"]).replace("fixture.event.", ""), text(&line["fault"]))
    };
    log.lines().map(line).collect()
}

#[test]
fn the_fixture_gives_23_arrivals_and_the_frozen_hash() {
    let (log, hash, applied) = log(&body(), &fixture()).unwrap();
    let frozen = include_str!("../../../fixtures/fixture.log_hash");
    assert_eq!(hash.to_string(), frozen.trim());
    assert_eq!(hash, Hash::of(log.as_bytes()));
    assert_eq!(log.lines().count(), 23);
    let types: Vec<&str> = applied.iter().map(|applied| applied.kind).collect();
    assert_eq!(
        types,
        ["DUPLICATE", "DELAY", "GAP", "REVISION", "PAUSE", "BURST", "SOURCE_FAILURE"]
    );
    let told = told(&log);
    let marked: Vec<(i64, &str, &str)> = told
        .iter()
        .filter(|(_, _, fault)| fault != "-")
        .map(|(ms, id, fault)| (*ms, id.as_str(), fault.as_str()))
        .collect();
    assert_eq!(
        marked,
        [
            (1_000, "-", "GAP"),
            (2_000, "0.2", "DUPLICATE"),
            (4_000, "2.4", "BURST"),
            (4_000, "2.4", "BURST"),
            (4_000, "2.4", "BURST"),
            (5_000, "0.3", "DELAY"),
            (122_000, "2.2.r1", "REVISION"),
        ]
    );
    // The one that is late comes before those it met: it is the older event.
    let at = told.iter().position(|(_, _, fault)| fault == "DELAY").unwrap();
    assert_eq!(told[at + 1].1, "0.5");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(
        lines[0],
        r#"{"arrival":0,"arrival_ns":1767225600000000000,"event":{"close":1.0,"event_id":"fixture.event.0.0","event_time":1767225600000000000,"instrument":"sim.alpha","seq":0},"fault":null,"key":"sim.alpha"}"#
    );
    assert_eq!(
        lines[4],
        r#"{"arrival":4,"arrival_ns":1767225601000000000,"event":null,"fault":"GAP","key":"sim.beta"}"#
    );
    assert_eq!(
        lines[22],
        r#"{"arrival":22,"arrival_ns":1767225722000000000,"event":{"close":102.5,"event_id":"fixture.event.2.2.r1","event_time":1767225602000000000,"instrument":"sim.gamma","seq":2},"fault":"REVISION","key":"sim.gamma"}"#
    );
    for (applied, arrival) in applied.iter().zip([7, 18, 4, 22, 12, 15, 13]) {
        assert_eq!(applied.arrival, arrival, "{applied:?}");
    }
}

#[test]
fn faults_of_the_wall_clock_leave_the_log_alone() {
    let none = schedule(&["type: DUPLICATE, event_id: fixture.event.0.0"]);
    let waits = schedule(&[
        "type: DUPLICATE, event_id: fixture.event.0.0",
        "type: PAUSE, event_id: fixture.event.0.1, pause_ms: 5",
        "type: SOURCE_FAILURE, event_id: fixture.event.2.5, down_ms: 7",
    ]);
    let body = body();
    assert_eq!(log(&body, &none).unwrap().1, log(&body, &waits).unwrap().1);
    let mut arrivals = Arrivals::new(&body[..], "s", &waits);
    let mut waited = Vec::new();
    while let Some(arrival) = arrivals.pull().unwrap() {
        waited.extend((arrival.wait_ms > 0).then_some((arrival.number, arrival.wait_ms)));
    }
    assert_eq!(waited, [(4, 5), (18, 7)]);
    assert_eq!(arrivals.applied().len(), 3);
}

#[test]
fn the_log_is_sorted_whatever_is_delayed() {
    let faults: Vec<String> = (0..400)
        .map(|at| {
            let (id, ms) = (at * 7, 1 + at * 613 % 9_000);
            match at % 3 {
                0 => format!("type: DELAY, event_id: e{id}, delay_ms: {ms}"),
                1 => format!("type: REVISION, event_id: e{id}, after_ms: {ms}, close: 1"),
                _ => format!("type: BURST, event_id: e{id}, count: 3"),
            }
        })
        .collect();
    let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
    let (log, _, applied) = log(&long(3_000, 10), &schedule(&faults)).unwrap();
    assert_eq!(applied.len(), 400);
    let mut before = None;
    for (number, line) in log.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["arrival"], number);
        let event = &line["event"];
        let number = |value: &serde_json::Value| value.as_i64().unwrap();
        let now = (
            number(&line["arrival_ns"]),
            number(&event["event_time"]),
            event["instrument"].as_str().unwrap().to_owned(),
            number(&event["seq"]),
        );
        assert!(before.as_ref() <= Some(&now), "{before:?} {now:?}");
        before = Some(now);
    }
    assert_eq!(log.lines().count(), 3_000 + 133 + 3 * 133);
}

#[test]
fn a_fault_without_its_event_is_refused_at_its_line() {
    let refused = refusal(
        &body(),
        &schedule(&[
            "type: GAP, event_id: fixture.event.0.1",
            "type: GAP, event_id: fixture.event.9.9",
        ]),
    );
    assert_eq!((refused.code, refused.place.as_str()), ("FAULTS_EVENT_UNKNOWN", "f.yaml:4:27"));
    assert!(refused.message.contains("fixture.event.9.9"), "{refused}");
}

#[test]
fn a_time_beyond_64_bits_is_refused() {
    let last = i64::MAX - 1_000_000;
    let body = format!(
        r#"{{"close":null,"event_id":"e","event_time":{last},"instrument":"i","seq":0}}{}"#,
        "\n"
    );
    let late = schedule(&["type: DELAY, event_id: e, delay_ms: 2"]);
    let refused = refusal(body.as_bytes(), &late);
    assert_eq!((refused.code, refused.place.as_str()), ("FAULTS_PARAMETER", "f.yaml:3:29"));
    assert_eq!(log(body.as_bytes(), &schedule(&["type: GAP, event_id: e"])).unwrap().2.len(), 1);
    let just = schedule(&["type: DELAY, event_id: e, delay_ms: 1"]);
    assert!(log(body.as_bytes(), &just).unwrap().0.contains(r#""arrival_ns":9223372036854775807"#));
}

#[test]
fn a_body_that_is_none_is_refused() {
    let none = schedule(&[]);
    let event = r#"{"close":1.0,"event_id":"e","event_time":1,"instrument":"i","seq":0}"#;
    assert_eq!(refusal(b"", &none).code, "SNAPSHOT_EMPTY");
    for (body, at) in [
        (event.to_owned(), "s:1"),
        (format!("{event}\n{event}\n"), "s:2"),
        (format!("{event}\n{}\n", event.replace(":1,", ":0,")), "s:2"),
        (format!("{event}\nx\n"), "s:2:1"),
        (format!("{}\n", event.replace(r#""event_id":"e","#, "")), "s:1"),
    ] {
        let refused = refusal(body.as_bytes(), &none);
        assert_eq!((refused.code, refused.place.as_str()), ("SNAPSHOT_DAMAGED", at), "{body}");
    }
}

#[test]
fn ids_and_names_that_need_escapes_are_found_and_stay_whole() {
    let event =
        r#"{"close":null,"event_id":"a\"é\\","event_time":1,"instrument":"\"x\"\n","seq":0}"#;
    let schedule = schedule(&[r#"type: REVISION, event_id: 'a"é\', after_ms: 1, close: null"#]);
    let (log, ..) = log(format!("{event}\n").as_bytes(), &schedule).unwrap();
    assert!(log.contains(r#""event_id":"a\"é\\.r1""#), "{log}");
    assert!(log.ends_with("\"fault\":\"REVISION\",\"key\":\"\\\"x\\\"\\n\"}\n"), "{log}");
}
