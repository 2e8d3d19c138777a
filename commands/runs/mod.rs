//! `finaz runs`: what was asked for and what became of it.

mod cancel;
mod export;
mod list;
mod show;
mod trace;
mod wait;

use finaz::control::runs::{RunView, RunsReport};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, or_dash, short};
use crate::ui::Exit;

/// Look at runs, wait for them, cancel them, export their results
#[derive(Debug, clap::Subcommand)]
pub(crate) enum RunsCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Cancel(cancel::CancelArgs),
    Wait(wait::WaitArgs),
    Trace(trace::TraceArgs),
    Export(export::ExportArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: RunsCommand) -> Result<Exit, Failure> {
    match command {
        RunsCommand::List(args) => list::run(cx, args).await,
        RunsCommand::Show(args) => show::run(cx, args).await,
        RunsCommand::Cancel(args) => cancel::run(cx, args).await,
        RunsCommand::Wait(args) => wait::run(cx, args).await,
        RunsCommand::Trace(args) => trace::run(cx, args).await,
        RunsCommand::Export(args) => export::run(cx, args).await,
    }
}

/// Runs for people: one in full, several as a table.
fn page(page: &mut Page, report: &RunsReport) {
    if let [run] = report.runs.as_slice() {
        return one(page, run);
    }
    let rows = report.runs.iter().map(|run| {
        let values = run.result.as_ref().map(|result| short(&result.values_hash.to_string()));
        vec![
            short(&run.run_id),
            run.state.clone(),
            run.fence.to_string(),
            run.attempts.to_string(),
            run.error.clone().or(values).unwrap_or_default(),
        ]
    });
    let header = ["run", "state", "fence", "attempts", "values or error"];
    page.table(&header, rows.collect(), "no runs");
}

fn one(page: &mut Page, run: &RunView) {
    let result = run.result.as_ref();
    page.pairs(&[
        ("run", run.run_id.clone()),
        ("state", run.state.clone()),
        ("fence", run.fence.to_string()),
        ("revision", run.run_revision.to_string()),
        ("attempts", run.attempts.to_string()),
        ("flow", run.flow.to_string()),
        ("snapshot", run.snapshot.to_string()),
        ("result", or_dash(result.map(|result| result.blob))),
        ("values", or_dash(result.map(|result| result.values_hash))),
        ("rows", or_dash(result.map(|result| result.rows))),
        ("error", or_dash(run.error.as_ref())),
    ]);
    if run.cancel_requested {
        page.line("its cancellation was requested");
    }
}
