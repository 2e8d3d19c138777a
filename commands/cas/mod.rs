//! `finaz cas`: the artifact store, checked and cleaned.

mod gc;
mod verify;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Verify and clean the artifact store
#[derive(Debug, clap::Subcommand)]
pub(crate) enum CasCommand {
    Verify(verify::VerifyArgs),
    Gc(gc::GcArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: CasCommand) -> Result<Exit, Failure> {
    match command {
        CasCommand::Verify(args) => verify::run(cx, args).await,
        CasCommand::Gc(args) => gc::run(cx, args).await,
    }
}
