//! One run of the matrix: a process is held at its point, the fault is dealt, a successor finishes.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::judge;
use crate::control::drill::crew::{Actor, Run};
use crate::control::drill::fixture::{self, ARRIVALS};
use crate::control::drill::owners::Owner;
use crate::control::drill::stage::{SOON, Stage};
use crate::control::drill::wait::{unable, until};
use crate::drill::{Broke, CellRun, Fault, Fell, Place, QueueNumbers, Way, Work};
use crate::points::announcement;

/// Times that a process is started until one stands at the point: on a busy machine a short lease may be lost before.
const TRIES_MAX: u32 = 3;
/// How long a process has to come to its point.
const REACHED: Duration = Duration::from_secs(20);
/// The lease of a successor of a stream: a busy machine shall not take it away, nobody waits for it.
const SUCCESSOR_TTL: &str = "6";
/// What a stream reads: the fixture, twice.
pub(super) const REPLAYS: u64 = 2;
pub(super) const RECORDS: u64 = REPLAYS * ARRIVALS;
/// Topics of a lane: one that goes on, one that has ended.
pub(super) const OPEN: &str = "open";
pub(super) const ENDED: &str = "ended";

/// A run that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) place: &'static Place,
    pub(super) fault: Fault,
}

/// A process at its point, and what it is called.
struct Held {
    actor: Actor,
    names: Names,
    says: std::path::PathBuf,
}

/// What the parts of one try are called.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// Of the run, of a stream also its id; of the sessions of the process that is held.
    pub(super) run: String,
    /// What `admit` gave.
    pub(super) run_id: Option<String>,
    /// The flow's file, in a batch one of its own: its blob is then no other's.
    flow: String,
}

impl Names {
    pub(super) fn emit(&self) -> String {
        format!("{}.jsonl", self.run)
    }
}

/// What there is to judge.
pub(super) struct Ends {
    pub(super) names: Names,
    pub(super) held: Run,
    pub(super) successor: Run,
    /// Records of a stream that were committed before the successor came.
    pub(super) before: u64,
}

/// What came of a cell.
pub(super) struct Played {
    pub(super) run: CellRun,
    pub(super) ledger: QueueNumbers,
    /// Ids of the checks that it did not pass.
    pub(super) broken: Vec<&'static str>,
}

fn blank(Cell { place, fault }: Cell) -> CellRun {
    CellRun {
        work: place.work(),
        point: place.point.name(),
        fault,
        verdict: Fell::NotRun,
        tries: 0,
        ended: String::new(),
        successor: String::new(),
        why: Vec::new(),
        seconds: 0.0,
        lease: None,
    }
}

/// Makes the run.
pub(super) async fn play(stage: &Stage, cell: Cell) -> Played {
    let began = Instant::now();
    let place = cell.place;
    let mut run = blank(cell);
    let mut ledger = QueueNumbers::default();
    let mut broken = Vec::new();
    match carry_out(stage, cell, &mut run).await {
        Ok(Some(ends)) => {
            run.why.clear();
            run.ended = ends.held.ending();
            run.successor = ends.successor.ending();
            run.lease = judge::lease_of(stage, place.work(), &ends.names).await;
            match judge::judge(stage, cell, &ends).await {
                Ok((numbers, faults)) => {
                    ledger = numbers;
                    run.verdict = if faults.is_empty() { Fell::Pass } else { Fell::Fail };
                    for (check, why) in faults {
                        broken.push(check);
                        run.why.push(format!("{check}: {why}"));
                    }
                }
                Err(broke) => broken.extend(fell(&mut run, broke)),
            }
        }
        Ok(None) => run.verdict = Fell::Miss,
        Err(broke) => broken.extend(fell(&mut run, broke)),
    }
    run.seconds = began.elapsed().as_secs_f64();
    Played { run, ledger, broken }
}

/// A run that was not made.
pub(super) fn unplayed(cell: Cell, why: &str) -> Played {
    let mut run = blank(cell);
    run.why.push(why.to_owned());
    Played { run, ledger: QueueNumbers::default(), broken: Vec::new() }
}

/// What should have come to pass did not: the check that is not passed.
fn fell(run: &mut CellRun, broke: Broke) -> Option<&'static str> {
    match broke {
        Broke::Failed(why) => {
            run.verdict = Fell::Fail;
            run.why.push(format!("{}: {why}", judge::DEALT));
            Some(judge::DEALT)
        }
        Broke::Unable(why) => {
            run.why.push(why);
            None
        }
    }
}

