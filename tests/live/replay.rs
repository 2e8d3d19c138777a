//! Replays into a real broker: what lies in the topic, and what becomes of one that is cut short.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use krafka::Kafka;
use krafka::consumer::{AutoOffsetReset, ConsumerRecord};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::instance::Instance;
use crate::process::{Process, Run, until};
use crate::setting;

const PATIENCE: Duration = Duration::from_secs(120);
const SCHEDULE: &str = "fixtures/fixture.faults.01.yaml";

/// A folder, an artifact store and a topic of the test's own.
struct Place {
    folder: TempDir,
    brokers: String,
    topic: String,
    /// The broker serves others, and stays: the topics that the test has made go.
    shared: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.shared {
            self.delete_topics();
        }
    }
}

impl Place {
    #[track_caller]
    fn new() -> Option<Self> {
        let mut place = Self::at(&setting("FINAZ_BROKERS")?);
        place.shared = true;
        Some(place)
    }

    #[track_caller]
    fn at(brokers: &str) -> Self {
        let place = Self {
            folder: TempDir::new().expect("a temporary folder"),
            brokers: brokers.to_owned(),
            topic: format!("finaz-test-replay-{}", Uuid::new_v4().simple()),
            shared: false,
        };
        let file = repository("fixtures/fixture.snapshot.01.jsonl");
        place.finaz(&["snapshot", "import", &file, "--name", "fixture.snapshot.01"]).exits(0);
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_finaz"));
        command
            .env_clear()
            .env("FINAZ_ARTIFACTS", self.path("artifacts"))
            .env("FINAZ_BROKERS", &self.brokers)
            .env("FINAZ_JSON", "1")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .args(args);
        command
    }

    #[track_caller]
    fn start(&self, args: &[&str]) -> Process {
        Process::start(self.command(args), self.folder.path())
    }

    #[must_use = "check how it ended"]
    #[track_caller]
    fn finaz(&self, args: &[&str]) -> Run {
        self.start(args).wait(PATIENCE)
    }

    /// A replay of the fixture into the topic.
    #[must_use = "check how it ended"]
    #[track_caller]
    fn replay(&self, more: &[&str]) -> Run {
        let schedule = repository(SCHEDULE);
        let args = ["replay", "--faults", schedule.as_str(), "--topic", &self.topic];
        self.finaz(&[&args[..], more].concat())
    }

    /// A snapshot of `events` events, 10 a second, over 20 instruments.
    fn long(&self, events: u64) -> String {
        let mut text = String::new();
        for at in 0..events {
            let (instrument, seq) = (at % 20, at / 20);
            let time = 1_767_225_600_000_000_000 + at * 100_000_000;
            text.push_str(&format!(
                "{{\"event_id\":\"e{at}\",\"instrument\":\"i{instrument:02}\",\"seq\":{seq},\"event_time\":{time},\"close\":{at}.5}}\n"
            ));
        }
        let file = self.path("long.jsonl");
        fs::write(&file, text).expect("a written file");
        file
    }

    /// All records of the topic, by partition.
    fn records(&self) -> BTreeMap<i32, Vec<ConsumerRecord>> {
        let runtime = Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let kafka = Kafka::builder(&self.brokers).connect().await.expect("a broker");
            let consumer = kafka
                .consumer_without_group()
                .auto_offset_reset(AutoOffsetReset::Earliest)
                .build()
                .await
                .expect("a consumer");
            consumer.assign(&self.topic, vec![0, 1, 2, 3]).await.expect("four partitions");
            let mut left = 0;
            for partition in 0..4 {
                // A broker that was started again has no leaders for a moment.
                let end = Instant::now() + Duration::from_secs(30);
                let (low, high) = loop {
                    match consumer.fetch_watermarks(&self.topic, partition).await {
                        Ok(offsets) => break offsets,
                        Err(error) => assert!(Instant::now() < end, "offsets: {error}"),
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                };
                assert_eq!(low, 0);
                left += high;
            }
            let mut records: BTreeMap<i32, Vec<ConsumerRecord>> = BTreeMap::new();
            while left > 0 {
                for record in consumer.poll(Duration::from_secs(5)).await.expect("records") {
                    left -= 1;
                    records.entry(record.partition).or_default().push(record);
                }
            }
            records
        })
    }

    /// Those of the test: its own, and the one a slip of the pen was told to make.
    fn delete_topics(&self) {
        let Ok(runtime) = Runtime::new() else { return };
        runtime.block_on(async {
            let Ok(kafka) = Kafka::builder(&self.brokers).connect().await else { return };
            let names = [self.topic.clone(), self.slip()];
            // A topic that was never made cannot go.
            let _gone = kafka.admin().delete_topics(names, Default::default()).await;
        });
    }

    /// The name of the topic, with a slip of the pen.
    fn slip(&self) -> String {
        self.topic.replacen("replay", "repaly", 1)
    }

    fn topic_exists(&self, topic: &str) -> bool {
        let runtime = Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let kafka = Kafka::builder(&self.brokers).connect().await.expect("a broker");
            let names = kafka.admin().list_topics(Default::default()).await.expect("topics");
            names.iter().any(|name| name == topic)
        })
    }
}

