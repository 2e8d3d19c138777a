//! `finaz stream export`

use std::path::PathBuf;

use finaz::control::stream;

use super::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Write the journal of a stream to one JSON file
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Write it to this file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Of a split run: the partition whose journal it is
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(cx: &mut Context<'_>, args: ExportArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| {
            stream::export(control, args.run.run_id.as_deref(), args.partition, &args.out).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        page.line(&format!("{}: commit {} in {}", report.run_id, report.seq, report.file));
    });
    Ok(Exit::Done)
}
