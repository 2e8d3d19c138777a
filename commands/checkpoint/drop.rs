//! `finaz checkpoint drop`

use finaz::control::checkpoint;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Forget a checkpoint; `cas gc` may then take what nothing else names
#[derive(Debug, clap::Args)]
pub(crate) struct DropArgs {
    /// Its id, its manifest hash, or the beginning of that
    checkpoint: String,
}

pub(super) async fn run(cx: &mut Context<'_>, args: DropArgs) -> Result<Exit, Failure> {
    let report =
        cx.awaiting(async |control| checkpoint::drop(control, &args.checkpoint).await).await?;
    cx.ui.report(&report, |page| page.line(&format!("{} is forgotten", report.checkpoint)));
    Ok(Exit::Done)
}
