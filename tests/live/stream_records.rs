//! What may lie in a topic: each kind of record has its treatment, and none stops the stream.

use std::time::Duration;

use krafka::{Kafka, Record};
use serde_json::{Value, json};

use crate::process::until;
use crate::stage::Stage;
use crate::topics::{BASE, Log, closing, counts, event, lasting};

const SOON: Duration = Duration::from_secs(60);

/// What the quarantine says of each record: reason, event id and value as text.
fn quarantined(stage: &Stage, run: &str) -> Vec<(String, Value)> {
    let list = stage.json(&["stream", "quarantine", "list", "--run-id", run]);
    let rows = list["quarantined"].as_array().expect("a list");
    let text = |row: &Value| row["reason"].as_str().expect("a reason").to_owned();
    rows.iter().map(|row| (text(row), row["event_id"].clone())).collect()
}

#[test]
fn aborted_records_are_not_read_and_an_open_transaction_is_waited_for_and_said() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    log.write(vec![log.record("before", "i", 0)]);
    let producer = log.runtime.block_on(async {
        let producer = log.kafka.producer().build_transactional(&log.topic).await;
        let producer = producer.expect("a transactional producer");
        for (round, commits) in [(1, false), (2, true), (3, false)] {
            producer.begin().expect("begun");
            for at in 0..3 {
                let record = log.record(&format!("{round}.{at}"), "i", round * 3 + at);
                assert!(producer.send(record).await.expect("written").is_persisted());
            }
            let ended = if commits { producer.commit().await } else { producer.abort().await };
            ended.expect("ended");
        }
        producer.begin().expect("begun");
        let record = log.record("open", "i", 12);
        assert!(producer.send(record).await.expect("written").is_persisted());
        producer.flush().await.expect("written");
        producer
    });
    log.write(vec![log.record("behind", "i", 13)]);
    let more = ["--run-id", "r", "--commit-every", "0.05"];
    let daemon = stage.start(&log.stream(&flow, &more));
    let read =
        || stage.count("SELECT coalesce(max((report::json->>'read')::int), 0) FROM finaz.streams");
    until("it reads what is stable", SOON, || (read() == 4).then_some(()));
    // It stands before the transaction for as long as that is open, and says so though nothing is committed.
    let reason = "SELECT coalesce(max(reason), '') FROM finaz.streams WHERE state = 'FLOWING'";
    until("it says what it waits for", SOON, || {
        stage.value(reason).contains("open transaction").then_some(())
    });
    drop(daemon);
    log.runtime.block_on(producer.commit()).expect("committed");
    log.runtime.block_on(producer.close()).expect("closed");
    let more = ["--run-id", "r", "--once-n", "6"];
    let report = until("the lease runs out", SOON, || {
        let run = stage.finaz(&log.stream(&flow, &more));
        (run.exit == Some(0)).then(|| run.json())
    });
    assert_eq!(counts(&report), [6, 0, 0, 0, 0], "{report}");
    for (id, seen) in [("1.0", 0), ("2.0", 1), ("3.2", 0), ("open", 1), ("behind", 1)] {
        assert_eq!(stage.explain("r", id).len(), seen, "{id}");
    }
}

#[test]
fn a_run_that_ends_before_a_marker_goes_on_behind_it() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    log.runtime.block_on(async {
        let producer = log.kafka.producer().build_transactional(&log.topic).await;
        let producer = producer.expect("a transactional producer");
        for round in 0..6 {
            producer.begin().expect("begun");
            let record = log.record(&format!("e{round}"), "i", round);
            assert!(producer.send(record).await.expect("written").is_persisted());
            let ended =
                if round % 2 == 0 { producer.commit().await } else { producer.abort().await };
            ended.expect("ended");
        }
        producer.close().await.expect("closed");
    });
    for n in ["1", "2", "3"] {
        let report = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", n]));
        assert_eq!(counts(&report)[0].to_string(), n, "{report}");
    }
    let whole = stage.json(&log.stream(&flow, &["--run-id", "whole", "--once-n", "3"]));
    let pieces = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "3"]));
    assert_eq!(
        (&pieces["values_hash"], &pieces["final"]),
        (&whole["values_hash"], &whole["final"])
    );
    assert_eq!(stage.explain("r", "e1"), []);
}

