//! `finaz runs list`

use finaz::control::{evidence, runs};

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// List the newest runs, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only runs in this state: QUEUED, RUNNING, SUCCEEDED, FAILED or CANCELLED
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=evidence::LIST_MAX))]
    limit: i64,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ListArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| runs::list(control, args.state.as_deref(), args.limit).await)
        .await?;
    cx.ui.report(&report, |page| super::page(page, &report));
    Ok(Exit::Done)
}
