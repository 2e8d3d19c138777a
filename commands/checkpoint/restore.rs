//! `finaz checkpoint restore`

use finaz::control::stream::{self, RestorePlan, RestoreRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::unless_cut;
use crate::ui::{self, Exit};

/// Take a stream back to one of its checkpoints, exactly that one
///
/// Nobody may have the stream. Its next owner reads the log again from there; what was decided since is decided anew. The
/// commits since stay in the artifact store until `cas gc`.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Its id, its manifest hash, or the beginning of that
    checkpoint: String,
    /// Why; kept for whoever asks later
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// The epoch that the checkpoint was made in, where that is not the stream's any more
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
}

pub(super) async fn run(cx: &mut Context<'_>, args: RestoreArgs) -> Result<Exit, Failure> {
    let RestoreArgs { checkpoint, reason, yes, epoch } = args;
    let request = RestoreRequest { checkpoint, reason, epoch };
    if !yes {
        let plan = cx.awaiting(async |control| Ok(request.plan(control).await?)).await?;
        consent(cx, &plan).await?;
    }
    let report = cx
        .awaiting(async |control| Box::pin(stream::checkpoint_restore(control, &request)).await)
        .await?;
    cx.ui.report(&report, |page| {
        super::page(page, &report.view);
        let restored = &report.restored;
        page.line(&format!(
            "taken back from commit {}: it is commit {} under epoch {} fence {} now",
            restored.from_seq, restored.seq, restored.epoch, restored.fence
        ));
    });
    Ok(Exit::Done)
}

/// The name of the checkpoint, typed by whoever agrees.
async fn consent(cx: &mut Context<'_>, plan: &RestorePlan) -> Result<(), Failure> {
    let name = &plan.row.checkpoint;
    if !ui::is_conversation() {
        return Err(Failure::new(
            2,
            "CONSENT_MISSING",
            format!("{name} would take a stream back, and nobody can be asked"),
            "look at it with `finaz checkpoint show`, then say --yes",
        ));
    }
    let stands = plan.stands_at.map_or("nothing".to_owned(), |seq| format!("commit {seq}"));
    let owner = plan.owner.as_ref().map_or(String::new(), |owner| format!(", which {owner} has"));
    cx.ui.aside(&format!(
        "stream {} goes back from {stands}{owner} to commit {}, next offsets {}",
        plan.row.run_id,
        plan.row.seq,
        super::offsets(&plan.row)
    ));
    let question = format!("type {name} to go back: ");
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
