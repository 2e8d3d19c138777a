//! The fixture with its seven faults, replayed into a topic and streamed: the golden, and nothing unaccounted for.

use serde_json::{Value, json};

use crate::stage::Stage;
use crate::topics::{Log, counts, lasting};

const FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/fixture.faults.01.yaml");

/// The fixture in a topic so many times, and its flow.
fn replayed(times: usize) -> Option<(Log, Stage, String)> {
    let log = Log::new(4)?;
    let stage = Stage::for_log(&log)?;
    let flow = stage.fixture();
    for _ in 0..times {
        let replayed = stage.json(&["replay", "--faults", FAULTS, "--topic", &log.topic]);
        assert_eq!(replayed["published"], 23);
    }
    Some((log, stage, flow))
}

fn golden(flow: &str) -> String {
    let text = std::fs::read_to_string(flow).expect("the flow");
    let line = text.lines().find_map(|line| line.strip_prefix("golden: "));
    line.expect("a golden").to_owned()
}

#[test]
fn the_fixture_comes_to_its_golden_and_says_what_became_of_each_record() {
    let Some((log, stage, flow)) = replayed(1) else { return };
    let emit = stage.path("values.jsonl");
    let emit = emit.to_str().expect("a path");
    let args = log.stream(&flow, &["--run-id", "r", "--once-n", "23", "--emit", emit]);
    let report = stage.json(&args);
    assert_eq!(counts(&report), [6, 15, 1, 0, 1], "{report}");
    assert_eq!((&report["read"], &report["ledger_ok"]), (&json!(23), &json!(true)));
    assert_eq!(report["verdict"], "EQUAL_TO_BATCH_GOLDEN", "{report}");
    assert_eq!(
        (&report["values_hash"], &report["golden"]),
        (&golden(&flow).into(), &golden(&flow).into())
    );
    assert_eq!(report["next_offsets"], json!({"0": 6, "1": 0, "2": 0, "3": 17}), "{report}");
    assert_eq!((&report["state"], &report["fence"]), (&"STOPPED".into(), &1.into()));
    let lines = std::fs::read_to_string(emit).expect("the values");
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let values: Vec<&Value> = lines.iter().map(|line| &line["values"]["ema3"]).collect();
    assert_eq!(json!(values), json!([null, null, 2.0, 3.0, 4.0, 5.0]));
    assert!(lines.iter().all(|line| line["instrument"] == "sim.alpha"));

    let treatments = |id: &str| -> Vec<(String, String)> {
        stage.explain("r", id).into_iter().map(|(_, what, why)| (what, why)).collect()
    };
    let pair = |what: &str, why: &str| (what.to_owned(), why.to_owned());
    let twice = [pair("consumed", ""), pair("duplicates_skipped", "")];
    assert_eq!(treatments("fixture.event.0.2"), twice);
    assert_eq!(treatments("fixture.event.0.3"), [pair("consumed", "")]);
    assert_eq!(treatments("fixture.event.2.0"), [pair("filtered", "")]);
    assert_eq!(treatments("never.read"), []);

    let list = stage.json(&["stream", "quarantine", "list"]);
    assert_eq!(list["total"], 1, "{list}");
    let row = &list["quarantined"][0];
    assert_eq!((&row["treatment"], &row["reason"]), (&"omitted".into(), &"tombstone".into()));
    let place = format!("{}:{}", row["partition"], row["offset"]);
    let shown = stage.json(&["stream", "quarantine", "show", &place]);
    assert_eq!((&shown["hash"], &shown["bytes"]), (&row["hash"], &Value::Null));
    assert!(shown["key_hex"].is_string() && shown["value_hex"].is_null(), "{shown}");
    stage.finaz(&["stream", "quarantine", "show", "0:999"]).refuses(2, "QUARANTINE_UNKNOWN");

    let status = stage.standing("r", 0);
    assert_eq!(counts(&status), [6, 15, 1, 0, 1]);
    assert_eq!((&status["live"], &status["lag"]), (&json!(false), &json!(0)), "{status}");
    assert_eq!((&status["head"].is_string(), &status["state"]), (&true, &"STOPPED".into()));
}

#[test]
fn thirteen_replays_are_read_to_the_high_water_and_give_the_same_values() {
    let Some((log, stage, flow)) = replayed(13) else { return };
    let report = stage.json(&log.stream(&flow, &["--once-n", "299"]));
    assert_eq!(counts(&report), [6, 195, 85, 0, 13], "{report}");
    assert_eq!(report["next_offsets"], json!({"0": 78, "1": 0, "2": 0, "3": 221}), "{report}");
    assert_eq!(report["verdict"], "EQUAL_TO_BATCH_GOLDEN", "{report}");
    let list = stage.json(&["stream", "quarantine", "list"]);
    assert_eq!(list["total"], 13, "{list}");
}

#[test]
fn a_run_in_pieces_stands_where_one_at_once_does() {
    let Some((log, stage, flow)) = replayed(1) else { return };
    let run = |run: &str, n: &str| {
        let report = stage.json(&log.stream(&flow, &["--run-id", run, "--once-n", n]));
        assert_eq!(report["read"].to_string(), n, "{report}");
        report
    };
    let whole = run("whole", "23");
    // One record at a time as well: nothing is decided by where a piece ends.
    for (name, pieces) in [("pieces", &["5", "9", "23"][..]), ("more", &["1", "2", "22", "23"])] {
        let parts: Vec<Value> = pieces.iter().map(|n| run(name, n)).collect();
        let last = parts.last().expect("some");
        assert_eq!(lasting(last), lasting(&whole));
        assert_eq!(last["fence"], pieces.len(), "one owner each: {last}");
        // Nothing is left to read: it says the same again, and reads nothing.
        assert_eq!(lasting(&run(name, "23")), lasting(&whole));
        for id in ["fixture.event.0.2", "fixture.event.0.4", "fixture.event.2.2"] {
            assert_eq!(stage.explain(name, id), stage.explain("whole", id));
        }
    }
}
