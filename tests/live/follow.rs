//! Following a topic: what a transaction, a cleaner, retention, an operator and a bad disk leave in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use finaz::broker::{Broker, Event, FollowLimits, Follower, Options, Tls, Topic};
use krafka::admin::{NewTopic, TopicPartition};
use krafka::{Compression, Kafka, Record};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use uuid::Uuid;

use crate::instance::{Instance, kill};
use crate::setting;

const SOON: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(5);

/// A topic on a broker, and both ways to it.
struct Place {
    runtime: Runtime,
    kafka: Kafka,
    broker: Broker,
    topic: Topic,
}

/// What was handed over: the values by offset, the offsets that could not be read, and how far it went.
#[derive(Debug, Default)]
struct Seen {
    values: BTreeMap<i64, String>,
    lost: Vec<i64>,
    mute: Vec<(i64, i64)>,
    next: i64,
    blocked: Option<(i64, i64)>,
    ahead: Option<(i64, i64)>,
}

impl Place {
    fn new(config: &[(&str, &str)]) -> Option<Self> {
        Some(Self::at(&setting("FINAZ_BROKERS")?, config))
    }

    fn at(brokers: &str, config: &[(&str, &str)]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let options = Options {
            brokers: brokers.to_owned(),
            tls: Tls::Off,
            login: None,
            ca: None,
            allow_plaintext: false,
            patience: PATIENCE,
        };
        let (kafka, broker, topic) = runtime.block_on(async {
            let kafka = Kafka::builder(brokers).connect().await.expect("a broker");
            let broker = Broker::connect(&options).await.expect("a broker");
            let name = format!("finaz-test-follow-{}", Uuid::new_v4().simple());
            make(&kafka, &name, config).await;
            let topic = found(&broker, &name).await;
            (kafka, broker, topic)
        });
        Self { runtime, kafka, broker, topic }
    }

    /// Writes values one after the other, each in a batch of its own.
    fn write(&self, values: &[&str]) {
        self.runtime.block_on(async {
            let producer = self.kafka.producer().build().await.expect("a producer");
            for value in values {
                let record = Record::new(&self.topic.name, value.to_string()).partition(0).key("k");
                assert!(producer.send(record).await.expect("written").is_persisted());
            }
            producer.close().await.expect("closed");
        });
    }

    /// Writes values in one batch.
    fn write_at_once(&self, values: &[&str], compression: Compression) {
        self.runtime.block_on(async {
            let producer = self.kafka.producer().compression(compression);
            let producer = producer.linger(SOON).build().await.expect("a producer");
            let mut sent = Vec::new();
            for value in values {
                let record = Record::new(&self.topic.name, value.to_string()).partition(0).key("k");
                sent.push(producer.enqueue(record).await.expect("taken"));
            }
            producer.flush().await.expect("written");
            producer.close().await.expect("closed");
        });
    }

    fn follow(&self, next: i64, limits: FollowLimits) -> Follower {
        let from = [(0, next)];
        let follower = self.broker.follow(&self.topic, &from, limits);
        self.runtime.block_on(follower).expect("a follower")
    }

    /// Follows until this holds.
    #[track_caller]
    fn until(&self, follower: &mut Follower, seen: &mut Seen, done: impl Fn(&Seen) -> bool) {
        let end = Instant::now() + SOON;
        while !done(seen) {
            assert!(Instant::now() < end, "too late: {seen:?} {:?}", follower.positions());
            match self.runtime.block_on(follower.next_batch(TURN)) {
                Ok(events) => seen.take(events),
                Err(error) => panic!("{error} after {seen:?}"),
            }
        }
        assert_eq!(follower.positions()[0].next, seen.next);
    }

    /// All that is stable.
    #[track_caller]
    fn read(&self, next: i64, limits: FollowLimits) -> Seen {
        let stable = self.edge().stable;
        let mut follower = self.follow(next, limits);
        let mut seen = Seen { next, ..Seen::default() };
        self.until(&mut follower, &mut seen, |seen| seen.next >= stable);
        assert_eq!((seen.next, seen.blocked, seen.ahead), (stable, None, None));
        self.runtime.block_on(follower.close());
        seen
    }

    fn edge(&self) -> finaz::broker::Edge {
        self.runtime.block_on(self.broker.edges(&self.topic, &[0])).expect("edges")[0]
    }

    fn value_at(&self, offset: i64) -> Option<String> {
        let got = self.runtime.block_on(self.broker.record_at(&self.topic, 0, offset));
        got.expect("an answer").map(|got| text(got.value()))
    }

