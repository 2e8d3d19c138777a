//! `finaz stream quarantine`

use finaz::control::stream::{self, MAX_JUMP, RetryRequest};

use super::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::page::or_dash;
use crate::ui::Exit;

/// Look at the records that were not taken, and take them after all
#[derive(Debug, clap::Subcommand)]
pub(crate) enum QuarantineCommand {
    List(ListArgs),
    Show(ShowArgs),
    Retry(RetryArgs),
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

/// Decide anew about records that were omitted
///
/// Those that would be consumed today, and are not late by now, are: under the stream's lease, in one commit. So nobody
/// may run the stream. Late records and duplicates stay what they are.
#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    /// Partition and offset: 3:17 [default: all that were omitted]
    place: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
    /// Why; it is kept with what is taken
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Take records up to this far ahead of their partition, in event time
    #[arg(long, value_name = "DURATION", default_value = MAX_JUMP)]
    max_jump: String,
    /// The stream's flow, should the artifact store not have it any more
    #[arg(long, value_name = "FLOW")]
    flow: Option<String>,
    /// Say what would be taken, and take nothing; somebody may run the stream
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(cx: &mut Context<'_>, command: QuarantineCommand) -> Result<Exit, Failure> {
    match command {
        QuarantineCommand::List(args) => list(cx, args).await,
        QuarantineCommand::Show(args) => show(cx, args).await,
        QuarantineCommand::Retry(args) => retry(cx, args).await,
    }
}

async fn retry(cx: &mut Context<'_>, args: RetryArgs) -> Result<Exit, Failure> {
    let request = RetryRequest {
        run_id: args.run.run_id,
        places: args.place,
        flow: args.flow,
        max_jump: args.max_jump,
        reason: args.reason.unwrap_or_default(),
        dry_run: args.dry_run,
    };
    let report =
        cx.awaiting(async |control| Box::pin(stream::retry(control, request)).await).await?;
    cx.ui.report(&report, |page| {
        let rows = report.records.iter().map(|row| {
            vec![
                format!("{}:{}", row.partition, row.offset),
                or_dash(row.event_id.as_ref()),
                row.was.to_owned(),
                row.treatment.to_owned(),
                row.reason.to_owned(),
                row.detail.clone(),
            ]
        });
        let header = &["place", "event", "was", "is", "reason", "detail"];
        page.table(header, rows.collect(), "nothing was omitted");
        let how = if report.dry_run { "would be taken" } else { "taken" };
        page.line(&format!("{} of {} {how}", report.taken, report.tried));
    });
    Ok(Exit::Done)
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
                row.retried.clone().unwrap_or_else(|| row.detail.clone()),
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
            ("retried", or_dash(row.retried.as_ref())),
            ("event", or_dash(row.event_id.as_ref())),
            ("hash", row.hash.to_string()),
            ("value", or_dash(row.value.as_ref().or(row.value_hex.as_ref()))),
        ]);
    });
    Ok(Exit::Done)
}
