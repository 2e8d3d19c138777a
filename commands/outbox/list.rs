//! `finaz outbox list`

use finaz::control::evidence;

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{or_dash, short};
use crate::ui::Exit;

/// List the newest events, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Leave out what has been delivered
    #[arg(long)]
    pending: bool,
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=evidence::LIST_MAX))]
    limit: i64,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ListArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| evidence::outbox(control, args.pending, args.limit).await)
        .await?;
    cx.ui.report(&report, |page| {
        let rows = report.events.iter().map(|event| {
            vec![
                event.id.to_string(),
                event.kind.clone(),
                short(&event.run_id),
                event.state.clone(),
                short(&or_dash(event.claimed_by.as_ref())),
            ]
        });
        page.table(&["id", "type", "run", "state", "claimed by"], rows.collect(), "no events");
    });
    Ok(Exit::Done)
}
