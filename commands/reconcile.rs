//! `finaz reconcile`

use finaz::control::reconcile::{self, ReconcileReport, ReconcileRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, short};
use crate::ui::{Exit, Unit};

/// Hold what is published against the artifact store and ClickHouse, and repair what can be
///
/// Run it with --dry-run first. It ends 1 when a published hash does not match what is stored.
#[derive(Debug, clap::Args)]
pub(crate) struct ReconcileArgs {
    /// Say what would be repaired and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove the rows in ClickHouse of attempts that were never published; else they are only listed
    #[arg(long)]
    remove_orphans: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ReconcileArgs) -> Result<Exit, Failure> {
    let request = ReconcileRequest { dry_run: args.dry_run, remove_orphans: args.remove_orphans };
    let bar = cx.ui.progress("checking", Unit::Count);
    let report = cx
        .awaiting(async |control| {
            reconcile::reconcile(control, request, &|done| bar.at(done, 0)).await
        })
        .await?;
    cx.ui.report(&report, |page| self::page(page, &report));
    Ok(if report.mismatches.is_empty() { Exit::Done } else { Exit::Refused })
}

fn page(page: &mut Page, report: &ReconcileReport) {
    page.pairs(&[
        ("checked", report.checked.to_string()),
        ("repaired", report.repaired.to_string()),
        ("mismatches", report.mismatches.len().to_string()),
        ("orphans", report.orphans.len().to_string()),
        ("removed", report.removed.to_string()),
    ]);
    if report.dry_run {
        page.line("nothing was changed: this was a dry run");
    }
    if !report.mismatches.is_empty() {
        let rows = report.mismatches.iter().map(|mismatch| {
            vec![short(&mismatch.run_id), mismatch.place.to_owned(), mismatch.what.clone()]
        });
        page.line("");
        page.table(&["run", "place", "mismatch"], rows.collect(), "");
    }
    if !report.orphans.is_empty() {
        let rows = report.orphans.iter().map(|orphan| {
            vec![
                short(&orphan.run_id),
                orphan.epoch.to_string(),
                orphan.fence.to_string(),
                orphan.rows.to_string(),
            ]
        });
        page.line("");
        page.table(&["orphan of run", "epoch", "fence", "rows"], rows.collect(), "");
    }
}
