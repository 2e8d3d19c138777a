//! From a historic snapshot to the live log: where the log ends is captured first, the snapshot becomes the stream's
//! past, and the stream opens at the first record that the past does not have.
//!
//! Each step is on record before the next one begins, so that a handoff that died anywhere is begun again with the same
//! words and ends the same: the captured ends stay, what was taken in stays, and once the manifest is there nothing is
//! done any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

use super::lease::Held;
use super::owners::partitions;
use super::session::resumed;
use super::{Setup, StreamRequest, overlap, past, plan, prepare};
use crate::broker::Broker;
use crate::control::journal::{self, Handing, Journal};
use crate::control::worker::Stop;
use crate::control::{Control, Error, inputs};
use crate::ids::{Hash, StreamIdentity};
use crate::invalid::Invalid;
use crate::journal::{Checked, Handoff, HandoffPart, HandoffPartition, History};
use crate::store::Store;
use crate::stream::Engine;

/// The state of a stream that was handed over and that nobody has taken yet.
const HANDED_OVER: &str = "HANDED_OVER";
/// The reason in the manifest.
const HISTORY: &str = "HISTORY";

/// What to hand over.
#[derive(Clone, Debug)]
pub struct HandoffRequest {
    /// Absent: the flow's own.
    pub snapshot: Option<String>,
    pub flow: String,
    pub topic: String,
    pub group: String,
    /// Absent: made from cluster, topic, group and flow name, as for `stream`.
    pub run_id: Option<String>,
    /// Go on though the snapshot lacks records that are too late by now, or cannot be shown to reach the log.
    pub accept_gap: bool,
}

/// A handoff, as its manifest has it.
#[derive(Clone, Debug, Serialize)]
pub struct HandoffReport {
    pub run_id: String,
    pub topic: String,
    pub group: String,
    pub flow: Hash,
    pub snapshot: Hash,
    /// It was handed over before.
    pub already_done: bool,
    /// The blob of the manifest, and that of the captured ends.
    pub manifest: Hash,
    pub captured: Option<Hash>,
    pub owner: String,
    pub epoch: i64,
    pub fence: i64,
    pub seq: i64,
    pub head: Option<Hash>,
    /// Events of the snapshot that the flow reads.
    pub events: u64,
    /// Nanoseconds since 1970 UTC.
    pub watermark: Option<i64>,
    /// As captured.
    pub high_waters: BTreeMap<i32, i64>,
    /// Where the stream opens.
    pub next_offsets: BTreeMap<i32, i64>,
    /// What the log held below its captured ends, all partitions together.
    pub known: u64,
    pub differs: u64,
    pub missing: u64,
    pub late: u64,
    pub filtered: u64,
    pub unreadable: u64,
    pub accepted_gap: bool,
    pub per_partition: Vec<HandoffPartition>,
}

/// Hands a snapshot over to a stream that has not begun.
///
/// # Errors
/// [`Error::HandoffConflict`] for a stream that began otherwise; [`Error::HandoffGap`] where the snapshot is no whole
/// history of the log; as for a stream.
pub async fn handoff(
    control: &Control,
    request: HandoffRequest,
    stop: watch::Receiver<Stop>,
) -> Result<HandoffReport, Error> {
    let accept_gap = request.accept_gap;
    let asked = request.snapshot;
    let stream = StreamRequest {
        topic: request.topic,
        group: request.group,
        flow: request.flow,
        run_id: request.run_id,
        ..StreamRequest::plain()
    };
    let (setup, broker) = prepare(control, stream).await?;
    let snapshot = inputs::snapshot_of(control, &setup.flow, asked.as_deref())?;
    inputs::check_fields(control, setup.flow.hash, snapshot)?;
    let store = control.ready_store().await?;
    if let Some(done) = found(control, store, &setup.identity, snapshot).await? {
        return Ok(done);
    }
    let mut held = Held::acquire(control, &setup.hearts, &setup.identity.lease_name()).await?;
    let work = Work { control, setup: &setup, broker: &broker, snapshot, accept_gap, stop };
    let ended = Box::pin(work.under(&held)).await;
    // A snapshot that was refused leaves nothing behind: the run can begin with a better one.
    if let Err(Error::Invalid(_) | Error::HandoffGap { .. }) = &ended {
        let forgotten = store.forget_handoff(&held.lease, &setup.identity.run_id).await;
        if let Err(error) = forgotten {
            tracing::warn!(%error, "a handoff that was refused stays on record");
        }
    }
    held.release().await;
    ended
}

/// What an earlier handoff of this run came to, if it is this one and whole; whatever else the run began with is refused.
async fn found(
    control: &Control,
    store: &Store,
    identity: &StreamIdentity,
    snapshot: Hash,
) -> Result<Option<HandoffReport>, Error> {
    let name = identity.lease_name();
    let Some(view) = store.stream(&name).await? else { return Ok(None) };
    if let Some((field, held, offered)) = view.row.identity.difference(identity) {
        return Err(Error::JournalForeign { name, field, held, offered });
    }
    let handing = Handing::of(store, &name).await?;
    let held = handing.snapshot();
    if held != Some(snapshot) && (held.is_some() || view.row.seq > 0) {
        return Err(Error::HandoffConflict { name, held, offered: snapshot });
    }
    let Some(row) = handing.history() else { return Ok(None) };
    let manifest = journal::handoff(control.artifacts()?, &row.manifest)?;
    Ok(Some(HandoffReport::of(row.manifest, manifest, true)))
}

/// A handoff under a lease.
struct Work<'a> {
    control: &'a Control,
    setup: &'a Setup,
    broker: &'a Broker,
    snapshot: Hash,
    accept_gap: bool,
    stop: watch::Receiver<Stop>,
}

