//! `finaz replay`

use std::path::PathBuf;

use finaz::control::replay::{self, Faults, ReplayRequest, Replayed, Speed};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::Page;
use crate::ui::{Exit, Unit};

/// Replay a snapshot as it would have arrived, with faults
///
/// Turns a snapshot and a schedule of faults into a log of arrivals, the same on every machine, publishes it to a topic and
/// reads it back. A replay that ended early is published again, whole, by the next one.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Snapshot: a name, a file or a hash [default: the schedule's]
    #[arg(long, value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// Fault schedule: a manifest, a name or a hash
    #[arg(long, value_name = "FAULTS", required_unless_present = "generate")]
    faults: Option<String>,
    /// Draw a schedule of this many faults from the seed instead
    #[arg(long, value_name = "N", conflicts_with = "faults", allow_negative_numbers = true)]
    generate: Option<u64>,
    /// Seed, in place of the schedule's
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Draw no fault that would change what this flow computes
    #[arg(long, value_name = "FLOW", requires = "generate")]
    flow: Option<String>,
    /// Write the schedule to this file
    #[arg(long, value_name = "FILE")]
    faults_out: Option<PathBuf>,
    /// Write the log to this file, a JSON line an arrival
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Topic to publish to [default: finaz-te-sim.fixture.replay.faults.normalized.v1]
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Make the topic even if its name is close to another's
    #[arg(long)]
    create_topic: bool,
    /// Go at max speed, realtime, or so many times as fast: x10
    #[arg(long, value_name = "SPEED", default_value = "max")]
    speed: String,
    /// Write metrics to this file, for Prometheus
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,
    /// Compute the log and its hash without any server and publish nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ReplayArgs) -> Result<Exit, Failure> {
    let request = request(args)?;
    let bar = cx.ui.progress("replaying", Unit::Count);
    let report = cx
        .blocking(move |control, brake| {
            replay::replay(control, &request, &|arrivals| {
                brake.check();
                bar.at(arrivals, arrivals);
            })
        })
        .await?;
    cx.ui.report(&report, |page| show(page, &report));
    Ok(Exit::Done)
}

fn request(args: ReplayArgs) -> Result<ReplayRequest, Failure> {
    let speed: Speed = args.speed.parse()?;
    let faults = match (args.generate, args.faults) {
        (Some(count), _) => Faults::Generated { count, flow: args.flow },
        (None, Some(faults)) => Faults::Named(faults),
        (None, None) => return Err(Failure::usage("no faults", "give --faults or --generate")),
    };
    Ok(ReplayRequest {
        snapshot: args.snapshot,
        faults,
        seed: args.seed,
        out: args.out,
        faults_out: args.faults_out,
        dry_run: args.dry_run,
        topic: args.topic,
        create_topic: args.create_topic,
        speed,
        metrics_file: args.metrics_file,
    })
}

fn show(page: &mut Page, report: &Replayed) {
    let mut pairs = vec![
        ("log", report.log_hash.to_string()),
        ("snapshot", report.snapshot.to_string()),
        ("schedule", report.schedule.to_string()),
        ("arrivals", report.arrivals.to_string()),
        ("faults", report.faults_applied.to_string()),
    ];
    if let Some(topic) = &report.topic {
        let partition = |(partition, count): (&u32, &u64)| format!("{partition}: {count}");
        let partitions: Vec<String> = report.partitions.iter().map(partition).collect();
        pairs.push(("topic", topic.clone()));
        pairs.push(("published", report.published.to_string()));
        pairs.push(("partitions", partitions.join(", ")));
    }
    page.pairs(&pairs);
    page.line("");
    let rows = report.faults.iter().map(|fault| {
        let arrival = fault.arrival.to_string();
        vec![fault.kind.to_owned(), fault.event_id.clone(), arrival, fault.effect.clone()]
    });
    page.table(&["fault", "event", "arrival", "effect"], rows.collect(), "no faults");
    if report.republished > 0 {
        let count = report.republished;
        page.line(&format!("a replay had ended early: {count} records are there a second time"));
    }
    if report.doubled > 0 {
        page.line(&format!("{} records are doubled: an acknowledgement was lost", report.doubled));
    }
    if report.topic.is_none() {
        page.line("nothing was published");
    }
}
