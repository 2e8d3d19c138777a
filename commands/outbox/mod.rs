//! `finaz outbox`: the queue of events.

mod list;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Look at the queue of events
#[derive(Debug, clap::Subcommand)]
pub(crate) enum OutboxCommand {
    List(list::ListArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: OutboxCommand) -> Result<Exit, Failure> {
    match command {
        OutboxCommand::List(args) => list::run(cx, args).await,
    }
}
