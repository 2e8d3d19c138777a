//! `finaz checkpoint list`

use finaz::control::checkpoint;

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{second, short};
use crate::ui::Exit;

/// List checkpoints, the streams that were taken back to one and the batch runs that went on from one
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Of this run only
    #[arg(long, value_name = "RUN", env = "FINAZ_STREAM_RUN_ID", hide_env_values = true)]
    run_id: Option<String>,
}

pub(super) async fn run(cx: &mut Context<'_>, args: ListArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| checkpoint::list(control, args.run_id.as_deref()).await)
        .await?;
    cx.ui.report(&report, |page| {
        let rows = report.checkpoints.iter().map(|row| {
            vec![
                super::brief(&row.checkpoint),
                short(&row.manifest_hash.to_string()),
                row.fence.to_string(),
                super::offsets(row),
                second(&row.created_at),
            ]
        });
        let header = ["checkpoint", "manifest", "fence", "next offsets", "made"];
        page.table(&header, rows.collect(), "no checkpoints");
        if report.restores.is_empty() {
            return;
        }
        let rows = report.restores.iter().map(|restore| {
            vec![
                super::brief(&restore.checkpoint),
                super::brief(&restore.run_id),
                format!("{} to {}", restore.from_seq, restore.seq),
                restore.fence.to_string(),
                second(&restore.restored_at),
                format!("{}: {}", restore.who, restore.reason),
            ]
        });
        page.line("");
        let header = ["restored from", "run", "commit or event", "fence", "at", "by"];
        page.table(&header, rows.collect(), "");
    });
    Ok(Exit::Done)
}
