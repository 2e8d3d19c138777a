//! `finaz worker`

use finaz::control::worker::{self, WorkerRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Do the runs that were asked for, until told to stop
///
/// SIGTERM or SIGINT drains: what has begun is finished and every lease released, then it ends 0. The
/// second signal stops at once.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// Stop when nothing is left to do
    #[arg(long)]
    drain: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: WorkerArgs) -> Result<Exit, Failure> {
    let request = WorkerRequest { drain: args.drain, batch: cx.control.settings.batch };
    let report =
        cx.draining(async |control, stop| worker::work(control, request, stop).await).await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("claimed", report.claimed.to_string()),
            ("succeeded", report.succeeded.to_string()),
            ("failed", report.failed.to_string()),
            ("cancelled", report.cancelled.to_string()),
            ("recovered", report.recovered.to_string()),
            ("stale", report.stale.to_string()),
            ("seconds", format!("{:.3}", report.seconds)),
        ]);
    });
    Ok(Exit::Done)
}
