//! What the processes have to do: runs are admitted, arrivals written, by clients that may not hear what came of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::team::{Team, locked};
use crate::control::drill::crew::Run;
use crate::control::drill::wait::unable;
use crate::drill::chaos::{Op, Outcome};
use crate::drill::{Broke, Draw};

const LOOK: Duration = Duration::from_millis(25);
/// A client that has not ended by then is killed.
const PATIENCE: Duration = Duration::from_secs(45);
/// Clients that admit at the same time at most.
const ADMITTING_MAX: usize = 4;
/// Each so many admissions one is repeated that was acknowledged; of those of which nothing is known three in four are.
const AGAIN: u64 = 6;

/// Numbers of what clients ask for.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Admits runs until there is to be no load.
pub(super) async fn admissions(team: &Team<'_>, counter: &Counter) -> Result<(), Broke> {
    let load = team.plan.load;
    let mut draw = Draw::new(team.plan.seed ^ 0xad31);
    let mut flying = FuturesUnordered::new();
    let mut again: VecDeque<Vec<String>> = VecDeque::new();
    let mut done: Vec<Vec<String>> = Vec::new();
    let mut next = Instant::now();
    let mut named = 0;
    loop {
        let is_quiet = *locked(&team.quiet);
        if is_quiet && flying.is_empty() {
            return Ok(());
        }
        if !is_quiet && flying.len() < ADMITTING_MAX && Instant::now() >= next {
            next = Instant::now() + Duration::from_millis(load.admit_every_ms);
            let (call, keys) = match again.pop_front() {
                Some(keys) => ("admit", keys),
                None if !done.is_empty() && draw.between(1, AGAIN) == 1 => {
                    let most = done.len() as u64 - 1;
                    let at = usize::try_from(draw.between(0, most)).unwrap_or(0);
                    ("admit again", done[at].clone())
                }
                None => {
                    named += 1;
                    let runs = draw.between(1, load.admit_runs * 2);
                    ("admit", (0..runs).map(|n| format!("k{named}.{n}")).collect())
                }
            };
            flying.push(admit(team, counter.next(), call, keys));
        }
        tokio::select! {
            Some(ended) = flying.next() => {
                let (outcome, keys) = ended?;
                match outcome {
                    Outcome::Ok => done.push(keys),
                    Outcome::Unknown if draw.between(1, 4) > 1 => again.push_back(keys),
                    Outcome::Unknown | Outcome::Fail | Outcome::Invoke => {}
                }
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// The flow of these keys: one for each set, so that its results are written and not found.
fn flow_of(team: &Team<'_>, keys: &[String]) -> Result<String, Broke> {
    let stage = team.ground.stage;
    let set = keys.first().and_then(|key| key.split('.').next()).unwrap_or_default();
    let path = stage.path(&format!("flow.{set}.yaml"));
    let write = || {
        let text = std::fs::read_to_string(&stage.files.flow)?;
        let named = text.replacen("\nname: ", &format!("\nname: {set}."), 1);
        std::fs::write(&path, named)
    };
    write().map_err(|error| unable(&path.display(), &error))?;
    Ok(path.display().to_string())
}

async fn admit(
    team: &Team<'_>,
    op: u64,
    call: &'static str,
    keys: Vec<String>,
) -> Result<(Outcome, Vec<String>), Broke> {
    let path = team.ground.stage.path(&format!("admit{op}.jsonl"));
    let flow = flow_of(team, &keys)?;
    let line = |key: &String| format!("{{\"flow\":\"{flow}\",\"key\":\"{key}\"}}\n");
    let lines: String = keys.iter().map(line).collect();
    std::fs::write(&path, lines).map_err(|error| unable(&path.display(), &error))?;
    let args = ["admit", "--from", &path.display().to_string()];
    let asked = Asked { op, call, keys: keys.clone() };
    let (outcome, _) = ask(team, asked, &args, |run| {
        let count = |field: &str| run.json[field].as_u64().unwrap_or(0);
        let all = count("created") + count("existing") == keys.len() as u64;
        all && (call == "admit" || count("created") == 0)
    })
    .await?;
    let _gone = std::fs::remove_file(&path);
    Ok((outcome, keys))
}

/// Writes arrivals until there is to be no load.
pub(super) async fn arrivals(team: &Team<'_>, counter: &Counter) -> Result<(), Broke> {
    let every = Duration::from_millis(team.plan.load.replay_every_ms);
    let mut next = Instant::now();
    while !*locked(&team.quiet) {
        if Instant::now() < next {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        next = Instant::now() + every;
        replay(team, counter).await?;
    }
    Ok(())
}

/// One replay; `false` when it is not known to be there.
pub(super) async fn replay(team: &Team<'_>, counter: &Counter) -> Result<bool, Broke> {
    let faults = &team.ground.stage.files.faults;
    let args = ["replay", "--faults", faults, "--topic", &team.topic, "--create-topic"];
    let asked = Asked { op: counter.next(), call: "replay", keys: Vec::new() };
    let (outcome, _) = ask(team, asked, &args, |run| run.json["arrivals"].is_u64()).await?;
    Ok(outcome == Outcome::Ok)
}

struct Asked {
    op: u64,
    call: &'static str,
    keys: Vec<String>,
}

/// Runs a client to its end, and takes note of what it was told. `is_done` holds its answer against what it asked for.
async fn ask(
    team: &Team<'_>,
    asked: Asked,
    args: &[&str],
    is_done: impl Fn(&Run) -> bool,
) -> Result<(Outcome, Run), Broke> {
    let Asked { op, call, keys } = asked;
    let process = format!("client{op}");
    let line = |outcome, detail| Op {
        at_us: team.log.now_us(),
        op,
        outcome,
        process: process.clone(),
        call,
        keys: keys.clone(),
        detail,
    };
    team.log.told().ops.push(line(Outcome::Invoke, None));
    team.client(op, args)?;
    let end = Instant::now() + PATIENCE;
    let mut member = loop {
        tokio::time::sleep(LOOK).await;
        let mut clients = locked(&team.clients);
        let Some(member) = clients.get_mut(&op) else {
            return Err(Broke::Unable(format!("{process} is gone")));
        };
        if Instant::now() >= end {
            member.kill(team.log);
        }
        if !member.actor.is_running()
            && let Some(member) = clients.remove(&op)
        {
            break member;
        }
    };
    let run = member.actor.end(Duration::ZERO).await?;
    team.log.ended(&member, &run);
    if run.exit == Some(0) && !is_done(&run) {
        let mut told = team.log.told();
        let ending = told.endings.last_mut();
        let said = format!("said that it is done: {}", run.json);
        ending.expect("it was noted").panic = Some(said);
    }
    let outcome = match run.exit {
        Some(0) if is_done(&run) => Outcome::Ok,
        // It said that all is well, and it is not.
        Some(0..=2) => Outcome::Fail,
        Some(_) | None => Outcome::Unknown,
    };
    let detail = (outcome != Outcome::Ok).then(|| run.ending());
    team.log.told().ops.push(line(outcome, detail));
    Ok((outcome, run))
}
