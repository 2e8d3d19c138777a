//! `finaz cas gc`

use finaz::config;
use finaz::control::cas;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Remove artifacts that no name, run, publication, stream or checkpoint needs any more
#[derive(Debug, clap::Args)]
pub(crate) struct GcArgs {
    /// Keep what was written or used within this time
    #[arg(long, value_name = "SEC", default_value = "86400")]
    min_age_sec: String,
    /// Say what would be removed and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Ask no database: for a store whose runs are all to be forgotten
    #[arg(long)]
    labels_only: bool,
}

/// Between a blob and the name or publication that keeps it lie some seconds, on a slow disk more.
const MIN_AGE_SEC_MIN: f64 = 60.0;
/// A hundred years.
const MIN_AGE_SEC_MAX: f64 = 3.2e9;

pub(crate) async fn run(cx: &mut Context<'_>, args: GcArgs) -> Result<Exit, Failure> {
    let min_age =
        config::seconds("--min-age-sec", &args.min_age_sec, MIN_AGE_SEC_MIN, MIN_AGE_SEC_MAX)?;
    let report = cas::gc(&cx.control, min_age, args.dry_run, args.labels_only).await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("kept", report.kept.to_string()),
            ("young", report.young.to_string()),
            ("removed", report.removed.to_string()),
            ("bytes", report.removed_bytes.to_string()),
            ("packs written", report.packs_written.to_string()),
            ("packs removed", report.packs_removed.to_string()),
            ("temporary", report.temporary_removed.to_string()),
            ("damaged packs", report.damaged.len().to_string()),
        ]);
        if report.dry_run {
            page.line("nothing was removed: this was a dry run");
        }
    });
    Ok(Exit::Done)
}
