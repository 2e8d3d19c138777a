//! Drills: what is promised, shown with real processes of the same binary on real servers.
//!
//! A scenario a file. Each has planned its checks before it begins (`crate::drill`), works on topics and runs of its own,
//! and waits for what it has seen, never for time to pass. All that happens to leases and journals is written down by the
//! database itself, in the transaction in which it happens.

pub mod chaos;
mod commits;
mod crew;
mod fixture;
mod journals;
mod killed;
mod leases;
mod look;
mod matrix;
mod outages;
mod owners;
mod proxy;
mod server;
pub mod sim;
mod stage;
mod stopped;
mod wait;
mod wire;

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::{FutureExt as _, StreamExt as _};
use serde::Serialize;
use tokio::sync::watch;

pub use crew::become_child;
pub use matrix::{MatrixPlan, MatrixReport, MatrixRequest, kill_matrix, kill_matrix_plan};

pub use crate::drill::Verdict;

use super::worker::Stop;
use super::{Control, Error};
use crate::config::Secret;
use crate::drill::{Broke, Check, Evidence, Moment, Planned, QueueNumbers, Sheet, Versions, page};
use crate::ids::Hash;
use crate::invalid::Invalid;
use stage::{Means, Stage};

/// Checks that a drill of two owners has at least: fewer, and it has not been carried out.
const CHECKS_MIN: usize = 60;
/// The lease of a drill, and of a fast one.
const TTL: Duration = Duration::from_secs(6);
const TTL_FAST: Duration = Duration::from_millis(1_500);
/// Scenarios at a time.
const LANES: usize = 3;

/// What to carry out.
#[derive(Clone, Debug)]
pub struct TwoOwnersRequest {
    /// The program whose processes are the owners.
    pub binary: PathBuf,
    /// Where the drill's folder is made.
    pub temporary: PathBuf,
    /// Short leases, for CI.
    pub fast: bool,
    /// Where the evidence goes; absent: beside the artifacts.
    pub out: Option<PathBuf>,
    /// A marked database; absent: one is made on the server of the settings.
    pub database: Option<Secret>,
    pub seed: u64,
}

/// The evidence, and where it lies.
#[derive(Clone, Debug, Serialize)]
pub struct DrillReport {
    #[serde(flatten)]
    pub evidence: Evidence,
    /// The files of it.
    pub files: Files,
}

#[derive(Clone, Debug, Serialize)]
pub struct Files {
    pub document: String,
    pub page: String,
    pub history: String,
}

/// How far a drill is: checks that are done, of how many.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// One scenario.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    Stopped,
    Killed,
    Leases,
    Clock,
    UnderLock,
    Ambiguous,
    Drained,
    Damaged,
    Restored,
    CutOff,
    Full,
}

/// In the order of the evidence. The longest come first.
const SCENARIOS: &[Scenario] = &[
    Scenario::Stopped,
    Scenario::Killed,
    Scenario::UnderLock,
    Scenario::Ambiguous,
    Scenario::Drained,
    Scenario::CutOff,
    Scenario::Damaged,
    Scenario::Restored,
    Scenario::Leases,
    Scenario::Clock,
    Scenario::Full,
];

impl Scenario {
    fn sheet(self) -> (&'static str, &'static [Planned]) {
        match self {
            Self::Stopped => ("an owner is stopped and overtaken", stopped::CHECKS),
            Self::Killed => ("an owner is killed", killed::CHECKS),
            Self::UnderLock => ("an owner is stopped under the row lock", commits::UNDER_LOCK),
            Self::Ambiguous => ("the answer to a commit is lost", commits::AMBIGUOUS),
            Self::Drained => ("an owner is told to end", outages::DRAINED),
            Self::CutOff => ("an owner is cut off", outages::CUT_OFF),
            Self::Damaged => ("a journal is another's, or damaged", journals::CHECKS),
            Self::Restored => ("a backup is put back, a lease deleted", journals::RESTORED),
            Self::Leases => ("leases by hand", leases::CHECKS),
            Self::Clock => ("a clock is wrong", leases::CLOCK),
            Self::Full => ("a disk is full", outages::FULL),
        }
    }

