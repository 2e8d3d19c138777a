//! `finaz drill kill-matrix`

use std::path::PathBuf;

use finaz::control::drill::{self, MatrixPlan, MatrixReport, MatrixRequest};

use super::exit;
use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, second};
use crate::ui::{Exit, Unit};

/// Hold a process at each point of the program, deal it a fault there, judge the end
///
/// Workers and streams are killed, stopped past their lease, and cut off from PostgreSQL, each at one point; another one
/// finishes. The values must be the golden, each run published once, each record decided once. Makes databases, topics and
/// folders of its own, and removes them. Ends 0 when every run passed, 1 when one failed or never came to its point, 3 when
/// one could not be carried out.
#[derive(Debug, clap::Args)]
pub(crate) struct KillMatrixArgs {
    /// Name the points and the faults, and do nothing
    #[arg(long)]
    list: bool,
    /// Name the runs in the order in which they would begin, and do nothing
    #[arg(long, conflicts_with = "list")]
    plan: bool,
    /// Only this point, `commit.sent` or `stream commit.sent`; may be given again
    #[arg(long, value_name = "POINT")]
    only: Vec<String>,
    /// Only this fault; may be given again
    #[arg(long, value_name = "FAULT")]
    fault: Vec<String>,
    /// Write the evidence into this folder [default: evidence/ of the artifact store]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Use this database, which its comment must say is a drill's; it is emptied. Here without a password, in the variable with
    /// one
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Draw the order of the runs from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: KillMatrixArgs) -> Result<Exit, Failure> {
    let KillMatrixArgs { list, plan, only, fault, out, database, seed } = args;
    let database = super::database(cx, database)?;
    let binary = std::env::current_exe().map_err(|error| Failure::internal(&error))?;
    let temporary = std::env::temp_dir();
    let faults = fault;
    let request = MatrixRequest { binary, temporary, out, database, seed, only, faults };
    if list || plan {
        let plan = drill::kill_matrix_plan(&request)?;
        cx.ui.report(&plan, |page| if list { points(page, &plan) } else { runs(page, &plan) });
        return Ok(Exit::Done);
    }
    let bar = cx.ui.progress("runs", Unit::Checks);
    let report = cx
        .draining(async |control, stop| {
            let progress = |done, total| bar.at(done, total);
            drill::kill_matrix(control, &request, &progress, stop).await
        })
        .await?;
    cx.ui.report(&report, |page| show(page, &report));
    Ok(exit(report.evidence.verdict))
}

fn points(page: &mut Page, plan: &MatrixPlan) {
    let rows = plan
        .points
        .iter()
        .map(|view| vec![view.work.to_owned(), view.point.to_owned(), view.what.to_owned()]);
    page.table(&["", "point", "what has just happened there"], rows.collect(), "no points");
    page.line("");
    let rows = plan.faults.iter().map(|view| vec![view.fault.to_owned(), view.what.to_owned()]);
    page.table(&["fault", "what is done to it"], rows.collect(), "no faults");
    page.line(&format!("{} points, {} faults", plan.points.len(), plan.faults.len()));
}

fn runs(page: &mut Page, plan: &MatrixPlan) {
    let rows = plan
        .runs
        .iter()
        .map(|view| vec![view.work.to_owned(), view.point.to_owned(), view.fault.to_owned()]);
    page.table(&["", "point", "fault"], rows.collect(), "no runs");
    page.line(&format!("{} runs", plan.runs.len()));
}

fn show(page: &mut Page, report: &MatrixReport) {
    let evidence = &report.evidence;
    let mut faults: Vec<&str> = evidence.runs.iter().map(|run| run.fault.word()).collect();
    faults.sort_unstable();
    faults.dedup();
    let mut points: Vec<(&str, &str)> = Vec::new();
    for run in &evidence.runs {
        let point = (run.work.word(), run.point);
        if points.last() != Some(&point) {
            points.push(point);
        }
    }
    let rows = points.into_iter().map(|(work, point)| {
        let of = |fault: &&str| {
            let mut runs = evidence.runs.iter();
            let found = runs.find(|run| {
                (run.work.word(), run.point, run.fault.word()) == (work, point, *fault)
            });
            found.map_or("", |run| run.verdict.word()).to_owned()
        };
        [work.to_owned(), point.to_owned()].into_iter().chain(faults.iter().map(of)).collect()
    });
    let header: Vec<&str> = ["", "point"].into_iter().chain(faults.iter().copied()).collect();
    page.table(&header, rows.collect(), "no runs");
    let open = evidence.runs.iter().filter(|run| run.verdict.word() != "PASS");
    let open: Vec<Vec<String>> = open
        .map(|run| {
            let run_name = format!("{} {} {}", run.work.word(), run.point, run.fault.word());
            vec![run.verdict.word().to_owned(), run_name, run.why.join("; ")]
        })
        .collect();
    if !open.is_empty() {
        page.line("");
        page.table(&["", "run", "why"], open, "");
    }
    page.line("");
    let rows = evidence.checks.iter().map(|check| {
        let seen = if check.pass { String::new() } else { check.seen.clone() };
        vec![check.word().to_owned(), check.id.to_owned(), check.what.to_owned(), seen]
    });
    page.table(&["", "check", "over all runs", "seen"], rows.collect(), "no checks");
    page.line("");
    let ledger = evidence.ledger;
    page.pairs(&[
        ("since", second(&evidence.started_at)),
        (
            "records",
            format!(
                "{} attempted, {} acked, {} lost, {} unexpected, {} duplicated",
                ledger.attempted, ledger.acked, ledger.lost, ledger.unexpected, ledger.duplicated
            ),
        ),
        ("document", report.files.document.clone()),
        ("page", report.files.page.clone()),
        ("history", report.files.history.clone()),
    ]);
    page.line(&format!(
        "{}: {} of {} runs passed, {} failed, {} missed their point, {} not carried out{}, seed {}, {:.1} s",
        evidence.verdict.word(),
        evidence.passed,
        evidence.total,
        evidence.failed,
        evidence.missed,
        evidence.not_run,
        if evidence.whole { "" } else { " (a part of the matrix)" },
        evidence.seed,
        evidence.seconds
    ));
}
