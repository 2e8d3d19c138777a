//! `finaz checkpoint`: commits of streams, and published batch runs, that are kept by name.

mod commit;
mod diff;
mod drop;
mod list;
mod restore;
mod show;
mod verify;

use finaz::control::checkpoint::{CheckpointView, Manifest, RowView};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, or_dash, second, short};
use crate::ui::Exit;

/// Keep commits of a stream by name and take it back to one; keep batch runs and go on from them
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

/// An id as a table has it: that of a batch run is long, and its beginning names it.
fn brief(id: &str) -> String {
    if id.starts_with("run_") { short(id) } else { id.to_owned() }
}

/// One in full.
fn page(page: &mut Page, view: &CheckpointView) {
    let CheckpointView { row, blobs, bytes, manifest } = view;
    let mut pairs = vec![
        ("checkpoint", row.checkpoint.clone()),
        ("manifest", row.manifest_hash.to_string()),
        ("made", format!("{} by {}", second(&row.created_at), row.made_by)),
        ("reason", or_dash(row.reason.as_ref())),
    ];
    let (watermark, ledger, state) = match manifest {
        Manifest::Stream(of) => {
            pairs.push(("topic", of.identity.topic.clone()));
            pairs.push(("flow", of.identity.flow_name.clone()));
            (of.watermark, of.ledger, of.state)
        }
        Manifest::Run(of) => {
            pairs.push(("snapshot", of.snapshot.to_string()));
            pairs.push(("flow", of.flow_name.clone()));
            pairs.push(("result", format!("{} of {} rows", of.sink.values_hash, of.sink.rows)));
            (of.watermark, of.ledger, of.state)
        }
    };
    pairs.extend([
        ("commit", format!("{} under epoch {} fence {}", row.seq, row.epoch, row.fence)),
        ("offsets", offsets(row)),
        ("watermark", or_dash(watermark)),
        ("read", ledger.read.to_string()),
        ("consumed", ledger.consumed.to_string()),
        ("state", state.to_string()),
        ("needs", format!("{} blobs, {bytes} bytes", blobs.len())),
    ]);
    page.pairs(&pairs);
}
