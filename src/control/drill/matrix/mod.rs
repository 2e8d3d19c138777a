//! `finaz drill kill-matrix`: each point of the program, each fault, one real process held there, and what came of it.
//!
//! Several databases side by side, each with one run at a time: a worker takes whatever is queued, so two of them in one
//! database would do each other's work.

mod cell;
mod judge;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use serde::Serialize;
use tokio::sync::watch;

use super::stage::{Means, Stage};
use super::{Files, Progress, told};
use crate::config::Secret;
use crate::control::worker::Stop;
use crate::control::{Control, Error};
use crate::drill::{
    Broke, CellRun, Check, Draw, Fault, Fell, LaneMoment, MatrixEvidence, Moment, PLACES, Place,
    QueueNumbers, Sheet, Verdict, Versions, Work, matrix_page,
};
use crate::invalid::{Invalid, nearest};
use cell::{Cell, Played};

/// The lease of a process that is held.
const TTL: Duration = Duration::from_millis(800);
/// Databases side by side.
const LANES: usize = 5;
/// Pictures in the evidence, at most.
const PICTURES_MAX: usize = 12;

/// What to carry out.
#[derive(Clone, Debug)]
pub struct MatrixRequest {
    /// The program whose processes are held.
    pub binary: PathBuf,
    /// Where the drill's folders are made.
    pub temporary: PathBuf,
    /// Where the evidence goes; absent: beside the artifacts.
    pub out: Option<PathBuf>,
    /// A marked database; absent: some are made on the server of the settings.
    pub database: Option<Secret>,
    /// Draws the order of the runs.
    pub seed: u64,
    /// Points by name; none: all.
    pub only: Vec<String>,
    /// Faults by name; none: all.
    pub faults: Vec<String>,
}

/// The evidence, and where it lies.
#[derive(Clone, Debug, Serialize)]
pub struct MatrixReport {
    #[serde(flatten)]
    pub evidence: MatrixEvidence,
    pub files: Files,
}

