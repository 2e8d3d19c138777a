//! `finaz flow validate`

use std::path::PathBuf;

use finaz::control::flows::{self, FlowView};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, or_dash};
use crate::ui::Exit;

/// Check flow manifests, YAML or JSON, without running them
#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Files to read
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Keep the flows in the artifact store, each under its name
    #[arg(long)]
    save: bool,
    /// With --save, let a name mean this flow from now on, even if it meant another
    #[arg(long)]
    replace: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ValidateArgs) -> Result<Exit, Failure> {
    let report = cx
        .blocking(move |control, _| flows::validate(control, &args.files, args.save, args.replace))
        .await?;
    cx.ui.report(&report, |page| {
        for (at, flow) in report.flows.iter().enumerate() {
            if at > 0 {
                page.line("");
            }
            describe(page, flow);
        }
    });
    Ok(Exit::Done)
}

/// One flow for people.
pub(super) fn describe(page: &mut Page, flow: &FlowView) {
    let instruments =
        if flow.instruments.is_empty() { "all".to_owned() } else { flow.instruments.join(", ") };
    page.pairs(&[
        ("flow", flow.flow.to_string()),
        ("name", flow.name.clone()),
        ("snapshot", or_dash(flow.snapshot.as_ref())),
        ("instruments", instruments),
        ("dataset", flow.dataset.clone()),
        ("golden", or_dash(flow.golden)),
    ]);
    let rows = flow.nodes.iter().map(|node| {
        vec![node.id.clone(), node.kind.to_owned(), node.period.to_string(), node.input.clone()]
    });
    page.line("");
    page.table(&["node", "type", "period", "input"], rows.collect(), "no nodes");
}
