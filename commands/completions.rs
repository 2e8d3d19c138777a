//! `finaz completions`

use clap_complete::Shell;

use crate::failure::Failure;
use crate::ui::{Exit, Ui};

/// Print the script that completes this command line in a shell
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn run(
    ui: &Ui,
    mut command: clap::Command,
    args: &CompletionsArgs,
) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "finaz", &mut script);
    ui.raw(&script);
    Ok(Exit::Done)
}
