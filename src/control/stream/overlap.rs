//! What the log holds below its captured end, held against the history: where the stream has to open so that nothing of
//! it is lost, and what of it is too late.

use std::time::Duration;

use tokio::sync::watch;

use super::Setup;
use super::session::MARKER;
use crate::broker::{Broker, Edge, Event, FollowLimits};
use crate::control::Error;
use crate::control::worker::Stop;
use crate::journal::{Checked, HandoffPartition};
use crate::stream::{Engine, Foreseen, Marker, Record};

/// How long the reader is waited for before a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// A partition while it is read.
#[derive(Debug)]
struct Tally {
    partition: i32,
    next: i64,
    /// The captured end.
    end: i64,
    checked: Checked,
    /// The first record of the flow was of the history.
    first_known: Option<bool>,
    /// Markers at the end, behind which no record of the flow came: they are the stream's to see.
    marked: Option<i64>,
}

/// Reads the log up to its captured ends, and opens each partition of the engine at the first record that it needs.
///
/// # Errors
/// [`Error::RecoveryBlocked`] and [`Error::OffsetAhead`] where the log has lost its captured end; the broker's.
pub(super) async fn hold(
    setup: &Setup,
    broker: &Broker,
    engine: &mut Engine,
    captured: &[HandoffPartition],
    stop: &watch::Receiver<Stop>,
) -> Result<Vec<HandoffPartition>, Error> {
    let numbers: Vec<i32> = captured.iter().map(|at| at.partition).collect();
    let edges = broker.edges(&setup.topic, &numbers).await?;
    let mut tallies = Vec::with_capacity(captured.len());
    for (captured, edge) in captured.iter().zip(&edges) {
        tallies.push(Tally::of(captured, edge)?);
    }
    read(setup, broker, engine, &mut tallies, stop).await?;
    let mut partitions = Vec::with_capacity(captured.len());
    for ((captured, edge), tally) in captured.iter().zip(&edges).zip(tallies) {
        let mut checked = tally.checked;
        let opens = [checked.first_missing, tally.marked, Some(tally.end)];
        let next = opens.into_iter().flatten().min().unwrap_or(tally.end);
        engine.begin(captured.partition, next);
        let standings = engine.standings();
        let standing = standings.iter().find(|at| at.partition == captured.partition);
        let is_active = standing.is_some_and(|standing| standing.active);
        checked.joined = edge.earliest == 0 || tally.first_known.unwrap_or(!is_active);
        partitions.push(HandoffPartition {
            earliest: edge.earliest,
            next_offset: Some(next),
            watermark: standing.and_then(|standing| standing.watermark),
            checked: Some(checked),
            ..captured.clone()
        });
    }
    Ok(partitions)
}

async fn read(
    setup: &Setup,
    broker: &Broker,
    engine: &mut Engine,
    tallies: &mut [Tally],
    stop: &watch::Receiver<Stop>,
) -> Result<(), Error> {
    let from: Vec<(i32, i64)> =
        tallies.iter().filter(|at| !at.is_done()).map(|at| (at.partition, at.next)).collect();
    if from.is_empty() {
        return Ok(());
    }
    let mut follower = broker.follow(&setup.topic, &from, FollowLimits::default()).await?;
    while tallies.iter().any(|tally| !tally.is_done()) {
        if let Stop::Drain(signal) | Stop::Now(signal) = *stop.borrow() {
            return Err(Error::Interrupted { signal });
        }
        for event in follower.next_batch(LOOK).await? {
            let (partition, next) = place(&event)?;
            let found = tallies.iter_mut().find(|tally| tally.partition == partition);
            let Some(tally) = found.filter(|tally| !tally.is_done()) else { continue };
            // A record that lies behind the captured end is the stream's; so is what comes after it.
            if next <= tally.end {
                tally.take(engine, event);
            }
            tally.next = next;
            if tally.is_done() {
                follower.pause(partition);
            }
        }
    }
    follower.close().await;
    Ok(())
}

/// The partition that an event is of, and the offset behind it.
fn place(event: &Event) -> Result<(i32, i64), Error> {
    match *event {
        Event::Record { partition, offset, .. } | Event::Undecodable { partition, offset, .. } => {
            Ok((partition, offset + 1))
        }
        Event::Hole { partition, next } | Event::Mute { partition, next, .. } => {
            Ok((partition, next))
        }
        Event::Blocked { partition, needed, earliest } => {
            Err(Error::RecoveryBlocked { partition, needed, earliest })
        }
        Event::Ahead { partition, needed, end } => {
            Err(Error::OffsetAhead { partition, needed, end })
        }
    }
}

impl Tally {
    fn of(captured: &HandoffPartition, edge: &Edge) -> Result<Self, Error> {
        let (partition, end) = (captured.partition, captured.stable);
        if edge.earliest > end {
            let (needed, earliest) = (end, edge.earliest);
            return Err(Error::RecoveryBlocked { partition, needed, earliest });
        }
        if edge.high_water < captured.high_water {
            let (needed, end) = (captured.high_water, edge.high_water);
            return Err(Error::OffsetAhead { partition, needed, end });
        }
        Ok(Self {
            partition,
            next: edge.earliest,
            end,
            checked: Checked::default(),
            first_known: None,
            marked: None,
        })
    }

    fn is_done(&self) -> bool {
        self.next >= self.end
    }

    fn take(&mut self, engine: &mut Engine, event: Event) {
        match event {
            Event::Record { partition, offset, got } => {
                if got.header(MARKER).and_then(Marker::parse).is_some() {
                    self.marked.get_or_insert(offset);
                    return;
                }
                let record = Record { partition, offset, key: got.key(), value: got.value() };
                self.count(engine, record);
            }
            Event::Undecodable { .. } => self.checked.unreadable += 1,
            Event::Mute { .. } | Event::Hole { .. } => {}
            Event::Blocked { .. } | Event::Ahead { .. } => {}
        }
    }

    fn count(&mut self, engine: &mut Engine, record: Record<'_>) {
        let foreseen = engine.foresee(record);
        let checked = &mut self.checked;
        match foreseen {
            Foreseen::Unreadable => checked.unreadable += 1,
            Foreseen::Filtered => checked.filtered += 1,
            Foreseen::Known => checked.known += 1,
            Foreseen::Differs => {
                checked.known += 1;
                checked.differs += 1;
            }
            Foreseen::Missing { late } => {
                checked.missing += 1;
                checked.late += u64::from(late);
                checked.first_missing.get_or_insert(record.offset);
            }
        }
        let is_known = match foreseen {
            Foreseen::Unreadable | Foreseen::Filtered => None,
            Foreseen::Known | Foreseen::Differs => Some(true),
            Foreseen::Missing { .. } => Some(false),
        };
        if let Some(is_known) = is_known {
            self.first_known.get_or_insert(is_known);
            // It wakes the partition.
            self.marked = None;
        }
        if self.checked.first_missing.is_none() && self.marked.is_none() {
            engine.pass(record);
        }
    }
}
