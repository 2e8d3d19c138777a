//! What must be true after a run of the matrix, whatever was done to whom.

use super::cell::{Cell, ENDED, Ends, Names, OPEN, RECORDS, REPLAYS, text};
use crate::control::drill::fixture;
use crate::control::drill::look::{Journal, counts, ends};
use crate::control::drill::owners::{check, overlaps};
use crate::control::drill::stage::Stage;
use crate::drill::{Broke, Fault, Moment, Planned, QueueNumbers, Way, Work};
use crate::flow::FeatureBatch;
use crate::points::Point;

pub(super) const REACHED: &str = "M1";
pub(super) const DEALT: &str = "M2";
const ENDING: &str = "M3";
const FINISHED: &str = "M4";
const ONCE: &str = "M5";
const FENCED: &str = "M6";
const CLEAR: &str = "M7";
pub(super) const WHOLE: &str = "M8";

/// Of all runs.
pub(super) const CHECKS: &[Planned] = &[
    check(REACHED, "a real process comes to each point"),
    check(DEALT, "the fault is dealt to it while it stands there"),
    check(ENDING, "it ends as it must: killed, refused with its code, or in order"),
    check(FINISHED, "the one that finishes ends in order, with the golden"),
    check(ONCE, "one publication a run; each record decided, and none twice"),
    check(
        FENCED,
        "leases never overlap, and nothing is committed under a fence that was overtaken",
    ),
    check(CLEAR, "no lease is left, nothing is left to do, what was emitted is whole"),
    check(WHOLE, "every blob under a final name is whole, rows are what is published"),
];

/// A check that was not passed, and why.
type Faults = Vec<(&'static str, String)>;

/// How a process ends that was overtaken while it was under a lease.
const OBSOLETE: &str = "exit 1 STREAM_FENCE_OBSOLETO";

/// How the process must end to which the fault was dealt.
fn endings(cell: Cell) -> &'static [&'static str] {
    let point = cell.place.point;
    match (cell.fault, cell.place.work()) {
        (Fault::Kill, _) => &["signal 9"],
        // It finds that nothing is left to do.
        (_, Work::Batch) => &["exit 0"],
        // Its session is ended while it asks for a lease, which it does not have yet: the same command may succeed later.
        (_, Work::Stream) if point == Point::LeaseLocked => &["exit 75 PG_AWAY"],
        // On a busy machine the lease may run out before it has new sessions.
        (Fault::Blink, Work::Stream) => &["exit 0", OBSOLETE],
        (Fault::Pause | Fault::Cut, Work::Stream) if owes_nothing(point) => &["exit 0"],
        (Fault::Pause | Fault::Cut, Work::Stream) => &[OBSOLETE],
    }
}

/// Whether an owner had no lease there yet, and takes it when it goes on; or had done all of its work.
fn owes_nothing(point: Point) -> bool {
    use Point::{EmitAcked, LeaseReleased, ReleaseLocked, ReleaseMade, StreamReady};
    [StreamReady, EmitAcked, ReleaseLocked, ReleaseMade, LeaseReleased].contains(&point)
}

/// The lease that the work was under last.
pub(super) async fn lease_of(stage: &Stage, work: Work, names: &Names) -> Option<String> {
    match (work, &names.run_id) {
        (Work::Stream, _) => Some(format!("stream/{}", names.run)),
        (Work::Batch, Some(run_id)) => Some(stage.store.lease(run_id).await.ok().flatten()?.name),
        (Work::Batch, None) => None,
    }
}

/// All that is not as it must be.
pub(super) async fn judge(
    stage: &Stage,
    cell: Cell,
    ends: &Ends,
) -> Result<(QueueNumbers, Faults), Broke> {
    let mut faults = Vec::new();
    let ended = ends.held.ending();
    if !endings(cell).contains(&ended.as_str()) {
        let last = ends.held.err.trim_end().lines().last().unwrap_or_default();
        let message = ends.held.json["error"]["message"].as_str().unwrap_or(last);
        let expected = endings(cell).join(" or ");
        faults.push((ENDING, format!("it ended with {ended}, not {expected}: {message}")));
    }
    if ends.successor.exit != Some(0) {
        let message = ends.successor.json["error"]["message"].as_str().unwrap_or_default();
        let ended = ends.successor.ending();
        faults.push((FINISHED, format!("the successor ended with {ended}: {message}")));
    }
    let numbers = match cell.place.work() {
        Work::Batch => {
            batch(stage, &ends.names, &mut faults).await?;
            QueueNumbers::default()
        }
        Work::Stream => stream(stage, cell, ends, &mut faults).await?,
    };
    Ok((numbers, faults))
}

/// Notes what is seen otherwise than expected.
fn same(faults: &mut Faults, check: &'static str, expected: &str, seen: &str) {
    if expected != seen {
        faults.push((check, format!("expected {expected}, seen {seen}")));
    }
}

