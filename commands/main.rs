//! The `finaz` command: parse, dispatch, report. Nothing is decided here.

mod admit;
mod cas;
mod checkpoint;
mod completions;
mod context;
mod db;
mod doctor;
mod drill;
mod failure;
mod flow;
mod globals;
mod interrupt;
mod lease;
mod logging;
mod man;
mod outbox;
mod page;
mod parity;
mod reconcile;
mod refused;
mod replay;
mod run_once;
mod runs;
mod snapshot;
mod stream;
mod ui;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};
use finaz::config;

use crate::context::Context;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::ui::{Exit, Ui};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Operate a trading runtime whose results can be proven
#[derive(Debug, clap::Parser)]
#[command(name = "finaz", version, max_term_width = 100)]
struct Cli {
    /// Read settings from this YAML file; each global flag is a key, `pg_url` for instance
    #[arg(long, value_name = "FILE", global = true, help_heading = "Output")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(flatten)]
    Work(Work),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// What may wait: for a server, a disk, a signal.
#[derive(Debug, clap::Subcommand)]
enum Work {
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    #[command(subcommand)]
    Flow(flow::FlowCommand),
    Admit(admit::AdmitArgs),
    RunOnce(run_once::RunOnceArgs),
    Worker(worker::WorkerArgs),
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    #[command(subcommand)]
    Outbox(outbox::OutboxCommand),
    #[command(subcommand)]
    Refused(refused::RefusedCommand),
    Reconcile(reconcile::ReconcileArgs),
    Replay(Box<replay::ReplayArgs>),
    Stream(Box<stream::StreamArgs>),
    #[command(subcommand)]
    Checkpoint(checkpoint::CheckpointCommand),
    Parity(parity::ParityArgs),
    #[command(subcommand)]
    Drill(drill::DrillCommand),
    #[command(subcommand)]
    Cas(cas::CasCommand),
    #[command(subcommand)]
    Db(db::DbCommand),
    Doctor(doctor::DoctorArgs),
}

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let mut ui = Ui::new(globals::wants_json(&argv));
    let result = run(&mut ui, argv);
    ui.finish(&result)
}

fn run(ui: &mut Ui, argv: Vec<OsString>) -> Result<Exit, Failure> {
    let mut command = globals::complete(Cli::command());
    let matches = match command.try_get_matches_from_mut(argv) {
        Ok(matches) => matches,
        Err(error) => return help_or_failure(ui, error),
    };
    let cli = Cli::from_arg_matches(&matches)?;
    let globals = Globals::read(&matches)?;
    ui.settle(&globals.settings);
    for warning in config::unknown_variables(&globals::variables(&command)) {
        ui.warn(&warning);
    }
    for warning in &globals.warnings {
        ui.warn(warning);
    }
    match cli.command {
        Command::Completions(args) => completions::run(ui, command, &args),
        Command::Man(args) => man::run(ui, command, &args),
        Command::Work(work) => run_work(ui, &globals, work),
    }
}

fn run_work(ui: &Ui, globals: &Globals, work: Work) -> Result<Exit, Failure> {
    logging::start(&globals.settings, matches!(work, Work::Worker(_)));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(&error))?;
    let result = runtime.block_on(async {
        let mut cx = Context::new(ui, globals)?;
        Box::pin(dispatch(&mut cx, work)).await
    });
    // Work that was cut short may still sit in a system call; nothing waits for it.
    runtime.shutdown_background();
    result
}

async fn dispatch(cx: &mut Context<'_>, work: Work) -> Result<Exit, Failure> {
    match work {
        Work::Snapshot(command) => snapshot::run(cx, command).await,
        Work::Flow(command) => flow::run(cx, command).await,
        Work::Admit(args) => admit::run(cx, args).await,
        Work::RunOnce(args) => run_once::run(cx, args).await,
        Work::Worker(args) => worker::run(cx, args).await,
        Work::Runs(command) => runs::run(cx, command).await,
        Work::Lease(command) => lease::run(cx, command).await,
        Work::Outbox(command) => outbox::run(cx, command).await,
        Work::Refused(command) => refused::run(cx, command).await,
        Work::Reconcile(args) => reconcile::run(cx, args).await,
        Work::Replay(args) => replay::run(cx, *args).await,
        Work::Parity(args) => parity::run(cx, args).await,
        Work::Drill(command) => drill::run(cx, command).await,
        Work::Stream(args) => Box::pin(stream::run(cx, *args)).await,
        Work::Checkpoint(command) => Box::pin(checkpoint::run(cx, command)).await,
        Work::Cas(command) => cas::run(cx, command).await,
        Work::Db(command) => db::run(cx, command).await,
        Work::Doctor(args) => doctor::run(cx, args).await,
    }
}

/// Help and version come from clap as errors, but are results.
fn help_or_failure(ui: &Ui, error: clap::Error) -> Result<Exit, Failure> {
    let text = error.render();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        ui.aside(&text.to_string());
        return Err(Failure::usage("a subcommand is missing", "see `finaz --help`"));
    }
    if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Err(error.into());
    }
    let text = if ui::stdout_takes_colour() { text.ansi().to_string() } else { text.to_string() };
    ui.raw(text.as_bytes());
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_well_formed() {
        super::globals::complete(super::Cli::command()).debug_assert();
    }
}
