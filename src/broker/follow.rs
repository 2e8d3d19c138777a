//! Following a topic for ever: from offsets that the caller names, committed records only, bounded memory.
//! Nothing is ever jumped over unsaid.
//!
//! What a partition brings is fetched ahead, one answer at a time and leader; what was fetched lies in its
//! lane until it is handed over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::fetch::{Line, Outcome, Want};
use super::lane::Lane;
use super::search::Search;
use super::{Broker, Edge, Error, Got, Topic};

/// How long a broker holds an answer that would be empty.
const LONG_POLL: Duration = Duration::from_millis(500);
/// Of one fetch and partition; a batch that is larger comes alone.
const FETCH_BYTES: usize = 1 << 20;
/// The same while other partitions of the broker have no room: a request queues behind the one before it.
const SHORT_POLL: Duration = Duration::from_millis(20);
/// Of one fetch, so that its answer has room for all.
const PARTITIONS_MAX: usize = 32;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Answers without a batch, in a row, where the broker says that there are some.
const EMPTY_MAX: u32 = 5;

/// The same where our offset is behind the high-water: a new leader learns of it late, a log that was lost never.
const BEYOND_MAX: u32 = 100;

/// How much is held.
#[derive(Clone, Copy, Debug)]
pub struct FollowLimits {
    /// Bytes that were fetched for a partition and not handed over: beyond, no more is fetched. As they
    /// come, so what is compressed counts as such; one batch of the broker's largest is always taken.
    pub bytes: usize,
    /// Events of one hand-over.
    pub events: usize,
}

impl Default for FollowLimits {
    fn default() -> Self {
        Self { bytes: 4 << 20, events: 8192 }
    }
}

/// What a partition has to say. Offsets rise within it; those between two events hold nothing.
#[derive(Debug)]
pub enum Event {
    Record {
        partition: i32,
        offset: i64,
        got: Got,
    },
    /// What lies below `next` and was not handed over holds nothing for us: markers, records of aborted
    /// transactions, what compaction took.
    Hole {
        partition: i32,
        next: i64,
    },
    /// From `from` on up to `next` the broker gives nothing, though it says that all of it can be read: a
    /// log that lost something. It is stepped over, which is to be recorded.
    Mute {
        partition: i32,
        from: i64,
        next: i64,
    },
    /// A record that cannot be decoded, with its bytes, or those of the batch with the first of its records
    /// where none can be told apart, or none.
    Undecodable {
        partition: i32,
        offset: i64,
        why: Arc<str>,
        raw: Vec<u8>,
    },
    /// Retention deleted what is needed. Said once; the partition is not read any further.
    Blocked {
        partition: i32,
        needed: i64,
        earliest: i64,
    },
    /// We stand beyond the end of the log, which is another than it was. Said once, as above.
    Ahead {
        partition: i32,
        needed: i64,
        end: i64,
    },
}

/// Where a partition stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Position {
    pub partition: i32,
    /// The next offset that will be handed over.
    pub next: i64,
    /// Where the next fetch begins: what lies before it was handed over, or is held.
    pub ahead: i64,
    /// As the last answer had it; zeros before the first.
    pub edge: Edge,
    pub paused: bool,
    /// It was blocked, or ahead.
    pub halted: bool,
    /// All is handed over up to a transaction that somebody has to end.
    pub waits_for_transaction: bool,
}

/// Reads some partitions of a topic for ever.
#[derive(Debug)]
pub struct Follower {
    line: Line,
    lanes: Vec<Lane>,
    limits: FollowLimits,
    flights: JoinSet<Flown>,
    /// The brokers that have one of them.
    asked: BTreeSet<i32>,
    /// The lane that is asked first, in turn.
    turn: usize,
    /// Nothing more is fetched; what came is handed over.
    withheld: bool,
    patience: Duration,
    /// Since when nothing succeeds, and the last cause.
    trouble: Option<(Instant, Error)>,
}

