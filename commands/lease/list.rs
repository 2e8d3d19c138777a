//! `finaz lease list`

use finaz::control::{evidence, leases};

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// List the newest leases, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only leases whose name begins so: `run/`, `batch/`, `stream/`
    #[arg(default_value = "")]
    prefix: String,
    /// Leave out what has expired
    #[arg(long)]
    active: bool,
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=evidence::LIST_MAX))]
    limit: i64,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ListArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| {
            leases::list(control, &args.prefix, args.active, args.limit).await
        })
        .await?;
    cx.ui.report(&report, |page| super::page(page, &report.leases));
    Ok(Exit::Done)
}
