//! A stream: a topic through the nodes of a flow, under a lease, with a journal that says how far it came.

mod brakes;
mod chain;
mod checkpoint;
mod conclude;
mod fleet;
mod handoff;
mod lease;
mod look;
mod moves;
mod outlook;
mod overlap;
mod owners;
mod past;
mod quota;
mod report;
mod retry;
mod rows;
mod session;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use chain::{HandoffView, HandoffsReport, handoffs};
pub(super) use checkpoint::{head_of, name_commit, standing, take_back};
pub use handoff::{HandoffReport, HandoffRequest, handoff};
pub use look::{
    Explained, QuarantineReport, QuarantinedView, SeenView, StandingView, StreamsReport, TotalView,
    explain, quarantine_list, quarantine_show, status,
};
pub use moves::{ExportReport, ImportReport, MarkReport, export, import, mark};
pub use report::{Counts, PartitionView, StreamReport};
pub use retry::{RetriedView, RetryReport, RetryRequest, retry};

use super::worker::Stop;
use super::{Control, Error, brokers, inputs, journal};
use crate::broker::{Broker, Topic, check_topic_name};
use crate::flow::{self, FeatureBatch, Flow};
use crate::ids::{Hash, StreamIdentity};
use crate::invalid::{Invalid, nearest};
use crate::points::{Point, reach};
use crate::replay::partition;
use crate::store::Store;
use crate::stream::Plan;
use crate::warehouse::Warehouse;
use conclude::conclude;
pub(super) use lease::Held;
use quota::Quota;
use report::Part;
use session::{Closed, End, Session};

/// Bytes of a run id or a group.
const NAME_BYTES_MAX: usize = 200;
/// Shortest time between two commits.
const COMMIT_SEC_MIN: f64 = 0.01;
const COMMIT_SEC_MAX: f64 = 3_600.0;
/// A year.
const CHECKPOINT_SEC_MAX: f64 = 31_536_000.0;
const CHECKPOINTS_MAX: i64 = 100_000;
/// How far a record may be ahead of its partition in event time, unless something else is asked for.
pub const MAX_JUMP: &str = "400d";
/// No disk has more mebibytes: an exbibyte.
const PAUSE_MIB_MAX: u64 = 1 << 40;
/// While a service is away nothing is tried for this long, doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The signal of a stop that no signal asked for: a partition is another process's turn.
const GIVEN_UP: i32 = 0;

/// Which partitions of the topic a process reads. A run is split or whole for its life.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Split {
    /// All, as one.
    Whole,
    /// These, each with a lease and a journal of its own.
    Partitions(Vec<u32>),
    /// Its share of all, and others as processes come and go.
    Auto,
}

/// What to stream.
#[derive(Clone, Debug)]
pub struct StreamRequest {
    pub topic: String,
    pub group: String,
    pub flow: String,
    /// Absent: made from cluster, topic, group and flow name.
    pub run_id: Option<String>,
    pub split: Split,
    /// Stop at exactly so many records of the run in all; in a split run, of the partitions of this process together.
    pub once_n: Option<u64>,
    /// Where the values go at the end, a JSON line an event.
    pub emit: Option<PathBuf>,
    /// Seconds from commit to commit.
    pub commit_every: f64,
    pub max_jump: String,
    pub pauses: Pauses,
    /// Values go to ClickHouse, where there is one.
    pub stages: bool,
    /// None: the stream makes no checkpoints by itself.
    pub checkpoints: Option<Checkpoints>,
}

impl StreamRequest {
    /// Of nothing yet: whole, without an end, for no file and no ClickHouse, and otherwise as a stream is unless
    /// something else is asked for.
    pub(super) fn plain() -> Self {
        Self {
            topic: String::new(),
            group: String::new(),
            flow: String::new(),
            run_id: None,
            split: Split::Whole,
            once_n: None,
            emit: None,
            commit_every: 1.0,
            max_jump: MAX_JUMP.to_owned(),
            pauses: Pauses::DEFAULT,
            checkpoints: None,
            stages: false,
        }
    }
}

/// Checkpoints that a stream makes by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpoints {
    /// Seconds from one to the next; made right behind a commit.
    pub every: f64,
    /// So many stay, at least two.
    pub keep: i64,
}

