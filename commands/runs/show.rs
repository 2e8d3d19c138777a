//! `finaz runs show`

use finaz::control::runs;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show a run and where its result is
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Id of the run
    run: String,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ShowArgs) -> Result<Exit, Failure> {
    let report = cx.awaiting(async |control| runs::show(control, &args.run).await).await?;
    cx.ui.report(&report, |page| super::page(page, &report));
    Ok(Exit::Done)
}