    fn delete(&self) {
        let name = [self.topic.name.clone()];
        let admin = self.kafka.admin();
        let gone = admin.delete_topics(name, Default::default());
        let _gone = self.runtime.block_on(gone);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.delete();
    }
}

impl Seen {
    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Record { offset, got, .. } => {
                    assert!(offset >= self.next, "{offset} comes again: {self:?}");
                    self.next = offset + 1;
                    self.values.insert(offset, text(got.value()));
                }
                Event::Hole { next, .. } => {
                    assert!(next > self.next, "a hole of nothing at {next}");
                    self.next = next;
                }
                Event::Mute { from, next, .. } => {
                    assert_eq!(from, self.next);
                    self.next = next;
                    self.mute.push((from, next));
                }
                Event::Undecodable { offset, .. } => {
                    assert!(offset >= self.next, "{offset} is lost again: {self:?}");
                    self.next = offset + 1;
                    self.lost.push(offset);
                }
                Event::Blocked { needed, earliest, .. } => self.blocked = Some((needed, earliest)),
                Event::Ahead { needed, end, .. } => self.ahead = Some((needed, end)),
            }
        }
    }

    fn texts(&self) -> Vec<&str> {
        self.values.values().map(String::as_str).collect()
    }
}

fn text(value: Option<&[u8]>) -> String {
    String::from_utf8(value.expect("a value").to_vec()).expect("UTF-8")
}

async fn make(kafka: &Kafka, name: &str, config: &[(&str, &str)]) {
    let mut topic = NewTopic::new(name, 1, 1).expect("a name");
    for (key, value) in config {
        topic = topic.with_config(*key, *value);
    }
    let made = kafka.admin().create_topics([topic], Default::default()).await.expect("an answer");
    for (_, made) in made {
        made.expect("a new topic");
    }
}

async fn found(broker: &Broker, name: &str) -> Topic {
    let end = Instant::now() + SOON;
    loop {
        if let Some(topic) = broker.find_topic(name).await.expect("an answer") {
            return topic;
        }
        assert!(Instant::now() < end, "a topic that does not appear");
        tokio::task::yield_now().await;
    }
}

/// One batch a fetch, one event a hand-over: all that can lie apart does.
const NARROW: FollowLimits = FollowLimits { bytes: 1, events: 1 };

#[test]
fn aborted_records_and_markers_are_passed_by_and_an_open_transaction_is_waited_for() {
    let Some(place) = Place::new(&[]) else { return };
    place.write(&["before"]);
    let producer = place.runtime.block_on(async {
        let producer = place.kafka.producer().build_transactional(&place.topic.name).await;
        let producer = producer.expect("a transactional producer");
        for (round, commits) in [true, false, true, false, false].into_iter().enumerate() {
            producer.begin().expect("begun");
            for at in 0..3 {
                let value = format!("{round}.{at} {commits}");
                let record = Record::new(&place.topic.name, value).partition(0);
                assert!(producer.send(record).await.expect("written").is_persisted());
            }
            let ended = if commits { producer.commit().await } else { producer.abort().await };
            ended.expect("ended");
        }
        producer
    });
    place.write(&["after"]);
    let expected =
        ["before", "0.0 true", "0.1 true", "0.2 true", "2.0 true", "2.1 true", "2.2 true", "after"];
    for limits in [FollowLimits::default(), NARROW] {
        assert_eq!(place.read(0, limits).texts(), expected);
    }
    // From within an aborted transaction on.
    assert_eq!(place.read(6, NARROW).texts(), expected[4..]);
    let stable = place.edge().stable;
    place.runtime.block_on(async {
        producer.begin().expect("begun");
        let record = Record::new(&place.topic.name, "open").partition(0);
        assert!(producer.send(record).await.expect("written").is_persisted());
        producer.flush().await.expect("written");
    });
    place.write(&["behind it"]);
    let edge = place.edge();
    assert_eq!((edge.stable, edge.high_water), (stable, stable + 2));
    assert!(edge.waits_for_transaction(stable) && !edge.waits_for_transaction(stable - 1));
    let mut follower = place.follow(0, FollowLimits::default());
    let mut seen = Seen::default();
    place.until(&mut follower, &mut seen, |seen| seen.next == stable);
    for _ in 0..8 {
        let more = place.runtime.block_on(follower.next_batch(TURN)).expect("an answer");
        assert!(more.is_empty(), "stepped over an open transaction: {more:?}");
    }
    assert!(follower.positions()[0].waits_for_transaction);
    place.runtime.block_on(producer.commit()).expect("committed");
    place.until(&mut follower, &mut seen, |seen| seen.values.len() == 10);
    assert_eq!(seen.texts()[8..], ["open", "behind it"]);
    place.runtime.block_on(async {
        follower.close().await;
        producer.close().await.expect("closed");
    });
}