impl Checkpoints {
    /// Unless something else is asked for.
    pub const KEEP: i64 = 24;
}

/// From where on a stream holds back; 0 is never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pauses {
    /// Records behind the end of the log.
    pub lag: u64,
    /// Mebibytes fetched or kept, and not committed.
    pub in_flight_mib: u64,
    /// Mebibytes free where the artifacts are: with fewer, nothing is read.
    pub free_disk_mib: u64,
}

impl Pauses {
    /// Unless something else is asked for.
    pub const DEFAULT: Self = Self { lag: 10_000_000, in_flight_mib: 256, free_disk_mib: 256 };
}

/// The request, checked, and what it is about.
#[derive(Clone, Debug)]
struct Setup {
    request: StreamRequest,
    commit_every: Duration,
    max_jump_ns: i64,
    flow: Arc<Flow>,
    topic: Topic,
    identity: StreamIdentity,
    /// Sessions of their own for the renewal of leases.
    hearts: Store,
    quota: Arc<Quota>,
    /// Where values go; only where there is one and it is wanted.
    warehouse: Option<Warehouse>,
    since: Instant,
}

/// Streams until told to stop, or as far as the request goes.
///
/// # Errors
/// Another owner has the stream; the journal is another's; retention took what is needed; a service stays away from a
/// bounded run.
pub async fn stream(
    control: &Control,
    request: StreamRequest,
    stop: watch::Receiver<Stop>,
) -> Result<StreamReport, Error> {
    Ok(Box::pin(run(control, request, stop)).await?.0)
}

/// As [`stream`], with all the values.
pub(super) async fn run(
    control: &Control,
    request: StreamRequest,
    stop: watch::Receiver<Stop>,
) -> Result<(StreamReport, FeatureBatch), Error> {
    let (setup, broker) = prepare(control, request).await?;
    let chosen = chosen(&setup.request.split, &setup.topic)?;
    reach(Point::StreamReady);
    let ended = match (&setup.request.split, &chosen) {
        (Split::Auto, _) => fleet::auto(control, &setup, &broker, stop).await?,
        (_, Some(chosen)) => fleet::fixed(control, &setup, &broker, chosen, stop).await?,
        (_, None) => {
            let held = Held::acquire(control, &setup.hearts, &setup.identity.lease_name()).await?;
            vec![member(control, &setup, &broker, held, stop).await?]
        }
    };
    let (parts, held): (Vec<Part>, Vec<Option<Box<Held>>>) = ended.into_iter().unzip();
    let mut held: Vec<Box<Held>> = held.into_iter().flatten().collect();
    let concluded = conclude(control, &setup, parts, &held).await;
    for held in &mut held {
        held.release().await;
    }
    concluded
}

/// Checks the request, and finds what it is about: nothing is taken and nothing made yet.
async fn prepare(control: &Control, request: StreamRequest) -> Result<(Setup, Broker), Error> {
    let (commit_every, max_jump_ns) = check(&request)?;
    let flow = Arc::new(inputs::load_flow(control, &request.flow)?);
    let options = brokers::options(control)?;
    options.check()?;
    let broker = brokers::connect(&options).await?;
    let topic = find(&broker, &request.topic).await?;
    let identity = identity(&request, &flow, &topic);
    let chosen = chosen(&request.split, &topic)?;
    let store = control.ready_store().await?;
    control.pair(store).await?;
    if let Some((check, what)) = store.health().await?.unsafe_for_work() {
        return Err(Error::Store(crate::store::Error::Unsafe { check, what }));
    }
    let quota = Arc::new(Quota::new(request.once_n, chosen.as_ref().map_or(1, BTreeSet::len)));
    let warehouse = warehouse(control, request.stages).await?;
    let hearts = control.second_store()?;
    let since = Instant::now();
    let setup = Setup {
        request,
        commit_every,
        max_jump_ns,
        flow,
        topic,
        identity,
        hearts,
        quota,
        warehouse,
        since,
    };
    Ok((setup, broker))
}

