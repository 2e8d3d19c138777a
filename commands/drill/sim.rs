//! `finaz drill sim`

use finaz::control::drill::Verdict;
use finaz::control::drill::sim::{self, SimReport, SimRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::Page;
use crate::ui::{Exit, Unit};

/// Play workers and streams against simulated services, every fault drawn from a seed
///
/// No server, no process, no clock: one thread a seed, with virtual time. The same seed gives the same steps and the same
/// trace hash. Ends 0 when no rule was broken, 1 when one was, 3 when 2000 seeds or more did not meet every state that they
/// must.
#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// Play this seed, or the seeds from this one on
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Play so many seeds
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Print every step of the first seed
    #[arg(long)]
    trace: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: SimArgs) -> Result<Exit, Failure> {
    let SimArgs { seed, seeds, trace } = args;
    let request = SimRequest { seed, seeds, trace };
    let bar = cx.ui.progress("seeds", Unit::Checks);
    let report = cx
        .blocking(move |_control, brake| {
            let progress = |done, total| {
                brake.check();
                bar.at(done, total);
            };
            Ok(sim::simulate(&request, &progress))
        })
        .await?;
    cx.ui.report(&report, |page| show(page, &report));
    Ok(match report.verdict {
        Verdict::Pass => Exit::Done,
        Verdict::Fail => Exit::Refused,
        Verdict::Incomplete => Exit::Incomplete,
    })
}

fn show(page: &mut Page, report: &SimReport) {
    for line in report.trace.iter().flatten() {
        page.line(line);
    }
    for failure in &report.failures {
        for line in &failure.trace {
            page.line(line);
        }
        let (seed, step) = (failure.seed, failure.step);
        page.line(&format!("seed {seed} broke {} at step {step}: {}", failure.rule, failure.what));
        page.line(&format!("again: finaz drill sim --seed {seed} --trace"));
        page.line("");
    }
    let rows = report.checks.iter().map(|check| {
        let word = if check.pass { "PASS" } else { "FAIL" };
        vec![word.to_owned(), check.id.to_owned(), check.what.to_owned(), check.seen.clone()]
    });
    page.table(&["", "rule", "says", "seen"], rows.collect(), "no rules");
    page.line("");
    let rows = report.sometimes.iter().map(|met| vec![met.times.to_string(), met.what.to_owned()]);
    page.table(&["times", "met"], rows.collect(), "nothing was met");
    page.line("");
    if let Some(options) = &report.options {
        page.line(&format!("drawn: {}", serde_json::to_string(options).unwrap_or_default()));
    }
    let last = report.seed.saturating_add(report.seeds.saturating_sub(1));
    let which = if report.seeds == 1 {
        format!("seed {}", report.seed)
    } else {
        format!("seeds {} to {last}", report.seed)
    };
    page.line(&format!(
        "{}: {which}, {:.1} virtual hours, {} steps, {} comparisons, {:.1} s, trace {}",
        report.verdict.word(),
        report.virtual_hours,
        report.steps,
        report.judged,
        report.seconds,
        report.trace_hash
    ));
}
