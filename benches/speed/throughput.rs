//! Control layer and full batch path beside graphile-worker, round by round on the same PostgreSQL.

use crate::control::Control;
use crate::figures::{Samples, Table, float, per_second};
use crate::full::Full;
use crate::graphile::Graphile;
use crate::number;
use crate::servers::Servers;

const JOBS: usize = 100_000;

pub(crate) async fn run(servers: &Servers, control: bool, full: bool, table: &mut Table) {
    let rounds = number("BENCH_ROUNDS", 3);
    let jobs = number("BENCH_JOBS", JOBS);
    println!("throughput: {rounds} rounds, each of graphile-worker and of ours");
    let graphile = Graphile::open(servers).await;
    let mut control = if control { Some(Control::open(servers).await) } else { None };
    let mut full = if full { Some(Full::open(servers).await) } else { None };
    let mut peer = Samples::default();
    for round in 0..rounds {
        if let Some(graphile) = &graphile {
            let seconds = graphile.seconds(i32::try_from(jobs).expect("a few jobs")).await;
            println!(
                "  {round}: graphile-worker: {jobs} in {seconds:.2} s, {}",
                crate::figures::rate(jobs, seconds)
            );
            peer.add(float(jobs) / seconds);
        }
        if let Some(control) = &mut control {
            control.round(servers, round).await;
        }
        if let Some(full) = &mut full {
            full.round(servers, round).await;
        }
    }
    let peer = Peer(peer);
    if let Some(control) = control {
        control.report(&peer, table);
        control.stage.close(servers).await;
    }
    if let Some(full) = full {
        full.report(&peer, table);
        full.stage.close(servers).await;
    }
    if let Some(graphile) = graphile {
        graphile.close(servers).await;
    }
}

/// Jobs a second of graphile-worker; empty where it is not installed.
#[derive(Debug)]
pub(crate) struct Peer(Samples);

impl Peer {
    /// Adds a line: ours against the peer's, medians.
    pub(crate) fn compare(&self, table: &mut Table, what: &str, ours: &Samples) {
        let spread = |rates: &Samples| {
            let (low, high) = (per_second(rates.least()), per_second(rates.most()));
            format!("{} [{low} to {high}]", per_second(rates.median()))
        };
        if self.0.is_empty() {
            table.alone(what, spread(ours));
        } else {
            let ratio = ours.median() / self.0.median();
            table.add(
                what,
                spread(ours),
                format!("graphile-worker {}", spread(&self.0)),
                Some(ratio),
            );
        }
    }
}
