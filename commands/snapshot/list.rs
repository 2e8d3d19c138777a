//! `finaz snapshot list`

use finaz::control::snapshots;

use crate::context::Context;
use crate::failure::Failure;
use crate::page::short;
use crate::ui::Exit;

/// List the snapshots that have a name
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

pub(crate) async fn run(cx: &mut Context<'_>, _args: ListArgs) -> Result<Exit, Failure> {
    let report = cx.blocking(|control, _| snapshots::list(control)).await?;
    cx.ui.report(&report, |page| {
        let rows = report.snapshots.iter();
        let rows = rows.map(|named| vec![named.name.clone(), short(&named.snapshot.to_string())]);
        page.table(&["name", "snapshot"], rows.collect(), "no snapshots");
    });
    Ok(Exit::Done)
}
