//! Streams over several processes: split by partition, shared as processes come and go, refused where they overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use krafka::{Kafka, Record};
use rustix::process::Signal;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::process::{Process, Run, until};
use crate::setting;
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(180);
const INSTRUMENTS: u64 = 20;
/// Those that the flow reads.
const READ: u64 = 18;
/// A commit a tenth of a second: many chances to lose or to repeat something.
const OFTEN: [&str; 2] = ["--commit-every", "0.1"];

/// A stage with a snapshot, a flow that knows its batch result, and a topic of four partitions.
struct Rig {
    stage: Stage,
    topic: String,
    flow: String,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let topic = self.topic.clone();
        self.with_kafka(async |kafka| {
            // One that was never made cannot go.
            let _gone = kafka.admin().delete_topics([topic], Default::default()).await;
        });
    }
}

impl Rig {
    #[track_caller]
    fn new(events: u64) -> Option<Self> {
        let brokers = setting("FINAZ_BROKERS")?;
        let mut stage = Stage::without_warehouse()?;
        stage.set("FINAZ_BROKERS", &brokers);
        let mut text = String::new();
        for at in 0..events {
            let (instrument, seq) = (at % INSTRUMENTS, at / INSTRUMENTS);
            let time = 1_767_225_600_000_000_000 + at * 100_000_000;
            let close = (at * 7919) % 1000;
            text.push_str(&format!(
                "{{\"event_id\":\"e{at}\",\"instrument\":\"i{instrument:02}\",\"seq\":{seq},\
                 \"event_time\":{time},\"close\":{close}.25}}\n"
            ));
        }
        let file = stage.file("split.jsonl", text);
        stage.finaz(&["snapshot", "import", &file, "--name", "split"]).exits(0);
        let names: Vec<String> = (0..READ).map(|at| format!("i{at:02}")).collect();
        let manifest = format!(
            "kind: Flow\nname: split\nsource: {{snapshot: split}}\ninstruments: [{}]\n\
             clock: {{allowed_lateness: 60s}}\n\
             nodes:\n  - {{id: ema, type: ema, period: 3, input: close}}\nsink: {{dataset: features}}\n",
            names.join(", ")
        );
        let flow = stage.file("split.yaml", &manifest);
        let batch = stage.json(&["run-once", "--flow", &flow, "--dry-run"]);
        let golden = batch["result"]["values_hash"].as_str().expect("a hash");
        let flow = stage.file("split.yaml", format!("{manifest}golden: {golden}\n"));
        let topic = format!("finaz-test-split-{}", Uuid::new_v4().simple());
        Some(Self { stage, topic, flow })
    }

    fn with_kafka(&self, work: impl AsyncFnOnce(&Kafka)) {
        let Some(brokers) = setting("FINAZ_BROKERS") else { return };
        self.stage.runtime.block_on(async {
            if let Ok(kafka) = Kafka::builder(&brokers).connect().await {
                work(&kafka).await;
            }
        });
    }

    fn replay_args<'a>(&'a self, faults: &'a str, speed: &'a str) -> Vec<&'a str> {
        let args = ["replay", "--snapshot", "split", "--generate", faults, "--seed", "3", "--flow"];
        let more = [self.flow.as_str(), "--topic", &self.topic, "--speed", speed];
        [&args[..], &more].concat()
    }

    /// Fills the topic; gives how many records lie in each partition.
    #[track_caller]
    fn fill(&self, faults: &str) -> BTreeMap<i32, u64> {
        let replayed = self.stage.json(&self.replay_args(faults, "max"));
        counts(&replayed["partitions"])
    }

    fn args<'a>(&'a self, group: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let args = ["stream", "--topic", &self.topic, "--group", group, "--flow", &self.flow];
        [&args[..], &OFTEN, more].concat()
    }

    #[track_caller]
    fn start(&self, group: &str, more: &[&str]) -> Process {
        self.stage.start(&self.args(group, more))
    }

    #[must_use = "check how it ended"]
    #[track_caller]
    fn stream(&self, group: &str, more: &[&str]) -> Run {
        self.start(group, more).wait(PATIENCE)
    }

    #[track_caller]
    fn status(&self, group: &str) -> Value {
        self.stage.finaz(&["stream", "status", "--group", group]).json()
    }

    /// Waits until these partitions of the group have a live owner.
    #[track_caller]
    fn until_live(&self, group: &str, partitions: &[i64]) {
        until("live partitions", PATIENCE, || {
            let status = self.status(group);
            let live = |p: &i64| {
                let streams = status["streams"].as_array().expect("a list").iter();
                let mut of = streams.filter(|view| view["partitions"] == json!([p]));
                of.any(|view| view["live"] == true)
            };
            partitions.iter().all(live).then_some(())
        });
    }

    /// The owners by name of the partitions that are live, each with how many it has.
    fn owners(&self, group: &str) -> BTreeMap<String, usize> {
        let mut owners = BTreeMap::new();
        for view in self.status(group)["streams"].as_array().expect("a list") {
            if let Some((name, _)) = view["owner"].as_str().and_then(|owner| owner.split_once('/'))
            {
                *owners.entry(name.to_owned()).or_default() += 1;
            }
        }
        owners
    }

    /// What a run has in quarantine, to explain a difference.
    fn omitted(&self, report: &Value) -> String {
        let run = report["run_id"].as_str().expect("a run");
        let listed = self.stage.json(&["stream", "quarantine", "list", "--run-id", run]);
        format!("{report} with {listed}")
    }

    /// Whole and split come to the same: the ledger, the values, the batch.
    #[track_caller]
    fn assert_equal(&self, whole: &Value, split: &Value) {
        for field in [
            "read",
            "consumed",
            "filtered",
            "duplicates_skipped",
            "late",
            "omitted",
            "gaps",
            "conflicts",
            "next_offsets",
            "values_hash",
            "rows",
        ] {
            assert_eq!(whole[field], split[field], "{field}: {}", self.omitted(split));
        }
        for report in [whole, split] {
            assert_eq!(report["verdict"], "EQUAL_TO_BATCH_GOLDEN", "{report}");
            assert_eq!(report["ledger_ok"], true, "{report}");
        }
    }
}

