//! `finaz stream status`

use finaz::control::stream::{self, StandingView};

use super::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::page::{or_dash, second, short};
use crate::ui::Exit;

/// Show how streams stand, as of their last commits
///
/// Ends 1 when a ledger does not hold, or a stream is blocked.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only streams of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

pub(super) async fn run(cx: &mut Context<'_>, args: StatusArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| {
            stream::status(control, args.run.run_id.as_deref(), args.group.as_deref()).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        let rows = report.streams.iter().map(|view| {
            vec![
                name(view),
                view.state.clone(),
                view.counts.ledger.read.to_string(),
                view.counts.ledger.consumed.to_string(),
                or_dash(view.counts.lag),
                view.lease_fence.unwrap_or(view.fence).to_string(),
                short(&or_dash(view.owner.as_ref())),
                second(&or_dash(view.committed_at.as_ref())),
            ]
        });
        let header = &["run", "state", "read", "consumed", "lag", "fence", "owner", "committed"];
        let total = &report.total;
        let sum = (total.streams > 1).then(|| {
            vec![
                "total".to_owned(),
                format!("{} live", total.live),
                total.ledger.read.to_string(),
                total.ledger.consumed.to_string(),
                or_dash(total.lag),
                String::new(),
                String::new(),
                String::new(),
            ]
        });
        page.table(header, rows.chain(sum).collect(), "no streams");
        for view in report.streams.iter().filter(|view| view.reason.is_some()) {
            page.line(&format!("{}: {}", name(view), or_dash(view.reason.as_ref())));
        }
        for view in &report.streams {
            if let Some(expected) = view.expects() {
                page.line(&format!("{}: {expected}", name(view)));
            }
        }
        for view in report.streams.iter().filter(|view| !view.counts.ledger_ok) {
            page.line(&format!("{}: the ledger does not hold", name(view)));
        }
    });
    Ok(if report.is_sound() { Exit::Done } else { Exit::Refused })
}

/// A run in short, with the partition of a split one.
fn name(view: &StandingView) -> String {
    let run = short(&view.run_id);
    match view.partitions.as_deref() {
        None => run,
        Some(some) => {
            let some: Vec<String> = some.iter().map(i32::to_string).collect();
            format!("{run}/{}", some.join(","))
        }
    }
}
