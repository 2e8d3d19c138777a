//! Bad input: each gets a code, the place, a hint and exit 2, and leaves nothing behind.

use crate::{Place, left_in_store, repository};

/// What must be said about a refusal; any of the codes is right.
#[track_caller]
fn refused(place: &Place, args: &[&str], at: &str) -> String {
    let run = place.finaz(&[args, &["--json"]].concat()).exits(2);
    let code = run.refusal();
    let document = run.json();
    let error = &document["error"];
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(at), "`{at}` is not named in: {message}");
    assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "no hint: {run:?}");
    assert!(
        code.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'),
        "{code}"
    );
    let left = left_in_store(place);
    assert_eq!(left, Vec::<String>::new(), "something was left behind");
    code
}

/// Imports a file that must be refused at `at`.
#[track_caller]
fn refused_file(name: &str, content: impl AsRef<[u8]>, flags: &[&str], at: &str) -> String {
    let place = Place::new();
    let file = place.file(name, content);
    refused(&place, &[&["snapshot", "import", &file, "--name", "n"], flags].concat(), at)
}

const COLUMNS: &[&str] = &[
    "--time-column",
    "t",
    "--close-column",
    "c",
    "--instrument",
    "x",
    "--tz",
    "UTC",
    "--time-format",
    "%Y-%m-%d",
];

fn refused_csv(content: impl AsRef<[u8]>, at: &str) -> String {
    refused_file("f.csv", content, COLUMNS, at)
}

fn refused_flow(manifest: &str, at: &str) -> String {
    let place = Place::new();
    let file = place.file("f.yaml", manifest);
    let code = refused(&place, &["flow", "validate", &file, "--save"], at);
    assert!(!place.path("artifacts").exists(), "a refused flow makes no store");
    code
}

fn flow(nodes: &str) -> String {
    format!(
        "kind: Flow\nname: f\nsource: {{snapshot: s}}\nclock: {{allowed_lateness: 5s}}\nnodes:\n{nodes}\n\
         sink: {{dataset: d}}\n"
    )
}

#[test]
fn a_period_of_0_or_beyond_i32_or_of_another_kind() {
    for period in
        ["0", "-1", "1", "100001", "2147483648", "99999999999999999999", "3.5", "three", "null"]
    {
        let node = format!("  - {{id: a, type: ema, period: {period}, input: close}}");
        refused_flow(&flow(&node), "f.yaml:6");
    }
}

#[test]
fn a_cycle_an_unknown_node_and_an_unknown_field_of_the_manifest() {
    let cycle = flow(
        "  - {id: a, type: ema, period: 3, input: b}\n  - {id: b, type: ema, period: 3, input: a}",
    );
    refused_flow(&cycle, "f.yaml:");
    refused_flow(&flow("  - {id: a, type: emma, period: 3, input: close}"), "f.yaml:6");
    refused_flow(&flow("  - {id: a, type: ema, perod: 3, input: close}"), "f.yaml:6");
    refused_flow(
        &flow(
            "  - {id: a, type: ema, period: 3, input: close}\n  - {id: a, type: sma, period: 3, input: close}",
        ),
        "f.yaml:7",
    );
    refused_flow(&flow("  []"), "f.yaml:");
    refused_flow("", "f.yaml");
    refused_flow("- a\n", "f.yaml");
}

#[test]
fn a_bomb_and_duplicate_keys_in_a_manifest() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, below) in "bcdefghij".chars().zip("abcdefghi".chars()) {
        let list = vec![format!("*{below}"); 10].join(", ");
        bomb.push_str(&format!("{name}: &{name} [{list}]\n"));
    }
    refused_flow(&bomb, "f.yaml");
    refused_flow(
        &format!("name: g\n{}", flow("  - {id: a, type: ema, period: 3, input: close}")),
        "f.yaml:3",
    );
    refused_flow(&flow("  - {id: a, type: ema, period: 3, period: 4, input: close}"), "f.yaml:6");
    let deep = format!("a: {}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    refused_flow(&deep, "f.yaml");
}

#[test]
fn json_with_a_byte_order_mark_duplicate_keys_or_what_is_no_json() {
    let line = r#"{"event_id":"e","instrument":"x","seq":0,"event_time":1,"close":1.0}"#;
    for (content, at) in [
        (format!("\u{feff}{line}\n"), "f.jsonl:1"),
        (format!("{line}\n{}\n", line.replace("\"seq\":0", "\"close\":2.0")), "f.jsonl:2"),
        (line.replace("1.0", "NaN"), "f.jsonl:1"),
        (line.replace("1.0", "Infinity"), "f.jsonl:1"),
        (line.replace("1.0", "1e400"), "f.jsonl:1"),
        (line.replace("\"x\"", "\"a\\u0000b\""), "f.jsonl:1"),
        (format!("{line}\n{}", &line[..20]), "f.jsonl:2"),
        ("[]\n".to_owned(), "f.jsonl:1"),
        (String::new(), "f.jsonl"),
        ("\n\n".to_owned(), "f.jsonl"),
    ] {
        refused_file("f.jsonl", &content, &[], at);
    }
}

