//! `finaz checkpoint verify`

use finaz::control::checkpoint;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::{Exit, Unit};

/// Read all that a checkpoint names and hold it against its hashes; ends 1 when anything is missing or changed
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Its id, its manifest hash, or the beginning of that [default: all of them]
    checkpoint: Option<String>,
}

pub(super) async fn run(cx: &mut Context<'_>, args: VerifyArgs) -> Result<Exit, Failure> {
    let bar = cx.ui.progress("reading", Unit::Count);
    let report = cx
        .awaiting(async |control| {
            let id = args.checkpoint.as_deref();
            checkpoint::verify(control, id, &|read| bar.at(read, 0)).await
        })
        .await?;
    let told = |page: &mut crate::page::Page| {
        let rows = report.checkpoints.iter().map(|view| {
            let faults = if view.ok { "ok".to_owned() } else { view.faults.join("; ") };
            vec![
                super::brief(&view.row.checkpoint),
                view.blobs.len().to_string(),
                view.bytes.to_string(),
                faults,
            ]
        });
        page.table(&["checkpoint", "blobs", "bytes", "verdict"], rows.collect(), "no checkpoints");
    };
    match (&args.checkpoint, report.checkpoints.as_slice()) {
        // One that was asked for is the document itself.
        (Some(_), [one]) => cx.ui.report(one, told),
        (_, _) => cx.ui.report(&report, told),
    }
    Ok(if report.ok { Exit::Done } else { Exit::Refused })
}
