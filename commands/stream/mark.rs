//! `finaz stream mark`

use finaz::control::stream;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Write into a partition that nothing is to come, for now or at all
///
/// Silence proves nothing: only such a marker takes a partition out of the watermark.
#[derive(Debug, clap::Args)]
pub(crate) struct MarkArgs {
    /// IDLE_CONFIRMED or END_OF_BOUNDED_SOURCE
    marker: String,
    /// Topic to write to; it must be there
    #[arg(long, value_name = "TOPIC")]
    topic: String,
    /// Partition [default: all of them]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    partition: Option<u32>,
}

pub(super) async fn run(cx: &mut Context<'_>, args: MarkArgs) -> Result<Exit, Failure> {
    let report = cx
        .awaiting(async |control| {
            stream::mark(control, &args.topic, args.partition, &args.marker).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        let partitions: Vec<String> = report.partitions.iter().map(u32::to_string).collect();
        let partitions = partitions.join(", ");
        page.line(&format!("{} written to {} {partitions}", report.marker, report.topic));
    });
    Ok(Exit::Done)
}