async fn batch(stage: &Stage, names: &Names, faults: &mut Faults) -> Result<(), Broke> {
    let run_id = names.run_id.as_deref().unwrap_or_default();
    let row = stage.store.runs_like(run_id).await?.pop();
    let row = row.ok_or_else(|| Broke::Failed(format!("there is no run {run_id}")))?;
    same(faults, FINISHED, "SUCCEEDED", &row.state);
    match row.publication {
        Some((_, fence, blob, values_hash, _)) => {
            same(faults, FINISHED, fixture::golden(), &values_hash.to_string());
            same(faults, FENCED, &format!("fence {}", row.fence), &format!("fence {fence}"));
            let kept = stage.artifacts()?.get(&blob).map_err(|error| error.to_string());
            let kept = kept.and_then(|bytes| {
                FeatureBatch::from_blob(&bytes, "a result").map_err(|error| error.to_string())
            });
            let kept = kept.map(|batch| batch.values_hash.to_string());
            same(faults, WHOLE, fixture::golden(), &kept.unwrap_or_else(|why| why));
        }
        None => faults.push((ONCE, "it has no publication".to_owned())),
    }
    let all = stage.store.drill_history().await?;
    let is_of = |moment: &&Moment| {
        let detail = moment.detail.as_deref().unwrap_or_default();
        !run_id.is_empty() && detail.split(' ').next() == Some(run_id)
    };
    let (mut published, mut claimed) = (0, 0);
    for moment in all.iter().filter(is_of) {
        let fence = moment.fence.unwrap_or(0);
        match moment.what.as_str() {
            "claimed" => claimed = claimed.max(fence),
            "published" => {
                published += 1;
                same(faults, FENCED, &format!("fence {claimed}"), &format!("fence {fence}"));
            }
            _ => {}
        }
    }
    same(faults, ONCE, "published 1 times", &format!("published {published} times"));
    let pending = stage.store.outbox(true, 1_000).await?;
    let pending = pending.iter().filter(|event| event.run_id == run_id).count();
    same(faults, CLEAR, "0 events pending", &format!("{pending} events pending"));
    let lease = stage.store.lease(run_id).await?;
    let live = lease.is_some_and(|lease| lease.live);
    same(faults, CLEAR, "lease live false", &format!("lease live {live}"));
    Ok(())
}

async fn stream(
    stage: &Stage,
    cell: Cell,
    given: &Ends,
    faults: &mut Faults,
) -> Result<QueueNumbers, Broke> {
    let name = format!("stream/{}", given.names.run);
    let report = &given.successor.json;
    let each = [6, 15 * REPLAYS, RECORDS - 16 * REPLAYS - 6, 0, REPLAYS];
    same(faults, FINISHED, &format!("{each:?}"), &format!("{:?}", counts(report)));
    same(faults, FINISHED, fixture::golden(), text(report, "values_hash"));
    same(faults, FINISHED, "EQUAL_TO_BATCH_GOLDEN", text(report, "verdict"));
    let standing = stage.standing(&name).await?;
    let journal = Journal::read(&stage.artifacts()?, standing.head)?;
    let seen = format!(
        "{} decided, {} twice, unbroken {}",
        journal.fates.len(),
        journal.twice(),
        journal.is_unbroken()
    );
    same(faults, ONCE, &format!("{RECORDS} decided, 0 twice, unbroken true"), &seen);
    let moments = stage.moments(&name).await?;
    let (_, overlapping) = overlaps(&moments);
    same(faults, FENCED, "0 overlaps", &format!("{overlapping} overlaps"));
    if let Some(late) = overtaken(&moments) {
        faults.push((FENCED, late));
    }
    if given.held.ending() == OBSOLETE {
        let is_his = |moment: &&Moment| moment.what == "refused" && moment.who() == "held";
        let refused = moments.iter().filter(is_his).count();
        if refused == 0 {
            faults.push((FENCED, "its refusal is not on record".to_owned()));
        }
    }
    let emitted = stage.emitted(&given.names.emit()).unwrap_or_default();
    same(faults, CLEAR, &fixture::emitted(), &emitted);
    let live = stage.store.lease(&name).await?.is_some_and(|lease| lease.live);
    same(faults, CLEAR, "lease live false", &format!("lease live {live}"));
    let topic = stage.topic(if cell.place.way == Way::Ended { ENDED } else { OPEN });
    // Markers are no records.
    let mut edges = ends(stage, &topic).await?;
    if cell.place.way == Way::Ended {
        edges.iter_mut().for_each(|edge| edge.1 -= 1);
    }
    Ok(journal.numbers(&edges, given.before))
}

/// A commit under a fence that was not the highest granted.
fn overtaken(moments: &[Moment]) -> Option<String> {
    let mut highest = 0;
    for moment in moments {
        let fence = moment.fence.unwrap_or(0);
        match moment.what.as_str() {
            "granted" => highest = highest.max(fence),
            "committed" if fence < highest => {
                return Some(format!(
                    "commit {:?} under fence {fence} after {highest}",
                    moment.seq
                ));
            }
            _ => {}
        }
    }
    None
}
