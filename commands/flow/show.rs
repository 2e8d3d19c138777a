//! `finaz flow show`

use finaz::control::flows;

use super::validate;
use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show a flow: its source, instruments, nodes and sink
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Hash, file or name of the flow
    flow: String,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ShowArgs) -> Result<Exit, Failure> {
    let report = cx.blocking(move |control, _| flows::show(control, &args.flow)).await?;
    cx.ui.report(&report, |page| validate::describe(page, &report));
    Ok(Exit::Done)
}