#[test]
fn each_kind_of_rubbish_is_omitted_with_its_reason_and_its_bytes() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let time = BASE;
    let rubbish: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"no json".to_vec(),
        b"\xff\xfe".to_vec(),
        b"{\"event_id\":\"\xc3\x28\",\"instrument\":\"i\",\"event_time\":1,\"close\":1}".to_vec(),
        event("cut", "i", 1).into_bytes()[..40].to_vec(),
        closing("nan", "i", 1, "NaN").into(),
        closing("inf", "i", 1, "-Infinity").into(),
        closing("huge", "i", 1, "1e400").into(),
        closing("octal", "i", 1, "01").into(),
        closing("text", "i", 1, "\"1.5\"").into(),
        closing("trick", "i", 1, r#"{"$serde_json::private::Number":"NaN"}"#).into(),
        format!(r#"{{"instrument":"i","event_time":{time},"close":1}} trailing"#).into(),
        br#"{"event_id":"timeless","instrument":"i","close":1}"#.to_vec(),
        br#"{"event_id":"far","instrument":"i","event_time":18446744073709551616,"close":1}"#
            .to_vec(),
        b"[1]".to_vec(),
        vec![b'['; 100_000],
    ];
    let mut records: Vec<Record> = Vec::new();
    for (at, value) in rubbish.iter().enumerate() {
        records.push(log.record(&format!("good.{at}"), "i", i64::try_from(at).expect("small")));
        records.push(log.valued("i", value.clone()));
    }
    records.push(Record::tombstone(&log.topic, "i").partition(0));
    // A header without a value, no key, an empty key, a key that is no text: records like others.
    records.push(log.record("headless", "i", 20).null_header("n").header("e", ""));
    records.push(log.record("keyless", "i", 21).without_key());
    records.push(log.record("empty", "i", 22).key(""));
    records.push(log.record("bytes", "i", 23).key(vec![0xff]));
    let total = records.len();
    log.write(records);
    let n = total.to_string();
    let report = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", &n]));
    let bad = rubbish.len() as u64 + 1;
    assert_eq!(counts(&report), [total as u64 - bad, 0, 0, 0, bad], "{report}");
    assert_eq!(report["ledger_ok"], true);
    let reasons: Vec<String> = quarantined(&stage, "r").into_iter().map(|(why, _)| why).collect();
    assert_eq!(reasons.len() as u64, bad);
    assert_eq!(reasons.iter().filter(|why| *why == "tombstone").count(), 1, "{reasons:?}");
    assert_eq!(
        reasons.iter().filter(|why| *why == "unreadable").count(),
        rubbish.len(),
        "{reasons:?}"
    );
    for (at, value) in rubbish.iter().enumerate() {
        let place = format!("0:{}", 2 * at + 1);
        let shown = stage.json(&["stream", "quarantine", "show", &place, "--run-id", "r"]);
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown["value_hex"], hex, "{place}");
        assert_eq!(shown["hash"], finaz::ids::Hash::of(value).to_string(), "{place}");
    }
    // Read again they are counted once: the run is where it was.
    let again = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", &n]));
    assert_eq!(lasting(&again), lasting(&report));
}

#[test]
fn a_topic_of_nothing_but_poison_ends_in_order_and_fills_no_log() {
    let Some(log) = Log::new(4) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    log.write((0..5_000).map(|at| log.valued(&format!("k{at}"), format!("poison {at}"))).collect());
    let run = stage.finaz(&log.stream(&flow, &["--once-n", "5000", "--commit-every", "0.01"]));
    let run = run.exits(0);
    let report = run.json();
    assert_eq!(counts(&report), [0, 0, 0, 0, 5_000], "{report}");
    assert!(run.err.lines().count() < 20, "a line a record: {}", run.err);
    assert_eq!((&report["rows"], &report["final"]), (&json!(0), &json!(0)));
}