/// `None`: no process came to the point.
async fn carry_out(stage: &Stage, cell: Cell, run: &mut CellRun) -> Result<Option<Ends>, Broke> {
    let Cell { place, fault } = cell;
    if place.stages && !stage.has_rows() {
        return Err(unable(&"ClickHouse", &"the settings name none"));
    }
    while run.tries < TRIES_MAX {
        run.tries += 1;
        let names = named(stage, cell, run.tries).await?;
        if let Some(held) = hold(stage, cell, names, run).await? {
            let ends = match fault {
                Fault::Kill => killed(stage, cell, held).await?,
                Fault::Pause | Fault::Cut => overtaken(stage, cell, held).await?,
                Fault::Blink => cut_off(stage, cell, held).await?,
            };
            return Ok(Some(ends));
        }
    }
    Ok(None)
}

async fn named(stage: &Stage, cell: Cell, tries: u32) -> Result<Names, Broke> {
    let Cell { place, fault } = cell;
    let name = place.point.name().replace('.', "-");
    let run = format!("{}-{name}-{}-{tries}", place.work().word(), fault.word());
    if place.work() == Work::Stream {
        return Ok(Names { run, run_id: None, flow: stage.files.flow.clone() });
    }
    let flow = stage.text(&format!("{run}.yaml"));
    fs::write(&flow, fixture::flow_named(&run)).map_err(|error| unable(&flow, &error))?;
    let admit = ["admit", "--flow", &flow, "--snapshot", fixture::NAME, "--key", &run];
    let admitted = stage.run("admit", &admit).await?.done("an admission")?;
    let run_id = admitted["run_id"].as_str().map(str::to_owned);
    Ok(Names { run, run_id, flow })
}

/// Starts the process, and waits until it stands at its point; `None` when it ended or did not come there.
async fn hold(
    stage: &Stage,
    cell: Cell,
    names: Names,
    run: &mut CellRun,
) -> Result<Option<Held>, Broke> {
    let point = format!("{}:1:{}", cell.place.point.name(), stage.mark.nonce);
    let url = stage.url_with(&format!("application_name={}", names.run));
    let more = [("FINAZ_DRILL_POINT", point.as_str()), ("FINAZ_PG_URL", &url)];
    let mut actor = start(stage, cell.place.way, &names, ("held", true), &more).await?;
    let says = announcement(&stage.crew.folder, actor.pid());
    let mut told = cell.place.way != Way::Drain;
    let what = format!("{} reaches {}", names.run, cell.place.point.name());
    let reached = until(&what, REACHED, async || {
        if says.exists() && actor.state() == Some('T') {
            return Ok(Some(true));
        }
        if !told && stage.standing(&lease(&names)).await?.read == RECORDS {
            actor.signal(Signal::TERM);
            told = true;
        }
        Ok((!actor.is_running()).then_some(false))
    });
    match reached.await {
        Ok(true) => {
            stage.note("paused", &lease(&names), "held").await?;
            Ok(Some(Held { actor, names, says }))
        }
        Ok(false) => {
            let ended = actor.end(SOON).await?;
            run.ended = ended.ending();
            run.why = vec![format!("ended before its point: {}", ended.ending())];
            Ok(None)
        }
        Err(Broke::Failed(why)) => {
            run.why = vec![why];
            Ok(None)
        }
        Err(broke) => Err(broke),
    }
}

/// The lease of a stream of this name.
fn lease(names: &Names) -> String {
    format!("stream/{}", names.run)
}

