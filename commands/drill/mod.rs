//! `finaz drill`

mod chaos;
mod child;
mod kill_matrix;
mod sim;
mod two_owners;

use finaz::config::Secret;
use finaz::control::drill::Verdict;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show what is promised, with real processes in places of their own
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DrillCommand {
    #[command(name = "2owners")]
    TwoOwners(two_owners::TwoOwnersArgs),
    Chaos(chaos::ChaosArgs),
    KillMatrix(kill_matrix::KillMatrixArgs),
    Sim(sim::SimArgs),
    #[command(hide = true)]
    Child(child::ChildArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: DrillCommand) -> Result<Exit, Failure> {
    match command {
        DrillCommand::TwoOwners(args) => two_owners::run(cx, args).await,
        DrillCommand::Chaos(args) => chaos::run(cx, args).await,
        DrillCommand::KillMatrix(args) => Box::pin(kill_matrix::run(cx, args)).await,
        DrillCommand::Sim(args) => sim::run(cx, args).await,
        DrillCommand::Child(args) => child::run(&args),
    }
}

fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Pass => Exit::Done,
        Verdict::Fail => Exit::Refused,
        Verdict::Incomplete => Exit::Incomplete,
    }
}

/// The database that a drill is given, unless its password was typed for all to see.
fn database(cx: &Context<'_>, database: Option<String>) -> Result<Option<Secret>, Failure> {
    let database = database.map(Secret::new);
    if cx.typed("database") && database.as_ref().is_some_and(Secret::has_password) {
        let message = "a password on a command line is seen by every user of the machine";
        let hint = "set FINAZ_DATABASE instead";
        return Err(Failure::new(2, "SECRET_ON_COMMAND_LINE", message, hint));
    }
    Ok(database)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_failed_ends_1_and_one_that_did_not_run_3() {
        let verdicts = [Verdict::Pass, Verdict::Fail, Verdict::Incomplete];
        assert_eq!(verdicts.map(exit), [Exit::Done, Exit::Refused, Exit::Incomplete]);
    }
}
