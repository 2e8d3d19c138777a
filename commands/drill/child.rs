//! `finaz drill child`: how a drill starts its processes, so that they die with it. Not for people.

use finaz::control::drill::become_child;

use crate::failure::Failure;
use crate::ui::Exit;

/// Become another program that dies with the drill that started it
#[derive(Debug, clap::Args)]
pub(crate) struct ChildArgs {
    /// Process whose death is to be this one's
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// Program and its words
    #[arg(last = true, value_name = "WORD", required = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: &ChildArgs) -> Result<Exit, Failure> {
    Err(Failure::internal(&become_child(args.parent, &args.words)))
}
