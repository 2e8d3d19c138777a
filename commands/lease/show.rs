//! `finaz lease show`

use finaz::control::leases;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show a lease
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Name of the lease, or id of a run that is or was under it
    name: String,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ShowArgs) -> Result<Exit, Failure> {
    let report = cx.awaiting(async |control| leases::show(control, &args.name).await).await?;
    cx.ui.report(&report, |page| super::page(page, &report.leases));
    Ok(Exit::Done)
}