/// What came back, or did not, for the partitions that were wanted of one leader.
#[derive(Debug)]
struct Flown {
    /// Whose turn is over; `None` for one that did not take one.
    leader: Option<i32>,
    wants: Vec<Want>,
    outcome: Result<Vec<(Want, Outcome)>, Error>,
    /// It looked where the next batch begins, for one that gives nothing.
    found: Option<(i64, Option<Arc<str>>)>,
}

impl Broker {
    /// A follower of some partitions, from the next offset of each on, with connections of its own.
    ///
    /// # Errors
    /// No connection.
    pub async fn follow(
        &self,
        topic: &Topic,
        from: &[(i32, i64)],
        limits: FollowLimits,
    ) -> Result<Follower, Error> {
        let line = Line::new(self.another().await?, self.place.clone(), topic)?;
        line.look().await;
        Ok(Follower {
            line,
            lanes: from.iter().map(|(partition, next)| Lane::new(*partition, *next)).collect(),
            limits,
            flights: JoinSet::new(),
            asked: BTreeSet::new(),
            turn: 0,
            withheld: false,
            patience: self.patience,
            trouble: None,
        })
    }
}

impl Follower {
    /// What came, in the order of offsets within a partition; empty when nothing did for so long. May be
    /// dropped while it waits: nothing is lost.
    ///
    /// # Errors
    /// `TOPIC_UNKNOWN` and [`Error::Refused`] for a topic that was deleted, or made anew;
    /// [`Error::Away`] when nothing succeeded while patience lasted, after `max_wait` and at each call
    /// until something does; the broker's others. It can be called again after each of them.
    pub async fn next_batch(&mut self, max_wait: Duration) -> Result<Vec<Event>, Error> {
        let end = Instant::now() + max_wait;
        loop {
            while let Some(flown) = self.flights.try_join_next() {
                self.land(flown.expect("a fetch does not panic"))?;
            }
            let events = self.collect();
            self.launch();
            if !events.is_empty() {
                return Ok(events);
            }
            let now = Instant::now();
            if now >= end {
                return match &self.trouble {
                    Some((since, error)) if now >= *since + self.patience => Err(error.clone()),
                    _ => Ok(events),
                };
            }
            let reads = self.lanes.iter().filter(|lane| !lane.paused && !lane.halted);
            let retries = reads.filter_map(|lane| lane.retry_at).filter(|at| *at > now);
            let wake = retries.min().map_or(end, |retry| retry.min(end));
            if self.flights.is_empty() {
                sleep_until(wake).await;
            } else if let Ok(Some(flown)) = timeout_at(wake, self.flights.join_next()).await {
                self.land(flown.expect("a fetch does not panic"))?;
            }
        }
    }

    /// Neither fetches nor hands over this partition until it is resumed; what it holds it keeps.
    pub fn pause(&mut self, partition: i32) {
        self.set_paused(partition, true);
    }

    /// Goes on with a partition where it was paused.
    pub fn resume(&mut self, partition: i32) {
        self.set_paused(partition, false);
    }

    /// Fetches no more of any partition, or goes on; what has come is handed over in any case.
    pub fn withhold(&mut self, withheld: bool) {
        self.withheld = withheld;
    }

    /// Bytes that came and were not handed over, as they came; those of paused partitions, which are a few mebibytes
    /// each, left out.
    #[must_use]
    pub fn held(&self) -> usize {
        self.lanes.iter().filter(|lane| !lane.paused).map(Lane::held).sum()
    }

