//! From admission to a reader on an idle system: `finaz worker` and graphile-worker idle side by side, one run or job at
//! a time, in turn.

use std::fs;
use std::time::{Duration, Instant};

use finaz::ids::Hash;
use finaz::store::{Store, Verdict};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::figures::{Samples, Table};
use crate::graphile::Graphile;
use crate::number;
use crate::servers::{Servers, connect};
use crate::stage::{Stage, project, request, snapshot, until};

const TTL: Duration = Duration::from_secs(30);
/// How often the reader looks.
const LOOK: Duration = Duration::from_micros(300);

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let samples = number("BENCH_SAMPLES", 300);
    println!("latency: {samples} samples of each, in turn, on idle workers");
    let mut ours = Ours::open(servers).await;
    let mut peers = Vec::new();
    for batched in [false, true] {
        if let Some(graphile) = Graphile::open(servers).await {
            let node = graphile.idle(batched);
            let reader = connect(&graphile.database.url).await;
            peers.push((graphile, node, reader, Samples::default()));
        }
    }
    let (mut seen, mut admitted) = (Samples::default(), Samples::default());
    for serial in 0..samples {
        gap().await;
        let (call, all) = ours.sample(serial).await;
        admitted.add_ms(call);
        seen.add_ms(all);
        for (graphile, _, reader, times) in &mut peers {
            gap().await;
            times.add_ms(job(&graphile.database.client, reader).await);
        }
    }
    println!(
        "  finaz: {}; of which the admission {}",
        seen.milliseconds(),
        admitted.milliseconds()
    );
    let settings = ["job by job", "batched"];
    for ((_, _, _, times), setting) in peers.iter().zip(settings) {
        println!("  graphile-worker, {setting}: {}", times.milliseconds());
        let peer = format!("graphile-worker, {setting}: {}", times.milliseconds());
        let ratio = seen.median() / times.median();
        table.add("admitted to visible", seen.milliseconds(), peer, Some(ratio));
    }
    if peers.is_empty() {
        table.alone("admitted to visible", seen.milliseconds());
    }
    ours.stage.close(servers).await;
    for (graphile, node, _, _) in peers {
        drop(node);
        graphile.close(servers).await;
    }
}

/// Long enough for a worker to be idle again, and never in step with its polls.
async fn gap() {
    let draw = uuid::Uuid::new_v4().as_bytes()[0];
    tokio::time::sleep(Duration::from_millis(30) + Duration::from_micros(200) * u32::from(draw))
        .await;
}

/// Looks until `sql` finds what it should. Blocks on purpose between two looks: the clock of the runtime ticks once a
/// millisecond.
async fn look(reader: &Client, sql: &tokio_postgres::Statement, id: i64, there: bool) {
    let started = Instant::now();
    let id: [&(dyn ToSql + Sync); 1] = [&id];
    while reader.query(sql, &id).await.expect("a look").is_empty() == there {
        assert!(started.elapsed() < Duration::from_mins(1), "never visible");
        std::thread::sleep(LOOK);
    }
}

async fn job(client: &Client, reader: &Client) -> Duration {
    let add = client
        .prepare("SELECT id FROM graphile_worker.add_job('noop', json_build_object('n', 1))")
        .await
        .expect("a statement");
    let gone = reader
        .prepare("SELECT 1 FROM graphile_worker._private_jobs WHERE id = $1")
        .await
        .expect("a statement");
    let started = Instant::now();
    let id: i64 = client.query_one(&add, &[]).await.expect("an added job").get(0);
    look(reader, &gone, id, false).await;
    started.elapsed()
}

struct Ours {
    stage: Stage,
    store: Store,
    flow: Hash,
    reader: Client,
    _worker: crate::stage::Running,
}

impl Ours {
    /// A worker that has done a run and waits for the next.
    async fn open(servers: &Servers) -> Self {
        let stage = Stage::open(servers, "latency").await;
        let manifest = project("manifests/fixture.01_A_feature.yaml");
        let flow = stage.flow(&fs::read_to_string(manifest).expect("the fixture's flow"));
        let store = stage.store(TTL);
        let reader = connect(&stage.database.url).await;
        let worker = stage.start(&["worker", "--json"], &[]);
        let mut ours = Self { stage, store, flow, reader, _worker: worker };
        ours.sample(1_000_000).await;
        let listening = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        until("a worker that listens", Duration::from_millis(20), async || {
            ours.stage.database.count(listening, &[]).await > 0
        })
        .await;
        for serial in 0..10 {
            ours.sample(2_000_000 + serial).await;
        }
        ours
    }

    /// Admits a run as `finaz admit` does; the time of that, and until a reader sees its publication.
    async fn sample(&mut self, serial: usize) -> (Duration, Duration) {
        let body = snapshot(serial, 6);
        let kept = self.stage.artifacts().put(&body).expect("a kept snapshot");
        let request = [request(&format!("run/{serial}"), self.flow, kept)];
        let seen = self
            .reader
            .prepare("SELECT 1 FROM finaz.publications WHERE run_no = $1")
            .await
            .expect("a statement");
        let started = Instant::now();
        let verdicts = self.store.admit(&request, true).await.expect("admitted");
        let call = started.elapsed();
        let Some(Verdict::Admitted(run)) = verdicts.first() else { panic!("a new run") };
        look(&self.reader, &seen, run.run_no, true).await;
        (call, started.elapsed())
    }
}
