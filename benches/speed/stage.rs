//! A place for one measurement: databases and an artifact folder of its own, and `finaz` set to them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use finaz::artifacts::Artifacts;
use finaz::canonical;
use finaz::flow::Flow;
use finaz::ids::Hash;
use finaz::rules::admission::Request;
use finaz::store::{Connect, Limits, Store};
use serde_json::Value;
use tempfile::TempDir;

use crate::servers::{Database, Servers};

/// Runs admitted in one transaction, and snapshots in one pack.
const SET: usize = 500;
/// The fixture's shape: events of each instrument, one second apart.
const INSTRUMENTS: [(&str, f64); 3] =
    [("sim.alpha", 1.0), ("sim.beta", 10.0), ("sim.gamma", 100.0)];
const FIRST_EVENT_NS: u64 = 1_767_225_600_000_000_000;

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) database: Database,
    folder: TempDir,
}

impl Stage {
    pub(crate) async fn open(servers: &Servers, name: &str) -> Self {
        let stage = Self { database: servers.database(name).await, folder: folder(servers) };
        stage.finaz(&["db", "migrate"]);
        stage
    }

    pub(crate) async fn close(self, servers: &Servers) {
        let name = self.database.name.clone();
        drop(self);
        servers.drop_database(&name).await;
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self, ttl: Duration) -> Store {
        let connect = Connect::new(&self.database.url, Limits { ttl }, false).expect("a URL");
        Store::new(connect).expect("a pool")
    }

    pub(crate) fn artifacts(&self) -> Artifacts {
        Artifacts::open(&self.path("artifacts")).expect("an artifact store")
    }

    /// `finaz` with the settings of this stage and no others.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = finaz(args);
        command
            .env("FINAZ_PG_URL", &self.database.url)
            .env("FINAZ_CLICKHOUSE_URL", &self.database.clickhouse)
            .env("FINAZ_ARTIFACTS", self.path("artifacts"));
        command
    }

    /// Runs it to its end and gives its document; it must succeed.
    pub(crate) fn finaz(&self, args: &[&str]) -> Value {
        document(&mut self.command(args), args)
    }

    /// Starts it; it is killed when the value goes.
    pub(crate) fn start(&self, args: &[&str], environment: &[(&str, &str)]) -> Running {
        let mut command = self.command(args);
        command.envs(environment.iter().copied()).stdout(Stdio::null());
        Running(command.spawn().expect("finaz can be started"))
    }

    /// Keeps the flow of this text where the worker finds it.
    pub(crate) fn flow(&self, text: &str) -> Hash {
        let flow = Flow::parse(text.as_bytes(), "bench").expect("a flow");
        let kept = self.artifacts().put(&flow.canonical).expect("a kept flow");
        assert_eq!(kept, flow.hash, "a flow is named by its canonical bytes");
        kept
    }

    /// Admits runs `serials` of `flow`, each over a snapshot and under a key of its own.
    pub(crate) async fn admit(&self, store: &Store, flow: Hash, serials: std::ops::Range<usize>) {
        let artifacts = self.artifacts();
        let all: Vec<usize> = serials.collect();
        for set in all.chunks(SET) {
            let bodies: Vec<Vec<u8>> = set.iter().map(|serial| snapshot(*serial, 6)).collect();
            let snapshots = artifacts.put_many(&bodies).expect("kept snapshots");
            let requests: Vec<Request> = set
                .iter()
                .zip(snapshots)
                .map(|(serial, snapshot)| request(&format!("run/{serial}"), flow, snapshot))
                .collect();
            store.admit(&requests, false).await.expect("admitted");
        }
    }
}

pub(crate) fn request(key: &str, flow: Hash, snapshot: Hash) -> Request {
    Request::new("bench", "flow.run", Some(key), flow, snapshot).expect("a request")
}

/// A folder that goes with the value.
pub(crate) fn folder(servers: &Servers) -> TempDir {
    fs::create_dir_all(&servers.folder).expect("a folder");
    tempfile::Builder::new().prefix("bench-").tempdir_in(&servers.folder).expect("a folder")
}

/// The program under measurement, without a setting of the caller's.
pub(crate) fn finaz(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finaz"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FINAZ_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs `finaz … --json` and reads what it printed.
pub(crate) fn document(command: &mut Command, args: &[&str]) -> Value {
    let output = command.arg("--json").output().expect("finaz can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "finaz {}: {said}{complaint}", args.join(" "));
    serde_json::from_str(&said).expect("a document")
}

/// The text of a file of the project.
pub(crate) fn project(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// The body of a snapshot of the fixture's shape; each serial has closes, and so results, of its own.
pub(crate) fn snapshot(serial: usize, events: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(usize::try_from(events).expect("small") * 3 * 120);
    let shift = crate::figures::float(serial) / 1024.0;
    for seq in 0..events {
        let time = FIRST_EVENT_NS + seq * 1_000_000_000;
        for (number, (instrument, base)) in INSTRUMENTS.iter().enumerate() {
            let step = crate::figures::float(usize::try_from(seq % 1_000).expect("small"));
            body.extend_from_slice(b"{\"close\":");
            canonical::write_f64(base + step + shift, &mut body);
            let rest = format!(
                ",\"event_id\":\"bench.event.{number}.{seq}\",\"event_time\":{time},\
                 \"instrument\":\"{instrument}\",\"seq\":{seq}}}\n"
            );
            body.extend_from_slice(rest.as_bytes());
        }
    }
    body
}

/// A process that does not outlive its value.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("a living process");
        self.0.wait().expect("an ended process");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// Asks until `done` says so; panics after a minute.
pub(crate) async fn until(what: &str, pause: Duration, mut done: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !done().await {
        assert!(started.elapsed() < Duration::from_mins(2), "never: {what}");
        tokio::time::sleep(pause).await;
    }
}
