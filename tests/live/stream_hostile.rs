//! Bytes that no client decodes, records of ten megabytes, offsets that somebody else keeps, a store that nobody may write to.

use std::fs;
use std::process::Command;
use std::time::Duration;

use krafka::Record;
use krafka::admin::TopicPartition;
use serde_json::{Value, json};

use crate::disk::Disk;
use crate::instance::Instance;
use crate::process::until;
use crate::stage::Stage;
use crate::topics::{BASE, Log, counts, lasting};

const SOON: Duration = Duration::from_secs(60);

/// CRC-32C, as a batch of Kafka has it.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Changes the batch that begins at this offset in the log of the topic's only partition; its checksum fits again.
fn forge(file: &std::path::Path, first: i64, change: impl FnOnce(&mut [u8])) {
    let mut all = fs::read(file).expect("the log");
    let mut at = 0;
    loop {
        let base = i64::from_be_bytes(all[at..at + 8].try_into().expect("eight"));
        let size = u32::from_be_bytes(all[at + 8..at + 12].try_into().expect("four"));
        let end = at + 12 + usize::try_from(size).expect("small");
        if base == first {
            let batch = &mut all[at..end];
            let known = u32::from_be_bytes(batch[17..21].try_into().expect("four"));
            assert_eq!(crc32c(&batch[21..]), known, "not the checksum of Kafka");
            change(batch);
            let crc = crc32c(&batch[21..]).to_be_bytes();
            batch[17..21].copy_from_slice(&crc);
            break;
        }
        at = end;
    }
    // In place: the broker has the file open.
    let mut file = fs::OpenOptions::new().write(true).open(file).expect("the log");
    std::io::Write::write_all(&mut file, &all).expect("written");
}

#[test]
fn bytes_that_no_client_decodes_are_omitted_with_their_offset_and_counted_once() {
    let Some(instance) = Instance::new() else { return };
    instance.run("kafka-up");
    let log = Log::at(&instance.setting("FINAZ_BROKERS"), 1);
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    // A batch each.
    (0..10).for_each(|at| log.write(vec![log.record(&format!("e{at}"), "i", at)]));
    let file = instance.state().join("kafka/data").join(format!("{}-0", log.topic));
    let file = file.join("00000000000000000000.log");
    // A compression that nobody knows; a record of two gigabytes; a value of two gigabytes. Of a batch that claims to have a
    // million records the one that it has is read.
    forge(&file, 1, |batch| batch[22] |= 7);
    let two_gigabytes = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    forge(&file, 3, |batch| batch[61..66].copy_from_slice(&two_gigabytes));
    forge(&file, 5, |batch| batch[57..61].copy_from_slice(&1_000_000_u32.to_be_bytes()));
    forge(&file, 7, |batch| {
        // Length, attributes, two deltas, the key's length and the key: then the value's.
        let at = batch.iter().rposition(|byte| *byte == b'{').expect("the value") - 2;
        batch[at..at + 5].copy_from_slice(&two_gigabytes);
    });
    let bad = [1, 3, 7];
    let run =
        |run: &str, n: &str| stage.json(&log.stream(&flow, &["--run-id", run, "--once-n", n]));
    let whole = run("whole", "10");
    let list = stage.json(&["stream", "quarantine", "list", "--run-id", "whole"]);
    let rows = list["quarantined"].as_array().expect("a list");
    let offsets: Vec<i64> = rows.iter().filter_map(|row| row["offset"].as_i64()).collect();
    assert_eq!(offsets, bad, "{list}");
    assert!(rows.iter().all(|row| row["reason"] == "undecodable"), "{list}");
    assert_eq!(counts(&whole), [7, 0, 0, 0, 3], "{whole}");
    assert_eq!((&whole["ledger_ok"], &whole["next_offsets"]), (&json!(true), &json!({"0": 10})));
    // An owner each: nothing is counted twice, wherever one ends.
    let pieces: Vec<Value> = ["1", "2", "3", "4", "6", "8", "10"].map(|n| run("pieces", n)).into();
    assert_eq!(lasting(pieces.last().expect("some")), lasting(&whole));
}

