//! `finaz doctor`

use finaz::control::doctor::{self, Check};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::Page;
use crate::ui::Exit;

/// Check that everything a run needs is there and safe to trust with results
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {}

pub(crate) async fn run(cx: &mut Context<'_>, _args: DoctorArgs) -> Result<Exit, Failure> {
    let report = cx.awaiting(doctor::doctor).await?;
    cx.ui.report(&report, |page| table(page, &report.checks));
    Ok(match (report.ok, report.away) {
        (true, _) => Exit::Done,
        (false, true) => Exit::Away,
        (false, false) => Exit::Refused,
    })
}

/// Checks for people; the hint only where it is needed.
pub(crate) fn table(page: &mut Page, checks: &[Check]) {
    let rows = checks.iter().map(|check| {
        let verdict = if check.ok { "ok" } else { "FAIL" };
        vec![
            verdict.to_owned(),
            check.id.to_owned(),
            check.expected.clone(),
            check.seen.clone(),
            check.hint.clone(),
        ]
    });
    page.table(&["", "check", "expected", "seen", "hint"], rows.collect(), "no checks");
}