fn repository(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

fn frozen() -> String {
    fs::read_to_string(repository("fixtures/fixture.log_hash")).expect("the hash").trim().to_owned()
}

fn arrival(record: &ConsumerRecord) -> u64 {
    record
        .header_str("finaz-arrival")
        .and_then(|text| text.parse().ok())
        .expect("an arrival number")
}

#[test]
fn the_fixture_lies_in_the_topic_as_its_log_says() {
    let Some(place) = Place::new() else { return };
    let out = place.path("log.jsonl");
    let replayed = place.replay(&["--out", &out]).exits(0).json();
    assert_eq!(replayed["published"], 23);
    assert_eq!((&replayed["republished"], &replayed["doubled"]), (&json!(0), &json!(0)));
    assert_eq!(replayed["partitions"], json!({"0": 6, "3": 17}));
    assert_eq!(replayed["log_hash"], frozen());
    assert_eq!(replayed["topic_created"], true);
    let log: Vec<Value> = fs::read_to_string(&out)
        .expect("the log")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let records = place.records();
    let counts: Vec<(i32, usize)> = records.iter().map(|(p, of)| (*p, of.len())).collect();
    assert_eq!(counts, [(0, 6), (3, 17)]);
    for record in records.values().flatten() {
        let line = &log[usize::try_from(arrival(record)).expect("small")];
        assert_eq!(
            record.key.as_deref().map(String::from_utf8_lossy),
            line["key"].as_str().map(Into::into)
        );
        let value = record.value.as_deref().map(|text| serde_json::from_slice(text).expect("JSON"));
        assert_eq!(value.unwrap_or(Value::Null), line["event"]);
        assert_eq!(record.header_str("finaz-replay"), replayed["replay_id"].as_str());
        let missing = record.value.is_none().then_some("fixture.event.1.1");
        assert_eq!(record.header_str("finaz-event"), missing);
        // The clock of the record is the wall's, not the fixture's of 2026-01-01.
        assert!(record.timestamp > 1_767_225_600_000 + 86_400_000, "{}", record.timestamp);
    }
    for partition in records.values() {
        let arrivals: Vec<u64> = partition.iter().map(arrival).collect();
        assert!(arrivals.is_sorted(), "{arrivals:?}");
    }
}

#[test]
fn thirteen_replays_make_the_topic_of_the_drill() {
    let Some(place) = Place::new() else { return };
    for _ in 0..13 {
        let replayed = place.replay(&[]).exits(0).json();
        assert_eq!((&replayed["published"], &replayed["republished"]), (&json!(23), &json!(0)));
    }
    let records = place.records();
    let counts: Vec<(i32, usize)> = records.iter().map(|(p, of)| (*p, of.len())).collect();
    assert_eq!(counts, [(0, 78), (3, 221)]);
    let headers = records.values().flatten().filter_map(|record| record.header_str("finaz-replay"));
    let ids: std::collections::BTreeSet<&str> = headers.collect();
    assert_eq!(ids.len(), 13);
}

#[test]
fn a_replay_that_was_killed_is_published_whole_by_the_next_and_leaves_no_gap() {
    let Some(place) = Place::new() else { return };
    let file = place.long(600);
    // A minute of data in three seconds.
    let args = ["replay", "--snapshot", &file, "--generate", "30", "--topic", &place.topic];
    let mut first = place.start(&[&args[..], &["--speed", "x20"]].concat());
    until("records of the first", PATIENCE, || {
        let there = place.topic_exists(&place.topic) && !place.records().is_empty();
        there.then_some(())
    });
    first.kill();
    let before: usize = place.records().values().map(Vec::len).sum();
    assert!(before > 0);
    let second = place.finaz(&args).exits(0).json();
    assert_eq!(second["republished"], before, "{second}");
    let arrivals = second["arrivals"].as_u64().expect("a count");
    assert_eq!(second["published"], arrivals);
    assert!((before as u64) < arrivals, "it was killed in the middle");
    let mut whole: Vec<u64> = place
        .records()
        .values()
        .flatten()
        .filter(|record| record.header_str("finaz-replay") == second["replay_id"].as_str())
        .map(arrival)
        .collect();
    whole.sort_unstable();
    assert_eq!(whole, (0..arrivals).collect::<Vec<_>>());
    // The third has nothing to make good.
    assert_eq!(place.finaz(&args).exits(0).json()["republished"], 0);
}

#[test]
fn a_replay_told_to_end_ends_143_and_the_next_says_what_it_left() {
    let Some(place) = Place::new() else { return };
    let file = place.long(600);
    let args = ["replay", "--snapshot", &file, "--generate", "30", "--topic", &place.topic];
    let metrics = place.path("replay.prom");
    let slowly = ["--speed", "realtime", "--metrics-file", &metrics];
    let mut first = place.start(&[&args[..], &slowly].concat());
    until("records of the first", PATIENCE, || {
        let there = place.topic_exists(&place.topic) && !place.records().is_empty();
        there.then_some(())
    });
    first.signal(Signal::TERM);
    first.wait(PATIENCE).refuses(143, "INTERRUPTED");
    let noted = fs::read_to_string(&metrics).expect("metrics of a failure");
    assert!(noted.contains("\nfinaz_replay_success 0\n"), "{noted}");
    let before: usize = place.records().values().map(Vec::len).sum();
    assert_eq!(place.finaz(&args).exits(0).json()["republished"], before);
}

#[test]
fn many_arrivals_come_back_as_they_were_written() {
    let Some(place) = Place::new() else { return };
    // More than is held of a partition while another is waited for.
    let file = place.long(150_000);
    let args = [
        "replay",
        "--snapshot",
        &file,
        "--generate",
        "200",
        "--seed",
        "7",
        "--topic",
        &place.topic,
    ];
    let replayed = place.finaz(&args).exits(0).json();
    assert_eq!(replayed["faults_applied"], 200);
    assert_eq!(replayed["published"], replayed["arrivals"]);
    let counted = replayed["partitions"].as_object().expect("an object").values();
    let counted: u64 = counted.map(|count| count.as_u64().expect("a count")).sum();
    assert_eq!(json!(counted), replayed["arrivals"]);
    let dry = place.finaz(&[&args[..], &["--dry-run"]].concat()).exits(0).json();
    assert_eq!(dry["log_hash"], replayed["log_hash"]);
    assert_eq!(dry["partitions"], replayed["partitions"]);
}

#[test]
fn a_long_event_goes_alone_and_one_beyond_the_topics_limit_is_named_as_that() {
    let Some(place) = Place::new() else { return };
    let events = |longest: usize| {
        let line = |at: usize| {
            let note = "x".repeat(if at == 300 { longest } else { 700 });
            format!(
                "{{\"event_id\":\"e{at}\",\"instrument\":\"i\",\"seq\":{at},\"event_time\":{at},\"close\":1.5,\"note\":\"{note}\"}}\n"
            )
        };
        let name = format!("long-{longest}");
        let file = place.path(&format!("{name}.jsonl"));
        fs::write(&file, (0..400).map(line).collect::<String>()).expect("a written file");
        let args = ["snapshot", "import", &file, "--name", &name, "--field", "note"];
        place.finaz(&args).exits(0);
        name
    };
    let none = place.path("none.json");
    fs::write(&none, r#"{"kind":"FaultSchedule","faults":[]}"#).expect("a written file");
    let replay = |name: &str| {
        place.finaz(&["replay", "--snapshot", name, "--faults", &none, "--topic", &place.topic])
    };
    // Below 1 MiB, but not on top of what was gathered before it.
    assert_eq!(replay(&events(1_000_000)).exits(0).json()["published"], 400);
    replay(&events(1_100_000)).refuses(1, "BROKER_RECORD_TOO_LARGE");
}

#[test]
fn a_slip_of_the_pen_makes_no_topic() {
    let Some(place) = Place::new() else { return };
    place.replay(&[]).exits(0);
    let slip = place.slip();
    let args = ["replay", "--faults", "fixture.faults.01", "--topic", &slip];
    let error = place.finaz(&args).refuses(2, "TOPIC_UNKNOWN");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains(&place.topic)), "{error}");
    assert!(!place.topic_exists(&slip));
    place.finaz(&[&args[..], &["--create-topic"]].concat()).exits(0);
    assert!(place.topic_exists(&slip));
}

