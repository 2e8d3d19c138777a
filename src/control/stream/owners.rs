//! What an owner of a stream says when it takes it, and when it gives it away.

use super::session::End;
use crate::broker::Edge;
use crate::control::Error;
use crate::control::journal::{Handing, Journal};
use crate::journal::{HandoffPart, HandoffPartition};
use crate::stream::{Engine, Standing};

/// The new owner says where it goes on, before it reads anything.
pub(super) async fn take(
    journal: &Journal,
    handing: &Handing,
    engine: &Engine,
    edges: &[Edge],
) -> Result<(), Error> {
    let mut taken = journal.draft(HandoffPart::Taken);
    if !journal.takes(handing, &mut taken) {
        return Ok(());
    }
    taken.watermark = engine.watermark();
    taken.partitions = partitions(engine, edges);
    journal.sign(&taken).await?;
    Ok(())
}

/// The owner says what it leaves, once that is committed. Where this cannot be written down the commit stands, and the
/// next owner says that nobody gave it anything.
pub(super) async fn give(journal: &Journal, engine: &Engine, edges: &[Edge], end: End) {
    let mut given = journal.draft(HandoffPart::Given);
    given.reason = Some(end.word().to_owned());
    given.watermark = engine.watermark();
    given.partitions = partitions(engine, edges);
    if let Err(error) = journal.sign(&given).await {
        tracing::warn!(%error, "the handoff is not on record, the commit is");
    }
}

/// How each partition stands at a handoff.
pub(super) fn partitions(engine: &Engine, edges: &[Edge]) -> Vec<HandoffPartition> {
    let edge = |standing: &Standing| edges.iter().find(|e| e.partition == standing.partition);
    let one = |standing: Standing| {
        edge(&standing).map(|edge| HandoffPartition {
            partition: standing.partition,
            earliest: edge.earliest,
            stable: edge.stable,
            high_water: edge.high_water,
            next_offset: Some(standing.next_offset),
            watermark: standing.watermark,
            checked: None,
        })
    };
    engine.standings().into_iter().filter_map(one).collect()
}
