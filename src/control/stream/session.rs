//! One stretch of a stream, from what the journal holds to the next end: read, decide, commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::brakes::Brakes;
use super::lease::Held;
use super::outlook::Outlook;
use super::quota::Left;
use super::report::{Counts, Part, staged_before};
use super::rows::Rows;
use super::{Checkpoints, GIVEN_UP, Setup, find, owners, plan};
use crate::artifacts::Artifacts;
use crate::broker::{Broker, Edge, Event, FollowLimits, Follower, Position};
use crate::control::journal::{self, Journal, Loaded};
use crate::control::worker::Stop;
use crate::control::{Control, Error};
use crate::flow::{Flow, unite};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::journal::Head;
use crate::points::{Point, reach};
use crate::store::StreamStatus;
use crate::stream::{Anchor, Astray, Engine, Kept, Marker, Record};

/// The header of a marker; its value is the marker's name.
pub(in crate::control) const MARKER: &str = "finaz-marker";
/// Uncommitted records after which a commit is made before its time.
const UNCOMMITTED_MAX: usize = 200_000;
/// How often we look whether the other sessions of this process have begun.
const LATER: Duration = Duration::from_millis(20);
/// How long the broker is waited for when it is asked where the log begins: signals wait as well.
const EDGES: Duration = Duration::from_secs(1);
/// How long an end waits for ClickHouse to take the last rows; the next owner stages what is left.
const SETTLE: Duration = Duration::from_secs(5);
/// How long the reader is waited for before signals and time are looked at again.
const LOOK: Duration = Duration::from_millis(100);

/// Why a session ended in order; of several, the greatest says it for all.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum End {
    /// Every partition that counts said that it has ended.
    Source,
    /// As many records as were asked for.
    Count,
    /// A signal asked for it.
    Stopped,
    /// The partition is another process's turn.
    GivenUp,
}

impl End {
    /// The state that a stream is left in.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Count => "STOPPED",
            Self::Source => "ENDED",
            Self::Stopped | Self::GivenUp => "DRAINED",
        }
    }
}

/// Why no event is applied though there are some, in words.
fn silence(partitions: &[i32]) -> Option<String> {
    let first = partitions.first()?;
    let more = match partitions.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "events wait for partition {first}{more}, which gave nothing yet: `finaz stream mark` says that it is idle"
    ))
}