fn counts(partitions: &Value) -> BTreeMap<i32, u64> {
    let of = partitions.as_object().expect("counts by partition").iter();
    of.map(|(p, n)| (p.parse().expect("a number"), n.as_u64().expect("a count"))).collect()
}

fn lines(path: &str) -> BTreeSet<String> {
    fs::read_to_string(path).expect("values").lines().map(str::to_owned).collect()
}

#[test]
fn two_processes_with_partitions_of_their_own_come_to_what_one_comes_to_and_the_batch() {
    let Some(rig) = Rig::new(2000) else { return };
    let published = rig.fill("60");
    let all = published.values().sum::<u64>();
    let part = |of: [i32; 2]| of.map(|p| published.get(&p).copied().unwrap_or(0)).iter().sum();
    let (first, second): (u64, u64) = (part([0, 3]), part([1, 2]));
    assert!(first > 0 && second > 0, "{published:?}");
    let path = |name: &str| rig.stage.path(name).to_str().expect("a UTF-8 path").to_owned();
    let (a, b, c) = (path("a"), path("b"), path("c"));
    let one =
        rig.start("g", &["--partitions", "0,3", "--once-n", &first.to_string(), "--emit", &a]);
    let two =
        rig.start("g", &["--partitions", "2,1", "--once-n", &second.to_string(), "--emit", &b]);
    let (one, two) = (one.wait(PATIENCE).exits(0).json(), two.wait(PATIENCE).exits(0).json());
    assert_eq!((&one["read"], &two["read"]), (&json!(first), &json!(second)));
    assert_eq!((&one["state"], &one["verdict"]), (&json!("STOPPED"), &json!("NO_GOLDEN")));
    let own = |report: &Value| -> Vec<i64> {
        let of = report["per_partition"].as_array().expect("a list").iter();
        of.map(|view| view["partition"].as_i64().expect("a number")).collect()
    };
    assert_eq!((own(&one), own(&two)), (vec![0, 3], vec![1, 2]));
    // One that has all of them finds all read, and says what they come to together.
    let all = all.to_string();
    let split = rig.stream("g", &["--partitions", "0,1,2,3", "--once-n", &all]).exits(0).json();
    let whole = rig.stream("whole", &["--once-n", &all, "--emit", &c]).exits(0).json();
    rig.assert_equal(&whole, &split);
    let united: BTreeSet<String> = lines(&a).union(&lines(&b)).cloned().collect();
    assert_eq!(united, lines(&c));

    let status = rig.stage.json(&["stream", "status", "--group", "g"]);
    let streams = status["streams"].as_array().expect("a list");
    let seen: Vec<&Value> = streams.iter().map(|view| &view["partitions"]).collect();
    assert_eq!(seen, [&json!([0]), &json!([1]), &json!([2]), &json!([3])]);
    let total = &status["total"];
    for field in ["read", "consumed", "filtered", "duplicates_skipped", "late", "omitted"] {
        assert_eq!(total[field], whole[field], "{field}");
    }
    assert_eq!((&total["streams"], &total["ledger_ok"]), (&json!(4), &json!(true)));
    // The journals of all partitions are looked through.
    let run = split["run_id"].as_str().expect("a run");
    for at in 0..INSTRUMENTS {
        let id = format!("e{at}");
        let explained = rig.stage.json(&["stream", "explain", &id, "--run-id", run]);
        assert_ne!(explained["seen"], json!([]), "{explained}");
    }
}

