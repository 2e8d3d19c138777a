//! `finaz stream import`

use std::path::PathBuf;

use finaz::control::stream;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Take in a journal that `finaz stream export` wrote
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// The file
    file: PathBuf,
}

pub(super) async fn run(cx: &mut Context<'_>, args: ImportArgs) -> Result<Exit, Failure> {
    let report =
        cx.awaiting(async |control| Box::pin(stream::import(control, &args.file)).await).await?;
    cx.ui.report(&report, |page| {
        let how = if report.already_present { "was there already" } else { "imported" };
        page.line(&format!("{}: commit {} {how}", report.run_id, report.seq));
    });
    Ok(Exit::Done)
}