#[test]
fn a_stream_told_to_end_before_anything_came_ends_in_order_whatever_its_flow_reads() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let one = stage.live_flow("one", &["i"]);
    let text = std::fs::read_to_string(&one).expect("the flow");
    let all = text.replace("instruments: [i]\n", "").replace("name: one", "name: all");
    let all = stage.file("all.yaml", all);
    for (run, flow, values) in [("one", &one, json!([])), ("all", &all, json!({}))] {
        for (how, more) in
            [("whole", &[][..]), ("split", &["--partitions", "0,1"]), ("auto", &["--auto"])]
        {
            let run = format!("{run}.{how}");
            let emit = stage.path(&format!("{run}.jsonl"));
            let emit = emit.to_str().expect("a path");
            let args = ["--run-id", &run, "--emit", emit, "--commit-every", "0.05"];
            let mut daemon = stage.start(&log.stream(flow, &[&args[..], more].concat()));
            let opened = format!(
                "SELECT count(*) FROM finaz.streams WHERE run_id = '{run}' AND state = 'FLOWING'"
            );
            until("it reads", SOON, || (stage.count(&opened) > 0).then_some(()));
            daemon.signal(rustix::process::Signal::TERM);
            let report = daemon.wait(SOON).exits(0).json();
            assert_eq!((counts(&report), &report["rows"]), ([0; 5], &json!(0)), "{report}");
            assert_eq!(report["values"], values, "{report}");
            assert_eq!(std::fs::read_to_string(emit).expect("the values"), "");
        }
    }
}

#[test]
fn a_flow_that_the_topic_cannot_feed_is_refused_and_leaves_nothing() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let text = std::fs::read_to_string(stage.live_flow("f", &["i"])).expect("the flow");
    let flow = stage.file("volume.yaml", text.replace("input: close", "input: volume"));
    log.write((0..10).map(|at| log.record(&format!("e{at}"), "i", at)).collect());
    // Of a split run the other partition has nothing to be refused for.
    let kept = format!(
        "SELECT count(*) FROM finaz.streams WHERE partitions IS NULL OR {} = ANY (partitions)",
        log.home("i")
    );
    let split = ["--partitions", "0,1", "--run-id", "split"];
    for more in [&["--once-n", "10"][..], &["--commit-every", "0.05"], &split] {
        let refused = stage.finaz(&log.stream(&flow, more)).refuses(2, "FIELD_UNKNOWN");
        assert!(refused["message"].to_string().contains("volume"), "{refused}");
        assert_eq!(stage.count(&kept), 0, "{more:?}");
        assert_eq!(stage.json(&["lease", "list", "--active"])["leases"], json!([]));
    }
    // One that some events have is enough: without it the others are gaps.
    let event = event("more", "i", 10).replace('}', ",\"volume\":7}");
    log.write(vec![log.valued("i", event)]);
    let report = stage.json(&log.stream(&flow, &["--once-n", "11"]));
    assert_eq!((counts(&report), &report["gaps"]), ([11, 0, 0, 0, 0], &json!(10)), "{report}");
}

#[test]
fn a_null_close_is_a_gap_and_consumed() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    log.write(vec![log.record("a", "i", 0), log.valued("i", closing("b", "i", 1, "null"))]);
    let report = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "2"]));
    assert_eq!((counts(&report), &report["gaps"]), ([2, 0, 0, 0, 0], &json!(1)), "{report}");
    assert_eq!(stage.explain("r", "b")[0].2, "gap");
}

#[test]
fn a_record_of_the_year_2262_moves_no_watermark() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let far = format!(
        r#"{{"event_id":"far","instrument":"i","seq":1,"event_time":{},"close":1}}"#,
        i64::MAX
    );
    log.write(vec![
        log.record("a", "i", 0),
        log.valued("i", far),
        log.record("b", "i", 1),
        log.record("c", "i", 30),
        log.record("old", "i", 2),
    ]);
    let report = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "5"]));
    assert_eq!(counts(&report), [3, 0, 0, 1, 1], "{report}");
    assert_eq!(report["watermark"], BASE + 20_000_000_000, "{report}");
    let rows = quarantined(&stage, "r");
    assert_eq!(rows, [("time_jump".to_owned(), "far".into()), (String::new(), "old".into())]);
}

