//! `finaz checkpoint diff`

use finaz::control::checkpoint;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show in what two checkpoints differ
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// Its id, its manifest hash, or the beginning of that
    a: String,
    /// The other
    b: String,
}

pub(super) async fn run(cx: &mut Context<'_>, args: DiffArgs) -> Result<Exit, Failure> {
    let report =
        cx.awaiting(async |control| checkpoint::diff(control, &args.a, &args.b).await).await?;
    cx.ui.report(&report, |page| {
        let rows = report.differences.iter().map(|difference| {
            vec![difference.field.clone(), difference.a.to_string(), difference.b.to_string()]
        });
        page.pairs(&[("a", report.a.clone()), ("b", report.b.clone())]);
        page.table(&["field", "a", "b"], rows.collect(), "no difference");
        let state = if report.same_state { "the same to the bit" } else { "different" };
        page.line(&format!("state: {state}"));
        if !report.instruments.is_empty() {
            page.line(&format!("instruments: {}", report.instruments.join(", ")));
        }
        for (name, only) in [("a", report.only_a), ("b", report.only_b)] {
            page.line(&format!("only {name} needs {} blobs, {} bytes", only.blobs, only.bytes));
        }
    });
    Ok(Exit::Done)
}
