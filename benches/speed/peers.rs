//! The job of `finaz stream` in Kafka Streams and in bytewax (`scripts/bench/`), over the same topic: records a second of
//! the processor. Of ours the whole process counts, of a peer what it needs from its first record on. Beside that stands
//! the part at which the JVM has compiled all, and that in which bytewax knows nearly all identities that it will.
//! `BENCH_PEERS` is a part of a peer's name: only these.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use krafka::Kafka;
use uuid::Uuid;

use crate::cpu;
use crate::figures::{Samples, Table, float, per_second};
use crate::filled_topic::Log;
use crate::number;
use crate::servers::Servers;
use crate::stage::{Running, folder, project};

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let rounds = number("BENCH_PEER_ROUNDS", 1);
    let log = Log::open(servers, "peers", number("BENCH_STREAM_ROWS", 1_000_000)).await;
    let wanted = number("BENCH_PEER_ROWS", 500_000).min(log.records);
    println!("peers: {} records, of which {wanted} for each peer; {rounds} rounds", log.records);
    let only = std::env::var("BENCH_PEERS").unwrap_or_default();
    let asked = Peer::all().into_iter().filter(|peer| peer.what().contains(&only));
    let mut ours = Samples::default();
    let mut peers: Vec<_> =
        asked.map(|peer| (peer, Samples::default(), Samples::default())).collect();
    for round in 0..rounds {
        for (at, (peer, whole, part)) in peers.iter_mut().enumerate() {
            // Beside each of them: the machine may be another a minute later.
            let took = log.stream(&format!("peers-{round}-{at}"));
            ours.add(float(log.records) / took.used);
            println!("  {round}: finaz {:.2} s of CPU for {} records", took.used, log.records);
            if let Some(rates) = peer.measure(servers, &log, wanted).await {
                whole.add(rates.whole);
                part.add(rates.part);
            }
        }
    }
    for (peer, whole, part) in peers.iter().filter(|(_, whole, _)| !whole.is_empty()) {
        for (which, rates) in [("", whole), (peer.part(), part)] {
            table.add(
                "stream, records a second of the processor",
                per_second(ours.median()),
                format!("{}{which}: {}", peer.what(), per_second(rates.median())),
                Some(ours.median() / rates.median()),
            );
        }
    }
    log.close(servers).await;
}

/// Records a second of a peer's processor: from its first record on, and in a part of them.
struct Rates {
    whole: f64,
    part: f64,
}

/// Who else does the job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Peer {
    /// One thread, at least once, RocksDB with changelog, a commit each second.
    KafkaStreams,
    /// One worker.
    Bytewax { batch: bool, recovery: bool },
}

impl Peer {
    fn all() -> [Self; 5] {
        let bytewax = |batch, recovery| Self::Bytewax { batch, recovery };
        [
            Self::KafkaStreams,
            bytewax(false, false),
            bytewax(false, true),
            bytewax(true, false),
            bytewax(true, true),
        ]
    }

    fn what(self) -> &'static str {
        match self {
            Self::KafkaStreams => "Kafka Streams",
            Self::Bytewax { batch: false, recovery: false } => "bytewax, no recovery",
            Self::Bytewax { batch: false, recovery: true } => "bytewax, recovery each second",
            Self::Bytewax { batch: true, recovery: false } => "bytewax by batches, no recovery",
            Self::Bytewax { batch: true, recovery: true } => {
                "bytewax by batches, recovery each second"
            }
        }
    }

    fn part(self) -> &'static str {
        match self {
            Self::KafkaStreams => ", behind its first fifth",
            Self::Bytewax { .. } => ", its last tenth",
        }
    }

    /// `None` where it is not installed, which `scripts/bench.sh` has said.
    async fn measure(self, servers: &Servers, log: &Log, wanted: usize) -> Option<Rates> {
        let folder = folder(servers);
        let state = folder.path().to_str().expect("a UTF-8 path");
        let application = format!("finaz-bench-{}", Uuid::new_v4().simple());
        let mut command = match self {
            Self::KafkaStreams => kafka_streams(log, wanted, state, &application)?,
            Self::Bytewax { batch, recovery } => {
                bytewax(log, wanted, batch, recovery.then_some(state))?
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Running(command.spawn().expect("a peer can be started"));
        let lines = BufReader::new(process.0.stdout.take().expect("a pipe")).lines();
        let pid = process.0.id();
        let (mut first, mut then) = (0.0, 0.0);
        let mut rates = None;
        let started = Instant::now();
        for line in lines {
            let line = line.expect("text");
            let used = cpu::of(pid);
            match line.split(' ').next() {
                Some("first") => first = used,
                Some("warm" | "late") => then = used,
                Some("done") => {
                    let part = match self {
                        Self::KafkaStreams => wanted - wanted / 5,
                        Self::Bytewax { .. } => wanted / 10,
                    };
                    let (whole, part) =
                        (float(wanted) / (used - first), float(part) / (used - then));
                    rates = Some(Rates { whole, part });
                    println!(
                        "     {}: {line} after {:.1} s; CPU {first:.2} s before the first, {used:.2} s in all",
                        self.what(),
                        started.elapsed().as_secs_f64()
                    );
                    break;
                }
                Some(_) | None => {}
            }
        }
        process.kill();
        if self == Self::KafkaStreams {
            let changelogs =
                ["seen", "averages"].map(|store| format!("{application}-{store}-changelog"));
            let kafka =
                Kafka::builder(&log.place.brokers).connect().await.expect("a broker: make up");
            // One that failed at once has made none.
            let _deleted = kafka
                .admin()
                .delete_topics(changelogs.iter().map(String::as_str), Default::default())
                .await;
        }
        Some(rates.unwrap_or_else(|| panic!("{} ended early", self.what())))
    }
}

fn kafka_streams(log: &Log, wanted: usize, state: &str, application: &str) -> Option<Command> {
    let jars = std::env::var("BENCH_KAFKA_STREAMS").ok()?;
    let mut command = Command::new("java");
    command
        .args(["-cp", &format!("{jars}/*")])
        .arg(project("scripts/bench/kafka-streams/Job.java"))
        .args([&log.place.brokers, &log.topic, &wanted.to_string(), state, application]);
    Some(command)
}

fn bytewax(log: &Log, wanted: usize, batch: bool, recovery: Option<&str>) -> Option<Command> {
    let python = std::env::var_os("BENCH_BYTEWAX")?;
    if let Some(folder) = recovery {
        let made = Command::new(&python).args(["-m", "bytewax.recovery", folder, "1"]).status();
        assert!(made.expect("python can be started").success(), "bytewax lays out its recovery");
    }
    let mut command = Command::new(python);
    command
        .args(["-m", "bytewax.run", "bytewax_job:flow", "-w", "1"])
        .args(recovery.iter().flat_map(|folder| ["-r", folder, "-s", "1", "-b", "0"]))
        .current_dir(project("scripts/bench"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BROKERS", &log.place.brokers)
        .env("TOPIC", &log.topic)
        .env("RECORDS", wanted.to_string())
        .env("OPERATOR", if batch { "batch" } else { "map" });
    Some(command)
}