    fn set_paused(&mut self, partition: i32, paused: bool) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.partition == partition) {
            lane.paused = paused;
        }
    }

    /// Where each partition stands, without asking anybody.
    #[must_use]
    pub fn positions(&self) -> Vec<Position> {
        let position = |lane: &Lane| Position {
            partition: lane.partition,
            next: lane.next,
            ahead: lane.ahead,
            edge: lane.edge,
            paused: lane.paused,
            halted: lane.halted,
            waits_for_transaction: !lane.has_something()
                && lane.edge.waits_for_transaction(lane.next),
        };
        self.lanes.iter().map(position).collect()
    }

    /// Ends the reading and its connections.
    pub async fn close(mut self) {
        self.flights.shutdown().await;
        krafka::__private::kafka_pool(self.line.kafka()).close_all().await;
    }

    fn collect(&mut self) -> Vec<Event> {
        let count = self.lanes.len();
        let ready = |lane: &Lane| !lane.paused && lane.has_something();
        let having = self.lanes.iter().filter(|lane| ready(lane)).count();
        if having == 0 {
            return Vec::new();
        }
        let each = self.limits.events.div_ceil(having).max(1);
        let mut events = Vec::with_capacity(self.limits.events.min(each * having) + having);
        for at in 0..count {
            let lane = &mut self.lanes[(self.turn + at) % count];
            if ready(lane) {
                let most = (events.len() + each).min(self.limits.events.max(1));
                lane.hand_over(most, &mut events);
            }
        }
        self.turn = (self.turn + 1) % count;
        events
    }

    /// Sends for more, for each partition that has room and nothing on its way; one fetch a broker.
    fn launch(&mut self) {
        if self.withheld {
            return;
        }
        let now = Instant::now();
        let room = FETCH_BYTES.min(self.limits.bytes.max(1));
        let bytes = i32::try_from(room).expect("a megabyte at most");
        let mut wanted: BTreeMap<Option<i32>, Vec<Want>> = BTreeMap::new();
        let mut crowded = BTreeSet::new();
        let count = self.lanes.len();
        for at in 0..count {
            let lane = &mut self.lanes[(self.turn + at) % count];
            let waits = lane.retry_at.is_some_and(|at| at > now);
            if lane.paused || lane.halted || lane.flying || waits {
                continue;
            }
            let (partition, from, epoch) = (lane.partition, lane.ahead, lane.epoch);
            let want = Want { partition, from, epoch, bytes };
            let is_empty = lane.empty >= EMPTY_MAX;
            if is_empty && !lane.has_something() {
                lane.flying = true;
                self.flights.spawn(look_ahead(self.line.clone(), want, lane.edge.stable));
            }
            let leader = self.line.leader(partition);
            if is_empty || leader.is_some_and(|leader| self.asked.contains(&leader)) {
                continue;
            }
            let wants = wanted.entry(leader).or_default();
            let full = lane.held() > 0 && lane.held() + room > self.limits.bytes;
            if full || wants.len() == PARTITIONS_MAX {
                crowded.insert(leader);
                continue;
            }
            lane.flying = true;
            lane.retry_at = None;
            wants.push(want);
        }
        for (leader, wants) in wanted.into_iter().filter(|(_, wants)| !wants.is_empty()) {
            let wait = if crowded.contains(&leader) { SHORT_POLL } else { LONG_POLL };
            self.asked.extend(leader);
            self.flights.spawn(fly(self.line.clone(), leader, wants, wait));
        }
    }

    fn land(&mut self, flown: Flown) -> Result<(), Error> {
        let Flown { leader, wants, outcome, found } = flown;
        if let Some(leader) = leader {
            self.asked.remove(&leader);
        }
        for lane in &mut self.lanes {
            lane.flying &= !wants.iter().any(|want| want.partition == lane.partition);
        }
        let outcomes = match outcome {
            Ok(outcomes) => outcomes,
            Err(error) => {
                for want in &wants {
                    self.back_off(want.partition);
                }
                return self.troubled(error);
            }
        };
        // An answer without a partition says nothing of it, as when the broker slows us down.
        for want in &wants {
            let is_named = outcomes.iter().any(|(named, _)| named.partition == want.partition);
            for lane in self.lanes.iter_mut().filter(|lane| lane.partition == want.partition) {
                lane.retry_at = (!is_named).then(|| Instant::now() + BACKOFF_MIN);
            }
        }
        let mut fatal = Ok(());
        for (want, outcome) in outcomes {
            let Some(at) = self.lanes.iter().position(|lane| lane.partition == want.partition)
            else {
                continue;
            };
            if let Outcome::Failed(error) = outcome {
                self.back_off(want.partition);
                fatal = fatal.and(self.troubled(error));
                continue;
            }
            self.trouble = None;
            let lane = &mut self.lanes[at];
            lane.failures = 0;
            match &found {
                Some((to, why)) if *to > lane.ahead => {
                    lane.empty = 0;
                    lane.step_over(*to, why.clone());
                }
                _ => arrived(lane, outcome),
            }
        }
        fatal
    }

    fn back_off(&mut self, partition: i32) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.partition == partition) {
            let wait = BACKOFF_MIN.saturating_mul(1 << lane.failures.min(8)).min(BACKOFF_MAX);
            lane.failures += 1;
            lane.retry_at = Some(Instant::now() + wait);
        }
    }

    /// Keeps what waiting may heal, and gives back what it does not.
    fn troubled(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_away() {
            return Err(error);
        }
        tracing::debug!(%error, "fetching again");
        let since = self.trouble.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        self.trouble = Some((since, error));
        Ok(())
    }
}