#[test]
fn null_headers_null_keys_and_tombstones_are_records_like_others() {
    let Some(place) = Place::new(&[]) else { return };
    place.runtime.block_on(async {
        let producer = place.kafka.producer().build().await.expect("a producer");
        let record = Record::new(&place.topic.name, "a").partition(0).null_header("n");
        let record = record.header("m", "1").header("m", "2").header("e", "");
        assert!(producer.send(record).await.expect("written").is_persisted());
        let record = Record::tombstone(&place.topic.name, "gone").partition(0);
        assert!(producer.send(record).await.expect("written").is_persisted());
        producer.close().await.expect("closed");
    });
    let mut follower = place.follow(0, FollowLimits::default());
    let mut records = Vec::new();
    let end = Instant::now() + SOON;
    while records.len() < 2 {
        assert!(Instant::now() < end, "too late: {records:?}");
        let events = place.runtime.block_on(follower.next_batch(TURN)).expect("events");
        for event in events {
            let Event::Record { got, .. } = event else { panic!("{event:?}") };
            records.push(got);
        }
    }
    assert_eq!((records[0].key(), records[0].value()), (None, Some(&b"a"[..])));
    assert_eq!((records[0].header("n"), records[0].header("none")), (None, None));
    assert_eq!((records[0].header("m"), records[0].header("e")), (Some(&b"1"[..]), Some(&b""[..])));
    assert_eq!((records[1].key(), records[1].value()), (Some(&b"gone"[..]), None));
    place.runtime.block_on(follower.close());
}

#[test]
fn every_compression_is_read_and_a_start_within_a_batch_gives_no_record_twice() {
    let Some(place) = Place::new(&[]) else { return };
    let kinds = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4];
    for kind in kinds {
        place.write_at_once(&["a", "b", "c", "d"], kind);
    }
    for start in 0..16 {
        let seen = place.read(start, FollowLimits::default());
        let offsets: Vec<i64> = seen.values.into_keys().collect();
        assert_eq!(offsets, (start..16).collect::<Vec<_>>());
        let one = place.value_at(start).expect("a record");
        assert_eq!(one, ["a", "b", "c", "d"][usize::try_from(start % 4).expect("small")]);
    }
    assert_eq!(place.value_at(16), None);
}

#[test]
fn topics_that_the_broker_compresses_by_each_kind_are_read() {
    for kind in ["gzip", "snappy", "lz4", "zstd"] {
        let Some(place) = Place::new(&[("compression.type", kind)]) else { return };
        let long = "x".repeat(10_000);
        place.write_at_once(&["a", &long, "c"], Compression::None);
        place.write(&["d"]);
        // What a producer compressed is compressed anew, of the broker's kind.
        place.write_at_once(&["e", "f"], Compression::Gzip);
        for start in 0..6 {
            let seen = place.read(start, FollowLimits::default());
            let expected = ["a", &long, "c", "d", "e", "f"];
            assert_eq!(seen.texts(), expected[usize::try_from(start).expect("small")..], "{kind}");
            assert_eq!((seen.lost.len(), seen.mute.len()), (0, 0), "{kind}");
        }
        assert_eq!(place.value_at(1).as_deref(), Some(&long[..]), "{kind}");
    }
}

#[test]
fn offsets_that_compaction_took_are_accounted_for() {
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("max.compaction.lag.ms", "1000"),
    ];
    let Some(place) = Place::new(&config) else { return };
    place.write_at_once(&["1", "2", "3"], Compression::None);
    place.write(&["4", "5", "6"]);
    let end = Instant::now() + SOON;
    // The cleaner leaves the last segment alone: each new record rolls the one before.
    let mut written = 6;
    while place.value_at(4).is_some() {
        assert!(Instant::now() < end, "nothing is cleaned");
        place.write(&["more"]);
        written += 1;
    }
    for limits in [FollowLimits::default(), NARROW] {
        let seen = place.read(0, limits);
        assert!(seen.mute.is_empty() && seen.lost.is_empty(), "{seen:?}");
        assert!(seen.values.len() < written && seen.texts().last() == Some(&"more"), "{seen:?}");
        assert!(!seen.values.contains_key(&0), "{seen:?}");
    }
}

