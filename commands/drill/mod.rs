//! `finaz drill`

mod child;
mod two_owners;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show what is promised, with real processes in places of their own
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DrillCommand {
    #[command(name = "2owners")]
    TwoOwners(two_owners::TwoOwnersArgs),
    #[command(hide = true)]
    Child(child::ChildArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: DrillCommand) -> Result<Exit, Failure> {
    match command {
        DrillCommand::TwoOwners(args) => two_owners::run(cx, args).await,
        DrillCommand::Child(args) => child::run(&args),
    }
}
