//! `finaz checkpoint commit`

use finaz::control::stream;

use crate::context::Context;
use crate::failure::Failure;
use crate::stream::RunArgs;
use crate::ui::Exit;

/// Keep the last commit of a stream by name; the stream goes on meanwhile
#[derive(Debug, clap::Args)]
pub(crate) struct CommitArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Of a split run: the partition whose journal it is
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// Why; kept for whoever asks later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) async fn run(cx: &mut Context<'_>, args: CommitArgs) -> Result<Exit, Failure> {
    let CommitArgs { run, partition, reason } = args;
    let run_id = run.run_id.as_deref();
    let report = cx
        .awaiting(async |control| {
            let made = stream::checkpoint_commit(control, run_id, partition, reason.as_deref());
            Box::pin(made).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        super::page(page, &report.view);
        if report.already_present {
            page.line("it was there: the stream has not moved since");
        }
    });
    Ok(Exit::Done)
}
