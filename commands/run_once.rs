//! `finaz run-once`

use finaz::control::dry_run::{self, DryRun};
use finaz::control::run_once::{self, ResultView, RunOnce};

use crate::admit::RequestArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, or_dash, short};
use crate::ui::Exit;

/// Do one run here and now, and print its published result
///
/// The same request again prints the same result without doing it again.
#[derive(Debug, clap::Args)]
pub(crate) struct RunOnceArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Compute and print the values without any server and publish nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: RunOnceArgs) -> Result<Exit, Failure> {
    let request = args.request.request()?;
    if args.dry_run {
        let report = cx.blocking(move |control, _| dry_run::dry_run(control, &request)).await?;
        cx.ui.report(&report, |page| dry_page(page, &report));
        return Ok(verdict(report.golden));
    }
    let report = cx
        .draining(async |control, stop| run_once::run_once(control, &request, stop).await)
        .await?;
    cx.ui.report(&report, |page| run_page(page, &report));
    Ok(verdict(report.golden))
}

/// Values that are not those that the flow promises are a check that failed.
fn verdict(golden: Option<&str>) -> Exit {
    if golden == Some("DIFFERS") { Exit::Refused } else { Exit::Done }
}

fn run_page(page: &mut Page, report: &RunOnce) {
    let mut pairs = vec![
        ("run", report.run_id.clone()),
        ("state", report.state.clone()),
        ("fence", report.fence.to_string()),
        ("revision", report.run_revision.to_string()),
    ];
    pairs.extend(result_pairs(&report.result, report.golden));
    page.pairs(&pairs);
    series_table(page, &report.result);
    if report.already_done {
        page.line("already done");
    }
}

fn dry_page(page: &mut Page, report: &DryRun) {
    let mut pairs =
        vec![("flow", report.flow.to_string()), ("snapshot", report.snapshot.to_string())];
    pairs.extend(result_pairs(&report.result, report.golden));
    page.pairs(&pairs);
    series_table(page, &report.result);
    page.line("dry run: nothing was published");
}

/// Letters of a list of values that still fits a line.
const VALUES_SHOWN_MAX: usize = 70;

fn result_pairs(result: &ResultView, golden: Option<&str>) -> Vec<(&'static str, String)> {
    let mut pairs = vec![
        ("result", result.blob.to_string()),
        ("hash", result.values_hash.to_string()),
        ("golden", golden.unwrap_or("none").to_owned()),
        ("rows", result.rows.to_string()),
    ];
    let values = result.values.as_ref().map(|values| values.get());
    if let Some(values) = values.filter(|values| values.len() <= VALUES_SHOWN_MAX) {
        pairs.push(("values", values.to_owned()));
    }
    pairs
}

/// Each series with its newest value: the indicator as it stands.
fn series_table(page: &mut Page, result: &ResultView) {
    page.line("");
    let rows = result.series.iter().map(|series| {
        vec![
            series.instrument.clone(),
            series.node.clone(),
            series.rows.to_string(),
            or_dash(series.last.map(|last| format!("{last:?}"))),
            short(&series.values_hash.to_string()),
        ]
    });
    let header = ["instrument", "node", "rows", "last", "hash"];
    page.table(&header, rows.collect(), "no series");
}