#[test]
fn tls_and_logins_work_and_each_mistake_is_told_apart() {
    let Some(instance) = Instance::new() else { return };
    instance.run("kafka-up");
    let plain = instance.setting("FINAZ_BROKERS");
    let tls = instance.script("env").arg("tls").output().expect("the settings over TLS");
    let tls = String::from_utf8(tls.stdout).expect("text");
    let tls = tls.lines().find_map(|line| line.strip_prefix("FINAZ_BROKERS=")).expect("brokers");
    let place = Place::at(tls);
    let ca = instance.state().join("certs/ca.crt").display().to_string();
    let password = instance.state().join("password").display().to_string();
    let wrong = place.path("wrong");
    fs::write(&wrong, "wrong\n").expect("a written file");
    let login = |password: &str, more: &[&str]| {
        let login = ["--broker-user", "finaz", "--broker-password-file", password];
        place.replay(&[&login[..], more].concat())
    };
    for mechanism in ["plain", "scram-sha-256", "scram-sha-512"] {
        let mechanism = ["--tls-ca", &ca, "--broker-sasl", mechanism];
        let replayed = login(&password, &mechanism).exits(0).json();
        assert_eq!((&replayed["published"], &replayed["log_hash"]), (&json!(23), &json!(frozen())));
        let error = login(&wrong, &mechanism).refuses(2, "BROKER_LOGIN");
        assert!(!error.to_string().contains("wrong\\n"), "{error}");
    }
    login(&password, &[]).refuses(2, "BROKER_UNTRUSTED");
    place.replay(&[]).refuses(2, "BROKER_SPEAKS_TLS");
    place.replay(&["--broker-tls", "on", "--tls-ca", &ca]).refuses(2, "BROKER_WANTS_LOGIN");
    let place = Place::at(&plain);
    place.replay(&["--broker-tls", "on", "--tls-ca", &ca]).refuses(2, "BROKER_SPEAKS_PLAINTEXT");
    let host = plain.replace("127.0.0.1", "localhost");
    assert_ne!(host, plain);
    assert_eq!(Place::at(&host).replay(&[]).exits(0).json()["published"], 23);
}

