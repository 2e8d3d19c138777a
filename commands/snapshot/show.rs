//! `finaz snapshot show`

use finaz::control::snapshots;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Show what is in a snapshot: its events, instruments and fields
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Hash, file or name of the snapshot
    snapshot: String,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ShowArgs) -> Result<Exit, Failure> {
    let report = cx.blocking(move |control, _| snapshots::show(control, &args.snapshot)).await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("snapshot", report.snapshot.to_string()),
            ("names", report.names.join(", ")),
            ("events", report.events.to_string()),
            ("fields", report.fields.join(", ")),
        ]);
        page.line("");
        let rows = report.instruments.iter().map(|instrument| {
            vec![
                instrument.name.clone(),
                instrument.events.to_string(),
                instrument.first.clone(),
                instrument.last.clone(),
            ]
        });
        page.table(&["instrument", "events", "first", "last"], rows.collect(), "no instruments");
    });
    Ok(Exit::Done)
}