/// State and reason, and rows in ClickHouse.
type Said = ((&'static str, Option<String>), Option<u64>);

#[derive(Debug)]
pub(super) struct Session<'a> {
    control: &'a Control,
    setup: &'a Setup,
    broker: &'a Broker,
    held: &'a Held,
    journal: Journal,
    engine: Engine,
    follower: Follower,
    /// The edges of the log at the start, for partitions of which the reader knows nothing yet; asked for anew while
    /// nothing is fetched.
    edges: Vec<Edge>,
    brakes: Brakes,
    outlook: Outlook,
    rows: Rows,
    seq: i64,
    committed: bool,
    /// When a checkpoint was made last, and what the stream goes on from besides its log.
    last_checkpoint: Instant,
    snapshot: Option<Hash>,
    /// As many records as were asked for were read; what the reader gave beyond them is gone.
    full: bool,
    /// As it is on record.
    said: Option<Said>,
    last_commit: Instant,
}

impl<'a> Session<'a> {
    /// Takes up what the journal holds, once it is known to belong to this log and to have all that it needs.
    pub(super) async fn open(
        control: &'a Control,
        setup: &'a Setup,
        broker: &'a Broker,
        held: &'a Held,
    ) -> Result<Self, Error> {
        let artifacts = Arc::clone(control.artifacts()?);
        let store = control.ready_store().await?.clone();
        let lease = held.lease.clone();
        let (journal, loaded) =
            Journal::open(artifacts, store, lease, setup.identity.clone()).await?;
        let handing = journal.handing().await?;
        handing.check_whole(&held.lease.name)?;
        let seq = loaded.as_ref().map_or(0, |loaded| loaded.seq);
        let is_new = loaded.is_none();
        let mut engine = match loaded {
            Some(loaded) => resumed(setup, loaded)?,
            None => Engine::new(plan(setup)),
        };
        let partitions: Vec<i32> = engine.standings().iter().map(|lane| lane.partition).collect();
        let edges = broker.edges(&setup.topic, &partitions).await?;
        // Once a run has begun it needs all that comes, of a partition that gave nothing so far as well.
        if is_new {
            for edge in &edges {
                engine.begin(edge.partition, edge.earliest);
            }
        }
        let staged = staged_before(journal.report_before());
        let checked = check_log(setup, broker, &engine, &edges).await;
        if let Err(error) = checked {
            if let Some(state) = error.blocks() {
                let counts = Counts { staged, ..Counts::of(&engine, &[], &edges) };
                let report = serde_json::to_string(&counts).ok();
                let (state, reason) = (state.to_owned(), Some(error.to_string()));
                journal.mark(&StreamStatus { state, reason, report }).await?;
            }
            return Err(error);
        }
        owners::take(&journal, &handing, &engine, &edges).await?;
        reach(Point::HandoffTaken);
        let from: Vec<(i32, i64)> =
            engine.standings().iter().map(|lane| (lane.partition, lane.next_offset)).collect();
        let follower = broker.follow(&setup.topic, &from, FollowLimits::default()).await?;
        reach(Point::LogOpened);
        let rows = Rows::begin(
            setup.warehouse.as_ref(),
            control.artifacts()?,
            &held.lease,
            &setup.flow,
            staged.unwrap_or_default(),
        );
        if let Some(head) = journal.head() {
            rows.offer(head);
        }
        Ok(Self {
            control,
            setup,
            broker,
            held,
            journal,
            engine,
            follower,
            edges,
            brakes: Brakes::new(setup.request.pauses),
            outlook: Outlook::new(),
            rows,
            seq,
            committed: false,
            last_checkpoint: Instant::now(),
            snapshot: handing.snapshot(),
            full: false,
            said: None,
            last_commit: Instant::now(),
        })
    }

    pub(super) fn has_committed(&self) -> bool {
        self.committed
    }

    /// Reads until an end; what was decided since the last commit is lost on an error, and decided again.
    pub(super) async fn run(&mut self, stop: &mut watch::Receiver<Stop>) -> Result<End, Error> {
        loop {
            if let Stop::Drain(signal) | Stop::Now(signal) = *stop.borrow_and_update() {
                reach(Point::DrainBegun);
                return Ok(if signal == GIVEN_UP { End::GivenUp } else { End::Stopped });
            }
            let left = self.left();
            if self.full || left == Left::Records(0) {
                return Ok(End::Count);
            }
            if self.engine.has_ended() {
                return Ok(End::Source);
            }
            if left == Left::Later {
                tokio::time::sleep(LATER).await;
                continue;
            }
            self.govern()?;
            self.watch().await?;
            let batch = tokio::select! {
                biased;
                _changed = stop.changed() => continue,
                () = self.held.lost() => return Err(self.fenced().await),
                batch = self.follower.next_batch(LOOK) => batch,
            };
            match batch {
                Ok(events) => {
                    let fetched = !events.is_empty();
                    if fetched {
                        reach(Point::LogFetched);
                    }
                    self.take(events)?;
                    if fetched {
                        reach(Point::RecordsTaken);
                    }
                }
                // A daemon goes on waiting; what it has is committed meanwhile.
                Err(error) if error.is_away() && self.setup.request.once_n.is_none() => {
                    tracing::warn!(%error, "waiting for the broker");
                }
                Err(error) => {
                    // A topic that was made anew explains all else.
                    self.check_topic().await?;
                    return Err(error.into());
                }
            }
            let due = self.last_commit.elapsed() >= self.setup.commit_every;
            let new = self.engine.uncommitted();
            if (due || self.brakes.hurries()) && new > 0 || new >= UNCOMMITTED_MAX {
                self.commit().await?;
            } else if due {
                self.say().await?;
            }
        }
    }

    /// Puts on record how it stands, where that changed and nothing comes that a commit would be made for.
    async fn say(&mut self) -> Result<(), Error> {
        let said = (self.standing(), self.rows.staged());
        if self.said.as_ref() != Some(&said) {
            self.journal.mark(&self.status()).await?;
            self.said = Some(said);
        }
        Ok(())
    }

    /// Records that may still be read.
    fn left(&self) -> Left {
        self.setup.quota.left(&self.setup.identity, self.engine.ledger().read)
    }

    fn take(&mut self, events: Vec<Event>) -> Result<(), Error> {
        let mut left = match self.left() {
            Left::Records(left) => Some(left),
            Left::All | Left::Later => None,
        };
        for event in events {
            if left == Some(0) {
                self.full = true;
                return Ok(());
            }
            match event {
                Event::Record { partition, offset, got } => {
                    if let Some(marker) = got.header(MARKER).and_then(Marker::parse) {
                        self.engine.mark(partition, offset, marker);
                        continue;
                    }
                    let (key, value) = (got.key(), got.value());
                    let taken = self.engine.take(Record { partition, offset, key, value });
                    left = left.map(|left| left - u64::from(taken.is_some()));
                }
                Event::Hole { partition, next } => self.engine.skip_to(partition, next),
                Event::Mute { partition, from, next } => self.engine.lose(partition, from, next),
                Event::Undecodable { partition, offset, why, raw } => {
                    self.engine.omit(partition, offset, &why, &raw);
                    left = left.map(|left| left - 1);
                }
                Event::Blocked { partition, needed, earliest } => {
                    return Err(Error::RecoveryBlocked { partition, needed, earliest });
                }
                Event::Ahead { partition, needed, end } => {
                    return Err(Error::OffsetAhead { partition, needed, end });
                }
            }
        }
        Ok(())
    }

    /// Holds back what is too much, and lets go of it again.
    fn govern(&mut self) -> Result<(), Error> {
        let artifacts = self.control.artifacts()?;
        self.brakes.look(&self.engine, &mut self.follower, &self.edges, artifacts);
        let waited = self.brakes.short_for().filter(|_| self.setup.request.once_n.is_some());
        if waited.is_some_and(|waited| waited >= self.control.settings.service_timeout) {
            let why = self.brakes.says().map_or_else(String::new, |(_, why)| why);
            return Err(Error::SourcePaused { why });
        }
        Ok(())
    }

    /// Looks how the log moves against what was read of it. While nothing is fetched, nothing else would tell.
    async fn watch(&mut self) -> Result<(), Error> {
        if !self.outlook.is_due() {
            return Ok(());
        }
        if self.brakes.is_deaf() && self.outlook.asks() {
            let partitions: Vec<i32> = self.edges.iter().map(|edge| edge.partition).collect();
            let asked = self.broker.edges(&self.setup.topic, &partitions);
            match tokio::time::timeout(EDGES, asked).await {
                Ok(Ok(edges)) => self.edges = edges,
                Ok(Err(error)) if error.is_away() => {}
                Ok(Err(error)) => return Err(error.into()),
                Err(_late) => {}
            }
        }
        let positions = self.follower.positions();
        let counts = Counts::of(&self.engine, &positions, &self.edges);
        for view in &counts.per_partition {
            let held = |position: &&Position| position.partition == view.partition;
            let ahead = positions.iter().find(held).map_or(view.next_offset, |at| at.ahead);
            if let Some(earliest) = view.earliest.filter(|first| *first > ahead) {
                let (partition, needed) = (view.partition, view.next_offset);
                return Err(Error::RecoveryBlocked { partition, needed, earliest });
            }
        }
        self.outlook.see(&counts);
        self.outlook.warn();
        Ok(())
    }

    /// State and reason.
    fn standing(&self) -> (&'static str, Option<String>) {
        let (state, why) = self.stance();
        let more = [self.outlook.says(), self.rows.says()];
        let reasons: Vec<String> = why.into_iter().chain(more.into_iter().flatten()).collect();
        (state, (!reasons.is_empty()).then(|| reasons.join("; ")))
    }

    fn stance(&self) -> (&'static str, Option<String>) {
        if let Some((state, why)) = self.brakes.says() {
            return (state, Some(why));
        }
        let positions = self.follower.positions();
        let waits = positions.iter().find(|position| position.waits_for_transaction);
        let transaction = waits.map(|position| {
            format!("partition {} waits for an open transaction to end", position.partition)
        });
        ("FLOWING", transaction.or_else(|| silence(&self.engine.silent())))
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::of(&self.engine, &self.follower.positions(), &self.edges);
        self.outlook.tell(&mut counts);
        counts.staged = self.rows.staged();
        counts
    }

    fn status(&self) -> StreamStatus {
        let (state, reason) = self.standing();
        let mut counts = self.counts();
        counts.as_of = Some(self.journal.now_us());
        let report = serde_json::to_string(&counts).ok();
        StreamStatus { state: state.to_owned(), reason, report }
    }

    async fn commit(&mut self) -> Result<(), Error> {
        self.commit_as(None).await
    }

    async fn commit_as(&mut self, state: Option<&str>) -> Result<(), Error> {
        if !Counts::of(&self.engine, &[], &[]).ledger_ok {
            return Err(Error::LedgerBroken { run_id: self.setup.identity.run_id.clone() });
        }
        if let Some(field) = self.engine.lacks().filter(|_| self.seq == 0) {
            return Err(unfed(&self.setup.topic.name, field).into());
        }
        self.check_topic().await?;
        let said = (self.standing(), self.rows.staged());
        let mut status = self.status();
        if let Some(state) = state {
            state.clone_into(&mut status.state);
            status.reason = None;
        }
        self.journal.spare(self.brakes.stands());
        let (began, records) = (Instant::now(), self.engine.uncommitted());
        let (delta, engine, watermark) = self.engine.cut();
        let committed = self.journal.commit(delta, engine, watermark, status).await?;
        self.seq = committed.seq;
        self.engine.reuse(committed.delta);
        self.committed = true;
        self.said = Some(said);
        if let Some(head) = self.journal.head() {
            self.rows.offer(head);
        }
        self.last_commit = Instant::now();
        let took_sec = began.elapsed().as_secs_f64();
        tracing::debug!(name = %self.held.lease.name, seq = self.seq, records, took_sec, "committed");
        self.checkpoint().await
    }

    /// Names the commit that was just made, if the time for that has come.
    async fn checkpoint(&mut self) -> Result<(), Error> {
        let Some(Checkpoints { every, keep }) = self.setup.request.checkpoints else {
            return Ok(());
        };
        if self.last_checkpoint.elapsed().as_secs_f64() >= every {
            Box::pin(self.journal.checkpoint(self.snapshot, keep)).await?;
            self.last_checkpoint = Instant::now();
        }
        Ok(())
    }

    /// The topic is still the one that the journal belongs to.
    async fn check_topic(&self) -> Result<(), Error> {
        let identity = &self.setup.identity;
        let seen = find(self.broker, &identity.topic).await?;
        for (field, held, offered) in [
            ("cluster", &identity.cluster, seen.cluster),
            ("topic_id", &identity.topic_id, seen.id),
        ] {
            if *held != offered {
                let (name, held) = (self.held.lease.name.clone(), held.clone());
                return Err(Error::JournalForeign { name, field, held, offered });
            }
        }
        Ok(())
    }

    /// The lease was lost: the database says to whom, and has the refusal on record.
    async fn fenced(&self) -> Error {
        match self.journal.mark(&self.status()).await {
            Err(error) => error,
            Ok(()) => Error::StreamFenced {
                name: self.held.lease.name.clone(),
                yours: self.held.lease.owner.clone(),
                fence: self.held.lease.fence,
                owner: None,
                current_fence: None,
            },
        }
    }

    /// Ends a session that failed; where recovery is blocked, that is kept with all that was decided before.
    pub(super) async fn broken(mut self, error: Error) -> Error {
        if let Some(state) = error.blocks() {
            let mut status = self.status();
            state.clone_into(&mut status.state);
            status.reason = Some(error.to_string());
            let (delta, engine, watermark) = self.engine.cut();
            if let Err(error) = self.journal.commit(delta, engine, watermark, status).await {
                return error;
            }
        }
        self.follower.close().await;
        error
    }

    /// Commits; what came of it is computed afterwards, from what no one changes any more.
    pub(super) async fn finish(mut self, end: End) -> Result<Closed, Error> {
        reach(Point::StreamEnding);
        self.commit_as(Some(end.word())).await?;
        reach(Point::StreamEnded);
        owners::give(&self.journal, &self.engine, &self.last_edges(), end).await;
        reach(Point::HandoffGiven);
        self.settle(end).await;
        let counts = self.counts();
        self.follower.close().await;
        Ok(Closed {
            end,
            fence: self.held.lease.fence,
            seq: self.seq,
            counts,
            flow: Arc::clone(&self.setup.flow),
            head: self.journal.head().cloned(),
            engine: self.engine,
        })
    }

    /// The edges of the log as they were seen last.
    fn last_edges(&self) -> Vec<Edge> {
        let seen = self.follower.positions().into_iter().map(|position| position.edge);
        let seen: Vec<Edge> = seen.filter(|edge| edge.high_water > 0).collect();
        let newer = |edge: &Edge| seen.iter().find(|seen| seen.partition == edge.partition);
        self.edges.iter().map(|edge| *newer(edge).unwrap_or(edge)).collect()
    }

    /// What is final by now goes to ClickHouse before the lease is given back, if it is there.
    async fn settle(&mut self, end: End) {
        self.rows.settle(SETTLE.min(self.control.settings.service_timeout)).await;
        let said = self.said.as_ref().and_then(|said| said.1);
        if self.rows.staged() != said {
            let mut status = self.status();
            (status.state, status.reason) = (end.word().to_owned(), None);
            if let Err(error) = self.journal.mark(&status).await {
                tracing::warn!(%error, "rows in ClickHouse are not on record: the next owner stages them again");
            }
        }
    }
}

/// A session that has committed all that it decided.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) end: End,
    fence: i64,
    seq: i64,
    counts: Counts,
    flow: Arc<Flow>,
    head: Option<Head>,
    engine: Engine,
}

