//! `finaz stream` over a topic of four partitions with 1 % duplicates, a commit each second: records per second of the
//! processor, beside a bare loop that fetches the same records and looks at nothing.

use std::time::{Duration, Instant};

use krafka::Kafka;
use krafka::consumer::{AutoOffsetReset, IsolationLevel};
use uuid::Uuid;

use crate::cpu;
use crate::figures::{Samples, Table, float, per_second};
use crate::number;
use crate::replay::Place;
use crate::servers::Servers;
use crate::stage::document;

const FLOW: &str = "kind: Flow\nname: bench.stream\nclock: {allowed_lateness: 5s}\n\
    nodes:\n  - {id: ema, type: ema, period: 20, input: close}\nsink: {dataset: bench}\n";

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let events = number("BENCH_STREAM_ROWS", 1_000_000);
    let rounds = number("BENCH_ROUNDS", 3);
    let brokers = std::env::var("FINAZ_BROKERS").expect("FINAZ_BROKERS: use scripts/bench.sh");
    let database = servers.database("stream").await;
    let place = Place::new(servers, events, brokers);
    let flow = place.path("flow.yaml");
    std::fs::write(&flow, FLOW).expect("a new file");
    let migrate = ["db", "migrate"];
    document(place.command(&migrate).env("FINAZ_PG_URL", &database.url), &migrate);
    let topic = format!("finaz-bench-{}", Uuid::new_v4().simple());
    let (records, ..) = place.replay(&["--topic", &topic]);
    println!("stream: {records} records of {events} events, 1 % of them twice; {rounds} rounds");
    let (mut bare, mut whole, mut wall) =
        (Samples::default(), Samples::default(), Samples::default());
    for round in 0..rounds {
        let before = cpu::of(std::process::id());
        fetch(&place.brokers, &topic, records).await;
        bare.add(float(records) / (cpu::of(std::process::id()) - before));
        let run_id = format!("bench-{round}");
        let count = records.to_string();
        let args = [
            "stream", "--topic", &topic, "--group", "bench", "--flow", &flow, "--run-id", &run_id,
            "--once-n", &count,
        ];
        let (before, started) = (cpu::waited(), Instant::now());
        let report = document(place.command(&args).env("FINAZ_PG_URL", &database.url), &args);
        let seconds = started.elapsed().as_secs_f64();
        let used = cpu::waited() - before;
        assert_eq!(report["read"].as_u64(), u64::try_from(records).ok(), "{report}");
        assert_eq!(report["consumed"].as_u64(), u64::try_from(events).ok(), "{report}");
        println!(
            "  {round}: {seconds:.2} s, {used:.2} s of CPU, {} commits, {} bytes an identity",
            report["seq"],
            report["identity_bytes"].as_u64().unwrap_or(0)
                / report["identities"].as_u64().unwrap_or(1),
        );
        whole.add(float(records) / used);
        wall.add(float(records) / seconds);
    }
    table.add(
        "stream, records a second of the processor",
        format!("{}; {} by the wall", per_second(whole.median()), per_second(wall.median())),
        format!("a bare fetch loop {}", per_second(bare.median())),
        Some(whole.median() / bare.median()),
    );
    place.delete(&topic).await;
    servers.drop_database(&database.name).await;
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
