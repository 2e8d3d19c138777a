//! A topic of four partitions with 1 % duplicates, and what streams over it need: a database, a flow, artifacts.

use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use uuid::Uuid;

use crate::cpu;
use crate::replay::Place;
use crate::servers::{Database, Servers};
use crate::stage::document;

const FLOW: &str = "kind: Flow\nname: bench.stream\nclock: {allowed_lateness: 5s}\n\
    nodes:\n  - {id: ema, type: ema, period: 20, input: close}\nsink: {dataset: bench}\n";

pub(crate) struct Log {
    pub(crate) place: Place,
    pub(crate) database: Database,
    pub(crate) topic: String,
    flow: String,
    pub(crate) events: usize,
    pub(crate) records: usize,
}

/// A stream that has read all of a log.
pub(crate) struct Took {
    pub(crate) report: Value,
    /// Seconds by the wall and of the processor.
    pub(crate) wall: f64,
    pub(crate) used: f64,
}

impl Log {
    pub(crate) async fn open(servers: &Servers, name: &str, events: usize) -> Self {
        let brokers = std::env::var("FINAZ_BROKERS").expect("FINAZ_BROKERS: use scripts/bench.sh");
        let database = servers.database(name).await;
        let place = Place::new(servers, events, brokers);
        let flow = place.path("flow.yaml");
        std::fs::write(&flow, FLOW).expect("a new file");
        let migrate = ["db", "migrate"];
        document(place.command(&migrate).env("FINAZ_PG_URL", &database.url), &migrate);
        let topic = format!("finaz-bench-{}", Uuid::new_v4().simple());
        let (records, ..) = place.replay(&["--topic", &topic]);
        Self { place, database, topic, flow, events, records }
    }

    pub(crate) async fn close(self, servers: &Servers) {
        self.place.delete(&self.topic).await;
        servers.drop_database(&self.database.name).await;
    }

    /// `finaz stream` over it.
    pub(crate) fn command(&self, run_id: &str, more: &[&str]) -> Command {
        let args = ["stream", "--topic", &self.topic, "--group", run_id, "--flow", &self.flow];
        let mut command = self.place.command(&[&args[..], &["--run-id", run_id], more].concat());
        command.env("FINAZ_PG_URL", &self.database.url);
        command
    }

    /// Streams all of it, a commit each second.
    pub(crate) fn stream(&self, run_id: &str) -> Took {
        let count = self.records.to_string();
        let (before, started) = (cpu::waited(), Instant::now());
        let report = document(&mut self.command(run_id, &["--once-n", &count]), &["stream"]);
        let (wall, used) = (started.elapsed().as_secs_f64(), cpu::waited() - before);
        assert_eq!(report["read"].as_u64(), u64::try_from(self.records).ok(), "{report}");
        assert_eq!(report["consumed"].as_u64(), u64::try_from(self.events).ok(), "{report}");
        Took { report, wall, used }
    }
}