impl Closed {
    /// What came of it. Takes the longer the more was ever applied.
    pub(super) fn part(self, artifacts: &Artifacts) -> Result<Part, Error> {
        let Self { end, fence, seq, counts, flow, head, engine } = self;
        let batch = match end {
            End::GivenUp => unite(&flow, flow.hash, Vec::new()),
            End::Source | End::Count | End::Stopped => {
                let mut gathering = engine.gather();
                if let Some(head) = head {
                    journal::applied(artifacts, &head, &mut |event| gathering.add(&event))?;
                }
                gathering.finish(flow.hash)
            }
        };
        Ok(Part { end, fence, seq, counts, batch })
    }
}

pub(super) fn resumed(setup: &Setup, loaded: Loaded) -> Result<Engine, Error> {
    let Loaded { state, identities, accepted, .. } = loaded;
    Ok(Engine::restore(plan(setup), &state, Kept { identities, accepted })?)
}

/// What a run has to begin with: events that have what its flow computes with, if not all of them.
fn unfed(topic: &str, field: &str) -> Invalid {
    let message = format!("no event has a field `{}`, which the flow reads", field.escape_debug());
    Invalid::new(
        "FIELD_UNKNOWN",
        topic,
        message,
        "correct the input of the flow's node, or name another topic",
    )
}

