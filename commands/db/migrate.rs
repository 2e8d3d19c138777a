//! `finaz db migrate`

use finaz::control::db;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Bring the schema of the database to the version of this binary
#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {}

pub(crate) async fn run(cx: &mut Context<'_>, _args: MigrateArgs) -> Result<Exit, Failure> {
    let report = cx.awaiting(db::migrate).await?;
    cx.ui.report(&report, |page| {
        page.line(&if report.before == report.schema {
            format!("the schema is at version {} already", report.schema)
        } else {
            format!("the schema went from version {} to {}", report.before, report.schema)
        });
    });
    Ok(Exit::Done)
}
