//! `finaz lease release`

use finaz::control::leases;

use super::required_token;
use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// End a lease, as its owner; its fence stays
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// Name of the lease
    name: String,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ReleaseArgs) -> Result<Exit, Failure> {
    let token = required_token(cx)?;
    let report =
        cx.awaiting(async |control| leases::release(control, &args.name, &token).await).await?;
    cx.ui.report(&report, |page| super::page(page, &report.leases));
    Ok(Exit::Done)
}