#[test]
fn what_overlaps_is_refused_and_a_run_stays_split_or_whole() {
    let Some(rig) = Rig::new(200) else { return };
    rig.fill("4");
    let one = rig.start("g", &["--run-id", "one", "--partitions", "0,3"]);
    rig.until_live("g", &[0, 3]);
    let refused = |more: &[&str], code: &str| {
        rig.stream("g", more).refuses(1, code);
    };
    refused(&["--run-id", "one", "--partitions", "3"], "STREAM_LEASE_OCUPADO");
    refused(&["--run-id", "one", "--partitions", "1,3"], "STREAM_LEASE_OCUPADO");
    refused(&["--run-id", "two", "--partitions", "1,3"], "STREAM_OVERLAP");
    let left = rig.stage.count("SELECT count(*) FROM finaz.streams WHERE run_id = 'two'");
    assert_eq!(left, 0, "what was refused is on record");
    refused(&["--run-id", "two"], "STREAM_OVERLAP");
    refused(&["--run-id", "one"], "STREAM_MIXED");
    // Others of the flow, in another group, or of other partitions, are in nobody's way.
    rig.stream("other", &["--run-id", "three", "--once-n", "3"]).exits(0);
    rig.stream("g", &["--run-id", "four", "--partitions", "1,2", "--once-n", "3"]).exits(0);
    refused(&["--run-id", "three", "--partitions", "0"], "STREAM_MIXED");
    for (partitions, code) in [("4", "PARTITION_UNKNOWN"), ("0,0", "PARTITIONS_INVALID")] {
        rig.stream("g", &["--partitions", partitions]).refuses(2, code);
    }
    let mut one = one;
    one.signal(Signal::TERM);
    let drained = one.wait(PATIENCE).exits(0).json();
    assert_eq!(drained["state"], "DRAINED");
    // Its leases are given back: the next is not kept waiting.
    rig.stream("g", &["--run-id", "two", "--partitions", "3,1", "--once-n", "5"]).exits(0);
}

#[test]
fn of_many_that_start_at_once_and_read_the_same_one_at_most_goes_on() {
    let Some(rig) = Rig::new(200) else { return };
    rig.fill("4");
    let mut all: Vec<Process> = (0..5)
        .map(|at| {
            let run = format!("run-{at}");
            let split = ["--partitions", "3,0"];
            let more = if at % 2 == 0 { &split[..] } else { &[] };
            rig.start("g", &[&["--run-id", run.as_str()], more].concat())
        })
        .collect();
    let running = until("all but one have ended", PATIENCE, || {
        let running: Vec<bool> = all.iter_mut().map(Process::is_running).collect();
        let runs = running.iter().filter(|runs| **runs).count();
        (runs <= 1).then_some(running)
    });
    for (process, runs) in all.into_iter().zip(running) {
        if !runs {
            process.wait(PATIENCE).refuses(1, "STREAM_OVERLAP");
        }
    }
}

#[test]
fn a_record_that_lies_elsewhere_or_under_another_key_is_omitted_and_changes_nothing() {
    let Some(rig) = Rig::new(400) else { return };
    let published = rig.fill("10");
    let all: u64 = published.values().sum();
    let event = |id: &str| {
        json!({"event_id": id, "instrument": "i00", "seq": 900, "close": 1.5,
               "event_time": 1_767_225_640_000_000_000_i64})
        .to_string()
    };
    // What belongs into one partition is written into each, and under the key of another instrument.
    rig.with_kafka(async |kafka| {
        let producer = kafka.producer().build().await.expect("a producer");
        for partition in 0..4 {
            let value = event(&format!("stray-{partition}"));
            let record = Record::new(&rig.topic, value).partition(partition).key("i01");
            assert!(producer.send(record).await.expect("written").is_persisted());
        }
        producer.close().await.expect("closed");
    });
    let all = (all + 4).to_string();
    let split = rig.stream("g", &["--partitions", "0,1,2,3", "--once-n", &all]).exits(0).json();
    assert_eq!(split["verdict"], "EQUAL_TO_BATCH_GOLDEN", "{split}");
    let listed = rig.stage.json(&["stream", "quarantine", "list"]);
    let rows = listed["quarantined"].as_array().expect("a list").iter();
    let strays: BTreeSet<&str> = rows
        .filter(|row| row["reason"] == "misplaced" && row["treatment"] == "omitted")
        .filter_map(|row| row["event_id"].as_str())
        .collect();
    assert_eq!(strays, BTreeSet::from(["stray-0", "stray-1", "stray-2", "stray-3"]), "{listed}");
    // Where nothing is split, they are events as others.
    let whole = rig.stream("whole", &["--once-n", &all]).exits(0).json();
    assert_eq!(whole["omitted"].as_u64().map(|n| n + 4), split["omitted"].as_u64(), "{whole}");
}

