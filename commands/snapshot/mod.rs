//! `finaz snapshot`: market data, imported once and never changed.

mod import;
mod list;
mod show;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Import and look at snapshots of market data
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SnapshotCommand {
    Import(Box<import::ImportArgs>),
    List(list::ListArgs),
    Show(show::ShowArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: SnapshotCommand) -> Result<Exit, Failure> {
    match command {
        SnapshotCommand::Import(args) => import::run(cx, *args).await,
        SnapshotCommand::List(args) => list::run(cx, args).await,
        SnapshotCommand::Show(args) => show::run(cx, args).await,
    }
}
