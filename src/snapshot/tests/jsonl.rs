//! JSON lines.

use super::super::ImportOptions;
use super::{Bench, T, some};
use crate::canonical::Value;

fn standard() -> ImportOptions {
    ImportOptions { name: Some("fixture".to_owned()), ..ImportOptions::default() }
}

fn line(instrument: &str, n: i64) -> String {
    let time = T + n * 1_000_000_000;
    format!(
        "{{\"event_id\":\"fixture.event.{instrument}.{n}\",\"instrument\":\"{instrument}\",\"seq\":99,\
         \"event_time\":{time},\"close\":{n},\"note\":\"n\"}}\n"
    )
}

#[test]
fn the_standard_names_need_no_flags_and_a_seq_of_the_source_is_replaced() {
    let bench = Bench::new();
    let mut text = String::new();
    for instrument in ["b", "a"] {
        (1..=3).for_each(|n| text.push_str(&line(instrument, n)));
    }
    let done = bench.import(&bench.file("a.jsonl", text.as_bytes()), &standard()).unwrap();
    assert_eq!((done.events, done.instruments), (6, 2));
    let first = format!(
        "{{\"close\":1.0,\"event_id\":\"fixture.event.a.1\",\"event_time\":{},\"instrument\":\"a\",\"seq\":0}}\n",
        T + 1_000_000_000
    );
    assert!(bench.body(&done.snapshot).starts_with(&first));
    let order: Vec<Value> = bench
        .events(&done.snapshot)
        .into_iter()
        .map(|mut event| event.remove("event_id").unwrap())
        .collect();
    let expected = ["a.1", "b.1", "a.2", "b.2", "a.3", "b.3"];
    assert_eq!(order, expected.map(|id| Value::Text(format!("fixture.event.{id}"))));
    let sniffed = bench.import(&bench.file("no-ending", text.as_bytes()), &standard()).unwrap();
    assert!(sniffed.already_present);
}

#[test]
fn other_names_and_text_for_numbers_need_flags_as_csv_does() {
    let bench = Bench::new();
    let text = "{\"t\":1704067200.25,\"p\":\"0.5\",\"s\":7,\"v\":[1],\"w\":true}\n\
                {\"t\":\"1704067201\",\"p\":null,\"s\":\"7\",\"w\":1.50}\n{\"t\":1704067202,\"p\":18446744073709551615,\"s\":7}\n";
    let options = ImportOptions {
        time_column: some("t"),
        time_format: some("epoch-s"),
        close_column: some("p"),
        instrument_column: some("s"),
        fields: vec!["w".to_owned()],
        ..standard()
    };
    let file = bench.file("a.ndjson", text.as_bytes());
    let events = bench.events(&bench.import(&file, &options).unwrap().snapshot);
    assert_eq!(events[0]["event_time"], Value::Int(T + 250_000_000));
    assert_eq!((&events[0]["close"], &events[0]["w"]), (&Value::Float(0.5), &Value::Bool(true)));
    assert_eq!((&events[1]["close"], &events[1]["w"]), (&Value::Null, &Value::Float(1.5)));
    assert_eq!(
        (&events[2]["close"], &events[2]["w"]),
        (&Value::Float(1.844_674_407_370_955_2e19), &Value::Null)
    );
    assert!(events.iter().all(|event| event["instrument"] == Value::Text("7".to_owned())));
    let refused =
        bench.refused(&file, &ImportOptions { fields: vec!["v".to_owned()], ..options.clone() });
    assert_eq!(refused.code, "JSON_SHAPE");
    let refused = bench.refused(&file, &ImportOptions { time_format: None, ..options.clone() });
    assert_eq!(refused.code, "TIME_UNREADABLE");
    let refused = bench.refused(&file, &ImportOptions { fields: vec!["ww".to_owned()], ..options });
    assert_eq!(refused.code, "COLUMN_UNKNOWN");
    assert!(refused.hint.contains("`w`"), "{refused:?}");
}

#[test]
fn bad_lines_are_refused_with_their_number_and_leave_nothing() {
    let bench = Bench::new();
    let good = line("a", 1);
    for (code, bad) in [
        ("JSON_DUPLICATE_KEY", "{\"close\":1,\"close\":2}"),
        ("JSON_BOM", "\u{feff}{}"),
        ("JSON_SYNTAX", "{} {}"),
        ("JSON_SYNTAX", "{\"close\":NaN}"),
        ("JSON_NUMBER", "{\"close\":1e400}"),
        ("JSON_SHAPE", "[1]"),
        ("JSON_SHAPE", "7"),
        ("JSON_SYNTAX", "{\"close\":1"),
        ("COLUMN_UNKNOWN", "{\"event_id\":\"i\",\"instrument\":\"a\",\"event_time\":9}"),
        ("COLUMN_UNKNOWN", "{\"instrument\":\"a\",\"event_time\":9,\"close\":1}"),
        ("JSON_SHAPE", "{\"event_id\":\"i\",\"instrument\":null,\"event_time\":9,\"close\":1}"),
        ("JSON_SHAPE", "{\"event_id\":\"i\",\"instrument\":\"a\",\"event_time\":null,\"close\":1}"),
        ("JSON_SHAPE", "{\"event_id\":\"i\",\"instrument\":\"a\",\"event_time\":9,\"close\":true}"),
        (
            "NUMBER_NOT_FINITE",
            "{\"event_id\":\"i\",\"instrument\":\"a\",\"event_time\":9,\"close\":\"inf\"}",
        ),
        (
            "NUMBER_UNREADABLE",
            "{\"event_id\":\"i\",\"instrument\":\"a\",\"event_time\":9,\"close\":\"\"}",
        ),
        (
            "NAME_INVALID",
            "{\"event_id\":\"i\",\"instrument\":\"a\\u0000b\",\"event_time\":9,\"close\":1}",
        ),
        ("TIME_ORDER", "{\"event_id\":\"i\",\"instrument\":\"a\",\"event_time\":9,\"close\":1}"),
        ("EVENT_ID_DUPLICATE", good.trim()),
    ] {
        let file = bench.file("a.jsonl", format!("{good}\n{bad}\n").as_bytes());
        let refused = bench.refused(&file, &standard());
        let kind = refused.code.starts_with(code)
            || (code.starts_with("JSON_") && refused.code.starts_with("JSON_"));
        assert!(kind, "{bad}: {refused:?}");
        assert!(refused.place.contains("a.jsonl:3"), "{bad}: {refused:?}");
    }
    let plain = "{\"instrument\":\"a\",\"event_time\":9,\"close\":1}\n";
    let refused =
        bench.refused(&bench.file("a.jsonl", format!("{plain}{good}").as_bytes()), &standard());
    assert_eq!(refused.code, "EVENT_ID_MIXED");
}
