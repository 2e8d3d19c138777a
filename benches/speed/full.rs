//! The full batch path: a real `finaz worker --drain` over runs of the fixture's size, each with a key, a snapshot and a
//! result of its own.

use std::fs;
use std::time::{Duration, Instant};

use finaz::ids::Hash;

use crate::figures::{Samples, Table, float, rate};
use crate::number;
use crate::servers::Servers;
use crate::stage::{Stage, project};
use crate::throughput::Peer;

const TTL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Full {
    pub(crate) stage: Stage,
    flow: Hash,
    runs: usize,
    rates: Samples,
    /// The same with the process's start and end.
    wall: Samples,
}

impl Full {
    pub(crate) async fn open(servers: &Servers) -> Self {
        let stage = Stage::open(servers, "full").await;
        let manifest = project("manifests/fixture.01_A_feature.yaml");
        let flow = stage.flow(&fs::read_to_string(manifest).expect("the fixture's flow"));
        let runs = number("BENCH_RUNS", 40_000);
        Self { stage, flow, runs, rates: Samples::default(), wall: Samples::default() }
    }

    pub(crate) async fn round(&mut self, servers: &Servers, round: usize) {
        let store = self.stage.store(TTL);
        self.stage.admit(&store, self.flow, round * self.runs..(round + 1) * self.runs).await;
        self.stage.database.settle().await;
        let (used, log) = (servers.used(), self.stage.database.log().await);
        let started = Instant::now();
        // As it comes, unless another batch is to be tried.
        let batch = number("BENCH_BATCH", 0).to_string();
        let flag = ["worker", "--drain", "--batch", &batch];
        let report = self.stage.finaz(if batch == "0" { &flag[..2] } else { &flag });
        let wall = started.elapsed().as_secs_f64();
        let used = servers.used().since(used);
        let (bytes, _) = self.stage.database.log().await.since(log);
        let seconds = report["seconds"].as_f64().expect("seconds");
        assert_eq!(report["succeeded"].as_u64(), u64::try_from(self.runs).ok(), "{report}");
        self.check().await;
        let each = |seconds: f64| seconds * 1e6 / float(self.runs);
        println!(
            "  {round}: full path: {} in {seconds:.2} s, {} ({wall:.2} s with start and end); CPU a run: PostgreSQL {:.0} us, \
             ClickHouse {:.0}, finaz {:.0}; {:.0} bytes of log a run",
            self.runs,
            rate(self.runs, seconds),
            each(used.postgres),
            each(used.clickhouse),
            each(used.children),
            bytes / float(self.runs),
        );
        self.rates.add(float(self.runs) / seconds);
        self.wall.add(float(self.runs) / wall);
    }

    /// Every run is published with a result of its own, and delivered.
    async fn check(&self) {
        let left =
            "SELECT count(*) FROM finaz.outbox AS o JOIN finaz.api_runs AS r ON r.event_id = o.id
            WHERE o.delivered_at IS NULL OR r.state <> 'SUCCEEDED'";
        assert_eq!(self.stage.database.count(left, &[]).await, 0, "nothing is left");
        let twice = "SELECT count(*) - count(DISTINCT values_hash) FROM finaz.publications";
        assert_eq!(self.stage.database.count(twice, &[]).await, 0, "distinct results");
    }

    pub(crate) fn report(&self, peer: &Peer, table: &mut Table) {
        peer.compare(table, "full batch path, runs", &self.rates);
        peer.compare(table, "full batch path, with the process's start and end", &self.wall);
    }
}
