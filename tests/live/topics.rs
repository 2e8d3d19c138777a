//! A topic of a test's own, written to at will, and streams over it.

use std::fmt::Write as _;
use std::time::Duration;

use finaz::replay::partition;
use krafka::admin::{NewTopic, TopicPartition};
use krafka::{Kafka, Record};
use serde_json::Value;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::process::until;
use crate::setting;
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);
/// The event time of second 0, in nanoseconds.
pub(crate) const BASE: i64 = 1_767_225_600_000_000_000;

/// A topic on a broker; deleted with the value.
pub(crate) struct Log {
    pub(crate) runtime: Runtime,
    pub(crate) kafka: Kafka,
    pub(crate) brokers: String,
    pub(crate) topic: String,
    partitions: u32,
    config: Vec<(String, String)>,
}

impl Log {
    /// On the broker of `make up`. `None`, with a line, where there is none.
    #[track_caller]
    pub(crate) fn new(partitions: u32) -> Option<Self> {
        Some(Self::at(&setting("FINAZ_BROKERS")?, partitions))
    }

    /// The same with settings of the topic's own.
    #[track_caller]
    pub(crate) fn with(partitions: u32, config: &[(&str, &str)]) -> Option<Self> {
        Some(Self::configured(&setting("FINAZ_BROKERS")?, partitions, config))
    }

    #[track_caller]
    pub(crate) fn at(brokers: &str, partitions: u32) -> Self {
        Self::configured(brokers, partitions, &[])
    }

    #[track_caller]
    fn configured(brokers: &str, partitions: u32, config: &[(&str, &str)]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let kafka = runtime.block_on(Kafka::builder(brokers).connect()).expect("a broker");
        let topic = format!("finaz-test-stream-{}", Uuid::new_v4().simple());
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let config = config.collect();
        let log = Self { runtime, kafka, brokers: brokers.to_owned(), topic, partitions, config };
        log.make();
        log
    }

    /// Makes the topic, again if it was deleted.
    #[track_caller]
    pub(crate) fn make(&self) {
        self.make_with(self.partitions);
    }

    /// The same with another number of partitions.
    #[track_caller]
    pub(crate) fn make_with(&self, partitions: u32) {
        let count = i32::try_from(partitions).expect("a handful");
        until("the topic is made", SOON, || {
            let mut topic = NewTopic::new(&self.topic, count, 1).expect("a name");
            for (key, value) in &self.config {
                topic = topic.with_config(key, value);
            }
            let admin = self.kafka.admin();
            let made = admin.create_topics([topic], Default::default());
            // The broker may still be busy with deleting it.
            self.runtime
                .block_on(made)
                .ok()?
                .into_iter()
                .all(|(_, made)| made.is_ok())
                .then_some(())
        });
        until("the topic has its leaders", SOON, || {
            (0..partitions).all(|at| self.try_end(at).is_some()).then_some(())
        });
    }

    pub(crate) fn delete(&self) {
        let admin = self.kafka.admin();
        let gone = admin.delete_topics([self.topic.clone()], Default::default());
        let _gone = self.runtime.block_on(gone);
    }

    /// Where the partitioner puts an instrument.
    pub(crate) fn home(&self, instrument: &str) -> i32 {
        i32::try_from(partition(instrument.as_bytes(), self.partitions)).expect("a handful")
    }

    /// A record of an event, in the partition where it belongs.
    pub(crate) fn record(&self, id: &str, instrument: &str, second: i64) -> Record {
        self.valued(instrument, event(id, instrument, second))
    }

    /// A record of this instrument with this value.
    pub(crate) fn valued(&self, instrument: &str, value: impl Into<Vec<u8>>) -> Record {
        let home = self.home(instrument);
        Record::new(&self.topic, value.into()).partition(home).key(instrument.to_owned())
    }

    /// Writes records in this order, and waits until they are there.
    #[track_caller]
    pub(crate) fn write(&self, records: Vec<Record>) {
        self.runtime.block_on(async {
            let producer = self.kafka.producer().linger(Duration::from_millis(2));
            let producer = producer.build().await.expect("a producer");
            let mut sent = Vec::new();
            for record in records {
                sent.push(producer.enqueue(record).await.expect("taken"));
            }
            producer.flush().await.expect("written");
            producer.close().await.expect("closed");
        });
    }

