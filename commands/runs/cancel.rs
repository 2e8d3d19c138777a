//! `finaz runs cancel`

use finaz::control::runs;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Cancel a run: at once if it has not started, else at its next safe boundary
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// Id of the run
    run: String,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: CancelArgs) -> Result<Exit, Failure> {
    let report = cx.awaiting(async |control| runs::cancel(control, &args.run).await).await?;
    cx.ui.report(&report, |page| super::page(page, &report));
    Ok(Exit::Done)
}