#[test]
fn offsets_that_retention_took_block_and_are_never_jumped() {
    let Some(place) = Place::new(&[]) else { return };
    place.write(&["0", "1", "2", "3", "4"]);
    let before = [(TopicPartition::new(&place.topic.name, 0), 3)];
    let admin = place.kafka.admin();
    let deleted = admin.delete_records(before, Default::default());
    let deleted = place.runtime.block_on(deleted).expect("an answer");
    for (_, deleted) in deleted {
        deleted.expect("deleted");
    }
    assert_eq!(place.edge().earliest, 3);
    let mut follower = place.follow(1, FollowLimits::default());
    let mut seen = Seen { next: 1, ..Seen::default() };
    place.until(&mut follower, &mut seen, |seen| seen.blocked.is_some());
    assert_eq!(seen.blocked, Some((1, 3)));
    let more = place.runtime.block_on(follower.next_batch(TURN)).expect("an answer");
    assert!(more.is_empty() && seen.values.is_empty(), "it went on: {more:?}");
    assert!(follower.positions()[0].halted && follower.positions()[0].next == 1);
    place.runtime.block_on(follower.close());
    assert_eq!(place.value_at(1), None);
    assert_eq!(place.read(3, FollowLimits::default()).texts(), ["3", "4"]);
}

#[test]
fn an_offset_behind_the_end_is_said_and_not_waited_for() {
    let Some(place) = Place::new(&[]) else { return };
    place.write(&["0", "1"]);
    let mut follower = place.follow(7, FollowLimits::default());
    let mut seen = Seen { next: 7, ..Seen::default() };
    place.until(&mut follower, &mut seen, |seen| seen.ahead.is_some());
    assert_eq!(seen.ahead, Some((7, 2)));
    place.runtime.block_on(follower.close());
}

#[test]
fn a_topic_that_is_deleted_or_made_anew_while_it_is_followed_is_an_error() {
    for anew in [false, true] {
        let Some(place) = Place::new(&[]) else { return };
        place.write(&["0"]);
        let mut follower = place.follow(0, FollowLimits::default());
        let mut seen = Seen::default();
        place.until(&mut follower, &mut seen, |seen| seen.next == 1);
        place.delete();
        if anew {
            place.runtime.block_on(make(&place.kafka, &place.topic.name, &[]));
            place.write(&["another", "other"]);
        }
        let end = Instant::now() + SOON;
        let error = loop {
            assert!(Instant::now() < end, "nobody notices");
            match place.runtime.block_on(follower.next_batch(TURN)) {
                Ok(events) => assert!(events.is_empty(), "of another topic: {events:?}"),
                Err(error) => break error,
            }
        };
        // It may be seen between the two.
        let code = error.code();
        assert!(code == "TOPIC_UNKNOWN" || anew && code == "BROKER_REFUSED", "{error}");
        place.runtime.block_on(follower.close());
        let now = place.runtime.block_on(place.broker.find_topic(&place.topic.name));
        let now = now.expect("an answer");
        assert_eq!(now.is_some(), anew);
        assert!(now.is_none_or(|now| now.id != place.topic.id), "the same id");
    }
}

#[test]
fn a_partition_that_is_paused_keeps_what_it_holds_while_others_go_on() {
    let Some(place) = Place::new(&[]) else { return };
    place.write(&["0", "1", "2"]);
    let mut follower = place.follow(0, NARROW);
    let mut seen = Seen::default();
    place.until(&mut follower, &mut seen, |seen| seen.next == 1);
    follower.pause(0);
    let more = place.runtime.block_on(follower.next_batch(TURN)).expect("an answer");
    assert!(more.is_empty() && follower.positions()[0].paused, "{more:?}");
    follower.resume(0);
    place.until(&mut follower, &mut seen, |seen| seen.next == 3);
    assert_eq!(seen.texts(), ["0", "1", "2"]);
    place.runtime.block_on(follower.close());
}