    /// Deletes the records of a partition before this offset, as retention does.
    #[track_caller]
    pub(crate) fn delete_before(&self, partition: i32, offset: i64) {
        let before = [(TopicPartition::new(&self.topic, partition), offset)];
        let admin = self.kafka.admin();
        let deleted = admin.delete_records(before, Default::default());
        for (_, deleted) in self.runtime.block_on(deleted).expect("an answer") {
            deleted.expect("deleted");
        }
    }

    fn try_end(&self, partition: u32) -> Option<i64> {
        self.runtime.block_on(async {
            let consumer = self.kafka.consumer_without_group().build().await.ok()?;
            let partition = i32::try_from(partition).expect("a handful");
            Some(consumer.fetch_watermarks(&self.topic, partition).await.ok()?.1)
        })
    }

    /// `finaz stream` over this topic.
    pub(crate) fn stream<'a>(&'a self, flow: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let args = ["stream", "--topic", &self.topic, "--group", "g", "--flow", flow];
        [&args[..], more].concat()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.delete();
    }
}

/// An event in JSON; its close follows from its time.
pub(crate) fn event(id: &str, instrument: &str, second: i64) -> String {
    let close = (second * 7919) % 1000;
    closing(id, instrument, second, &format!("{close}.25"))
}

/// An event with this close, as it is written.
pub(crate) fn closing(id: &str, instrument: &str, second: i64, close: &str) -> String {
    let time = BASE + second * 1_000_000_000;
    format!(
        r#"{{"event_id":"{id}","instrument":"{instrument}","seq":{second},"event_time":{time},"close":{close}}}"#
    )
}

impl Stage {
    /// On the servers of `make up`, the broker of the log included, with results in the artifact store alone.
    #[track_caller]
    pub(crate) fn for_log(log: &Log) -> Option<Self> {
        let mut stage = Self::without_warehouse()?;
        stage.set("FINAZ_BROKERS", &log.brokers);
        Some(stage)
    }

    /// A flow over these instruments whose source is a topic, allowing events to be ten seconds late.
    pub(crate) fn live_flow(&self, name: &str, instruments: &[&str]) -> String {
        let mut text = format!("kind: Flow\nname: {name}\n");
        writeln!(text, "instruments: [{}]", instruments.join(", ")).expect("a string takes all");
        text.push_str(
            "clock: {allowed_lateness: 10s}\n\
             nodes:\n  - {id: n, type: ema, period: 3, input: close}\n\
             sink: {dataset: features}\n",
        );
        self.file(&format!("{name}.yaml"), text)
    }

    /// What `stream explain` says: place, treatment and reason of each record with this id.
    #[track_caller]
    pub(crate) fn explain(&self, run_id: &str, event_id: &str) -> Vec<(String, String, String)> {
        let explained = self.json(&["stream", "explain", event_id, "--run-id", run_id]);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let seen = explained["seen"].as_array().expect("a list").iter();
        let place = |seen: &Value| format!("{}:{}", seen["partition"], seen["offset"]);
        seen.map(|seen| (place(seen), text(&seen["treatment"]), text(&seen["reason"]))).collect()
    }

    /// The one stream of this run as `stream status` has it.
    #[track_caller]
    pub(crate) fn standing(&self, run_id: &str, exit: i32) -> Value {
        let status = self.finaz(&["stream", "status", "--run-id", run_id]).exits(exit);
        status.json()["streams"][0].take()
    }
}

/// What became of the records: consumed, filtered, duplicates, late, omitted.
pub(crate) fn counts(report: &Value) -> [u64; 5] {
    ["consumed", "filtered", "duplicates_skipped", "late", "omitted"]
        .map(|name| report[name].as_u64().unwrap_or_else(|| panic!("no {name}: {report}")))
}

/// All of a report that does not depend on how often and when it was interrupted.
pub(crate) fn lasting(report: &Value) -> Value {
    let names = [
        "read",
        "consumed",
        "filtered",
        "duplicates_skipped",
        "late",
        "omitted",
        "gaps",
        "conflicts",
        "ledger_ok",
        "next_offsets",
        "watermark",
        "waiting",
        "identities",
        "values",
        "values_hash",
        "rows",
        "final",
    ];
    names.iter().map(|name| ((*name).to_owned(), report[*name].clone())).collect()
}
