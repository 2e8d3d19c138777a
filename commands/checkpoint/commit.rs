//! `finaz checkpoint commit`

use finaz::control::checkpoint;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Keep the last commit of a stream by name, while it goes on; or a published batch run
///
/// A batch run is computed anew from its snapshot, held against what was published, and kept with its nodes as they are
/// behind the last event.
#[derive(Debug, clap::Args)]
pub(crate) struct CommitArgs {
    /// Run id, of a stream or of a batch run [default: that of the only stream there is]
    #[arg(long, value_name = "RUN", env = "FINAZ_STREAM_RUN_ID", hide_env_values = true)]
    run_id: Option<String>,
    /// Of a split stream: the partition whose journal it is
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// Why; kept for whoever asks later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) async fn run(cx: &mut Context<'_>, args: CommitArgs) -> Result<Exit, Failure> {
    let CommitArgs { run_id, partition, reason } = args;
    let run_id = run_id.as_deref();
    let report = cx
        .awaiting(async |control| {
            let made = checkpoint::commit(control, run_id, partition, reason.as_deref());
            Box::pin(made).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        super::page(page, &report.view);
        if report.already_present {
            page.line("it was there: nothing has moved since");
        }
    });
    Ok(Exit::Done)
}