/// The points and the faults, as they are.
#[derive(Clone, Debug, Serialize)]
pub struct MatrixPlan {
    pub points: Vec<PointView>,
    pub faults: Vec<FaultView>,
    /// The runs that are asked for, in the order in which they begin.
    pub runs: Vec<RunView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PointView {
    /// `batch` or `stream`.
    pub work: &'static str,
    pub point: &'static str,
    pub what: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct FaultView {
    pub fault: &'static str,
    pub what: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    pub work: &'static str,
    pub point: &'static str,
    pub fault: &'static str,
}

/// What would be carried out; touches nothing.
///
/// # Errors
/// `POINT_UNKNOWN`, `FAULT_UNKNOWN`.
pub fn kill_matrix_plan(request: &MatrixRequest) -> Result<MatrixPlan, Error> {
    let view = |place: &Place| PointView {
        work: place.work().word(),
        point: place.point.name(),
        what: place.point.what(),
    };
    let run = |cell: Cell| RunView {
        work: cell.place.work().word(),
        point: cell.place.point.name(),
        fault: cell.fault.word(),
    };
    let fault = |fault: Fault| FaultView { fault: fault.word(), what: fault.what() };
    Ok(MatrixPlan {
        points: PLACES.iter().map(view).collect(),
        faults: Fault::ALL.into_iter().map(fault).collect(),
        runs: cells(request)?.into_iter().map(run).collect(),
    })
}

/// The runs that are asked for, in an order of the seed.
fn cells(request: &MatrixRequest) -> Result<Vec<Cell>, Invalid> {
    let names = PLACES.iter().flat_map(|place| [place.name(), place.point.name().to_owned()]);
    let names: Vec<String> = names.collect();
    for asked in &request.only {
        if !names.contains(asked) {
            let near = nearest(asked, names.iter().map(String::as_str));
            let hint = near.map_or_else(
                || "see `finaz drill kill-matrix --list`".to_owned(),
                |name| format!("did you mean {name}?"),
            );
            let place = asked.escape_debug().to_string();
            return Err(Invalid::new("POINT_UNKNOWN", place, "there is no such point", hint));
        }
    }
    let mut faults = Vec::new();
    for asked in &request.faults {
        let fault: Fault = asked.parse().map_err(|()| {
            let words = Fault::ALL.map(Fault::word).join(", ");
            let place = asked.escape_debug().to_string();
            Invalid::new(
                "FAULT_UNKNOWN",
                place,
                "there is no such fault",
                format!("one of {words}"),
            )
        })?;
        faults.push(fault);
    }
    let wanted = |place: &&Place| {
        let is = |asked: &String| *asked == place.name() || *asked == place.point.name();
        request.only.is_empty() || request.only.iter().any(is)
    };
    let all = PLACES.iter().filter(wanted).flat_map(|place| {
        let dealt = Fault::ALL.into_iter();
        let dealt = dealt.filter(|fault| faults.is_empty() || faults.contains(fault));
        dealt.map(move |fault| Cell { place, fault })
    });
    let mut cells: Vec<Cell> = all.collect();
    let mut draw = Draw::new(request.seed);
    for last in (1..cells.len()).rev() {
        let at = draw.between(0, last as u64);
        cells.swap(last, usize::try_from(at).unwrap_or(0));
    }
    Ok(cells)
}

/// What one database came to.
#[derive(Default)]
struct Lane {
    played: Vec<Played>,
    /// What is wrong with its blobs and its rows, when all was over.
    whole: Option<Result<(), Broke>>,
    moments: Vec<Moment>,
}

/// Carries out the matrix, and writes its evidence. What it made on the servers is gone when this returns, however it ends.
///
/// # Errors
/// `DRILL_UNMARKED` and others for a database that is not a drill's; a service that is away before it begins; a signal.
pub async fn kill_matrix(
    control: &Control,
    request: &MatrixRequest,
    progress: Progress<'_>,
    mut stop: watch::Receiver<Stop>,
) -> Result<MatrixReport, Error> {
    super::check_database(request.database.as_ref())?;
    let cells = cells(request)?;
    let began = Instant::now();
    let stages = set(control, request, cells.len()).await?;
    let played = tokio::select! {
        played = carry_out(&stages, &cells, progress) => Ok(played),
        signal = told(&mut stop) => Err(Error::Interrupted { signal }),
    };
    let gathered = match played {
        Ok(lanes) => gather(&stages, request, &cells, lanes, began).await,
        Err(error) => Err(error),
    };
    let struck = futures_util::future::join_all(stages.into_iter().map(Stage::strike)).await;
    let (evidence, moments) = gathered?;
    let report = write(control, request, evidence, &moments)?;
    struck.into_iter().collect::<Result<(), Error>>()?;
    Ok(report)
}

/// As many databases as are of use; one that was given is the only one.
async fn set(
    control: &Control,
    request: &MatrixRequest,
    cells: usize,
) -> Result<Vec<Stage>, Error> {
    let lanes = if request.database.is_some() { 1 } else { LANES.min(cells) };
    let means = Means {
        binary: &request.binary,
        temporary: &request.temporary,
        database: request.database.as_ref(),
        seed: request.seed,
        warehouse: true,
        ttl: TTL,
    };
    let mut stages = Vec::with_capacity(lanes);
    for _ in 0..lanes {
        match Stage::set(control, &means).await {
            Ok(stage) => stages.push(stage),
            Err(error) => {
                for stage in stages {
                    let _gone = stage.strike().await;
                }
                return Err(error);
            }
        }
    }
    Ok(stages)
}

async fn carry_out(
    stages: &[Stage],
    cells: &[Cell],
    progress: Progress<'_>,
) -> (String, Vec<Lane>) {
    let total = cells.len() as u64;
    progress(0, total);
    let started = match stages.first() {
        Some(stage) => stage.store.drill_server().await.map(|(_, at)| at).unwrap_or_default(),
        None => String::new(),
    };
    let queue = Mutex::new(cells.iter().copied().collect::<VecDeque<Cell>>());
    let done = AtomicU64::new(0);
    let step = || progress(1 + done.fetch_add(1, Ordering::Relaxed), total);
    let lanes = stages.iter().map(|stage| lane(stage, &queue, &step));
    (started, futures_util::future::join_all(lanes).await)
}

/// Makes one run after the other, as long as there are any.
async fn lane(stage: &Stage, queue: &Mutex<VecDeque<Cell>>, step: &(dyn Fn() + Sync)) -> Lane {
    let mut lane = Lane::default();
    let ready = ready(stage).await;
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(cell) = next else { break };
        let played = match &ready {
            Ok(()) => {
                // A defect of ours in one run leaves the others, and what has to be removed, to be seen to.
                let play = AssertUnwindSafe(cell::play(stage, cell)).catch_unwind();
                play.await.unwrap_or_else(|_| cell::unplayed(cell, "the drill panicked"))
            }
            Err(Broke::Failed(why) | Broke::Unable(why)) => cell::unplayed(cell, why),
        };
        lane.played.push(played);
        step();
    }
    if ready.is_ok() {
        lane.whole = Some(whole(stage).await);
        lane.moments = stage.store.drill_history().await.unwrap_or_default();
    }
    lane
}

/// What all runs need before they begin.
async fn ready(stage: &Stage) -> Result<(), Broke> {
    super::ready(stage).await?;
    stage.store.watch_chaos().await?;
    for topic in [cell::OPEN, cell::ENDED] {
        stage.replay(&stage.topic(topic), cell::REPLAYS).await?;
    }
    let ended = stage.topic(cell::ENDED);
    let mark = ["stream", "mark", "END_OF_BOUNDED_SOURCE", "--topic", &ended];
    stage.run("mark", &mark).await?.done("the end of a source")?;
    Ok(())
}

/// Every blob is whole, and every row is what is published.
async fn whole(stage: &Stage) -> Result<(), Broke> {
    let verified = stage.run("verify", &["cas", "verify"]).await?;
    let damages = verified.json["damages"].as_u64();
    if verified.exit != Some(0) || damages != Some(0) {
        return Err(Broke::Failed(format!("{}, {damages:?} damages", verified.ending())));
    }
    let held = stage.run("reconcile", &["reconcile", "--dry-run"]).await?;
    let mismatches = &held.json["mismatches"];
    if held.exit != Some(0) || mismatches.as_array().is_none_or(|all| !all.is_empty()) {
        return Err(Broke::Failed(format!("{}, mismatches {mismatches}", held.ending())));
    }
    Ok(())
}

/// The checks over all runs.
fn checks(lanes: &[Lane]) -> Vec<Check> {
    let all: Vec<&Played> = lanes.iter().flat_map(|lane| &lane.played).collect();
    let mut sheet = Sheet::new("all runs", judge::CHECKS);
    let id = |run: &CellRun| format!("{} {}/{}", run.work.word(), run.point, run.fault.word());
    let carried = |played: &&&Played| played.run.verdict != Fell::NotRun;
    let ran: Vec<&&Played> = all.iter().filter(carried).collect();
    let open = all.len() - ran.len();
    for planned in judge::CHECKS {
        let fell = |played: &&&&Played| match planned.id {
            judge::REACHED => played.run.verdict == Fell::Miss,
            check => played.broken.contains(&check),
        };
        let mut named: Vec<String> =
            ran.iter().filter(fell).map(|played| id(&played.run)).collect();
        if planned.id == judge::WHOLE {
            for whole in lanes.iter().filter_map(|lane| lane.whole.as_ref()) {
                if let Err(Broke::Failed(why) | Broke::Unable(why)) = whole {
                    named.push(why.clone());
                }
            }
        }
        if open > 0 && named.is_empty() {
            // Nothing failed, and not all could be carried out.
            continue;
        }
        let expected = format!("{} of {}", all.len(), all.len());
        let seen = format!("{} of {}", all.len() - named.len().min(all.len()), all.len());
        let seen =
            if named.is_empty() { seen } else { format!("{seen}; not {}", named.join(", ")) };
        sheet.holds(planned.id, expected, seen, named.is_empty());
    }
    let unable = all.iter().find(|played| played.run.verdict == Fell::NotRun);
    let ended = match unable {
        Some(played) => Err(Broke::Unable(format!(
            "{open} runs were not carried out: {}",
            played.run.why.first().cloned().unwrap_or_default()
        ))),
        None => Ok(()),
    };
    sheet.end(ended)
}

/// The evidence, with all that the databases wrote down.
async fn gather(
    stages: &[Stage],
    request: &MatrixRequest,
    cells: &[Cell],
    (started_at, lanes): (String, Vec<Lane>),
    began: Instant,
) -> Result<(MatrixEvidence, Vec<LaneMoment>), Error> {
    let first = stages.first().expect("a matrix has a database");
    let (postgresql, ended_at) = first.store.drill_server().await?;
    let topics = first.broker.topic_names().await?;
    let is_ours = |topic: &String| stages.iter().any(|stage| topic.starts_with(&stage.mark.topics));
    let checks = checks(&lanes);
    let ledger = lanes.iter().flat_map(|lane| &lane.played);
    let ledger = ledger.fold(QueueNumbers::default(), |sum, played| sum.plus(played.ledger));
    let mut moments = Vec::new();
    let mut runs = Vec::new();
    let mut timeline = Vec::new();
    for (lane, Lane { played, moments: told, .. }) in (1..).zip(lanes) {
        for played in &played {
            timeline.extend(pictured(&played.run, &told));
        }
        runs.extend(played.into_iter().map(|played| played.run));
        moments.extend(told.into_iter().map(|moment| LaneMoment { lane, moment }));
    }
    let row = |run: &CellRun| {
        PLACES.iter().position(|p| p.work() == run.work && p.point.name() == run.point)
    };
    runs.sort_by_key(|run| (row(run), run.fault));
    let count = |fell| runs.iter().filter(|run| run.verdict == fell).count();
    let (passed, failed) = (count(Fell::Pass), count(Fell::Fail));
    let (missed, not_run) = (count(Fell::Miss), count(Fell::NotRun));
    let evidence = MatrixEvidence {
        kind: "DrillEvidence",
        version: 1,
        drill: "kill-matrix",
        verdict: Verdict::of(&checks, judge::CHECKS.len()),
        total: runs.len(),
        passed,
        failed,
        missed,
        not_run,
        whole: cells.len() == PLACES.len() * Fault::ALL.len(),
        seed: request.seed,
        nonces: stages.iter().map(|stage| stage.mark.nonce.clone()).collect(),
        started_at,
        ended_at,
        seconds: began.elapsed().as_secs_f64(),
        ttl_sec: TTL.as_secs_f64(),
        versions: Versions::of(postgresql, None),
        environment: first.environment(topics.into_iter().filter(is_ours).collect()),
        ledger,
        checks,
        runs,
        timeline: chosen(timeline),
        history: "kill-matrix.history.jsonl".to_owned(),
        history_hash: String::new(),
        history_lines: moments.len(),
    };
    Ok((evidence, moments))
}

/// Whether a run passed, whether its picture says little, and its fault.
type Rank = (bool, bool, Fault);

/// What happened to the lease of a run, and how much it is worth a picture.
fn pictured(run: &CellRun, moments: &[Moment]) -> Option<(Rank, Vec<Moment>)> {
    let lease = run.lease.as_deref()?;
    let of = moments.iter().filter(|moment| moment.is_of(lease));
    // Two databases may have a lease of one name.
    let name = format!("{} {}/{}: {lease}", run.work.word(), run.point, run.fault.word());
    let named = |moment: &Moment| Moment { lease: Some(name.clone()), ..moment.clone() };
    let says_little = run.work == Work::Batch || run.point != "commit.locked";
    Some(((run.verdict == Fell::Pass, says_little, run.fault), of.map(named).collect()))
}

/// Those that did not pass, then one of each fault.
fn chosen(mut pictures: Vec<(Rank, Vec<Moment>)>) -> Vec<Moment> {
    pictures.sort_by_key(|(rank, _)| *rank);
    let mut seen = Vec::new();
    pictures.retain(|((passed, _, fault), _)| {
        let again = *passed && seen.contains(fault);
        seen.extend(passed.then_some(*fault));
        !again
    });
    pictures.truncate(PICTURES_MAX);
    pictures.into_iter().flat_map(|(_, moments)| moments).collect()
}

fn write(
    control: &Control,
    request: &MatrixRequest,
    mut evidence: MatrixEvidence,
    moments: &[LaneMoment],
) -> Result<MatrixReport, Error> {
    let nonce = evidence.nonces.first().cloned().unwrap_or_default();
    let keeper = super::Keeper::new(control, request.out.as_deref(), &nonce)?;
    let (history, hash) = keeper.history(&evidence.history, moments)?;
    evidence.history_hash = hash;
    let document = keeper.document("kill-matrix.json", &evidence)?;
    let page = keeper.keep("kill-matrix.html", matrix_page(&evidence).as_bytes())?;
    Ok(MatrixReport { evidence, files: Files { document, page, history } })
}