/// Where values go, with a schema that fits; one that is away is waited for while the stream goes on.
async fn warehouse(control: &Control, stages: bool) -> Result<Option<Warehouse>, Error> {
    let Some(warehouse) = control.warehouse()?.filter(|_| stages) else { return Ok(None) };
    match warehouse.check().await {
        Err(error) if error.is_away() => tracing::warn!(%error, "rows are staged when it is back"),
        checked => checked?,
    }
    Ok(Some(warehouse))
}

/// What a session came to, and its lease where that is still needed.
type Ended = (Part, Option<Box<Held>>);

/// The partitions that are asked for by number.
fn chosen(split: &Split, topic: &Topic) -> Result<Option<BTreeSet<i32>>, Invalid> {
    let Split::Partitions(asked) = split else { return Ok(None) };
    let mut chosen = BTreeSet::new();
    for partition in asked {
        if *partition >= topic.partitions {
            let message = format!("{} has {} partitions", topic.name, topic.partitions);
            let place = format!("--partitions {partition}");
            return Err(Invalid::new("PARTITION_UNKNOWN", place, message, "they count from 0"));
        }
        if !chosen.insert(i32::try_from(*partition).unwrap_or(i32::MAX)) {
            let place = format!("--partitions {partition}");
            let hint = "name each partition once";
            return Err(Invalid::new("PARTITIONS_INVALID", place, "is there twice", hint));
        }
    }
    if chosen.is_empty() {
        let hint = "name some, as 0,3, or leave it out to read all as one";
        return Err(Invalid::new("PARTITIONS_INVALID", "--partitions", "names none", hint));
    }
    Ok(Some(chosen))
}

/// The sessions under one lease, which every orderly end gives back, a refusal included; one that is not ours any more
/// stays as it is. Where values are to be emitted under it, it is kept until they are; who was asked to go gives it back
/// first and says afterwards what came of it all, so that a successor does not wait for that.
async fn member(
    control: &Control,
    setup: &Setup,
    broker: &Broker,
    mut held: Held,
    mut stop: watch::Receiver<Stop>,
) -> Result<Ended, Error> {
    let closed = match Box::pin(sessions(control, setup, broker, &held, &mut stop)).await {
        Ok(closed) => closed,
        Err(error) => {
            held.release().await;
            if let Error::Invalid(_) = error {
                // It has not begun, or has kept what it had.
                control.store()?.forget_unused(&[held.lease.name.clone()]).await?;
            }
            return Err(error);
        }
    };
    let emits = setup.request.emit.is_some() && closed.end != End::GivenUp;
    if closed.end == End::Stopped && !emits {
        held.release().await;
        return Ok((part(control, closed).await?, None));
    }
    let part = part(control, closed).await;
    if emits && part.is_ok() {
        return part.map(|part| (part, Some(Box::new(held))));
    }
    held.release().await;
    part.map(|part| (part, None))
}

/// What came of a session; the others of this process go on meanwhile.
async fn part(control: &Control, closed: Closed) -> Result<Part, Error> {
    let artifacts = Arc::clone(control.artifacts()?);
    journal::blocking(move || closed.part(&artifacts)).await
}

