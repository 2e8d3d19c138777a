//! CSV: what is read, and what is refused with the line.

use super::super::ImportOptions;
use super::{Bench, CSV, T, plain, some};
use crate::canonical::Value;

#[test]
fn bad_rows_are_refused_with_their_line_and_leave_nothing() {
    let bench = Bench::new();
    let head = "time,close,name\n2024-01-01T00:00:00Z,1,a\n";
    let cases = [
        ("CSV_COLUMNS", "2024-01-01T00:00:01Z,1\n", "3"),
        ("CSV_COLUMNS", "2024-01-01T00:00:01Z,1,5,a\n", "3"),
        ("CSV_QUOTE_OPEN", "\"2024-01-01T00:00:01Z,1,a\n2024-01-01T00:00:01Z,1,a\n", "3:1"),
        ("CSV_QUOTE_OPEN", "2024-01-01T00:00:01Z,1,\"a\nb\"\n2024-01-01T00:00:01Z,1,\"", "5:24"),
        ("CSV_QUOTE_OPEN", "2024-01-01T00:00:01Z,\"1\"2,a\n", "3:24"),
        ("NUMBER_NOT_FINITE", "2024-01-01T00:00:01Z,NaN,a\n", "3"),
        ("NUMBER_NOT_FINITE", "2024-01-01T00:00:01Z,-inf,a\n", "3"),
        ("NUMBER_RANGE", "2024-01-01T00:00:01Z,1e400,a\n", "3"),
        ("NUMBER_UNREADABLE", "2024-01-01T00:00:01Z,\"1,5\",a\n", "3"),
        ("NUMBER_UNREADABLE", "2024-01-01T00:00:01Z,abc,a\n", "3"),
        ("TIME_UNREADABLE", "yesterday,1,a\n", "3"),
        ("TIME_UNREADABLE", ",1,a\n", "3"),
        ("TIME_WITHOUT_ZONE", "2024-01-01 00:00:01,1,a\n", "3"),
        ("TIME_RANGE", "2500-01-01T00:00:00Z,1,a\n", "3"),
        ("TIME_ORDER", "2024-01-01T00:00:01Z,1,a\n\n2024-01-01T00:00:00Z,1,a\n", "5"),
        ("TEXT_ENCODING", "2024-01-01T00:00:01Z,1,\"\u{1}\n", "3"),
    ];
    for (code, rows, place) in cases {
        let mut bytes = format!("{head}{rows}").into_bytes();
        if code == "TEXT_ENCODING" {
            for byte in &mut bytes {
                if *byte == 1 {
                    *byte = 0xff;
                }
            }
            bytes.splice(bytes.len() - 1.., *b"\"\n");
        }
        let refused = bench.refused(&bench.file("a.csv", &bytes), &plain());
        assert_eq!(refused.code, code, "{rows}: {refused:?}");
        assert!(refused.place.ends_with(&format!("a.csv:{place}")), "{rows}: {refused:?}");
    }
}

#[test]
fn a_quote_that_never_closes_does_not_swallow_a_large_file() {
    let bench = Bench::new();
    let rows = "2024-01-01T00:00:00Z,1\n".repeat(100_000);
    let file = bench.file("a.csv", format!("time,close\n\"{rows}").as_bytes());
    let refused = bench.refused(&file, &plain());
    assert_eq!(refused.code, "CSV_QUOTE_OPEN");
    assert!(refused.place.ends_with("a.csv:2:1"), "{refused:?}");
}

#[test]
fn quotes_hold_commas_line_ends_and_quotes() {
    let bench = Bench::new();
    let text = "time,\"na,me\",close,note\r\n2024-01-01T00:00:00Z,\"A \"\"x\"\", B\",\"1\",\"two\r\nlines\"\r\n\
                2024-01-01T00:00:01Z,it's 5\",2,\"\"\r\n";
    let options = ImportOptions {
        instrument: None,
        instrument_column: some("na,me"),
        fields: vec!["note".to_owned()],
        ..plain()
    };
    let done = bench.import(&bench.file("a.csv", text.as_bytes()), &options).unwrap();
    let events = bench.events(&done.snapshot);
    assert_eq!(events[0]["instrument"], Value::Text("A \"x\", B".to_owned()));
    assert_eq!(events[0]["note"], Value::Text("two\r\nlines".to_owned()));
    assert_eq!(events[1]["instrument"], Value::Text("it's 5\"".to_owned()));
    assert_eq!(events[1]["note"], Value::Null);
    assert_eq!(done.instruments, 2);
}

