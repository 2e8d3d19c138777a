//! The `finaz` command: parse, dispatch, report. Nothing is decided here.

mod completions;
mod failure;
mod globals;
mod interrupt;
mod man;
mod page;
mod ui;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};
use finaz::config;

use crate::failure::Failure;
use crate::globals::Globals;
use crate::ui::{Exit, Ui};

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
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let mut ui = Ui::new(globals::wants_json(&argv));
    let result = run(&mut ui, argv);
    ui.finish(result)
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
    }
}

/// Help and version come from clap as errors, but are results.
fn help_or_failure(ui: &Ui, error: clap::Error) -> Result<Exit, Failure> {
    if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Err(error.into());
    }
    let text = error.render();
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
