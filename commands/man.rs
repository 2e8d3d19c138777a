//! `finaz man`

use crate::failure::Failure;
use crate::ui::{Exit, Ui};

/// Print a page of the manual in roff, as `man -l -` reads it
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Subcommand to print the page of, `runs list` for instance; the whole command if none
    command: Vec<String>,
}

pub(crate) fn run(ui: &Ui, mut command: clap::Command, args: &ManArgs) -> Result<Exit, Failure> {
    command.build();
    let mut page = &command;
    for name in &args.command {
        page = page.find_subcommand(name).ok_or_else(|| {
            Failure::usage(format!("`{name}` is no subcommand here"), "see `finaz --help`")
        })?;
    }
    let mut roff = Vec::new();
    clap_mangen::Man::new(page.clone())
        .render(&mut roff)
        .map_err(|error| Failure::internal(&error))?;
    ui.raw(&roff);
    Ok(Exit::Done)
}