/// What a fetch means for its partition.
fn arrived(lane: &mut Lane, outcome: Outcome) {
    let (partition, needed) = (lane.partition, lane.ahead);
    let pause = Some(Instant::now() + BACKOFF_MIN);
    match outcome {
        Outcome::Brought { frames, aborted, edge } => {
            lane.edge = edge;
            let before = lane.ahead;
            let is_stuck = frames.stuck.is_some();
            lane.take(frames.frames, aborted);
            if lane.ahead > before {
                lane.empty = 0;
                lane.beyond = 0;
            } else if before > edge.high_water {
                lane.beyond += 1;
                lane.retry_at = pause;
                if lane.beyond >= BEYOND_MAX {
                    lane.halt(Event::Ahead { partition, needed, end: edge.high_water });
                }
            } else if is_stuck || before < edge.stable {
                lane.empty += 1;
                lane.retry_at = pause;
            }
        }
        Outcome::OutOfRange(edge) => {
            lane.edge = edge;
            if needed < edge.earliest {
                let earliest = edge.earliest;
                lane.halt(Event::Blocked { partition, needed, earliest });
            } else if needed > edge.high_water {
                lane.halt(Event::Ahead { partition, needed, end: edge.high_water });
            } else {
                // A leader that does not know yet how far its log reaches, or not of this epoch.
                lane.epoch = -1;
                lane.retry_at = pause;
            }
        }
        Outcome::Diverged(end) => lane.halt(Event::Ahead { partition, needed, end }),
        Outcome::Failed(_) => unreachable!("sorted out before"),
    }
}

async fn fly(line: Line, leader: Option<i32>, wants: Vec<Want>, wait: Duration) -> Flown {
    let outcome = match leader {
        Some(leader) => line.fetch(leader, &wants, wait).await,
        None => line.still_there().await.and(Err(line.leaderless(wants[0].partition))),
    };
    if outcome.is_err() {
        line.look().await;
    }
    Flown { leader, wants, outcome, found: None }
}

/// Looks where the log goes on behind an offset that gives nothing though it is stable, or a batch that cannot
/// even be cut off.
async fn look_ahead(line: Line, want: Want, stable: i64) -> Flown {
    let mut flown = Flown { leader: None, wants: vec![want], outcome: Ok(Vec::new()), found: None };
    let (mut search, mut at, mut why) = (Search::new(want.from, stable), want.from, None);
    loop {
        let outcome = match line.fetch_one(Want { from: at, ..want }).await {
            Ok(outcome) => outcome,
            Err(error) => return Flown { outcome: Err(error), ..flown },
        };
        let Outcome::Brought { frames, .. } = &outcome else {
            return Flown { outcome: Ok(vec![(want, outcome)]), ..flown };
        };
        let first = frames.frames.iter().find(|frame| frame.last >= at).map(|frame| frame.base);
        if at == want.from {
            why.clone_from(&frames.stuck);
            flown.outcome = Ok(vec![(want, outcome)]);
            if first.is_some() {
                return flown;
            }
        } else {
            search.tried(at, first);
        }
        match search.next() {
            Some(next) => at = next,
            None => break,
        }
    }
    let to = search.result();
    let (topic, Want { partition, from, .. }) = (&line.topic().name, want);
    tracing::warn!(topic, partition, from, to, "offsets that give nothing are stepped over");
    flown.found = Some((to, why));
    flown
}
