//! `finaz flow`: what is computed, as a manifest.

mod list;
mod show;
mod validate;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Check and look at flow manifests
#[derive(Debug, clap::Subcommand)]
pub(crate) enum FlowCommand {
    Validate(validate::ValidateArgs),
    List(list::ListArgs),
    Show(show::ShowArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: FlowCommand) -> Result<Exit, Failure> {
    match command {
        FlowCommand::Validate(args) => validate::run(cx, args).await,
        FlowCommand::List(args) => list::run(cx, args).await,
        FlowCommand::Show(args) => show::run(cx, args).await,
    }
}