#[test]
fn records_of_ten_megabytes_are_read_or_kept_and_stop_nothing() {
    let config = [("max.message.bytes", "16777216")];
    let Some(log) = Log::with(2, &config) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let long = "x".repeat(10 << 20);
    let event = format!(
        r#"{{"event_id":"long","instrument":"i","seq":1,"event_time":{},"close":1.5,"note":"{long}"}}"#,
        BASE + 1_000_000_000
    );
    log.write(vec![log.record("before", "i", 0)]);
    for value in [&event, &long] {
        log.runtime.block_on(async {
            let producer = log.kafka.producer().max_request_size(16 << 20);
            let producer = producer.build().await.expect("a producer");
            let record: Record = log.valued("i", value.clone());
            assert!(producer.send(record).await.expect("written").is_persisted());
            producer.close().await.expect("closed");
        });
    }
    log.write(vec![log.record("behind", "i", 2)]);
    let report = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "4"]));
    assert_eq!((counts(&report), &report["gaps"]), ([3, 0, 0, 0, 1], &json!(0)), "{report}");
    let place = format!("{}:2", log.home("i"));
    let shown = stage.json(&["stream", "quarantine", "show", &place, "--run-id", "r"]);
    assert_eq!(shown["hash"], finaz::ids::Hash::of(long.as_bytes()).to_string());
    assert_eq!(shown["value_hex"].as_str().map(str::len), Some(20 << 20));
}

#[test]
fn what_the_broker_keeps_of_a_group_is_no_progress_of_ours() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    log.write((0..40).map(|at| log.record(&format!("e{at}"), "i", at)).collect());
    let group = |offset: i64| {
        let admin = log.kafka.admin();
        let offsets = [(TopicPartition::new(&log.topic, 0), offset)];
        let altered = admin.alter_consumer_group_offsets("g", offsets, Default::default());
        for (_, altered) in log.runtime.block_on(altered).expect("an answer") {
            altered.expect("altered");
        }
    };
    let run = |n: &str| stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", n]));
    // Ahead of the journal, behind it, and beyond the end.
    group(30);
    assert_eq!(run("10")["next_offsets"], json!({"0": 10}));
    group(35);
    assert_eq!(run("20")["next_offsets"], json!({"0": 20}));
    group(3);
    assert_eq!(run("30")["next_offsets"], json!({"0": 30}));
    group(1_000);
    let report = run("40");
    assert_eq!(
        (counts(&report), &report["ledger_ok"]),
        ([40, 0, 0, 0, 0], &json!(true)),
        "{report}"
    );
    let calm = stage.json(&log.stream(&flow, &["--run-id", "calm", "--once-n", "40"]));
    assert_eq!(lasting(&report), lasting(&calm));
}

#[test]
fn a_store_that_nobody_may_write_to_is_refused_at_the_start_and_holds_no_lease() {
    let Some(log) = Log::new(1) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    let Some(disk) = Disk::new(&stage) else { return };
    let artifacts = disk.0.join("artifacts");
    stage.set("FINAZ_ARTIFACTS", artifacts.to_str().expect("a UTF-8 path"));
    stage.set("FINAZ_LEASE_TTL_SEC", "600");
    let flow = stage.live_flow("f", &["i"]);
    log.write((0..20).map(|at| log.record(&format!("e{at}"), "i", at)).collect());
    let run = |n: &str| {
        let more = ["--run-id", "r", "--pause-free-disk", "0", "--once-n", n];
        stage.finaz(&log.stream(&flow, &more))
    };
    run("10").exits(0);
    let pointer = || stage.sql("SELECT fence, seq, head, state, report FROM finaz.streams");
    let before = pointer();
    let mount = |how: &str| {
        let mut mount = Command::new("mount");
        let done = mount.args(["-o", &format!("remount,{how}")]).arg(&disk.0).output();
        let done = done.expect("mount can be started");
        assert!(done.status.success(), "{done:?}");
    };
    mount("ro");
    let refused = run("20");
    assert!([Some(1), Some(75)].contains(&refused.exit), "{refused:?}");
    assert_ne!(refused.json()["error"]["code"], "INTERNAL", "{refused:?}");
    assert_eq!(pointer(), before);
    assert_eq!(stage.json(&["lease", "list", "--active"])["leases"], json!([]));
    stage.finaz(&["doctor"]).exits(1);
    mount("rw");
    let report = until("it goes on", SOON, || {
        let run = run("20");
        (run.exit == Some(0)).then(|| run.json())
    });
    assert_eq!(counts(&report), [20, 0, 0, 0, 0], "{report}");
}
