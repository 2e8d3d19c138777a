//! `finaz db status`

use finaz::control::db;

use crate::context::Context;
use crate::doctor;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show the version of the schema and the one that this binary needs
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {}

pub(crate) async fn run(cx: &mut Context<'_>, _args: StatusArgs) -> Result<Exit, Failure> {
    let report = cx.awaiting(db::status).await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[("schema", report.schema.to_string()), ("binary", report.binary.to_string())]);
        page.line("");
        doctor::table(page, &report.checks);
    });
    let ok = report.checks.iter().all(|check| check.ok);
    Ok(if ok { Exit::Done } else { Exit::Refused })
}
