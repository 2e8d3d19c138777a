//! `finaz parity`

use std::sync::Arc;

use finaz::control::parity::{self, ParityReport, ParityRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, or_dash, short};
use crate::ui::Exit;

/// Compute a flow as a batch, as a replay with faults and as a live stream, and compare to the bit
///
/// The stream goes through a topic of its own, which is removed again. Ends 1 when a value differs.
#[derive(Debug, clap::Args)]
pub(crate) struct ParityArgs {
    /// Flow: a manifest, a name or a hash
    #[arg(long, value_name = "FLOW")]
    flow: String,
    /// Snapshot: a name, a file or a hash [default: the schedule's, else the flow's]
    #[arg(long, value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// Fault schedule: a manifest, a name or a hash
    #[arg(long, value_name = "FAULTS")]
    faults: String,
    /// Leave out the live stream: no server is needed
    #[arg(long)]
    offline: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ParityArgs) -> Result<Exit, Failure> {
    let ParityArgs { flow, snapshot, faults, offline } = args;
    let request = ParityRequest { flow, snapshot, faults, offline };
    let control = Arc::clone(&cx.control);
    let report = cx.draining(async |_, stop| parity::parity(control, request, stop).await).await?;
    cx.ui.report(&report, |page| show(page, &report));
    Ok(if report.is_equal() { Exit::Done } else { Exit::Refused })
}

fn show(page: &mut Page, report: &ParityReport) {
    let rows = report.modes.iter().map(|mode| {
        let ledger = &mode.ledger;
        let counts = [
            ledger.read,
            ledger.consumed,
            ledger.filtered,
            ledger.duplicates_skipped,
            ledger.late,
            ledger.omitted,
        ];
        let mut row = vec![mode.mode.to_owned()];
        row.extend(counts.iter().map(u64::to_string));
        row.push(short(&mode.values_hash.to_string()));
        row
    });
    let header = &["mode", "read", "consumed", "filtered", "dup", "late", "omitted", "values"];
    page.table(header, rows.collect(), "no modes");
    page.line("");
    if let Some(first) = &report.first_difference {
        page.line(&format!(
            "{}: {} of {} differs first at {}: {} in the batch, {} here",
            first.mode,
            first.node,
            first.instrument,
            first.index,
            or_dash(first.batch),
            or_dash(first.other)
        ));
    }
    let golden = match report.golden {
        Some(golden) if report.modes.iter().all(|mode| mode.values_hash == golden) => {
            ", and equal to the golden"
        }
        Some(_) => ", and not the golden",
        None => "",
    };
    page.line(&format!("{}{golden}", report.verdict));
}