#[test]
fn the_partition_of_a_process_that_was_killed_is_gone_on_with_by_its_successor() {
    let Some(mut rig) = Rig::new(3000) else { return };
    rig.stage.set("FINAZ_LEASE_TTL_SEC", "5");
    let published = rig.fill("80");
    let all = published.values().sum::<u64>().to_string();
    let half: u64 = published.values().take(2).sum::<u64>() / 2;
    let stays = rig.start("g", &["--partitions", "2,3"]);
    // It stops in the middle of its partitions; what it read last it has not committed.
    let half = half.to_string();
    rig.stream("g", &["--partitions", "0,1", "--once-n", &half]).exits(0);
    let mut dies = rig.start("g", &["--partitions", "0,1"]);
    rig.until_live("g", &[0, 1, 2, 3]);
    dies.kill();
    rig.stream("g", &["--partitions", "1"]).refuses(1, "STREAM_LEASE_OCUPADO");
    let successor = until("the lease of the dead one to run out", PATIENCE, || {
        let args = rig.args("g", &["--partitions", "0,1"]);
        let mut next = rig.stage.start_with(&[("FINAZ_OWNER", "successor")], &args);
        let began = until("an end or a beginning", PATIENCE, || {
            let owned = rig.owners("g").get("successor") == Some(&2);
            if next.is_running() { owned.then_some(true) } else { Some(false) }
        });
        (began && next.is_running()).then_some(next)
    });
    until("all to be read", PATIENCE, || {
        let total = &rig.status("g")["total"];
        (total["read"].as_u64() == all.parse().ok()).then_some(())
    });
    for mut process in [stays, successor] {
        process.signal(Signal::TERM);
        let _ended = process.wait(PATIENCE).exits(0);
    }
    let split = rig.stream("g", &["--partitions", "0,1,2,3", "--once-n", &all]).exits(0).json();
    let whole = rig.stream("whole", &["--once-n", &all]).exits(0).json();
    rig.assert_equal(&whole, &split);
}

#[test]
fn processes_that_come_and_go_under_load_share_the_partitions_and_lose_and_repeat_nothing() {
    let Some(rig) = Rig::new(6000) else { return };
    // Ten minutes of data in half a minute.
    let load = rig.stage.start(&rig.replay_args("100", "x20"));
    until("the topic", PATIENCE, || {
        let mut one = rig.start("look", &["--run-id", "look", "--once-n", "1"]);
        until("an end", PATIENCE, || (!one.is_running()).then_some(()));
        (one.wait(PATIENCE).exit == Some(0)).then_some(())
    });
    let start =
        |name: &str| rig.stage.start_with(&[("FINAZ_OWNER", name)], &rig.args("g", &["--auto"]));
    let shares = |what: &str, expected: &[usize]| {
        until(what, PATIENCE, || {
            let mut shares: Vec<usize> = rig.owners("g").into_values().collect();
            shares.sort_unstable();
            (shares == expected).then_some(())
        });
    };
    let first = start("first");
    shares("one has all", &[4]);
    let (second, mut third) = (start("second"), start("third"));
    shares("three share", &[1, 1, 2]);
    third.signal(Signal::TERM);
    let gone = third.wait(PATIENCE).exits(0).json();
    assert_eq!(gone["state"], "DRAINED", "{gone}");
    shares("two share", &[2, 2]);
    let replayed = load.wait(PATIENCE).exits(0).json();
    rig.stage.finaz(&["stream", "mark", "END_OF_BOUNDED_SOURCE", "--topic", &rig.topic]).exits(0);
    // All have ended: so do the processes.
    for process in [first, second] {
        let ended = process.wait(PATIENCE).exits(0).json();
        assert_eq!(ended["state"], "ENDED", "{ended}");
    }
    let split = rig.stream("g", &["--partitions", "0,1,2,3"]).exits(0).json();
    let whole = rig.stream("whole", &[]).exits(0).json();
    assert_eq!(split["read"], replayed["published"]);
    assert_eq!(split["final"], split["consumed"]);
    rig.assert_equal(&whole, &split);
    // Every record has exactly one fate, in the journal of its partition.
    let total = &rig.status("g")["total"];
    assert_eq!((&total["read"], &total["live"]), (&split["read"], &json!(0)));
}
