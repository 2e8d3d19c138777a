//! `finaz stream`

use std::path::PathBuf;

use finaz::control::stream::{
    self, Checkpoints, MAX_JUMP, Pauses, Split, StreamReport, StreamRequest,
};

use super::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, or_dash};
use crate::ui::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct FollowArgs {
    /// Topic to read; it must be there
    #[arg(long, value_name = "TOPIC", required = true)]
    topic: Option<String>,
    /// Group: streams of other groups over the same topic are other runs
    #[arg(long, value_name = "GROUP", required = true)]
    group: Option<String>,
    /// Flow: a manifest, a name or a hash
    #[arg(long, value_name = "FLOW", required = true)]
    flow: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    /// Read these partitions alone, as one of several processes: 0,3
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "auto")]
    partitions: Option<Vec<u32>>,
    /// Read a fair share of the partitions, as processes come and go
    #[arg(long, conflicts_with = "once_n")]
    auto: bool,
    /// Stop at exactly this many records of the run in all, or of these partitions together
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    once_n: Option<u64>,
    /// Write the values to this file at the end, a JSON line an event
    #[arg(long, value_name = "FILE")]
    emit: Option<PathBuf>,
    /// Commit this often
    #[arg(long, value_name = "SEC", default_value_t = 1.0, allow_negative_numbers = true)]
    commit_every: f64,
    /// Omit records further ahead of their partition than this, in event time
    #[arg(long, value_name = "DURATION", default_value = MAX_JUMP)]
    max_jump: String,
    /// Be SOURCE_PAUSED this many records behind, until half of them are left; 0: never
    #[arg(long, value_name = "N", default_value_t = Pauses::DEFAULT.lag, allow_negative_numbers = true)]
    pause_lag: u64,
    /// Fetch no more with this many MiB in no commit yet, until half of them are left; 0: never
    #[arg(long, value_name = "MIB", default_value_t = Pauses::DEFAULT.in_flight_mib, allow_negative_numbers = true)]
    pause_in_flight: u64,
    /// Read nothing with fewer MiB free for artifacts, until there is space again; 0: never
    #[arg(long, value_name = "MIB", default_value_t = Pauses::DEFAULT.free_disk_mib, allow_negative_numbers = true)]
    pause_free_disk: u64,
    /// Keep a commit by name this often, as `finaz checkpoint commit` does; left out: never
    #[arg(long, value_name = "SEC", allow_negative_numbers = true)]
    checkpoint_every: Option<f64>,
    /// Of these keep the newest so many
    #[arg(long, value_name = "N", default_value_t = Checkpoints::KEEP, allow_negative_numbers = true)]
    checkpoint_keep: i64,
}

pub(super) async fn run(cx: &mut Context<'_>, args: FollowArgs) -> Result<Exit, Failure> {
    let (Some(topic), Some(group), Some(flow)) = (args.topic, args.group, args.flow) else {
        return Err(Failure::usage("not all is said", "give --topic, --group and --flow"));
    };
    let split = match args.partitions {
        Some(partitions) => Split::Partitions(partitions),
        None if args.auto => Split::Auto,
        None => Split::Whole,
    };
    let request = StreamRequest {
        topic,
        group,
        flow,
        run_id: args.run.run_id,
        split,
        once_n: args.once_n,
        emit: args.emit,
        commit_every: args.commit_every,
        max_jump: args.max_jump,
        pauses: Pauses {
            lag: args.pause_lag,
            in_flight_mib: args.pause_in_flight,
            free_disk_mib: args.pause_free_disk,
        },
        checkpoints: args
            .checkpoint_every
            .map(|every| Checkpoints { every, keep: args.checkpoint_keep }),
        stages: true,
    };
    let report =
        cx.draining(async |control, stop| stream::stream(control, request, stop).await).await?;
    cx.ui.report(&report, |page| show(page, &report));
    Ok(Exit::Done)
}

fn show(page: &mut Page, report: &StreamReport) {
    let counts = &report.counts;
    page.pairs(&[
        ("run", report.run_id.clone()),
        ("state", report.state.clone()),
        ("read", counts.ledger.read.to_string()),
        ("consumed", counts.ledger.consumed.to_string()),
        ("filtered", counts.ledger.filtered.to_string()),
        ("duplicates", counts.ledger.duplicates_skipped.to_string()),
        ("late", counts.ledger.late.to_string()),
        ("omitted", counts.ledger.omitted.to_string()),
        ("history", counts.history.to_string()),
        ("final", format!("{} of {}", report.applied, counts.ledger.consumed + counts.history)),
        ("lag", or_dash(counts.lag)),
        ("staged", or_dash(counts.staged)),
        ("fence", report.fence.to_string()),
        ("values", report.values_hash.to_string()),
        ("verdict", report.verdict.to_owned()),
    ]);
    if !counts.ledger_ok {
        page.line("the ledger does not hold");
    }
}