    async fn play(self, stage: &Stage, sheet: &mut Sheet) -> Result<QueueNumbers, Broke> {
        match self {
            Self::Stopped => return Box::pin(stopped::play(stage, sheet)).await,
            Self::Killed => return Box::pin(killed::play(stage, sheet)).await,
            Self::UnderLock => Box::pin(commits::under_lock(stage, sheet)).await,
            Self::Ambiguous => Box::pin(commits::ambiguous(stage, sheet)).await,
            Self::Drained => Box::pin(outages::drained(stage, sheet)).await,
            Self::CutOff => Box::pin(outages::cut_off(stage, sheet)).await,
            Self::Damaged => Box::pin(journals::damaged(stage, sheet)).await,
            Self::Restored => Box::pin(journals::restored(stage, sheet)).await,
            Self::Leases => Box::pin(leases::play(stage, sheet)).await,
            Self::Clock => Box::pin(leases::clock(stage, sheet)).await,
            Self::Full => Box::pin(outages::full(stage, sheet)).await,
        }?;
        Ok(QueueNumbers::default())
    }
}

/// Carries out the drill of two owners, and writes its evidence. What it made on the servers is gone when this returns,
/// however it ends.
///
/// # Errors
/// `DRILL_UNMARKED` and others for a database that is not a drill's; a service that is away before it begins; a signal.
pub async fn two_owners(
    control: &Control,
    request: &TwoOwnersRequest,
    progress: Progress<'_>,
    mut stop: watch::Receiver<Stop>,
) -> Result<DrillReport, Error> {
    check_database(request.database.as_ref())?;
    let began = Instant::now();
    let ttl = if request.fast { TTL_FAST } else { TTL };
    let means = Means {
        binary: &request.binary,
        temporary: &request.temporary,
        database: request.database.as_ref(),
        seed: request.seed,
        warehouse: false,
        ttl,
    };
    let stage = Stage::set(control, &means).await?;
    let played = tokio::select! {
        played = carry_out(&stage, progress) => Ok(played),
        signal = told(&mut stop) => Err(Error::Interrupted { signal }),
    };
    let gathered = match played {
        Ok(played) => gather(&stage, request, played, began).await,
        Err(error) => Err(error),
    };
    let struck = stage.strike().await;
    let (evidence, moments) = gathered?;
    let report = write(control, request, evidence, &moments)?;
    // After it: what was shown was shown.
    struck?;
    Ok(report)
}

/// A database is named by a URL.
fn check_database(url: Option<&Secret>) -> Result<(), Invalid> {
    if url.is_some_and(|url| !url.expose().contains("://")) {
        let hint = "write postgresql://user@host:port/database, the password in FINAZ_DATABASE";
        return Err(Invalid::new("DRILL_DATABASE", "--database", "is no URL", hint));
    }
    Ok(())
}

