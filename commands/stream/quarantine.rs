//! `finaz stream quarantine`

use finaz::control::stream;

use super::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::page::or_dash;
use crate::ui::Exit;

/// Look at the records that were not taken
#[derive(Debug, clap::Subcommand)]
pub(crate) enum QuarantineCommand {
    List(ListArgs),
    Show(ShowArgs),
}

/// List them in the order read
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    run: RunArgs,
}

/// Show one with its bytes
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Partition and offset: 3:17
    place: String,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(cx: &mut Context<'_>, command: QuarantineCommand) -> Result<Exit, Failure> {
    match command {
        QuarantineCommand::List(args) => list(cx, args).await,
        QuarantineCommand::Show(args) => show(cx, args).await,
    }
}

async fn list(cx: &mut Context<'_>, args: ListArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| {
            stream::quarantine_list(control, args.run.run_id.as_deref()).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        let rows = report.quarantined.iter().map(|row| {
            vec![
                format!("{}:{}", row.partition, row.offset),
                row.treatment.to_owned(),
                row.reason.to_owned(),
                or_dash(row.event_id.as_ref()),
                row.detail.clone(),
            ]
        });
        let header = &["place", "treatment", "reason", "event", "detail"];
        page.table(header, rows.collect(), "nothing in quarantine");
    });
    Ok(Exit::Done)
}

async fn show(cx: &mut Context<'_>, args: ShowArgs) -> Result<Exit, Failure> {
    let row = cx
        .awaiting(async |control| {
            stream::quarantine_show(control, args.run.run_id.as_deref(), &args.place).await
        })
        .await?;
    cx.ui.report(&row, |page| {
        page.pairs(&[
            ("place", format!("{}:{}", row.partition, row.offset)),
            ("treatment", row.treatment.to_owned()),
            ("reason", row.reason.to_owned()),
            ("detail", row.detail.clone()),
            ("event", or_dash(row.event_id.as_ref())),
            ("hash", row.hash.to_string()),
            ("value", or_dash(row.value.as_ref().or(row.value_hex.as_ref()))),
        ]);
    });
    Ok(Exit::Done)
}