/// Whether the log still has what the stream needs, and is the one that it read.
pub(super) async fn check_log(
    setup: &Setup,
    broker: &Broker,
    engine: &Engine,
    edges: &[Edge],
) -> Result<(), Error> {
    for lane in engine.standings() {
        let Some(edge) = edges.iter().find(|edge| edge.partition == lane.partition) else {
            continue;
        };
        let partition = lane.partition;
        let Some(anchor) = lane.check(edge.earliest, edge.high_water).map_err(astray)? else {
            continue;
        };
        // The last record that was read must still be there, unless compaction took it.
        if let Some(got) = broker.record_at(&setup.topic, partition, anchor.offset).await? {
            let seen = Anchor::of(anchor.offset, got.key(), got.value());
            if seen.hash != anchor.hash {
                return Err(Error::JournalForeign {
                    name: setup.identity.lease_name(),
                    field: "anchor",
                    held: format!("{} at {partition}:{}", anchor.hash, anchor.offset),
                    offered: seen.hash.to_string(),
                });
            }
        }
    }
    Ok(())
}

fn astray(astray: Astray) -> Error {
    match astray {
        Astray::Blocked { partition, needed, earliest } => {
            Error::RecoveryBlocked { partition, needed, earliest }
        }
        Astray::Ahead { partition, needed, end } => Error::OffsetAhead { partition, needed, end },
    }
}
