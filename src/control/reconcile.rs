//! Holds what is published against the artifact store and the warehouse, and mends the queue.

use serde::Serialize;

use super::batch::Rooms;
use super::{Control, Error, worker};
use crate::artifacts;
use crate::flow::FeatureBatch;
use crate::ids::Owner;
use crate::store::PublishedRef;
use crate::warehouse::{Series, StagedRef, StagedRun, StagedSeries, Warehouse};

/// Publications, and staged refs, looked at in one page.
const PAGE: i64 = 500;
/// Rows read from the warehouse at once, if no single result has more.
const ROWS_READ_MAX: i64 = 200_000;
/// Mismatches and orphans listed; beyond that the numbers say enough.
const LISTED_MAX: usize = 1_000;

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReconcileReport {
    pub dry_run: bool,
    /// Publications held against their blobs and rows.
    pub checked: u64,
    /// Runs and events returned to the queue, rows staged again; in a dry run: what would be.
    pub repaired: u64,
    pub mismatches: Vec<Mismatch>,
    /// Staged, but not published and held by nobody.
    pub orphans: Vec<Orphan>,
    /// Orphan rows removed.
    pub removed: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Mismatch {
    pub run_id: String,
    /// `artifacts`, `warehouse` or `runs`.
    pub place: &'static str,
    pub what: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Orphan {
    pub run_id: String,
    pub epoch: i64,
    pub fence: i64,
    pub rows: u64,
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileRequest {
    /// Change nothing.
    pub dry_run: bool,
    /// Remove orphan rows from the warehouse; without it they are only listed.
    pub remove_orphans: bool,
}

/// Reconciles everything; `progress` is told how many publications were checked.
pub async fn reconcile(
    control: &Control,
    request: ReconcileRequest,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<ReconcileReport, Error> {
    let rooms = control.rooms().await?;
    let mut report = ReconcileReport { dry_run: request.dry_run, ..ReconcileReport::default() };
    // Refs first, publications second: a ref that was there and is published by then is none of ours to remove.
    if let Some(warehouse) = &rooms.warehouse {
        orphans(&rooms, warehouse, request, &mut report).await?;
    }
    if request.dry_run {
        report.repaired += rooms.store.sweep_preview().await?;
    } else {
        let sweeper = Owner::of_process(&control.settings.owner);
        let by = (&sweeper, control.settings.lease_ttl);
        let (swept, _) = worker::sweep_once(&rooms.store, by, 0).await?;
        report.repaired += swept.requeued + swept.poisoned + swept.mended;
    }
    for (run_id, what) in rooms.store.inconsistent_runs(PAGE).await? {
        note(&mut report, run_id, "runs", what);
    }
    let mut after = 0;
    loop {
        let page = rooms.store.publications_after(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.run_no;
        for some in portions(&page) {
            check(&rooms, some, request.dry_run, &mut report).await?;
            report.checked += u64::try_from(some.len()).unwrap_or(u64::MAX);
            progress(report.checked);
        }
    }
    Ok(report)
}

fn note(report: &mut ReconcileReport, run_id: String, place: &'static str, what: String) {
    if report.mismatches.len() < LISTED_MAX {
        report.mismatches.push(Mismatch { run_id, place, what });
    }
}

/// Lists, and removes if asked, the rows of attempts that were never published and never will be.
async fn orphans(
    rooms: &Rooms,
    warehouse: &Warehouse,
    request: ReconcileRequest,
    report: &mut ReconcileReport,
) -> Result<(), Error> {
    let mut after: Option<StagedRef> = None;
    loop {
        let page =
            warehouse.refs(after.as_ref(), u32::try_from(PAGE).expect("a page is small")).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        let keys: Vec<_> = page
            .iter()
            .map(|staged| (staged.run_no, staged.run_id.as_str(), staged.epoch, staged.fence))
            .collect();
        let indexes = rooms.store.orphans_among(&keys).await?;
        let found: Vec<StagedRef> = indexes.into_iter().map(|index| page[index].clone()).collect();
        for orphan in &found {
            if report.orphans.len() < LISTED_MAX {
                report.orphans.push(Orphan {
                    run_id: orphan.run_id.clone(),
                    epoch: orphan.epoch,
                    fence: orphan.fence,
                    rows: orphan.rows,
                });
            }
        }
        if request.remove_orphans && !request.dry_run && !found.is_empty() {
            warehouse.delete(&found).await?;
            report.removed += found.iter().map(|orphan| orphan.rows).sum::<u64>();
        }
    }
}

/// Publications whose rows are read at once: as many as fit into memory, at least one.
fn portions(page: &[PublishedRef]) -> impl Iterator<Item = &[PublishedRef]> {
    let mut rest = page;
    std::iter::from_fn(move || {
        let mut rows = 0;
        let fits = |publication: &&PublishedRef| {
            rows += publication.rows;
            rows <= ROWS_READ_MAX
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (some, later) = rest.split_at(count);
        rest = later;
        (!some.is_empty()).then_some(some)
    })
}

/// Publications against their blobs and their rows. Where rows are missing, all are staged again from the blob.
async fn check(
    rooms: &Rooms,
    some: &[PublishedRef],
    dry_run: bool,
    report: &mut ReconcileReport,
) -> Result<(), Error> {
    let mut read = match &rooms.warehouse {
        Some(warehouse) => warehouse.read_runs(&refs(some)).await?.into_iter(),
        None => Vec::new().into_iter(),
    };
    let mut missing = Vec::new();
    for publication in some {
        let staged = read.next();
        let Some(batch) = blob(rooms, publication, report)? else { continue };
        // Rows that are gone are staged again, all of them: a reader takes the last of each. Rows that are there and say
        // something else are not touched.
        let is_short = match staged {
            None => continue,
            Some(Ok(staged)) => {
                let rows: usize = staged.iter().map(|series| series.values.len()).sum();
                let is_short = (rows as u64) < batch.rows();
                if let Some(what) = difference(&batch, &staged).filter(|_| !is_short) {
                    note(report, publication.run_id.clone(), "warehouse", what);
                }
                is_short
            }
            Some(Err(_gap)) => true,
        };
        if is_short {
            report.repaired += 1;
            missing.push((publication, batch));
        }
    }
    if let (Some(warehouse), false) = (&rooms.warehouse, dry_run) {
        let runs: Vec<_> =
            missing.iter().map(|(publication, batch)| again(publication, batch)).collect();
        warehouse.stage(&runs).await?;
    }
    Ok(())
}

fn refs(some: &[PublishedRef]) -> Vec<crate::warehouse::Ref<'_>> {
    some.iter().map(|one| (one.run_no, one.run_id.as_str(), one.epoch, one.fence)).collect()
}

fn again<'a>(publication: &'a PublishedRef, batch: &'a FeatureBatch) -> StagedRun<'a> {
    let PublishedRef { run_no, ref run_id, epoch, fence, .. } = *publication;
    StagedRun { run_no, run_id, epoch, fence, series: series(batch) }
}

/// The result in the artifact store; what is wrong with it is noted, and `None` if there is none to compare with.
fn blob(
    rooms: &Rooms,
    publication: &PublishedRef,
    report: &mut ReconcileReport,
) -> Result<Option<FeatureBatch>, Error> {
    let run_id = || publication.run_id.clone();
    let bytes = match rooms.artifacts.get(&publication.blob) {
        Ok(bytes) => bytes,
        Err(
            error @ (artifacts::Error::Missing { .. }
            | artifacts::Error::Corrupt { .. }
            | artifacts::Error::PackCorrupt { .. }),
        ) => {
            note(report, run_id(), "artifacts", error.to_string());
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let batch = match FeatureBatch::from_blob(&bytes, &publication.blob.to_string()) {
        Ok(batch) => batch,
        Err(invalid) => {
            note(report, run_id(), "artifacts", invalid.to_string());
            return Ok(None);
        }
    };
    if batch.values_hash != publication.values_hash {
        let what = format!(
            "values {} are published, the blob has {}",
            publication.values_hash, batch.values_hash
        );
        note(report, run_id(), "artifacts", what);
    }
    Ok(Some(batch))
}

/// The series of a result, each with the times of its instrument, as the warehouse takes them.
pub(super) fn series(batch: &FeatureBatch) -> Vec<Series<'_>> {
    // Instrument by instrument, each with every node of the flow.
    let nodes = batch.series.len() / batch.times.len().max(1);
    let times = batch.times.iter().flat_map(|times| std::iter::repeat_n(times, nodes));
    let mut paired = Vec::with_capacity(batch.series.len());
    for (series, times) in batch.series.iter().zip(times) {
        paired.push(Series {
            instrument: &series.instrument,
            node: &series.node,
            event_time: &times.event_time,
            values: &series.values,
        });
    }
    paired
}

/// The first place where rows and blob differ, to the bit.
fn difference(batch: &FeatureBatch, staged: &[StagedSeries]) -> Option<String> {
    let kept: Vec<_> =
        series(batch).into_iter().filter(|series| !series.values.is_empty()).collect();
    if kept.len() != staged.len() {
        return Some(format!("{} series, the blob has {}", staged.len(), kept.len()));
    }
    for (kept, staged) in kept.iter().zip(staged) {
        let place = format!("{}/{}", kept.instrument, kept.node);
        if (kept.instrument, kept.node) != (&*staged.instrument, &*staged.node) {
            return Some(format!("{}/{} in place of {place}", staged.instrument, staged.node));
        }
        if kept.values.len() != staged.values.len() || kept.event_time != staged.event_time {
            return Some(format!("{place}: other rows"));
        }
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        if let Some(index) = kept.values.iter().zip(&staged.values).position(|pair| !same(pair)) {
            let (published, seen) = (kept.values[index], staged.values[index]);
            return Some(format!("{place} row {index}: {seen}, the blob has {published}"));
        }
    }
    None
}
