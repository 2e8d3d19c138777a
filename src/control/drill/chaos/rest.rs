//! The faults have stopped: all must come to its end, in bounded time. Then what is there is read, all of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::load::{self, Counter};
use super::team::{Role, Team, locked};
use crate::control::drill::crew::Run;
use crate::control::drill::fixture;
use crate::control::drill::look::{self, Journal};
use crate::control::drill::proxy::Mode;
use crate::control::drill::wait::{unable, until};
use crate::drill::Broke;
use crate::drill::chaos::{End, FilesEnd, Rest, SecretsEnd, StreamEnd};
use crate::store;

/// In which all must have come to its end. Measured: 1 to 6 s; a suspected run waits for its turn, a machine may be busy.
const BOUND: Duration = Duration::from_secs(45);
/// Of processes that are told to end.
const END: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(150);

/// Ends the faults and the load, and waits for what was admitted.
pub(super) async fn comes(team: &Team<'_>) -> Result<Rest, Broke> {
    let ground = team.ground;
    let roads = ground.postgres.iter().chain(&ground.broker).chain(&ground.warehouse);
    for road in roads {
        road.proxy.disarm();
        road.proxy.set(Mode::Pass);
    }
    team.wake_all();
    let began = Instant::now();
    let bound_ms = u64::try_from(BOUND.as_millis()).unwrap_or(u64::MAX);
    loop {
        let open = open(team).await?;
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if open.is_empty() {
            return Ok(Rest { bound_ms, took_ms: Some(took), open });
        }
        if began.elapsed() >= BOUND {
            return Ok(Rest { bound_ms, took_ms: None, open });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What has not come to its end.
async fn open(team: &Team<'_>) -> Result<Vec<String>, Broke> {
    let mut open = Vec::new();
    let clients = locked(&team.clients).len();
    if clients > 0 {
        open.push(format!("{clients} clients"));
    }
    let runs = patiently(async || team.ground.store.open_runs().await).await?;
    if runs > 0 {
        open.push(format!("{runs} runs"));
    }
    let ends = look::ends(team.ground.stage, &team.topic).await?;
    for run in super::STREAMS {
        let lease = format!("stream/{run}");
        let view = patiently(async || team.ground.store.stream(&lease).await).await?;
        let report = view.and_then(|view| view.row.status.report).unwrap_or_default();
        let report: Value = serde_json::from_str(&report).unwrap_or(Value::Null);
        let next =
            |partition: i32| report["next_offsets"][partition.to_string()].as_i64().unwrap_or(0);
        let lag: i64 = ends.iter().map(|(partition, end)| end - next(*partition)).sum();
        if lag > 0 {
            open.push(format!("{lag} records of {lease}"));
        }
    }
    Ok(open)
}

/// Asks again while the database is away: it may have been restarted just now.
pub(super) async fn patiently<T>(
    ask: impl AsyncFn() -> Result<T, store::Error>,
) -> Result<T, Broke> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match ask().await {
            Err(error) if error.is_away() && Instant::now() < end => {
                tokio::time::sleep(LOOK).await;
            }
            done => return Ok(done?),
        }
    }
}

/// Tells all to end. Who has not by then is killed, and that is no orderly end.
pub(super) async fn all_end(team: &Team<'_>) -> Result<(), Broke> {
    team.close();
    let gone = async || Ok(team.is_empty().then_some(()));
    if let Err(Broke::Failed(why)) = until("all processes end", END, gone).await {
        tracing::warn!(why, "killed");
        team.clear();
        until("all processes are gone", END, gone).await?;
    }
    Ok(())
}

/// Reads all that is there.
pub(super) async fn found(team: &Team<'_>, rest: Rest) -> Result<End, Broke> {
    let runs = patiently(async || team.ground.store.run_ends().await).await?;
    let mut streams = Vec::new();
    for run in super::STREAMS {
        streams.push(stream(team, run).await?);
    }
    let folder = &team.ground.stage.crew.folder;
    Ok(End {
        golden: fixture::golden().to_owned(),
        runs,
        streams,
        endings: Vec::new(),
        files: files(team)?,
        secrets: secrets(team, folder)?,
        rest,
    })
}

async fn stream(team: &Team<'_>, run: &'static str) -> Result<StreamEnd, Broke> {
    let stage = team.ground.stage;
    let lease = format!("stream/{run}");
    let ends = look::ends(stage, &team.topic).await?;
    let before = journal(team, &lease).await?;
    let report = report(team, run, decided(&before)).await?.json;
    // It may have made a commit of its own.
    let journal = journal(team, &lease).await?;
    let (commits, decided) = (journal.commits(), decided(&journal));
    let before = commits.iter().take_while(|commit| commit.fence == commits[0].fence).last();
    let before: i64 = before.map_or(0, |commit| commit.next_offsets.values().sum());
    let text = |field: &str| report[field].as_str().unwrap_or_default().to_owned();
    Ok(StreamEnd {
        lease,
        ends,
        decided,
        recovered: decided.saturating_sub(u64::try_from(before).unwrap_or(0)),
        commits,
        fates: journal.fates.iter().map(|(at, fates)| (*at, fates.len() as u64)).collect(),
        values_hash: text("values_hash"),
        verdict: text("verdict"),
        ledger_ok: report["ledger_ok"] == true,
    })
}

async fn journal(team: &Team<'_>, lease: &str) -> Result<Journal, Broke> {
    let view = patiently(async || team.ground.store.stream(lease).await).await?;
    Journal::read(&team.ground.stage.artifacts()?, view.and_then(|view| view.row.head))
}

fn decided(journal: &Journal) -> u64 {
    journal.fates.values().map(|fates| fates.len() as u64).sum()
}

/// What an owner reports that has nothing left to read.
async fn report(team: &Team<'_>, run: &'static str, decided: u64) -> Result<Run, Broke> {
    let stage = team.ground.stage;
    let n = decided.to_string();
    let args = [
        "stream",
        "--topic",
        &team.topic,
        "--group",
        run,
        "--run-id",
        run,
        "--flow",
        &stage.files.flow,
        "--once-n",
        &n,
    ];
    let straight = team.ground.straight();
    let mut more: Vec<(&str, &str)> =
        straight.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let name = format!("{run}-last");
    more.push(("FINAZ_OWNER", &name));
    let mut member = team.adopt(stage.crew.start(&name, &args, &more)?, Role::Stream(run));
    let ended = member.actor.end(END).await?;
    team.log.ended(&member, &ended);
    Ok(ended)
}

fn files(team: &Team<'_>) -> Result<FilesEnd, Broke> {
    let artifacts = team.ground.stage.artifacts()?;
    let report = artifacts.verify(&|_blobs, _bytes| {});
    let report = report.map_err(|error| unable(&"the artifact store", &error))?;
    let damaged = report.damaged.iter().map(|found| format!("{}: {}", found.place, found.seen));
    Ok(FilesEnd {
        looked: report.loose + report.packed + report.labels,
        damaged: damaged.collect(),
    })
}

/// Looks for the passwords in everything that the processes wrote.
fn secrets(team: &Team<'_>, folder: &Path) -> Result<SecretsEnd, Broke> {
    let mut end = SecretsEnd::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| unable(&folder.display(), &error))?;
        let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        for path in paths {
            if path.is_dir() {
                // What the server keeps of its users is its own.
                if !path.ends_with("postgresql/data") {
                    folders.push(path);
                }
                continue;
            }
            // That is what this file is for.
            if path.ends_with("broker-password") {
                continue;
            }
            let Ok(bytes) = fs::read(&path) else { continue };
            end.looked += 1;
            if team.ground.has_secret(&bytes) {
                end.found.push(path.display().to_string());
            }
        }
    }
    Ok(end)
}

/// The whole log once, before any fault: what every later replay repeats.
pub(super) async fn first_replay(team: &Team<'_>, counter: &Counter) -> Result<(), Broke> {
    for _ in 0..3 {
        if load::replay(team, counter).await? {
            return Ok(());
        }
    }
    Err(Broke::Unable("the first replay was not done".to_owned()))
}
