//! `finaz lease acquire`

use finaz::control::leases;

use super::{TtlArgs, token};
use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Take a lease that is free or expired, or renew it as its owner
///
/// Prints the owner token. With it as --owner, `lease acquire`, `lease renew` and `lease release` act as
/// that owner; a mere name as --owner makes a new one.
#[derive(Debug, clap::Args)]
pub(crate) struct AcquireArgs {
    /// Name of the lease: `stream/<run id>` or another kind/id
    name: String,
    #[command(flatten)]
    ttl: TtlArgs,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: AcquireArgs) -> Result<Exit, Failure> {
    let ttl = args.ttl.ttl(cx)?;
    let token = token(cx);
    let report = cx
        .awaiting(async |control| leases::acquire(control, &args.name, token.as_deref(), ttl).await)
        .await?;
    cx.ui.report(&report, |page| super::page(page, &report.leases));
    Ok(Exit::Done)
}
