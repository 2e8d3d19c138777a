//! `finaz stream` over a topic of four partitions with 1 % duplicates, a commit each second: records per second of the
//! processor, beside a bare loop that fetches the same records and looks at nothing.

use std::time::Duration;

use krafka::Kafka;
use krafka::consumer::{AutoOffsetReset, IsolationLevel};

use crate::cpu;
use crate::figures::{Samples, Table, float, per_second};
use crate::filled_topic::Log;
use crate::number;
use crate::servers::Servers;

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let rounds = number("BENCH_ROUNDS", 3);
    let log = Log::open(servers, "stream", number("BENCH_STREAM_ROWS", 1_000_000)).await;
    let (records, events) = (log.records, log.events);
    println!("stream: {records} records of {events} events, 1 % of them twice; {rounds} rounds");
    let (mut bare, mut whole, mut wall) =
        (Samples::default(), Samples::default(), Samples::default());
    for round in 0..rounds {
        let before = cpu::of(std::process::id());
        fetch(&log.place.brokers, &log.topic, records).await;
        bare.add(float(records) / (cpu::of(std::process::id()) - before));
        let took = log.stream(&format!("bench-{round}"));
        println!(
            "  {round}: {:.2} s, {:.2} s of CPU, {} commits, {} bytes an identity",
            took.wall,
            took.used,
            took.report["seq"],
            took.report["identity_bytes"].as_u64().unwrap_or(0)
                / took.report["identities"].as_u64().unwrap_or(1),
        );
        whole.add(float(records) / took.used);
        wall.add(float(records) / took.wall);
    }
    table.add(
        "stream, records a second of the processor",
        format!("{}; {} by the wall", per_second(whole.median()), per_second(wall.median())),
        format!("a bare fetch loop {}", per_second(bare.median())),
        Some(whole.median() / bare.median()),
    );
    log.close(servers).await;
}

/// Fetches all of a topic and looks at nothing.
async fn fetch(brokers: &str, topic: &str, records: usize) {
    let kafka = Kafka::builder(brokers).connect().await.expect("a broker: make up");
    let consumer = kafka
        .consumer_without_group()
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .enable_auto_commit(false)
        .max_poll_records(10_000)
        .build()
        .await
        .expect("a consumer");
    consumer.assign(topic, vec![0, 1, 2, 3]).await.expect("four partitions");
    let mut seen = 0;
    while seen < records {
        seen += consumer.poll(Duration::from_secs(5)).await.expect("records").len();
    }
    consumer.close().await.expect("an end in order");
}
