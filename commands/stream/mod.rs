//! `finaz stream`: a topic through the nodes of a flow; and a look at the streams there are.

mod explain;
mod export;
mod follow;
mod handoff;
mod import;
mod mark;
mod quarantine;
mod status;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Compute a flow over a topic as it comes, and look at such streams
///
/// One stream has one owner. What it decided about each record is in its journal, so that it goes on where it was after
/// any end. SIGTERM commits, gives the lease back and ends 0.
#[derive(Debug, clap::Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct StreamArgs {
    #[command(subcommand)]
    command: Option<StreamCommand>,
    #[command(flatten)]
    follow: follow::FollowArgs,
}

#[derive(Debug, clap::Subcommand)]
enum StreamCommand {
    Status(status::StatusArgs),
    Explain(explain::ExplainArgs),
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    Mark(mark::MarkArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Handoff(handoff::HandoffArgs),
}

/// Which run of a stream.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Run id [default: that of the only stream there is]
    #[arg(long, value_name = "RUN", env = "FINAZ_STREAM_RUN_ID", hide_env_values = true)]
    pub(crate) run_id: Option<String>,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: StreamArgs) -> Result<Exit, Failure> {
    match args.command {
        None => follow::run(cx, args.follow).await,
        Some(StreamCommand::Status(args)) => status::run(cx, args).await,
        Some(StreamCommand::Explain(args)) => explain::run(cx, args).await,
        Some(StreamCommand::Quarantine(command)) => quarantine::run(cx, command).await,
        Some(StreamCommand::Mark(args)) => mark::run(cx, args).await,
        Some(StreamCommand::Export(args)) => export::run(cx, args).await,
        Some(StreamCommand::Import(args)) => Box::pin(import::run(cx, args)).await,
        Some(StreamCommand::Handoff(args)) => Box::pin(handoff::run(cx, args)).await,
    }
}