#[test]
fn columns_that_are_not_there_are_refused_with_what_may_be_meant() {
    let bench = Bench::new();
    let file = bench.file("a.csv", CSV.as_bytes());
    let refused = bench.refused(&file, &ImportOptions { close_column: some("clsoe"), ..plain() });
    assert_eq!(refused.code, "COLUMN_UNKNOWN");
    assert!(refused.message.contains("`time`, `close`, `volume`"), "{refused:?}");
    assert!(refused.hint.contains("`close`"), "{refused:?}");
    let refused = bench.refused(&file, &ImportOptions { time_column: some("TIME"), ..plain() });
    assert!(refused.hint.contains("`time`"), "{refused:?}");
    for (code, text, hint) in [
        ("CSV_HEADER_MISSING", "2024-01-01T00:00:00Z,1.5\n2024-01-01T00:00:01Z,2\n", "--no-header"),
        ("COLUMN_UNKNOWN", "time;close\n2024-01-01T00:00:00Z;1,5\n", "`;`"),
        ("COLUMN_UNKNOWN", "time\tclose\n2024-01-01T00:00:00Z\t1\n", "`\\t`"),
        ("COLUMN_AMBIGUOUS", "time,close,close\n2024-01-01T00:00:00Z,1,2\n", "--no-header"),
    ] {
        let refused = bench.refused(&bench.file("b.csv", text.as_bytes()), &plain());
        assert_eq!(refused.code, code, "{refused:?}");
        assert!(refused.hint.contains(hint), "{refused:?}");
        assert!(refused.place.ends_with("b.csv:1"), "{refused:?}");
    }
}

#[test]
fn without_a_header_columns_are_numbers() {
    let bench = Bench::new();
    let text = "1704067200000,0.00002853,7\n1704067260000,0.00002854,8\n";
    let file = bench.file("klines.csv", text.as_bytes());
    let options = ImportOptions {
        no_header: true,
        time_column: some("1"),
        close_column: some("2"),
        time_format: some("epoch-ms"),
        fields: vec!["3".to_owned()],
        ..plain()
    };
    let done = bench.import(&file, &options).unwrap();
    assert_eq!(
        bench.body(&done.snapshot).lines().next().unwrap(),
        format!(
            "{{\"3\":7,\"close\":2.853e-05,\"event_id\":\"X@{T}#0\",\"event_time\":{T},\"instrument\":\"X\",\"seq\":0}}"
        )
    );
    let refused =
        bench.refused(&file, &ImportOptions { close_column: some("4"), ..options.clone() });
    assert_eq!(refused.code, "COLUMN_UNKNOWN");
    let headed = bench.file("headed.csv", format!("a,b,c\n{text}").as_bytes());
    let refused = bench.refused(&headed, &options);
    assert!(refused.hint.contains("leave out --no-header"), "{refused:?}");
}

#[test]
fn names_in_a_column_are_checked_where_they_stand() {
    let bench = Bench::new();
    let long = "x".repeat(257);
    for name in ["", "a\tb", " a", "a\u{85}", &long] {
        let text =
            format!("time,close,name\n2024-01-01T00:00:00Z,1,a\n2024-01-01T00:00:00Z,1,{name}\n");
        let file = bench.file("a.csv", text.as_bytes());
        for options in [
            ImportOptions { instrument: None, instrument_column: some("name"), ..plain() },
            ImportOptions { event_id_column: some("name"), ..plain() },
        ] {
            if options.instrument.is_some() && name == long {
                continue;
            }
            let refused = bench.refused(&file, &options);
            assert_eq!(refused.code, "NAME_INVALID", "{name}");
            assert!(refused.place.ends_with("a.csv:3"), "{refused:?}");
        }
    }
}

#[test]
fn more_instruments_than_memory_should_hold_are_refused() {
    let bench = Bench::new();
    let mut text = "time,close,id\n".to_owned();
    for id in 0..=100_000 {
        text.push_str(&format!("2024-01-01T00:00:00Z,1,{id}\n"));
    }
    let options = ImportOptions { instrument: None, instrument_column: some("id"), ..plain() };
    let refused = bench.refused(&bench.file("a.csv", text.as_bytes()), &options);
    assert_eq!(refused.code, "INSTRUMENTS_MANY");
    assert!(refused.place.ends_with("a.csv:100002"), "{refused:?}");
}
