//! `finaz db`: the schema in PostgreSQL.

mod migrate;
mod status;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Migrate the database schema and show its version
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DbCommand {
    Migrate(migrate::MigrateArgs),
    Status(status::StatusArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: DbCommand) -> Result<Exit, Failure> {
    match command {
        DbCommand::Migrate(args) => migrate::run(cx, args).await,
        DbCommand::Status(args) => status::run(cx, args).await,
    }
}