impl Work<'_> {
    async fn under(&self, held: &Held) -> Result<HandoffReport, Error> {
        let (control, setup) = (self.control, self.setup);
        let store = control.ready_store().await?;
        let artifacts = Arc::clone(control.artifacts()?);
        let (mut journal, loaded) =
            Journal::open(artifacts, store.clone(), held.lease.clone(), setup.identity.clone())
                .await?;
        // Somebody else may have been here since we looked.
        if let Some(done) = found(control, store, &setup.identity, self.snapshot).await? {
            return Ok(done);
        }
        let (captured, ends) = self.capture(&journal).await?;
        let mut engine = match loaded {
            Some(loaded) => resumed(setup, loaded)?,
            None => Engine::new(plan(setup)),
        };
        past::seed(control, &mut journal, &mut engine, self.snapshot, &self.stop).await?;
        self.check_instruments(&engine)?;
        let partitions = overlap::hold(setup, self.broker, &mut engine, &ends, &self.stop).await?;
        self.judge(&partitions)?;
        past::commit(&mut journal, &mut engine, HANDED_OVER).await?;
        let mut given = journal.draft(HandoffPart::Given);
        given.reason = Some(HISTORY.to_owned());
        given.history = Some(self.history(Some(captured), engine.history()));
        given.watermark = engine.watermark();
        given.partitions = partitions;
        let manifest = journal.sign(&given).await?;
        Ok(HandoffReport::of(manifest, given, false))
    }

    /// Where the log ends, as it was written down first of all.
    async fn capture(&self, journal: &Journal) -> Result<(Hash, Vec<HandoffPartition>), Error> {
        let handing = journal.handing().await?;
        if let Some(row) = handing.captured() {
            let captured = journal::handoff(self.control.artifacts()?, &row.manifest)?;
            return Ok((row.manifest, captured.partitions));
        }
        let engine = Engine::new(plan(self.setup));
        let numbers: Vec<i32> = engine.standings().iter().map(|lane| lane.partition).collect();
        let edges = self.broker.edges(&self.setup.topic, &numbers).await?;
        let mut captured = journal.draft(HandoffPart::Captured);
        captured.history = Some(self.history(None, 0));
        captured.partitions = partitions(&engine, &edges);
        for partition in &mut captured.partitions {
            partition.next_offset = None;
        }
        let hash = journal.sign(&captured).await?;
        Ok((hash, captured.partitions))
    }

    /// Batch would refuse a snapshot that lacks an instrument of the flow as well.
    fn check_instruments(&self, engine: &Engine) -> Result<(), Invalid> {
        let lacks = engine.without_events();
        let Some(name) = lacks.first() else { return Ok(()) };
        let message = format!("it has no event of {name}, which {} reads", self.setup.flow.name);
        let (place, hint) = (self.snapshot.to_string(), "see `finaz snapshot show`");
        Err(Invalid::new("INSTRUMENT_UNKNOWN", place, message, hint))
    }

    fn history(&self, captured: Option<Hash>, events: u64) -> History {
        History { snapshot: self.snapshot, captured, events, accepted_gap: self.accept_gap }
    }

    /// Whether batch over the snapshot and the stream behind it are one: nothing is late that the snapshot lacks, and
    /// nothing was deleted between the two.
    fn judge(&self, partitions: &[HandoffPartition]) -> Result<(), Error> {
        let late: u64 = checked(partitions).map(|(_, checked)| checked.late).sum();
        let apart = checked(partitions).filter(|(_, checked)| !checked.joined);
        let apart: Vec<i32> = apart.map(|(partition, _)| partition).collect();
        if self.accept_gap || late == 0 && apart.is_empty() {
            return Ok(());
        }
        let first = checked(partitions)
            .filter(|(_, checked)| checked.late > 0)
            .find_map(|(partition, checked)| Some((partition, checked.first_missing?)));
        let name = self.setup.identity.lease_name();
        Err(Error::HandoffGap { name, late, first, apart })
    }
}

fn checked(partitions: &[HandoffPartition]) -> impl Iterator<Item = (i32, &Checked)> {
    partitions.iter().filter_map(|at| Some((at.partition, at.checked.as_ref()?)))
}

impl HandoffReport {
    fn of(manifest: Hash, handoff: Handoff, already_done: bool) -> Self {
        let sum = |count: fn(&Checked) -> u64| {
            checked(&handoff.partitions).map(|(_, checked)| count(checked)).sum()
        };
        let history = handoff.history.as_ref();
        let commit = handoff.commit.as_ref();
        let next = |at: &HandoffPartition| Some((at.partition, at.next_offset?));
        Self {
            already_done,
            manifest,
            snapshot: history.map_or(manifest, |history| history.snapshot),
            captured: history.and_then(|history| history.captured),
            events: history.map_or(0, |history| history.events),
            accepted_gap: history.is_some_and(|history| history.accepted_gap),
            owner: handoff.owner.clone(),
            epoch: handoff.epoch,
            fence: handoff.fence,
            seq: commit.map_or(0, |commit| commit.seq),
            head: commit.map(|commit| commit.head),
            watermark: handoff.watermark,
            high_waters: handoff
                .partitions
                .iter()
                .map(|at| (at.partition, at.high_water))
                .collect(),
            next_offsets: handoff.partitions.iter().filter_map(next).collect(),
            known: sum(|checked| checked.known),
            differs: sum(|checked| checked.differs),
            missing: sum(|checked| checked.missing),
            late: sum(|checked| checked.late),
            filtered: sum(|checked| checked.filtered),
            unreadable: sum(|checked| checked.unreadable),
            run_id: handoff.identity.run_id,
            topic: handoff.identity.topic,
            group: handoff.identity.group,
            flow: handoff.identity.flow,
            per_partition: handoff.partitions,
        }
    }
}
