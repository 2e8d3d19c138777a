//! `finaz reconcile`

use finaz::control::reconcile;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Hold what is published against the artifact store and ClickHouse, and repair what can be
///
/// Run it with --dry-run first. It ends 1 when a published hash does not match what is stored.
#[derive(Debug, clap::Args)]
pub(crate) struct ReconcileArgs {
    /// Say what would be repaired and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ReconcileArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| reconcile::reconcile(control, args.dry_run).await)
        .await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("checked", report.checked.to_string()),
            ("repaired", report.repaired.to_string()),
            ("mismatches", report.mismatches.len().to_string()),
            ("orphans", report.orphans.len().to_string()),
        ]);
    });
    Ok(if report.mismatches.is_empty() { Exit::Done } else { Exit::Refused })
}