#[test]
fn the_same_id_is_taken_once_whatever_its_partition_payload_or_restart() {
    let Some(log) = Log::new(4) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let home = log.home("i");
    let run = |n: &str| stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", n]));
    log.write(vec![log.record("a", "i", 0)]);
    assert_eq!(counts(&run("1")), [1, 0, 0, 0, 0]);
    // By another owner, in another partition.
    log.write(vec![log.record("a", "i", 0).partition((home + 1) % 4)]);
    assert_eq!(counts(&run("2")), [1, 0, 1, 0, 0]);
    log.write(vec![log.valued("i", closing("a", "i", 0, "77.0"))]);
    let report = run("3");
    assert_eq!((counts(&report), &report["conflicts"]), ([1, 0, 2, 0, 0], &json!(1)), "{report}");
    assert_eq!(quarantined(&stage, "r"), [("payload_differs".to_owned(), "a".into())]);
    let explained = stage.explain("r", "a");
    let words: Vec<(&str, &str)> =
        explained.iter().map(|(_, w, r)| (w.as_str(), r.as_str())).collect();
    let twice = "duplicates_skipped";
    assert_eq!(words, [("consumed", ""), (twice, ""), (twice, "payload_differs")]);
    assert_eq!(report["identities"], 1);
}

/// Two instruments in two partitions.
fn pair(log: &Log) -> (String, String) {
    let other = (0..).map(|at| format!("j{at}")).find(|name| log.home(name) != log.home("i"));
    ("i".to_owned(), other.expect("one of many"))
}

#[test]
fn a_silent_partition_holds_the_watermark_until_it_says_that_it_is_idle() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let (talks, silent) = pair(&log);
    let flow = stage.live_flow("f", &[&talks, &silent]);
    let run = |n: &str| stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", n]));
    log.write((0..40).map(|at| log.record(&format!("e{at}"), &talks, at)).collect());
    let report = run("40");
    let held = (&report["final"], &report["waiting"], &report["watermark"]);
    assert_eq!(held, (&json!(0), &json!(40), &Value::Null), "{report}");
    let mark = |partition: i32, marker: &str| {
        let partition = partition.to_string();
        let args = ["stream", "mark", marker, "--topic", &log.topic, "--partition", &partition];
        stage.json(&args)
    };
    let marked = mark(log.home(&silent), "IDLE_CONFIRMED");
    assert_eq!(marked["partitions"], json!([log.home(&silent)]));
    // The marker is no record: it is met on the way to the next one.
    log.write(vec![log.record("e40", &talks, 40)]);
    let released = until("the marker is met", SOON, || {
        let mut daemon =
            stage.start(&log.stream(&flow, &["--run-id", "r", "--commit-every", "0.02"]));
        until("it commits", SOON, || {
            let status = stage.standing("r", 0);
            (status["read"] == 41).then_some(())
        });
        let seen = crate::process::poll(Duration::from_secs(5), || {
            let watermark = stage.standing("r", 0)["watermark"].as_i64();
            (watermark == Some(BASE + 30_000_000_000)).then_some(())
        });
        daemon.signal(rustix::process::Signal::TERM);
        let report = daemon.wait(SOON).exits(0).json();
        seen.map(|()| report)
    });
    assert_eq!((&released["final"], &released["waiting"]), (&json!(30), &json!(11)), "{released}");
    // It wakes with a record of long ago: late, and nothing that was decided changes.
    log.write(vec![log.record("woken", &silent, 3), log.record("awake", &silent, 35)]);
    let report = run("43");
    assert_eq!(counts(&report), [42, 0, 0, 1, 0], "{report}");
    assert_eq!(stage.explain("r", "woken")[0].1, "late");
    assert_eq!(report["final"], 30, "the watermark went back: {report}");
    let whole = stage.json(&log.stream(&flow, &["--run-id", "whole", "--once-n", "43"]));
    assert!(whole["ledger_ok"] == true && whole["read"] == 43, "{whole}");
    let refused = stage.finaz(&["stream", "mark", "NO_SUCH", "--topic", &log.topic]);
    refused.refuses(2, "MARKER_INVALID");
    let args = ["stream", "mark", "IDLE_CONFIRMED", "--topic", &log.topic, "--partition", "2"];
    stage.finaz(&args).refuses(2, "PARTITION_UNKNOWN");
}

