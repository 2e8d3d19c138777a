//! The peer: graphile-worker, a process of its own (`scripts/bench/graphile.mjs`) on the same PostgreSQL.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::servers::{Database, Servers};
use crate::stage::{Running, project};

/// Jobs added by one statement.
const SET: i32 = 10_000;

#[derive(Debug)]
pub(crate) struct Graphile {
    pub(crate) database: Database,
    modules: PathBuf,
}

impl Graphile {
    /// `None` where it is not installed; `scripts/bench.sh` has said so.
    pub(crate) async fn open(servers: &Servers) -> Option<Self> {
        let modules = PathBuf::from(std::env::var_os("BENCH_GRAPHILE")?);
        let graphile = Self { database: servers.database("graphile").await, modules };
        let ended = graphile.node("migrate").status().expect("node can be started");
        assert!(ended.success(), "graphile-worker lays out its tables");
        Some(graphile)
    }

    pub(crate) async fn close(self, servers: &Servers) {
        let name = self.database.name.clone();
        drop(self);
        servers.drop_database(&name).await;
    }

    fn node(&self, mode: &str) -> Command {
        let mut command = Command::new("node");
        command
            .arg(project("scripts/bench/graphile.mjs"))
            .arg(mode)
            .env("DATABASE_URL", &self.database.url)
            .current_dir(&self.modules)
            .stdin(Stdio::piped());
        command
    }

    /// A worker that is started up and waits to be let go.
    fn worker(&self, batched: bool) -> Node {
        let mut command = self.node("work");
        command.env("BATCHED", if batched { "1" } else { "0" }).stdout(Stdio::piped());
        let mut process = Running(command.spawn().expect("node can be started"));
        let said = BufReader::new(process.0.stdout.take().expect("a pipe"));
        let mut node = Node { process, said };
        node.expect("ready");
        node
    }

    /// A worker that is idle.
    pub(crate) fn idle(&self, batched: bool) -> Node {
        let mut node = self.worker(batched);
        node.go();
        node.expect("working");
        node
    }

    /// Seconds from letting a worker go until none of `jobs` is left, in its fastest setting.
    pub(crate) async fn seconds(&self, jobs: i32) -> f64 {
        let client = &self.database.client;
        let clear = "TRUNCATE graphile_worker._private_jobs";
        client.batch_execute(clear).await.expect("no jobs");
        let add = "SELECT count(*) FROM graphile_worker.add_jobs(array(
            SELECT json_populate_record(NULL::graphile_worker.job_spec,
                json_build_object('identifier', 'noop', 'payload', json_build_object('n', n)))
            FROM generate_series($1::int, $2::int) AS n))";
        for first in (0..jobs).step_by(usize::try_from(SET).expect("small")) {
            let last = (first + SET).min(jobs) - 1;
            client.query_one(add, &[&first, &last]).await.expect("added jobs");
        }
        let mut node = self.worker(true);
        self.database.settle().await;
        let started = Instant::now();
        node.go();
        let any = "SELECT count(*) FROM (SELECT 1 FROM graphile_worker._private_jobs LIMIT 1) AS j";
        while self.database.count(any, &[]).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        started.elapsed().as_secs_f64()
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    process: Running,
    said: BufReader<ChildStdout>,
}

impl Node {
    fn go(&mut self) {
        let pipe = self.process.0.stdin.as_mut().expect("a pipe");
        pipe.write_all(b"go\n").expect("a listening worker");
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), word, "graphile-worker");
    }
}
