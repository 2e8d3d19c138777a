//! `finaz runs trace`

use finaz::control::runs;

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{moment, or_dash, short};
use crate::ui::Exit;

/// Show the whole life of a run, from the database alone
#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    /// Id of the run
    run: String,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: TraceArgs) -> Result<Exit, Failure> {
    let report = cx.awaiting(async |control| runs::trace(control, &args.run).await).await?;
    cx.ui.report(&report, |page| {
        page.line(&report.run_id);
        page.line("");
        let rows = report.events.iter().map(|event| {
            vec![
                moment(&event.at),
                short(&event.what),
                or_dash(event.fence),
                short(&or_dash(event.owner.as_ref())),
            ]
        });
        page.table(&["at", "what", "fence", "owner"], rows.collect(), "nothing is known of it");
    });
    Ok(Exit::Done)
}