async fn told(stop: &mut watch::Receiver<Stop>) -> i32 {
    loop {
        if let Stop::Drain(signal) | Stop::Now(signal) = *stop.borrow_and_update() {
            return signal;
        }
        if stop.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What all scenarios came to.
struct Played {
    started_at: String,
    checks: Vec<Check>,
    ledger: QueueNumbers,
}

async fn carry_out(stage: &Stage, progress: Progress<'_>) -> Played {
    let total: usize = SCENARIOS.iter().map(|scenario| scenario.sheet().1.len()).sum();
    let total = total as u64;
    progress(0, total);
    let started = stage.store.drill_server().await;
    let started_at = started.map(|(_, at)| at).unwrap_or_default();
    let ready = ready(stage).await;
    let done = std::sync::atomic::AtomicU64::new(0);
    let plays = SCENARIOS.iter().enumerate().map(|(at, scenario)| {
        let (ready, done) = (ready.clone(), &done);
        async move {
            let (name, planned) = scenario.sheet();
            let mut sheet = Sheet::new(name, planned);
            let ended = match ready {
                // A defect of ours in one scenario leaves the others, and what has to be removed, to be seen to.
                Ok(()) => {
                    let play = AssertUnwindSafe(scenario.play(stage, &mut sheet)).catch_unwind();
                    play.await.unwrap_or_else(|_| Err(Broke::Failed("the drill panicked".into())))
                }
                Err(broke) => Err(broke),
            };
            let (numbers, ended) = match ended {
                Ok(numbers) => (numbers, Ok(())),
                Err(broke) => (QueueNumbers::default(), Err(broke)),
            };
            let more = planned.len() as u64;
            let before = done.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
            progress(before + more, total);
            (at, sheet.end(ended), numbers)
        }
    });
    let plays = futures_util::stream::iter(plays).buffer_unordered(LANES);
    let mut played: Vec<(usize, Vec<Check>, QueueNumbers)> = plays.collect().await;
    played.sort_by_key(|(at, ..)| *at);
    let ledger = played.iter().fold(QueueNumbers::default(), |sum, (_, _, n)| sum.plus(*n));
    let checks = played.into_iter().flat_map(|(_, checks, _)| checks).collect();
    Played { started_at, checks, ledger }
}

/// What all scenarios need before they begin.
async fn ready(stage: &Stage) -> Result<(), Broke> {
    stage.run("migrate", &["db", "migrate"]).await?.done("the migration")?;
    stage.store.watch_drill().await?;
    let snapshot = stage.files.snapshot.display().to_string();
    let import = ["snapshot", "import", &snapshot, "--name", fixture::NAME];
    stage.run("import", &import).await?.done("the import")?;
    Ok(())
}

/// The evidence, with all that the database wrote down.
async fn gather(
    stage: &Stage,
    request: &TwoOwnersRequest,
    played: Played,
    began: Instant,
) -> Result<(Evidence, Vec<Moment>), Error> {
    let moments = stage.store.drill_history().await?;
    let (postgresql, ended_at) = stage.store.drill_server().await?;
    let topics = stage.broker.topic_names().await?;
    let topics: Vec<String> =
        topics.into_iter().filter(|topic| topic.starts_with(&stage.mark.topics)).collect();
    let cluster = match topics.first() {
        Some(topic) => stage.broker.find_topic(topic).await?.map(|topic| topic.cluster),
        None => None,
    };
    let Played { started_at, checks, ledger } = played;
    let phases = ["stream/stopped", "stream/killed"];
    let of = |phase| moments.iter().filter(move |moment| moment.is_of(phase)).cloned();
    let timeline = phases.into_iter().flat_map(of).collect();
    let count = |word: &str| checks.iter().filter(|check| check.word() == word).count();
    let evidence = Evidence {
        kind: "DrillEvidence",
        version: 1,
        drill: "2owners",
        verdict: Verdict::of(&checks, CHECKS_MIN),
        passed: count("PASS"),
        failed: count("FAIL"),
        not_run: count("NOT RUN"),
        seed: request.seed,
        nonce: stage.mark.nonce.clone(),
        started_at,
        ended_at,
        seconds: began.elapsed().as_secs_f64(),
        ttl_sec: stage.ttl.as_secs_f64(),
        fast: request.fast,
        versions: Versions::of(postgresql, cluster.as_deref()),
        environment: stage.environment(topics),
        ledger,
        timeline,
        checks,
        history: "2owners.history.jsonl".to_owned(),
        history_hash: String::new(),
        history_lines: moments.len(),
    };
    Ok((evidence, moments))
}

/// Writes document, page and history.
fn write(
    control: &Control,
    request: &TwoOwnersRequest,
    mut evidence: Evidence,
    moments: &[Moment],
) -> Result<DrillReport, Error> {
    let keeper = Keeper::new(control, request.out.as_deref(), &evidence.nonce)?;
    let (history, hash) = keeper.history(&evidence.history, moments)?;
    evidence.history_hash = hash;
    let document = keeper.document("2owners.json", &evidence)?;
    let page = keeper.keep("2owners.html", page(&evidence).as_bytes())?;
    Ok(DrillReport { evidence, files: Files { document, page, history } })
}

/// The folder that evidence goes into.
struct Keeper {
    out: PathBuf,
}

impl Keeper {
    /// The folder that was asked for, else one of this nonce beside the artifacts.
    fn new(control: &Control, out: Option<&Path>, nonce: &str) -> Result<Self, Error> {
        let beside = || control.settings.artifacts.join("evidence").join(nonce);
        let out = out.map_or_else(beside, Path::to_owned);
        let place = out.display().to_string();
        fs::create_dir_all(&out).map_err(|source| Error::NotWritten { place, source })?;
        Ok(Self { out })
    }

    /// Writes a file, and gives its place.
    fn keep(&self, name: &str, bytes: &[u8]) -> Result<String, Error> {
        let path = self.out.join(name);
        let place = path.display().to_string();
        match fs::write(&path, bytes) {
            Ok(()) => Ok(place),
            Err(source) => Err(Error::NotWritten { place, source }),
        }
    }

    /// A JSON line a moment; gives the SHA-256 of all of them too.
    fn history(&self, name: &str, moments: &[impl Serialize]) -> Result<(String, String), Error> {
        let mut lines = Vec::new();
        for moment in moments {
            lines.extend(serde_json::to_vec(moment).expect("a moment is JSON"));
            lines.push(b'\n');
        }
        Ok((self.keep(name, &lines)?, Hash::of(&lines).to_string()))
    }

    fn document(&self, name: &str, evidence: &impl Serialize) -> Result<String, Error> {
        let mut document = serde_json::to_vec_pretty(evidence).expect("evidence is JSON");
        document.push(b'\n');
        self.keep(name, &document)
    }
}