#[test]
fn a_marker_that_no_record_follows_is_committed_with_all_that_it_released() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let (talks, silent) = pair(&log);
    let flow = stage.live_flow("f", &[&talks, &silent]);
    log.write((0..40).map(|at| log.record(&format!("e{at}"), &talks, at)).collect());
    let mut daemon = stage.start(&log.stream(&flow, &["--run-id", "r", "--commit-every", "0.02"]));
    let said =
        "SELECT concat_ws(' ', report::json->>'read', report::json->>'waiting') FROM finaz.streams";
    until("it commits", SOON, || (stage.column(said) == ["40 40"]).then_some(()));
    let partition = log.home(&silent).to_string();
    let args =
        ["stream", "mark", "IDLE_CONFIRMED", "--topic", &log.topic, "--partition", &partition];
    stage.finaz(&args).exits(0);
    until("what it released is committed", SOON, || {
        (stage.column(said) == ["40 11"]).then_some(())
    });
    daemon.kill();
}

#[test]
fn partitions_that_were_added_are_read_from_their_beginning_after_a_restart() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    log.write((0..10).map(|at| log.record(&format!("e{at}"), "i", at)).collect());
    let run = |n: &str| stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", n]));
    assert_eq!(counts(&run("10")), [10, 0, 0, 0, 0]);
    let admin = log.kafka.admin();
    let added = admin.create_partitions([(&log.topic, 3)], Default::default());
    for (_, added) in log.runtime.block_on(added).expect("an answer") {
        added.expect("added");
    }
    let record = |at: i64| log.record(&format!("e{at}"), "i", at).partition(2);
    // A client of before does not know of them; the broker itself takes its time.
    let kafka = until("they are there", SOON, || {
        log.runtime.block_on(async {
            let kafka = Kafka::builder(&log.brokers).connect().await.expect("a broker");
            let consumer = kafka.consumer_without_group().build().await.ok()?;
            consumer.fetch_watermarks(&log.topic, 2).await.ok()?;
            Some(kafka)
        })
    });
    log.runtime.block_on(async {
        let producer = kafka.producer().build().await.expect("a producer");
        for at in 10..20 {
            assert!(producer.send(record(at)).await.expect("written").is_persisted());
        }
        producer.close().await.expect("closed");
    });
    let report = run("20");
    assert_eq!(counts(&report), [20, 0, 0, 0, 0], "{report}");
    assert_eq!(report["next_offsets"], json!({"0": 10, "1": 0, "2": 10}), "{report}");
    // Which partitions an event came by changes no value.
    let whole = stage.json(&log.stream(&flow, &["--run-id", "whole", "--once-n", "20"]));
    assert_eq!(whole["values_hash"], report["values_hash"]);
}

#[test]
fn a_source_that_says_it_has_ended_empties_the_buffer_and_ends_the_run() {
    let Some(log) = Log::new(2) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let (one, other) = pair(&log);
    let flow = stage.live_flow("f", &[&one, &other]);
    let records = (0..40)
        .map(|at| log.record(&format!("e{at}"), if at % 2 == 0 { &one } else { &other }, at));
    log.write(records.collect());
    let daemon = stage.start(&log.stream(&flow, &["--run-id", "r", "--commit-every", "0.02"]));
    stage.json(&["stream", "mark", "END_OF_BOUNDED_SOURCE", "--topic", &log.topic]);
    let report = daemon.wait(SOON).exits(0).json();
    assert_eq!(
        (&report["state"], counts(&report)),
        (&"ENDED".into(), [40, 0, 0, 0, 0]),
        "{report}"
    );
    assert_eq!((&report["final"], &report["waiting"]), (&json!(40), &json!(0)), "{report}");
    assert_eq!(stage.standing("r", 0)["state"], "ENDED");
    // Started again it has nothing to do, and says the same.
    let again = stage.start(&log.stream(&flow, &["--run-id", "r"])).wait(SOON).exits(0).json();
    assert_eq!((&again["state"], lasting(&again)), (&"ENDED".into(), lasting(&report)));
    let counted = stage.json(&log.stream(&flow, &["--run-id", "counted", "--once-n", "40"]));
    assert_eq!(counted["values_hash"], report["values_hash"]);
}
