//! `finaz refused`: effects that a fence turned away.

mod list;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Look at the effects that a fence refused
#[derive(Debug, clap::Subcommand)]
pub(crate) enum RefusedCommand {
    List(list::ListArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: RefusedCommand) -> Result<Exit, Failure> {
    match command {
        RefusedCommand::List(args) => list::run(cx, args).await,
    }
}
