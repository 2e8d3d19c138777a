//! `finaz checkpoint`: commits of streams that are kept by name.

mod commit;
mod diff;
mod drop;
mod list;
mod restore;
mod show;
mod verify;

use finaz::control::stream::{CheckpointView, RowView};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, or_dash, second};
use crate::ui::Exit;

/// Keep commits of a stream by name, look at them, and take the stream back to one
///
/// A checkpoint names what its commit needs and copies nothing: `cas gc` leaves it alone until it is dropped.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum CheckpointCommand {
    Commit(commit::CommitArgs),
    List(list::ListArgs),
    Show(show::ShowArgs),
    Verify(verify::VerifyArgs),
    Diff(diff::DiffArgs),
    Restore(restore::RestoreArgs),
    Drop(drop::DropArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: CheckpointCommand) -> Result<Exit, Failure> {
    match command {
        CheckpointCommand::Commit(args) => Box::pin(commit::run(cx, args)).await,
        CheckpointCommand::List(args) => list::run(cx, args).await,
        CheckpointCommand::Show(args) => show::run(cx, args).await,
        CheckpointCommand::Verify(args) => verify::run(cx, args).await,
        CheckpointCommand::Diff(args) => diff::run(cx, args).await,
        CheckpointCommand::Restore(args) => Box::pin(restore::run(cx, args)).await,
        CheckpointCommand::Drop(args) => drop::run(cx, args).await,
    }
}

fn offsets(row: &RowView) -> String {
    let one = |(partition, next): (&String, &i64)| format!("{partition}:{next}");
    row.next_offsets.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// One in full.
fn page(page: &mut Page, view: &CheckpointView) {
    let CheckpointView { row, blobs, bytes, manifest } = view;
    page.pairs(&[
        ("checkpoint", row.checkpoint.clone()),
        ("manifest", row.manifest_hash.to_string()),
        ("made", format!("{} by {}", second(&row.created_at), row.made_by)),
        ("reason", or_dash(row.reason.as_ref())),
        ("topic", manifest.identity.topic.clone()),
        ("flow", manifest.identity.flow_name.clone()),
        ("commit", format!("{} under epoch {} fence {}", row.seq, row.epoch, row.fence)),
        ("offsets", offsets(row)),
        ("watermark", or_dash(manifest.watermark)),
        ("read", manifest.ledger.read.to_string()),
        ("consumed", manifest.ledger.consumed.to_string()),
        ("state", manifest.state.to_string()),
        ("needs", format!("{} blobs, {bytes} bytes", blobs.len())),
    ]);
}