#[test]
fn a_csv_that_is_no_table() {
    for (content, at) in [
        ("t,c\n2024-01-01,\"1\n2024-01-02,2\n", "f.csv:"),
        ("t,c\n2024-01-01,1\n2024-01-02\n", "f.csv:3"),
        ("t,c\n2024-01-01,1,1\n", "f.csv:2"),
        ("", "f.csv"),
        ("t,c\n", "f.csv"),
        ("2024-01-01,1\n2024-01-02,2\n", "f.csv"),
        ("t;c\n2024-01-01;1\n", "f.csv"),
        ("t,d\n2024-01-01,1\n", "f.csv"),
    ] {
        refused_csv(content, at);
    }
}

#[test]
fn a_csv_with_values_that_are_no_prices() {
    for price in ["NaN", "nan", "inf", "-Infinity", "1e400", "\"1,5\"", "abc", "1 000", "0x10"] {
        let content = format!("t,c\n2024-01-01,1\n2024-01-02,{price}\n");
        refused_csv(content, "f.csv:3");
    }
}

#[test]
fn times_that_are_out_of_order_or_say_too_little() {
    refused_csv("t,c\n2024-01-02,1\n2024-01-01,2\n", "f.csv:3");
    refused_csv("t,c\n2024-13-01,1\n", "f.csv:2");
    refused_csv("t,c\n,1\n", "f.csv:2");
    let zoneless = [
        "--time-column",
        "t",
        "--close-column",
        "c",
        "--instrument",
        "x",
        "--time-format",
        "%Y-%m-%d",
    ];
    refused_file("f.csv", "t,c\n2024-01-01,1\n", &zoneless, "f.csv:2");
    let zone = [&zoneless[..], &["--tz", "Mars/Olympus"]].concat();
    refused_file("f.csv", "t,c\n2024-01-01,1\n", &zone, "Mars/Olympus");
}

#[test]
fn equal_times_and_a_file_to_be_sorted_are_legal() {
    let place = Place::new();
    let file =
        place.file("f.csv", "\u{feff}t,c\r\n2024-01-02,1\r\n2024-01-01,2\r\n2024-01-01,\r\n");
    let args =
        [&["snapshot", "import", &file, "--name", "n", "--sort", "--json"], COLUMNS].concat();
    assert_eq!(place.finaz(&args).exits(0).json()["events"], 3);
}

#[test]
fn instruments_and_names_with_control_characters() {
    let columns = [
        "--time-column",
        "t",
        "--close-column",
        "c",
        "--instrument-column",
        "i",
        "--tz",
        "UTC",
        "--time-format",
        "%Y-%m-%d",
    ];
    let content = "t,c,i\n2024-01-01,1,a\n2024-01-02,1,a\u{1b}[2J\n";
    refused_file("f.csv", content, &columns, "f.csv:3");
    let place = Place::new();
    let file = repository("fixtures/fixture.snapshot.01.jsonl");
    for name in ["", "a\nb", "a\u{1b}b", "../x", "a/b", &"x".repeat(300), "sha256:00", "x.csv"] {
        refused(&place, &["snapshot", "import", &file, "--name", name], "name");
    }
}

#[test]
fn a_file_that_is_not_there_or_is_no_file() {
    let place = Place::new();
    for file in ["no.csv", "/dev/null/x.csv", "."] {
        let args = [&["snapshot", "import", file, "--name", "n"], COLUMNS].concat();
        refused(&place, &args, file);
    }
    refused_file("f.parquet", "PAR1 not at all PAR1", COLUMNS, "f.parquet");
    refused_file("f.csv.gz", "no gzip", COLUMNS, "f.csv.gz");
}

#[test]
fn a_key_that_cannot_be_one() {
    let place = Place::new();
    let flow = repository("manifests/fixture.01_A_feature.yaml");
    let snapshot = repository("fixtures/fixture.snapshot.01.jsonl");
    for (flag, value) in [
        ("--key", "a\nb"),
        ("--key", ""),
        ("--key", &*"k".repeat(100_000)),
        ("--principal", "\u{7f}"),
        ("--operation", ""),
    ] {
        let args = [
            "run-once",
            "--dry-run",
            "--flow",
            &flow,
            "--snapshot",
            &snapshot,
            flag,
            value,
            "--json",
        ];
        let run = place.finaz(&args).exits(2);
        assert_eq!(run.refusal(), "ADMISSION_KEY_INVALID", "{flag}");
        assert!(run.out.contains(flag) && run.out.len() < 1000, "{run:?}");
    }
}

#[test]
fn a_beginning_of_a_run_id_that_is_too_short_is_said_to_be_and_not_taken_for_an_unknown_run() {
    for verb in ["show", "trace"] {
        for id in ["run_9", "run_920f4"] {
            let code = refused(&Place::new(), &["runs", verb, id], "too short");
            assert_eq!(code, "RUN_ID_SHORT");
        }
    }
}
