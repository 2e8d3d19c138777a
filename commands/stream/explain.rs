//! `finaz stream explain`

use finaz::control::stream;

use super::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Say what became of an event, and why, from the journal alone
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// Id of the event
    event_id: String,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(cx: &mut Context<'_>, args: ExplainArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| {
            stream::explain(control, args.run.run_id.as_deref(), &args.event_id).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        let rows = report.seen.iter().map(|seen| {
            let place = format!("{}:{}", seen.partition, seen.offset);
            let detail = seen.detail.clone().unwrap_or_default();
            vec![place, seen.treatment.to_owned(), seen.reason.to_owned(), detail]
        });
        if report.history {
            page.line("of the snapshot that the run goes on from");
        }
        page.table(&["place", "treatment", "reason", "detail"], rows.collect(), "no record read");
    });
    Ok(Exit::Done)
}
