//! `finaz stream handoff`

use finaz::control::stream::{self, HandoffReport, HandoffRequest, HandoffView, HandoffsReport};

use super::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, or_dash, second, short};
use crate::ui::Exit;

/// Begin a stream from a historic snapshot, or show who gave a stream to whom
///
/// Where the log ends is captured first. Then the snapshot becomes the past of the run, and its stream opens at the first
/// record that the past does not have. Repeated after a crash it goes on; repeated after its end it says what was done.
#[derive(Debug, clap::Args)]
pub(crate) struct HandoffArgs {
    /// Snapshot: a name, a hash or a file [default: the flow's own]
    #[arg(long, value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// Topic that the stream will read; it must be there
    #[arg(long, value_name = "TOPIC", required_unless_present = "show")]
    topic: Option<String>,
    /// Group of the stream
    #[arg(long, value_name = "GROUP", required_unless_present = "show")]
    group: Option<String>,
    /// Flow: a manifest, a name or a hash
    #[arg(long, value_name = "FLOW", required_unless_present = "show")]
    flow: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    /// Go on though the snapshot lacks records of the log that are too late by now
    #[arg(long)]
    accept_gap: bool,
    /// Show the handoffs of a run instead, and whether they fit each other; ends 1 when they do not
    #[arg(long, conflicts_with_all = ["snapshot", "accept_gap"])]
    show: bool,
}

pub(super) async fn run(cx: &mut Context<'_>, args: HandoffArgs) -> Result<Exit, Failure> {
    if args.show {
        return show(cx, args.run).await;
    }
    let (Some(topic), Some(group), Some(flow)) = (args.topic, args.group, args.flow) else {
        return Err(Failure::usage("not all is said", "give --topic, --group and --flow"));
    };
    let request = HandoffRequest {
        snapshot: args.snapshot,
        flow,
        topic,
        group,
        run_id: args.run.run_id,
        accept_gap: args.accept_gap,
    };
    let report =
        cx.draining(async |control, stop| stream::handoff(control, request, stop).await).await?;
    cx.ui.report(&report, |page| told(page, &report));
    Ok(Exit::Done)
}

fn told(page: &mut Page, report: &HandoffReport) {
    page.pairs(&[
        ("run", report.run_id.clone()),
        ("manifest", report.manifest.to_string()),
        ("snapshot", report.snapshot.to_string()),
        ("events", report.events.to_string()),
        ("fence", report.fence.to_string()),
    ]);
    let rows = report.per_partition.iter().map(|at| {
        let checked = at.checked.clone().unwrap_or_default();
        vec![
            at.partition.to_string(),
            at.high_water.to_string(),
            or_dash(at.next_offset),
            checked.known.to_string(),
            checked.missing.to_string(),
            checked.late.to_string(),
        ]
    });
    let header = &["partition", "high-water", "opens at", "known", "missing", "late"];
    page.table(header, rows.collect(), "no partitions");
    if report.already_done {
        page.line("it was handed over before");
    }
}

async fn show(cx: &mut Context<'_>, run: RunArgs) -> Result<Exit, Failure> {
    let report =
        cx.awaiting(async |control| stream::handoffs(control, run.run_id.as_deref()).await).await?;
    cx.ui.report(&report, |page| list(page, &report));
    Ok(if report.chain_ok { Exit::Done } else { Exit::Refused })
}

fn list(page: &mut Page, report: &HandoffsReport) {
    page.line(&format!("run {}", report.run_id));
    let header = &["how", "given by", "fence", "taken by", "fence", "commit", "at"];
    let rows = report.handoffs.iter().map(row).collect();
    page.table(header, rows, "no handoffs");
    for handoff in &report.handoffs {
        for fault in &handoff.faults {
            page.line(&format!("{}: {fault}", handoff.name));
        }
    }
}

fn row(view: &HandoffView) -> Vec<String> {
    let (giver, taker) = (view.giver.as_ref(), view.taker.as_ref());
    let last = taker.or(giver).or(view.captured.as_ref());
    let commit = last.and_then(|part| part.said.commit.as_ref());
    vec![
        view.how.to_owned(),
        short(&or_dash(giver.map(|part| &part.said.owner))),
        or_dash(giver.map(|part| part.said.fence)),
        short(&or_dash(taker.map(|part| &part.said.owner))),
        or_dash(taker.map(|part| part.said.fence)),
        or_dash(commit.map(|commit| commit.seq)),
        second(&or_dash(last.map(|part| &part.signed_at))),
    ]
}