#[test]
fn a_broker_that_froze_is_waited_for_and_what_it_has_twice_is_counted() {
    let Some(instance) = Instance::new() else { return };
    instance.run("kafka-up");
    let place = Place::at(&instance.setting("FINAZ_BROKERS"));
    let file = place.long(300);
    // 30 seconds of data in fifteen, and no revision minutes later.
    let faults = place.path("faults.json");
    let schedule = r#"{"kind":"FaultSchedule","faults":[{"type":"DUPLICATE","event_id":"e20"}]}"#;
    fs::write(&faults, schedule).expect("a written file");
    let args = ["replay", "--snapshot", &file, "--faults", &faults, "--topic", &place.topic];
    let args = [&args[..], &["--speed", "x2", "--service-timeout-sec", "30"]].concat();
    let process = place.start(&args);
    until("records", PATIENCE, || {
        let there = place.topic_exists(&place.topic) && !place.records().is_empty();
        there.then_some(())
    });
    let pid =
        Pid::from_raw(i32::try_from(instance.pid("kafka")).expect("a number")).expect("a pid");
    kill_process(pid, Signal::STOP).expect("ours");
    // Longer than a call may take, so that a batch is sent again while the first still lies in the broker's socket.
    until("a batch is sent again", PATIENCE, || {
        process.said().contains("a batch is sent again").then_some(())
    });
    kill_process(pid, Signal::CONT).expect("ours");
    let replayed = process.wait(PATIENCE).exits(0).json();
    let there: usize = place.records().values().map(Vec::len).sum();
    let published = replayed["published"].as_u64().expect("a count");
    assert_eq!(json!(published), replayed["arrivals"]);
    assert_eq!(replayed["doubled"], there as u64 - published, "{replayed}");
}
