//! `finaz lease renew`

use finaz::control::leases;

use super::{TtlArgs, required_token};
use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Give a lease more time, as its owner; refused once it has expired
#[derive(Debug, clap::Args)]
pub(crate) struct RenewArgs {
    /// Name of the lease
    name: String,
    #[command(flatten)]
    ttl: TtlArgs,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: RenewArgs) -> Result<Exit, Failure> {
    let ttl = args.ttl.ttl(cx)?;
    let token = required_token(cx)?;
    let report =
        cx.awaiting(async |control| leases::renew(control, &args.name, &token, ttl).await).await?;
    cx.ui.report(&report, |page| super::page(page, &report.leases));
    Ok(Exit::Done)
}
