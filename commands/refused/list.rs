//! `finaz refused list`

use finaz::control::evidence;

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{or_dash, second, short};
use crate::ui::Exit;

/// List the newest refused effects: who, with which fence, against which
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=evidence::LIST_MAX))]
    limit: i64,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ListArgs) -> Result<Exit, Failure> {
    let report = cx.awaiting(async |control| evidence::refused(control, args.limit).await).await?;
    cx.ui.report(&report, |page| {
        let rows = report.refused.iter().map(|refused| {
            vec![
                second(&refused.at),
                refused.effect.clone(),
                short(&refused.owner),
                refused.fence.to_string(),
                short(&or_dash(refused.current_owner.as_ref())),
                or_dash(refused.current_fence),
            ]
        });
        let header = ["at", "effect", "owner", "fence", "against", "fence"];
        page.table(&header, rows.collect(), "no refused effects");
    });
    Ok(Exit::Done)
}
