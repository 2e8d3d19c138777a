//! What it costs to know ten million events: a commit of the same size beside one that knows ten thousand, and a start
//! after kill -9.
//!
//! Records come at a steady pace, ten thousand a second, so that commits are of one size; what a commit took, the stream
//! says itself (`--log-level debug`).

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::figures::{Samples, Table, float};
use crate::filled_topic::Log;
use crate::number;
use crate::servers::Servers;
use crate::stage::{Running, until};

const FEW: usize = 10_000;
const RUN: &str = "known";
/// A killed owner's lease runs out by then: that wait is not part of a start.
const TTL_SEC: &str = "3";

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let rounds = number("BENCH_ROUNDS", 3);
    let known = number("BENCH_KNOWN", 10_000_000);
    let fed = number("BENCH_FED", 100_000);
    println!(
        "known: {known} identities beside {FEW}, {fed} records at a steady pace; {rounds} rounds"
    );
    let many = Log::open(servers, "known", known).await;
    let took = many.stream(RUN);
    println!(
        "  {} identities of {} bytes after {:.1} s, {:.1} s of CPU, {} commits",
        took.report["identities"],
        took.report["identity_bytes"],
        took.wall,
        took.used,
        took.report["seq"]
    );
    let mut next = known;
    let (mut dear, mut cheap) = (Samples::default(), Samples::default());
    for round in 0..rounds {
        let few = Log::open(servers, "few", FEW).await;
        few.stream(RUN);
        let few_ms = paced(&few, FEW..FEW + fed);
        few.close(servers).await;
        let many_ms = paced(&many, next..next + fed);
        next += fed;
        println!("  {round}: {}", few_ms.milliseconds());
        println!("     {} with {known} known", many_ms.milliseconds());
        cheap.add(few_ms.median());
        dear.add(many_ms.median());
    }
    table.add(
        &format!("a commit of about 1,000 records, {known} known"),
        format!("{:.1} ms", dear.median()),
        format!("{FEW} known: {:.1} ms", cheap.median()),
        Some(dear.median() / cheap.median()),
    );
    let mut starts = Samples::default();
    let mut left = Samples::default();
    for round in 0..rounds {
        let Restart { seconds, identities, released, ended } = restart(&many, next).await;
        next += 2 * FEW;
        println!(
            "  {round}: {seconds:.2} s from exec to the first commit, {identities} identities"
        );
        println!(
            "     asked to go: its lease free in {released:.2} s, itself gone in {ended:.2} s"
        );
        starts.add(seconds);
        left.add(released);
    }
    table.alone(
        &format!("start after kill -9 with {known} known, to the first commit"),
        format!("{:.2} s [{:.2} to {:.2}]", starts.median(), starts.least(), starts.most()),
    );
    table.alone(
        &format!("after SIGTERM with {known} known, until the lease is given back"),
        format!("{:.2} s [{:.2} to {:.2}]", left.median(), left.least(), left.most()),
    );
    many.close(servers).await;
}

struct Restart {
    /// From exec to the first commit.
    seconds: f64,
    identities: i64,
    /// From SIGTERM until the lease is given back, and until the process has ended.
    released: f64,
    ended: f64,
}

/// Commits, in milliseconds, of a stream to which records come at a steady pace.
fn paced(log: &Log, events: std::ops::Range<usize>) -> Samples {
    let wanted = float(events.len());
    let mut feed = None;
    let mut stream = Daemon::start(log, &["--commit-every", "0.1"]);
    let mut took = Samples::default();
    let mut seen = 0.0;
    while seen < wanted {
        // What lies there from before comes first, at full pace.
        if feed.is_none() {
            feed = Some(log.place.feed(events.clone(), &log.topic));
        }
        let commit = stream.commit();
        seen += commit.records;
        if (200.0..5_000.0).contains(&commit.records) {
            took.add(commit.took_sec * 1e3);
        }
    }
    if let Some(mut feed) = feed {
        assert!(feed.0.wait().expect("an ended replay").success(), "the feed failed");
    }
    stream.end(Signal::TERM);
    assert!(!took.is_empty(), "no commit was of the size that was wanted");
    took
}

/// A stream whose owner was killed while it read is started again, and asked to go.
async fn restart(log: &Log, from: usize) -> Restart {
    let feed = |events| {
        let mut feed = log.place.feed(events, &log.topic);
        assert!(feed.0.wait().expect("an ended replay").success(), "the feed failed");
    };
    feed(from..from + FEW);
    let mut victim = Daemon::start(log, &["--commit-every", "0.1"]);
    victim.commit();
    victim.end(Signal::KILL);
    // The victim may have taken all: this waits for the successor.
    feed(from + FEW..from + 2 * FEW);
    let live = "SELECT count(*) FROM finaz.leases
        WHERE NOT closed AND name LIKE 'stream/%' AND expires_at > clock_timestamp()";
    let free = async || log.database.count(live, &[]).await == 0;
    until("the lease of the killed one runs out", Duration::from_millis(20), free).await;
    let started = Instant::now();
    let mut stream = Daemon::start(log, &["--commit-every", "0.01"]);
    stream.commit();
    let seconds = started.elapsed().as_secs_f64();
    let asked = Instant::now();
    stream.tell(Signal::TERM);
    until("the lease is given back", Duration::from_millis(2), free).await;
    let released = asked.elapsed().as_secs_f64();
    stream.process.0.wait().expect("an ended process");
    let ended = asked.elapsed().as_secs_f64();
    let known = "SELECT (report::json ->> 'identities')::bigint FROM finaz.streams";
    Restart { seconds, identities: log.database.count(known, &[]).await, released, ended }
}

struct Daemon {
    process: Running,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

/// As the stream says it.
struct Commit {
    records: f64,
    took_sec: f64,
}

impl Daemon {
    fn start(log: &Log, more: &[&str]) -> Self {
        let mut command =
            log.command(RUN, &[more, &["--log-level", "debug", "--log-format", "json"]].concat());
        command.env("FINAZ_LEASE_TTL_SEC", TTL_SEC).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Running(command.spawn().expect("finaz can be started"));
        let lines = BufReader::new(process.0.stderr.take().expect("a pipe")).lines();
        Self { process, lines }
    }

    /// The next one.
    fn commit(&mut self) -> Commit {
        loop {
            let line = self.lines.next().expect("a stream that lives").expect("text");
            let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            let fields = &said["fields"];
            if said["level"] != "DEBUG" && said["level"] != "INFO" {
                println!("     {line}");
            }
            if fields["message"] == "committed" {
                return Commit {
                    records: fields["records"].as_f64().expect("a count"),
                    took_sec: fields["took_sec"].as_f64().expect("a time"),
                };
            }
        }
    }

    fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.0), signal).expect("a living process");
    }

    fn end(mut self, signal: Signal) {
        self.tell(signal);
        self.process.0.wait().expect("an ended process");
    }
}
