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
        for publication in &page {
            check(&rooms, publication, request.dry_run, &mut report).await?;
            report.checked += 1;
        }
        progress(report.checked);
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

/// One publication against its blob and its rows. Rows that are all missing are staged again from the blob.
async fn check(
    rooms: &Rooms,
    publication: &PublishedRef,
    dry_run: bool,
    report: &mut ReconcileReport,
) -> Result<(), Error> {
    let run_id = || publication.run_id.clone();
    let bytes = match rooms.artifacts.get(&publication.blob) {
        Ok(bytes) => bytes,
        Err(
            error @ (artifacts::Error::Missing { .. }
            | artifacts::Error::Corrupt { .. }
            | artifacts::Error::PackCorrupt { .. }),
        ) => {
            note(report, run_id(), "artifacts", error.to_string());
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let batch = match FeatureBatch::from_blob(&bytes, &publication.blob.to_string()) {
        Ok(batch) => batch,
        Err(invalid) => {
            note(report, run_id(), "artifacts", invalid.to_string());
            return Ok(());
        }
    };
    if batch.values_hash != publication.values_hash {
        let what = format!(
            "values {} are published, the blob has {}",
            publication.values_hash, batch.values_hash
        );
        note(report, run_id(), "artifacts", what);
    }
    let Some(warehouse) = &rooms.warehouse else { return Ok(()) };
    let PublishedRef { run_no, epoch, fence, .. } = *publication;
    let staged = match warehouse.read_run(run_no, &publication.run_id, epoch, fence).await {
        Ok(staged) => staged,
        Err(gap @ crate::warehouse::Error::Gap { .. }) => {
            note(report, run_id(), "warehouse", gap.to_string());
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    if staged.is_empty() && batch.rows() > 0 {
        report.repaired += 1;
        if !dry_run {
            let series = series(&batch);
            let run = StagedRun { run_no, run_id: &publication.run_id, epoch, fence, series };
            warehouse.stage(&[run]).await?;
        }
        return Ok(());
    }
    if let Some(what) = difference(&batch, &staged) {
        note(report, run_id(), "warehouse", what);
    }
    Ok(())
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