/// One session after the other, as long as what ends them is a service that is away.
async fn sessions(
    control: &Control,
    setup: &Setup,
    broker: &Broker,
    held: &Held,
    stop: &mut watch::Receiver<Stop>,
) -> Result<Closed, Error> {
    let mut pause = PAUSE_MIN;
    let mut away_since: Option<Instant> = None;
    let mut last = false;
    loop {
        let mut progressed = false;
        let ended = match Session::open(control, setup, broker, held).await {
            Ok(mut session) => {
                let ended = session.run(stop).await;
                progressed = session.has_committed();
                match ended {
                    Ok(end) => Box::pin(session.finish(end)).await,
                    Err(error) => Err(Box::pin(session.broken(error)).await),
                }
            }
            Err(error) => Err(error),
        };
        let error = match ended {
            Err(error) if error.is_away() => error,
            ended => return ended,
        };
        if progressed {
            (pause, away_since) = (PAUSE_MIN, None);
        }
        let since = *away_since.get_or_insert_with(Instant::now);
        let is_bounded = setup.request.once_n.is_some();
        if is_bounded && since.elapsed() >= control.settings.service_timeout {
            return Err(error);
        }
        tracing::warn!(%error, "trying again from the last commit");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _changed = stop.changed() => {}
        }
        match *stop.borrow() {
            // What was only cut off for a moment is still drained.
            Stop::Drain(_) if !last => last = true,
            Stop::Drain(signal) | Stop::Now(signal) => {
                tracing::warn!("ended while a service is away: it goes on from the last commit");
                return Err(Error::Interrupted { signal });
            }
            Stop::No => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn check(request: &StreamRequest) -> Result<(Duration, i64), Invalid> {
    check_topic_name(&request.topic)?;
    check_name("--group", "GROUP_INVALID", &request.group)?;
    if let Some(run_id) = &request.run_id {
        check_name("--run-id", "RUN_ID_INVALID", run_id)?;
    }
    if request.once_n == Some(0) {
        let hint = "give how many records to read, or leave it out to go on for ever";
        return Err(Invalid::new("ONCE_N_INVALID", "--once-n", "nothing to read", hint));
    }
    let every = request.commit_every;
    if !(COMMIT_SEC_MIN..=COMMIT_SEC_MAX).contains(&every) {
        let message = format!("{every} is not from {COMMIT_SEC_MIN} to {COMMIT_SEC_MAX} seconds");
        let hint = "a second is a good start";
        return Err(Invalid::new("COMMIT_EVERY_INVALID", "--commit-every", message, hint));
    }
    if let Some(checkpoints) = request.checkpoints {
        check_checkpoints(checkpoints)?;
    }
    for (flag, mib) in [
        ("--pause-in-flight", request.pauses.in_flight_mib),
        ("--pause-free-disk", request.pauses.free_disk_mib),
    ] {
        if mib > PAUSE_MIB_MAX {
            let message = format!("{mib} MiB are more than {PAUSE_MIB_MAX}");
            return Err(Invalid::new("PAUSE_INVALID", flag, message, "0 is never"));
        }
    }
    Ok((Duration::from_secs_f64(every), max_jump(&request.max_jump)?))
}

/// In nanoseconds.
fn max_jump(text: &str) -> Result<i64, Invalid> {
    flow::nanoseconds(text).filter(|ns| *ns > 0).ok_or_else(|| {
        let message = format!("{text:?} is no duration");
        Invalid::new("MAX_JUMP_INVALID", "--max-jump", message, flow::DURATION_FORM)
    })
}

fn check_checkpoints(Checkpoints { every, keep }: Checkpoints) -> Result<(), Invalid> {
    if !(COMMIT_SEC_MIN..=CHECKPOINT_SEC_MAX).contains(&every) {
        let message =
            format!("{every} is not from {COMMIT_SEC_MIN} to {CHECKPOINT_SEC_MAX} seconds");
        let hint = "an hour is 3600";
        return Err(Invalid::new("CHECKPOINT_EVERY_INVALID", "--checkpoint-every", message, hint));
    }
    if !(2..=CHECKPOINTS_MAX).contains(&keep) {
        let message = format!("{keep} is not from 2 to {CHECKPOINTS_MAX}");
        let hint = "those made with `finaz checkpoint commit` stay anyway";
        return Err(Invalid::new("CHECKPOINT_KEEP_INVALID", "--checkpoint-keep", message, hint));
    }
    Ok(())
}

/// Names of groups and runs are parts of file names and lease names elsewhere: plain ones only.
fn check_name(flag: &'static str, code: &'static str, name: &str) -> Result<(), Invalid> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let message = if name.is_empty() || name.len() > NAME_BYTES_MAX {
        format!("a name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len())
    } else if !name.chars().all(legal) || name == "." || name == ".." {
        let shown: String = name.chars().take(60).collect();
        format!("`{}` cannot be a name", shown.escape_debug())
    } else {
        return Ok(());
    };
    Err(Invalid::new(code, flag, message, "letters, digits, `.`, `_` and `-`"))
}

/// The topic, which is never made here.
async fn find(broker: &Broker, name: &str) -> Result<Topic, Error> {
    if let Some(topic) = broker.find_topic(name).await? {
        return Ok(topic);
    }
    let names = broker.topic_names().await?;
    let hint = match nearest(name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "`finaz replay --topic` makes one".to_owned(),
    };
    Err(Invalid::new("TOPIC_UNKNOWN", name, "no such topic", hint).into())
}

fn identity(request: &StreamRequest, flow: &Flow, topic: &Topic) -> StreamIdentity {
    let run_id = request.run_id.clone().unwrap_or_else(|| {
        // No part has a zero byte, so no two sets of parts give one text.
        let parts = [&topic.cluster, &topic.name, &request.group, &flow.name];
        let text = parts.map(String::as_str).join("\0");
        format!("stream_{}", &Hash::of(text.as_bytes()).hex()[..32])
    });
    StreamIdentity {
        run_id,
        cluster: topic.cluster.clone(),
        topic_id: topic.id.clone(),
        topic: topic.name.clone(),
        group: request.group.clone(),
        flow: flow.hash,
        flow_name: flow.name.clone(),
        partitions: None,
    }
}

fn plan(setup: &Setup) -> Plan {
    if let Some(own) = &setup.identity.partitions {
        // Nothing crosses partitions: what no instrument of the flow belongs to ends as any other.
        return Plan {
            flow: Arc::clone(&setup.flow),
            partitions: own.clone(),
            active: own.clone(),
            home: Some(partition),
            topic_partitions: setup.topic.partitions,
            max_jump_ns: setup.max_jump_ns,
        };
    }
    Plan {
        flow: Arc::clone(&setup.flow),
        partitions: all(&setup.topic),
        active: homes(setup),
        home: None,
        topic_partitions: setup.topic.partitions,
        max_jump_ns: setup.max_jump_ns,
    }
}

fn all(topic: &Topic) -> Vec<i32> {
    (0..i32::try_from(topic.partitions).unwrap_or(i32::MAX)).collect()
}

/// Where the partitioner puts the instruments of the flow; all partitions, when it names none.
fn homes(setup: &Setup) -> Vec<i32> {
    let home = |name: &String| {
        i32::try_from(partition(name.as_bytes(), setup.topic.partitions)).unwrap_or(i32::MAX)
    };
    match setup.flow.instruments.as_slice() {
        [] => all(&setup.topic),
        names => names.iter().map(home).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> StreamRequest {
        StreamRequest {
            topic: "t".to_owned(),
            group: "g".to_owned(),
            flow: "f.yaml".to_owned(),
            ..StreamRequest::plain()
        }
    }

    #[test]
    fn what_cannot_be_streamed_is_refused_before_anything_is_opened() {
        assert!(check(&request()).is_ok());
        let group = |group: &str| StreamRequest { group: group.to_owned(), ..request() };
        for bad in ["", ".", "..", "../x", "a/b", "a b", "a\0b", "\u{1b}[2J", &"x".repeat(300)] {
            assert_eq!(check(&group(bad)).expect_err(bad).code, "GROUP_INVALID");
        }
        assert!(check(&group("a__b")).is_ok());
        let none = StreamRequest { once_n: Some(0), ..request() };
        assert_eq!(check(&none).expect_err("nothing").code, "ONCE_N_INVALID");
        for every in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let refused = check(&StreamRequest { commit_every: every, ..request() });
            assert_eq!(refused.expect_err("no time").code, "COMMIT_EVERY_INVALID");
        }
        for jump in ["", "0s", "-1s", "401d", "1y"] {
            let refused = check(&StreamRequest { max_jump: jump.to_owned(), ..request() });
            assert_eq!(refused.expect_err(jump).code, "MAX_JUMP_INVALID");
        }
    }

    #[test]
    fn groups_and_topics_whose_names_run_together_are_two_runs() {
        let text = include_str!("../../../manifests/fixture.01_A_feature.yaml");
        let flow = Flow::parse(text.as_bytes(), "f.yaml").expect("the fixture's");
        let id = |group: &str, topic: &str| {
            let topic = Topic {
                name: topic.to_owned(),
                id: "0".repeat(32),
                cluster: "c".to_owned(),
                partitions: 4,
            };
            identity(&StreamRequest { group: group.to_owned(), ..request() }, &flow, &topic).run_id
        };
        assert_ne!(id("a__b", "c"), id("a", "b__c"));
        assert_eq!(id("a", "c"), id("a", "c"));
    }
}