#[test]
fn a_broker_that_is_frozen_for_forty_seconds_and_then_killed_is_followed_on() {
    let Some(instance) = Instance::new() else { return };
    instance.run("kafka-up");
    let place = Place::at(&instance.setting("FINAZ_BROKERS"), &[]);
    place.write(&["0"]);
    let mut follower = place.follow(0, FollowLimits::default());
    let mut seen = Seen::default();
    place.until(&mut follower, &mut seen, |seen| seen.next == 1);
    let pid =
        Pid::from_raw(i32::try_from(instance.pid("kafka")).expect("a number")).expect("a pid");
    kill_process(pid, Signal::STOP).expect("ours");
    let end = Instant::now() + Duration::from_secs(40);
    let mut away = 0;
    while Instant::now() < end {
        let begun = Instant::now();
        match place.runtime.block_on(follower.next_batch(TURN)) {
            Ok(events) => seen.take(events),
            Err(error) => {
                assert!(error.is_away() && error.to_string().contains(": "), "{error}");
                away += 1;
            }
        }
        assert!(begun.elapsed() < TURN * 10, "the caller was held up");
    }
    assert!(away > 0, "a broker that was gone for so long was not missed");
    kill_process(pid, Signal::CONT).expect("ours");
    place.write(&["1"]);
    let mut after = |place: &Place, next: i64| {
        let end = Instant::now() + SOON;
        while seen.next < next {
            assert!(Instant::now() < end, "not found again: {seen:?}");
            match place.runtime.block_on(follower.next_batch(TURN)) {
                Ok(events) => seen.take(events),
                Err(error) => assert!(error.is_away(), "{error}"),
            }
        }
    };
    after(&place, 2);
    kill(instance.pid("kafka"));
    instance.run("kafka-up");
    place.write(&["2"]);
    after(&place, 3);
    assert_eq!(seen.texts(), ["0", "1", "2"]);
    place.runtime.block_on(follower.close());
}

/// Where each batch of the topic lies in its file: first offset, from, to.
fn batches(file: &PathBuf) -> Vec<(i64, usize, usize)> {
    let bytes = fs::read(file).expect("the log");
    let mut batches = Vec::new();
    let mut at = 0;
    while at + 12 < bytes.len() {
        let base = i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let size = u32::from_be_bytes(bytes[at + 8..at + 12].try_into().expect("four"));
        let to = at + 12 + usize::try_from(size).expect("small");
        batches.push((base, at, to));
        at = to;
    }
    batches
}

/// A bit of the disk that turns in this batch: the third byte of its length, or in its last record.
fn rot(file: &PathBuf, first: i64, in_length: bool) {
    use std::os::unix::fs::FileExt as _;
    let all = batches(file);
    let (_, from, to) = *all.iter().find(|(base, ..)| *base == first).expect("a batch");
    let handle = fs::OpenOptions::new().read(true).write(true).open(file).expect("the log");
    let mut byte = [0];
    let at = u64::try_from(if in_length { from + 10 } else { to - 3 }).expect("small");
    handle.read_exact_at(&mut byte, at).expect("a byte");
    handle.write_all_at(&[byte[0] ^ 4], at).expect("written");
}

#[test]
fn a_batch_that_rotted_costs_its_own_offsets_and_a_topic_of_nothing_else_does_not_spin() {
    let Some(instance) = Instance::new() else { return };
    instance.run("kafka-up");
    let place = Place::at(&instance.setting("FINAZ_BROKERS"), &[]);
    place.write(&["0", "1"]);
    place.write_at_once(&["2", "3", "4"], Compression::None);
    place.write_at_once(&["5", "6"], Compression::Lz4);
    place.write(&["7"]);
    let file = instance.state().join("kafka/data").join(format!("{}-0", place.topic.name));
    let file = file.join("00000000000000000000.log");
    // The last one before the good one, so that what follows it is needed to know its end.
    for first in [1, 2, 5] {
        rot(&file, first, false);
    }
    for limits in [FollowLimits::default(), NARROW] {
        let seen = place.read(0, limits);
        assert_eq!((seen.texts(), &seen.lost[..]), (vec!["0", "7"], &[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(place.read(3, limits).lost, [3, 4, 5, 6]);
    }
    let refused = place.runtime.block_on(place.broker.record_at(&place.topic, 0, 3));
    assert_eq!(refused.expect_err("a rotten record").code(), "BROKER_REFUSED");
    rot(&file, 0, false);
    rot(&file, 7, false);
    let seen = place.read(0, NARROW);
    assert_eq!((seen.values.len(), seen.lost.len()), (0, 8));
    place.write(&["8", "9", "10"]);
    assert_eq!(place.read(0, FollowLimits::default()).texts(), ["8", "9", "10"]);
    // The broker itself cannot get over a length that turned: it gives nothing from there on.
    rot(&file, 9, true);
    let seen = place.read(0, FollowLimits::default());
    assert_eq!((seen.texts(), seen.lost.len(), &seen.mute[..]), (vec!["8"], 8, &[(9, 11)][..]));
}
