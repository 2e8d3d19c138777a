//! `finaz lease new-epoch`

use finaz::control::leases;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Begin a new epoch above every fence ever handed out, after a backup was restored
#[derive(Debug, clap::Args)]
pub(crate) struct NewEpochArgs {
    /// Name of the lease; all batch and run leases to come if none
    name: Option<String>,
    /// Why; kept for whoever asks later
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: NewEpochArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| {
            leases::new_epoch(control, args.name.as_deref(), &args.reason).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        let what = report.name.as_deref().unwrap_or("all batch and run leases to come");
        page.line(&format!("epoch {} of {what}", report.epoch));
        page.line(&format!("reason: {}", report.reason));
    });
    Ok(Exit::Done)
}
