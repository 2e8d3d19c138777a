//! `finaz flow list`

use finaz::control::flows;

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{or_dash, short};
use crate::ui::Exit;

/// List the flows that have a name
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

pub(crate) async fn run(cx: &mut Context<'_>, _args: ListArgs) -> Result<Exit, Failure> {
    let report = cx.blocking(|control, _| flows::list(control)).await?;
    cx.ui.report(&report, |page| {
        let rows = report.flows.iter().map(|flow| {
            let golden = flow.golden.map(|hash| short(&hash.to_string()));
            vec![flow.name.clone(), short(&flow.flow.to_string()), or_dash(golden)]
        });
        page.table(&["name", "flow", "golden"], rows.collect(), "no flows");
    });
    Ok(Exit::Done)
}
