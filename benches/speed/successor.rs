//! How long a stream is nobody's when its owner is killed, and when it is asked to go: real processes, under a steady
//! flow of records.
//!
//! `--auto`: two processes share the four partitions, one is ended, the other has them all. Whole: a supervisor starts the
//! next one when the owner has ended, and again every 100 ms while it is turned away.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::figures::{Samples, Table};
use crate::filled_topic::Log;
use crate::number;
use crate::servers::Servers;
use crate::stage::{Running, until};

const TTL_SEC: f64 = 2.0;
const EVENTS: usize = 20_000;
/// Records a second of the feed.
const PACE: usize = 10_000;
/// How often we look.
const LOOK: Duration = Duration::from_millis(2);
const AGAIN: Duration = Duration::from_millis(100);

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let rounds = number("BENCH_ROUNDS", 3);
    println!("successor: TTL {TTL_SEC} s; {rounds} rounds");
    let log = Log::open(servers, "successor", EVENTS).await;
    let mut next = EVENTS;
    for auto in [true, false] {
        for signal in [Signal::KILL, Signal::TERM] {
            let (mut leases, mut commits) = (Samples::default(), Samples::default());
            for round in 0..rounds {
                let feed = log.place.feed(next..next + 20 * PACE, &log.topic);
                next += 20 * PACE;
                let run_id = format!("{auto}-{}-{round}", signal == Signal::KILL);
                let (lease, commit) = once(&log, &run_id, auto, signal).await;
                println!(
                    "  {run_id}: its lease after {lease:.2} s, its commit after {commit:.2} s"
                );
                leases.add(lease);
                commits.add(commit);
                drop(feed);
            }
            let ended = if signal == Signal::KILL { "SIGKILL" } else { "SIGTERM" };
            let who = if auto { "one of two of --auto" } else { "the owner, started anew" };
            let waits = if signal == Signal::KILL { TTL_SEC } else { 0.0 };
            table.alone(
                &format!("successor after {ended}, {who}"),
                format!(
                    "TTL {waits} + {:.2} s to the lease, + {:.2} s to its first commit [at most {:.2}, {:.2}]",
                    leases.median() - waits,
                    commits.median() - waits,
                    leases.most() - waits,
                    commits.most() - waits
                ),
            );
        }
    }
    log.close(servers).await;
}

/// Seconds from the signal until a successor has all leases of who was ended, and until it has committed under them.
async fn once(log: &Log, run_id: &str, auto: bool, signal: Signal) -> (f64, f64) {
    let database = &log.database;
    let like = format!("stream/{run_id}%");
    let of = "SELECT count(*) FROM finaz.leases AS l JOIN finaz.streams AS s USING (name)
        WHERE name LIKE $1 AND NOT l.closed AND l.owner LIKE $2 AND s.fence = l.fence";
    let streams = if auto { 4 } else { 1 };
    let mut first = start(log, run_id, "first", auto);
    until("the first has all", LOOK, async || {
        database.count(of, &[&like, &"first/%"]).await == streams
    })
    .await;
    let mut second = auto.then(|| start(log, run_id, "second", auto));
    until("they share", LOOK, async || {
        let (ours, theirs) = (&"first/%", &"second/%");
        !auto
            || database.count(of, &[&like, ours]).await == 2
                && database.count(of, &[&like, theirs]).await == 2
    })
    .await;
    let started = Instant::now();
    kill_process(Pid::from_child(&first.0), signal).expect("a living process");
    if !auto {
        first.0.wait().expect("an ended process");
    }
    let held =
        "SELECT count(*) FROM finaz.leases WHERE name LIKE $1 AND NOT closed AND owner LIKE $2";
    let mut lease = None;
    let mut asked = Instant::now();
    until("a successor commits", LOOK, async || {
        if !auto
            && second.as_mut().is_none_or(is_away)
            && (second.is_none() || asked.elapsed() > AGAIN)
        {
            second = Some(start(log, run_id, "second", auto));
            asked = Instant::now();
        }
        if lease.is_none() && database.count(held, &[&like, &"second/%"]).await == streams {
            lease = Some(started.elapsed().as_secs_f64());
        }
        lease.is_some() && database.count(of, &[&like, &"second/%"]).await == streams
    })
    .await;
    (lease.expect("it has committed"), started.elapsed().as_secs_f64())
}

fn is_away(process: &mut Running) -> bool {
    process.0.try_wait().expect("a child").is_some()
}

fn start(log: &Log, run_id: &str, owner: &str, auto: bool) -> Running {
    let mut args = vec!["--owner", owner, "--commit-every", "0.05", "--quiet"];
    if auto {
        args.push("--auto");
    }
    let mut command = log.command(run_id, &args);
    command
        .env("FINAZ_LEASE_TTL_SEC", TTL_SEC.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Running(command.spawn().expect("finaz can be started"))
}
