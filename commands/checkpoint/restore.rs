//! `finaz checkpoint restore`

use finaz::control::checkpoint::{
    self, RestorePlan, RestoreReport, RestoreRequest, RestoreWay, RestoredView,
};

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::unless_cut;
use crate::page::Page;
use crate::ui::{self, Exit};

/// Take a stream back to one of its checkpoints, or a batch run on from one; exactly that one
///
/// Nobody may have the stream. Its next owner reads the log again from there; what was decided since is decided anew. The
/// commits since stay in the artifact store until `cas gc`. A batch run goes on over a snapshot that begins with the events it
/// has read; only those behind them are computed, and the whole is published as the run that `admit` would name.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Its id, its manifest hash, or the beginning of that
    checkpoint: String,
    /// Why; kept for whoever asks later
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Of a batch run: what it goes on over, a hash, a file or a name [default: its own, where nothing follows]
    #[arg(long, value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// Of a batch run: the idempotency key of the run that goes on, where one without a key failed or was cancelled
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// The epoch that the checkpoint was made in, where that is another by now
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
}

pub(super) async fn run(cx: &mut Context<'_>, args: RestoreArgs) -> Result<Exit, Failure> {
    let RestoreArgs { checkpoint, reason, snapshot, key, yes, epoch } = args;
    let request = RestoreRequest { checkpoint, reason, epoch, snapshot, key };
    if !yes {
        let plan = cx.awaiting(async |control| Ok(request.plan(control).await?)).await?;
        consent(cx, &plan).await?;
    }
    let report = cx
        .draining(async |control, stop| {
            Box::pin(checkpoint::restore(control, &request, stop)).await
        })
        .await?;
    cx.ui.report(&report, |page| told(page, &report));
    Ok(Exit::Done)
}

fn told(page: &mut Page, report: &RestoreReport) {
    super::page(page, &report.view);
    match (&report.run, &report.restored) {
        (None, None) => {}
        (None, Some(RestoredView { from_seq, seq, epoch, fence, .. })) => page.line(&format!(
            "taken back from commit {from_seq}: it is commit {seq} under epoch {epoch} fence {fence} now",
        )),
        (Some(run), Some(RestoredView { from_seq, seq, epoch, fence, .. })) => page.line(&format!(
            "taken on from event {from_seq} to {seq}: {} is published under epoch {epoch} fence {fence}, values {}",
            run.run_id, run.result.values_hash
        )),
        (Some(run), None) => page.line(&format!(
            "{} is published already, and is the same: values {}",
            run.run_id, run.result.values_hash
        )),
    }
}

/// The name of the checkpoint, typed by whoever agrees.
async fn consent(cx: &mut Context<'_>, plan: &RestorePlan) -> Result<(), Failure> {
    let RestorePlan { row, way } = plan;
    let (name, next) = (&row.checkpoint, super::offsets(row));
    if !ui::is_conversation() {
        return Err(Failure::new(
            2,
            "CONSENT_MISSING",
            format!("{name} would be restored, and nobody can be asked"),
            "look at it with `finaz checkpoint show`, then say --yes",
        ));
    }
    let (what, question) = match way {
        RestoreWay::Back { stands_at, owner } => {
            let stands = stands_at.map_or("nothing".to_owned(), |seq| format!("commit {seq}"));
            let owner =
                owner.as_ref().map_or(String::new(), |owner| format!(", which {owner} has"));
            let to = format!("commit {}, next offsets {next}", row.seq);
            (
                format!("stream {} goes back from {stands}{owner} to {to}", row.run_id),
                format!("type {name} to go back: "),
            )
        }
        RestoreWay::On { snapshot } => (
            format!("run {} goes on with next offsets {next} over {snapshot}", row.run_id),
            format!("type {name} to go on: "),
        ),
    };
    cx.ui.aside(&what);
    let typed = unless_cut(&mut cx.signals, ui::ask(question)).await?;
    if typed.trim() == name {
        return Ok(());
    }
    Err(Failure::new(
        1,
        "CONSENT_REFUSED",
        "another name was typed: nothing was changed",
        "type it as it stands there",
    ))
}
