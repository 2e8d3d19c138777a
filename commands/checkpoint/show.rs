//! `finaz checkpoint show`

use finaz::control::checkpoint;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show one checkpoint with all that it names
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its id, its manifest hash, or the beginning of that
    checkpoint: String,
}

pub(super) async fn run(cx: &mut Context<'_>, args: ShowArgs) -> Result<Exit, Failure> {
    let view =
        cx.awaiting(async |control| checkpoint::show(control, &args.checkpoint).await).await?;
    cx.ui.report(&view, |page| super::page(page, &view));
    Ok(Exit::Done)
}
