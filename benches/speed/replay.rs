//! `finaz replay`: arrivals generated and hashed a second (`--dry-run`), and published a second without the
//! reading back, into a topic of four partitions that goes afterwards.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use krafka::Kafka;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use crate::cpu;
use crate::figures::{Samples, Table, float, per_second, rate};
use crate::nodes::walk;
use crate::number;
use crate::servers::Servers;
use crate::stage::{Running, document, finaz, folder};

const INSTRUMENTS: usize = 20;
const FIRST_NS: usize = 1_767_225_600_000_000_000;
/// One event in so many arrives twice.
const DUPLICATE: usize = 100;
/// A schedule holds no more.
const FAULTS_MAX: usize = 100_000;

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let events = number("BENCH_ROWS", 1_000_000);
    let brokers = std::env::var("FINAZ_BROKERS").expect("FINAZ_BROKERS: use scripts/bench.sh");
    println!("replay: {events} events of {INSTRUMENTS} instruments, 1 % of them twice");
    let place = Place::new(servers, events, brokers);
    let (mut hashed, mut hashed_core) = (Samples::default(), Samples::default());
    let (mut published, mut published_core) = (Samples::default(), Samples::default());
    for _ in 0..number("BENCH_ROUNDS", 3) {
        let (arrivals, wall, core, _) = place.replay(&["--dry-run"]);
        hashed.add(float(arrivals) / wall);
        hashed_core.add(float(arrivals) / core);
        let topic = format!("finaz-bench-{}", Uuid::new_v4().simple());
        let (arrivals, _, core, report) = place.replay(&["--topic", &topic]);
        place.delete(&topic).await;
        let seconds = report["publish_seconds"].as_f64().expect("seconds");
        println!("  {} arrivals, published {}", arrivals, rate(arrivals, seconds));
        published.add(float(arrivals) / seconds);
        published_core.add(float(arrivals) / core);
    }
    let figure = |wall: &Samples, core: &Samples, what: &str| {
        format!("{}, {} a core{what}", per_second(wall.median()), per_second(core.median()))
    };
    table.alone("replay, generated and hashed, arrivals", figure(&hashed, &hashed_core, ""));
    let all = " with hashing and reading back";
    table.alone("replay, published, arrivals", figure(&published, &published_core, all));
}

/// A folder with a snapshot and a schedule, and the broker.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) brokers: String,
}

impl Place {
    pub(crate) fn new(servers: &Servers, events: usize, brokers: String) -> Self {
        let place = Self { folder: folder(servers), brokers };
        let (file, faults) = (place.path("events.jsonl"), place.path("faults.json"));
        write_schedule(Path::new(&faults), events);
        write_events(Path::new(&file), 0..events);
        place.import(&file, "bench");
        place
    }

    fn import(&self, file: &str, name: &str) {
        let args = ["snapshot", "import", file, "--name", name];
        document(&mut self.command(&args), &args);
        fs::remove_file(file).expect("our file");
    }

    /// The events of these numbers, which follow those that came before, published at ten times the pace of their own
    /// time: 10,000 a second.
    pub(crate) fn feed(&self, events: Range<usize>, topic: &str) -> Running {
        let (file, faults) = (self.path("feed.jsonl"), self.path("no-faults.json"));
        let name = format!("feed-{}", events.start);
        fs::write(&faults, r#"{"kind":"FaultSchedule","faults":[]}"#).expect("a new file");
        write_events(Path::new(&file), events);
        self.import(&file, &name);
        let args = [
            "replay",
            "--snapshot",
            &name,
            "--faults",
            &faults,
            "--topic",
            topic,
            "--speed",
            "x10",
        ];
        let mut command = self.command(&args);
        Running(command.stdout(Stdio::null()).spawn().expect("finaz can be started"))
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = finaz(args);
        command.env("FINAZ_ARTIFACTS", self.path("artifacts")).env("FINAZ_BROKERS", &self.brokers);
        command
    }

    /// Arrivals, seconds by the wall and of the processor, and the report.
    pub(crate) fn replay(&self, more: &[&str]) -> (usize, f64, f64, Value) {
        let faults = self.path("faults.json");
        let args = [&["replay", "--snapshot", "bench", "--faults", &faults][..], more].concat();
        let before = cpu::waited();
        let started = Instant::now();
        let report = document(&mut self.command(&args), &args);
        let wall = started.elapsed().as_secs_f64();
        let arrivals = report["arrivals"].as_u64().and_then(|count| usize::try_from(count).ok());
        (arrivals.expect("a count"), wall, cpu::waited() - before, report)
    }

    pub(crate) async fn delete(&self, topic: &str) {
        let kafka = Kafka::builder(&self.brokers).connect().await.expect("a broker: make up");
        let gone = kafka.admin().delete_topics([topic], Default::default()).await;
        gone.expect("a deleted topic");
    }
}

/// Events of about 120 bytes, one a millisecond.
fn write_events(file: &Path, events: Range<usize>) {
    let prices = walk(events.len());
    let mut out = BufWriter::new(File::create(file).expect("a new file"));
    for (at, price) in events.zip(prices) {
        let (instrument, seq, time) =
            (at % INSTRUMENTS, at / INSTRUMENTS, FIRST_NS + at * 1_000_000);
        writeln!(
            out,
            r#"{{"close":{price:.4},"event_id":"bench.event.{at:08}","event_time":{time},"instrument":"bench.{instrument:02}","seq":{seq}}}"#
        )
        .expect("room");
    }
    out.flush().expect("room");
}

fn write_schedule(file: &Path, events: usize) {
    let mut text = r#"{"kind":"FaultSchedule","faults":["#.to_owned();
    let step = DUPLICATE.max(events.div_ceil(FAULTS_MAX));
    for (count, at) in (0..events).step_by(step).enumerate() {
        let comma = if count > 0 { "," } else { "" };
        write!(text, r#"{comma}{{"type":"DUPLICATE","event_id":"bench.event.{at:08}"}}"#)
            .expect("a String takes all");
    }
    text.push_str("]}");
    fs::write(file, text).expect("a new file");
}
