//! Values of streams in ClickHouse: all that PostgreSQL says is there, each once, whoever died when.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use url::Url;

use crate::dice::Dice;
use crate::process::{elapsed, poll, until};
use crate::stage::Stage;
use crate::topics::Log;

const SOON: Duration = Duration::from_secs(60);

/// A stage with a warehouse, on the broker of the log.
fn stage(log: &Log) -> Option<Stage> {
    let mut stage = Stage::new()?;
    stage.set("FINAZ_BROKERS", &log.brokers);
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    Some(stage)
}

/// Events of two instruments at these seconds, each its own partition's.
fn write(log: &Log, seconds: std::ops::Range<i64>) {
    let both = |at| ["i", "j"].map(|name| log.record(&format!("{name}.{at}"), name, at));
    log.write(seconds.flat_map(both).collect());
}

/// The query of docs/reading.md, with the login of this stage's database in it.
fn documented(stage: &Stage, run: &str) -> String {
    let text = include_str!("../../docs/reading.md");
    let (_, text) = text.split_once("<!-- tests/live/stream_rows.rs").expect("the comment");
    let block = text.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next());
    let at = Url::parse(stage.pg_url()).expect("a URL");
    let login = format!(
        "postgresql('{}:{}', '{}', 'streams', '{}', '{}', 'finaz')",
        at.host_str().expect("a host"),
        at.port().expect("a port"),
        at.path().trim_start_matches('/'),
        at.username(),
        at.password().unwrap_or(""),
    );
    block
        .expect("a block")
        .replace("postgresql(finaz_pg, table = 'streams')", &login)
        .replace("{run_id:String}", &format!("'{run}'"))
        .replace("finaz.stream_rows", "{db}.stream_rows")
}

/// How many rows a reader sees, and a hash of them in their order.
fn seen(stage: &Stage, run: &str) -> (usize, String) {
    let rows = documented(stage, run);
    let answer = stage.clickhouse(&format!(
        "SELECT count(), hex(groupBitXor(cityHash64(row, instrument, node, event_time, value))) FROM ({rows})"
    ));
    let (count, hash) = answer.split_once('\t').expect("two columns");
    (count.parse().expect("a count"), hash.to_owned())
}

#[test]
fn final_values_are_read_in_clickhouse_as_the_stream_reports_them() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = stage(&log) else { return };
    let flow = stage.live_flow("f", &["i", "j"]);
    write(&log, 0..40);
    stage.json(&["stream", "mark", "END_OF_BOUNDED_SOURCE", "--topic", &log.topic]);
    let report = stage.json(&log.stream(&flow, &["--run-id", "r"]));
    assert_eq!((&report["final"], &report["staged"]), (&json!(80), &json!(80)), "{report}");
    let of = |name: &str| {
        let sql = "SELECT toJSONString(groupArray(tuple(value))) FROM (SELECT value FROM
                   {db}.stream_result(stream = 'stream/r', staged = 80) WHERE instrument = 'NAME' ORDER BY row)";
        let text = stage.clickhouse(&sql.replace("NAME", name));
        let rows: Vec<(Value,)> = serde_json::from_str(&text).expect("JSON");
        rows.into_iter().map(|row| row.0).collect::<Value>()
    };
    for name in ["i", "j"] {
        assert_eq!(of(name), report["values"][name], "{name}");
    }
    assert_eq!(seen(&stage, "r").0, 80);
    // What PostgreSQL does not name is not read, whatever lies there.
    stage.clickhouse(
        "INSERT INTO {db}.stream_rows (stream, epoch, fence, row, node, instrument, event_time, value)
         VALUES ('stream/r', 1, 1, 80, 'n', 'i', 0, 1), ('stream/other', 1, 1, 0, 'n', 'i', 0, 1)",
    );
    assert_eq!(seen(&stage, "r").0, 80);
    // Nothing is new: nothing is inserted.
    let staged = "SELECT max(staged_at) FROM {db}.stream_rows WHERE row < 80";
    let before = stage.clickhouse(staged);
    let again = stage.json(&log.stream(&flow, &["--run-id", "r"]));
    assert_eq!((&again["staged"], stage.clickhouse(staged)), (&json!(80), before));
}