async fn start(
    stage: &Stage,
    way: Way,
    names: &Names,
    (who, goes_on): (&str, bool),
    more: &[(&str, &str)],
) -> Result<Actor, Broke> {
    if way == Way::Run {
        let mut actor = stage.crew.start(who, &["worker", "--drain"], more)?;
        actor.is_running();
        return Ok(actor);
    }
    let topic = stage.topic(if way == Way::Ended { ENDED } else { OPEN });
    let emit = stage.text(&names.emit());
    // One more than there is: it waits for that for ever.
    let once_n = match way {
        Way::Ended => None,
        Way::Middle | Way::Checkpoints | Way::Drain if goes_on => Some(RECORDS + 1),
        Way::Run | Way::Middle | Way::Checkpoints | Way::End | Way::Drain => Some(RECORDS),
    };
    let owner = Owner {
        name: who,
        topic: &topic,
        run: &names.run,
        flow: &names.flow,
        emit: Some(&emit),
        once_n,
    };
    let mut args = owner.args();
    if way == Way::Checkpoints {
        args.extend(["--checkpoint-every".to_owned(), "0.01".to_owned()]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    stage.note("started", &owner.lease(), who).await?;
    stage.crew.start(who, &args, more)
}

async fn killed(stage: &Stage, cell: Cell, held: Held) -> Result<Ends, Broke> {
    let Held { mut actor, names, .. } = held;
    actor.signal(Signal::KILL);
    let dead = actor.end(SOON).await?;
    stage.note("killed", &lease(&names), "held").await?;
    let (successor, before) = succeed(stage, cell, &names).await?;
    Ok(Ends { names, held: dead, successor, before })
}

async fn overtaken(stage: &Stage, cell: Cell, held: Held) -> Result<Ends, Broke> {
    let since = Instant::now();
    let Held { mut actor, names, says } = held;
    if cell.fault == Fault::Cut {
        cut(stage, &names).await?;
    }
    // Also where it holds no lease.
    let over = stage.ttl.mul_f64(1.05);
    until("it is stopped for longer than a lease", SOON, async || {
        Ok((since.elapsed() > over).then_some(()))
    })
    .await?;
    let (successor, before) = succeed(stage, cell, &names).await?;
    let held = let_go(stage, cell, (&mut actor, &says), &names).await?;
    Ok(Ends { names, held, successor, before })
}

async fn cut_off(stage: &Stage, cell: Cell, held: Held) -> Result<Ends, Broke> {
    let Held { mut actor, names, says } = held;
    cut(stage, &names).await?;
    let held = let_go(stage, cell, (&mut actor, &says), &names).await?;
    let (successor, before) = succeed(stage, cell, &names).await?;
    Ok(Ends { names, held, successor, before })
}

/// Ends the sessions of the one that is held.
async fn cut(stage: &Stage, names: &Names) -> Result<(), Broke> {
    let ended = stage.store.end_sessions_of(&names.run).await?;
    if ended == 0 {
        return Err(Broke::Failed("it had no session that could be ended".to_owned()));
    }
    until("its sessions are gone", SOON, async || {
        Ok((stage.store.sessions(&names.run).await? == 0).then_some(()))
    })
    .await
}

/// Lets it go on, and waits for its end; a stream that goes on for ever is told to end once it has read all.
async fn let_go(
    stage: &Stage,
    cell: Cell,
    (actor, says): (&mut Actor, &std::path::Path),
    names: &Names,
) -> Result<Run, Broke> {
    fs::remove_file(says).map_err(|error| unable(&says.display(), &error))?;
    actor.resume();
    let name = lease(names);
    stage.note("resumed", &name, "held").await?;
    let mut told = !matches!(cell.place.way, Way::Middle | Way::Checkpoints);
    until("the one that was woken ends", SOON, async || {
        if !actor.is_running() {
            return Ok(Some(()));
        }
        if !told {
            let lease = stage.store.lease(&name).await?;
            let owns = lease.is_some_and(|row| row.live && row.owner.token().starts_with("held/"));
            if owns && stage.standing(&name).await?.read == RECORDS {
                actor.signal(Signal::TERM);
                told = true;
            }
        }
        Ok(None)
    })
    .await?;
    actor.end(SOON).await
}

/// The next one does what is left, once the lease allows it.
async fn succeed(stage: &Stage, cell: Cell, names: &Names) -> Result<(Run, u64), Broke> {
    let way = cell.place.way;
    if way != Way::Run {
        until("the lease is over", SOON, async || {
            let lease = stage.store.lease(&lease(names)).await?;
            Ok(lease.is_none_or(|row| !row.live).then_some(()))
        })
        .await?;
    }
    let before = stage.standing(&lease(names)).await?.read;
    let ttl = [("FINAZ_LEASE_TTL_SEC", SUCCESSOR_TTL)];
    let more = if way == Way::Run { &[][..] } else { &ttl[..] };
    let mut actor = start(stage, way, names, ("successor", false), more).await?;
    let run = actor.end(SOON).await?;
    if way != Way::Run {
        stage.note("ended", &lease(names), "successor").await?;
    }
    Ok((run, before))
}

/// A report's text.
pub(super) fn text<'a>(report: &'a Value, field: &str) -> &'a str {
    report[field].as_str().unwrap_or_default()
}