#[test]
fn a_stream_killed_again_and_again_has_each_row_in_clickhouse_once() {
    let Some(log) = Log::new(2) else { return };
    let Some(mut stage) = stage(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "0.3");
    let mut dice = Dice::new("stream rows");
    let flow = stage.live_flow("f", &["i", "j"]);
    let more = ["--run-id", "r", "--commit-every", "0.01"];
    for round in 0..12 {
        write(&log, round * 100..round * 100 + 100);
        let mut daemon = stage.start(&log.stream(&flow, &more));
        let wait = Duration::from_millis(u64::try_from(dice.pick(50..900)).expect("small"));
        assert_eq!(
            poll(wait, || (!daemon.is_running()).then_some(())).map(|()| daemon.said()),
            None
        );
        daemon.kill();
        until("the lease runs out", SOON, || {
            let free = "SELECT count(*) FROM finaz.leases WHERE expires_at > clock_timestamp()";
            (stage.count(free) == 0).then_some(())
        });
    }
    let bounded = ["--run-id", "r", "--once-n", "2400"];
    let report = stage.json(&log.stream(&flow, &bounded));
    assert_eq!(report["staged"], report["final"], "{report}");
    let whole = stage.json(&log.stream(&flow, &["--run-id", "whole", "--once-n", "2400"]));
    assert_eq!(report["final"], whole["final"], "{whole}");
    let (killed, calm) = (seen(&stage, "r"), seen(&stage, "whole"));
    assert_eq!(killed, calm, "{report}");
    assert_eq!(json!(killed.0), report["final"]);
}

#[test]
fn a_clickhouse_that_is_away_holds_nothing_up_and_is_caught_up_with() {
    let Some(log) = Log::new(2) else { return };
    let Some(mut stage) = stage(&log) else { return };
    let flow = stage.live_flow("f", &["i", "j"]);
    write(&log, 0..100);
    let url = stage.clickhouse_url().to_owned();
    stage.set("FINAZ_CLICKHOUSE_URL", "http://127.0.0.1:1/none");
    let mut daemon = stage.start(&log.stream(&flow, &["--run-id", "r", "--commit-every", "0.05"]));
    let view = until("it says what waits", SOON, || {
        let view = stage.finaz(&["stream", "status", "--run-id", "r"]);
        let view = (view.exit == Some(0)).then(|| view.json()["streams"][0].take())?;
        let reason = view["reason"].as_str().unwrap_or_default();
        (view["read"] == 200 && reason.contains("rows wait for ClickHouse")).then_some(view)
    });
    assert_eq!((&view["state"], &view["staged"]), (&json!("FLOWING"), &json!(0)), "{view}");
    daemon.signal(Signal::TERM);
    let took = elapsed(|| {
        let report = daemon.wait(SOON).exits(0).json();
        assert_eq!((&report["read"], &report["staged"]), (&json!(200), &json!(0)), "{report}");
    });
    assert!(took < Duration::from_secs(15), "it waited {took:?} for a server that is away");
    // Without one the stream goes on as well, and keeps what it knows of it.
    stage.set("FINAZ_WAREHOUSE", "none");
    stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "200"]));
    stage.set("FINAZ_WAREHOUSE", "auto");
    stage.set("FINAZ_CLICKHOUSE_URL", &url);
    let report = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "200"]));
    assert!(report["final"].as_u64() > Some(100), "{report}");
    assert_eq!(report["staged"], report["final"], "{report}");
    let (rows, _) = seen(&stage, "r");
    assert_eq!(json!(rows), report["final"]);
    // A schema that was never made is refused at the start: waiting does not heal it.
    stage.clickhouse("DROP TABLE {db}.schema_version");
    let more = ["--run-id", "r", "--once-n", "200"];
    stage.finaz(&log.stream(&flow, &more)).refuses(1, "WAREHOUSE_SCHEMA");
}
