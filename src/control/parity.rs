//! The same values three ways: from the snapshot at once, from its arrivals with faults in this process, and from a topic that
//! those arrivals were published to.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

use super::replay::{Faults, ReplayRequest, Speed};
use super::stream::{Held, MAX_JUMP, StreamRequest};
use super::worker::Stop;
use super::{Control, Error, brokers, inputs, replay, stream};
use crate::broker::Broker;
use crate::flow::{self, FeatureBatch, Flow};
use crate::ids::{Hash, Owner};
use crate::invalid::Invalid;
use crate::replay::{Arrivals, Schedule, partition};
use crate::store::Store;
use crate::stream::{Applied, Engine, Ledger, Plan, Record};

/// As the topics of replays are made.
const PARTITIONS: u32 = replay::PARTITIONS;
/// Events of the in-process log between two drains of what was applied.
const STEP: u64 = 8_192;
/// What the leases of comparisons begin with: one a flow, snapshot and schedule.
const LEASES: &str = "parity/";

/// What to compare.
#[derive(Clone, Debug)]
pub struct ParityRequest {
    pub flow: String,
    /// Absent: the schedule's, else the flow's own.
    pub snapshot: Option<String>,
    pub faults: String,
    /// Leave out the mode that needs servers.
    pub offline: bool,
}

/// Three modes side by side.
#[derive(Clone, Debug, Serialize)]
pub struct ParityReport {
    /// `EQUAL` or `DIFFERENT`.
    pub verdict: &'static str,
    pub flow: Hash,
    pub snapshot: Hash,
    pub schedule: Hash,
    /// Of the flow, when it names one and this is its snapshot.
    pub golden: Option<Hash>,
    pub modes: Vec<ModeView>,
    pub first_difference: Option<Difference>,
}

/// What one mode came to.
#[derive(Clone, Debug, Serialize)]
pub struct ModeView {
    /// `batch`, `replay` or `stream`.
    pub mode: &'static str,
    pub values_hash: Hash,
    pub rows: u64,
    #[serde(flatten)]
    pub ledger: Ledger,
}

/// The first value that is not that of the batch.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub mode: &'static str,
    pub instrument: String,
    pub node: String,
    pub index: u64,
    /// `None` is null, or past the end.
    pub batch: Option<f64>,
    pub other: Option<f64>,
}

impl ParityReport {
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.verdict == "EQUAL"
    }
}

/// One mode and its values.
struct Mode {
    view: ModeView,
    batch: FeatureBatch,
}

impl Mode {
    fn new(mode: &'static str, batch: FeatureBatch, ledger: Ledger) -> Self {
        let view = ModeView { mode, values_hash: batch.values_hash, rows: batch.rows(), ledger };
        Self { view, batch }
    }
}

/// What is compared, found and read.
struct Case {
    flow: Arc<Flow>,
    snapshot: Hash,
    schedule: Schedule,
}

/// Computes a flow in every mode and compares.
///
/// # Errors
/// `PARITY_FAULTS` for a fault that changes what the batch itself would give; what the modes end with.
pub async fn parity(
    control: Arc<Control>,
    request: ParityRequest,
    stop: watch::Receiver<Stop>,
) -> Result<ParityReport, Error> {
    let (given, asked) = (Arc::clone(&control), request.clone());
    let prepared = tokio::task::spawn_blocking(move || {
        let case = find(&given, &asked)?;
        let modes = vec![batch(&given, &case)?, replayed(&given, &case)?];
        Ok::<_, Error>((case, modes))
    });
    let (case, mut modes) =
        prepared.await.map_err(|panic| Error::Panicked { what: panic.to_string() })??;
    if !request.offline {
        let arrivals = modes[1].view.ledger.read;
        let streamed = streamed(Arc::clone(&control), &request, &case, arrivals, stop);
        modes.push(Box::pin(streamed).await?);
    }
    let golden = inputs::golden_for(&control, &case.flow, case.snapshot);
    let first_difference = modes[1..].iter().find_map(|mode| difference(&modes[0], mode));
    let same = modes.iter().all(|mode| mode.view.values_hash == modes[0].view.values_hash);
    let as_golden = golden.is_none_or(|golden| golden == modes[0].view.values_hash);
    Ok(ParityReport {
        verdict: if same && as_golden { "EQUAL" } else { "DIFFERENT" },
        flow: case.flow.hash,
        snapshot: case.snapshot,
        schedule: case.schedule.hash,
        golden,
        modes: modes.into_iter().map(|mode| mode.view).collect(),
        first_difference,
    })
}

fn find(control: &Control, request: &ParityRequest) -> Result<Case, Error> {
    let flow = Arc::new(inputs::load_flow(control, &request.flow)?);
    let schedule = inputs::find_schedule(control, &request.faults)?;
    let asked = request.snapshot.as_deref().or(schedule.snapshot.as_deref());
    let snapshot = inputs::snapshot_of(control, &flow, asked)?;
    Ok(Case { flow, snapshot, schedule })
}

fn batch(control: &Control, case: &Case) -> Result<Mode, Error> {
    let mut body = control.artifacts()?.reader(&case.snapshot)?;
    let projection = flow::project(&case.flow, &mut body, &case.snapshot.to_string());
    // First whether what was read is what the hash names: damage explains all else.
    body.finish()?;
    let batch = flow::compute(&case.flow, case.snapshot, &projection?)?;
    let consumed: usize = batch.times.iter().map(|times| times.event_time.len()).sum();
    let read = crate::snapshot::describe(control.artifacts()?, &case.snapshot)?.events;
    let consumed = consumed as u64;
    let ledger = Ledger { read, consumed, filtered: read - consumed, ..Ledger::default() };
    Ok(Mode::new("batch", batch, ledger))
}

/// The arrivals through the engine of the stream, partition by partition as a topic would have them.
fn replayed(control: &Control, case: &Case) -> Result<Mode, Error> {
    let place = case.snapshot.to_string();
    let body = control.artifacts()?.reader(&case.snapshot)?;
    let mut arrivals = Arrivals::new(body, &place, &case.schedule);
    let mut engine = Engine::new(plan(&case.flow)?);
    let mut ends = [0_i64; PARTITIONS as usize];
    let mut applied: Vec<Applied> = Vec::new();
    let done = loop {
        let arrival = match arrivals.pull() {
            Ok(Some(arrival)) => arrival,
            Ok(None) => break Ok(()),
            Err(error) => break Err(Error::from(error)),
        };
        let reads = case.flow.instruments.is_empty()
            || case.flow.instruments.iter().any(|name| name == arrival.key);
        if let Some(kind) = arrival.fault.filter(|kind| reads && ["GAP", "REVISION"].contains(kind))
        {
            let message = format!("a {kind} of {} changes what a batch run gives", arrival.key);
            let hint = "draw one with `finaz replay --generate N --flow F --faults-out FILE`";
            break Err(Invalid::new("PARITY_FAULTS", "--faults", message, hint).into());
        }
        let at = partition(arrival.key.as_bytes(), PARTITIONS);
        let end = &mut ends[at as usize];
        let record = Record {
            partition: i32::try_from(at).expect("a handful"),
            offset: *end,
            key: Some(arrival.key.as_bytes()),
            value: arrival.event,
        };
        *end += 1;
        let number = arrival.number;
        engine.take(record);
        if number.is_multiple_of(STEP) {
            applied.extend(engine.cut().0.applied);
        }
    };
    arrivals.into_body().finish()?;
    done?;
    applied.extend(engine.cut().0.applied);
    let mut gathering = engine.gather();
    applied.iter().for_each(|event| gathering.add(event));
    let batch = gathering.finish(case.snapshot);
    Ok(Mode::new("replay", batch, engine.ledger()))
}

fn plan(flow: &Arc<Flow>) -> Result<Plan, Error> {
    let partitions: Vec<i32> = (0..i32::try_from(PARTITIONS).expect("a handful")).collect();
    let home =
        |name: &String| i32::try_from(partition(name.as_bytes(), PARTITIONS)).expect("a handful");
    let active = match flow.instruments.as_slice() {
        [] => partitions.clone(),
        names => names.iter().map(home).collect(),
    };
    let max_jump_ns = flow::nanoseconds(MAX_JUMP).expect("a duration of ours");
    Ok(Plan {
        flow: Arc::clone(flow),
        partitions,
        active,
        home: None,
        topic_partitions: PARTITIONS,
        max_jump_ns,
    })
}

/// The topic of a comparison, from the owner of its lease.
fn topic_of(owner: &Owner) -> String {
    let token = owner.token();
    format!("finaz-parity.{}", token.rsplit('/').next().unwrap_or(token))
}

/// Removes the topics and streams of comparisons that were killed: their leases have run out.
async fn sweep(store: &Store, broker: &Broker) -> Result<(), Error> {
    let topics = broker.topic_names().await?;
    for dead in store.leases(LEASES, false, i64::MAX).await?.iter().filter(|lease| !lease.live) {
        let topic = topic_of(&dead.owner);
        if topics.contains(&topic) {
            tracing::info!(topic, "left by a comparison that was killed");
            broker.delete_topic(&topic).await?;
            store.forget_stream(&stream_of(dead.name.trim_start_matches(LEASES))).await?;
        }
    }
    Ok(())
}

fn stream_of(case: &str) -> String {
    format!("stream/parity_{case}")
}

/// Through a topic of its own, which is removed again; by the next comparison, if this one is killed.
async fn streamed(
    control: Arc<Control>,
    request: &ParityRequest,
    case: &Case,
    arrivals: u64,
    stop: watch::Receiver<Stop>,
) -> Result<Mode, Error> {
    let options = brokers::options(&control)?;
    options.check()?;
    let broker = brokers::connect(&options).await?;
    sweep(control.ready_store().await?, &broker).await?;
    let parts = [case.flow.hash, case.snapshot, case.schedule.hash].map(|hash| hash.hex());
    let name = Hash::of(parts.concat().as_bytes()).hex()[..32].to_owned();
    let hearts = control.second_store()?;
    let mut held = Held::acquire(&control, &hearts, &format!("{LEASES}{name}")).await?;
    let topic = topic_of(&held.lease.owner);
    let way = Way { name: &name, topic: &topic, arrivals };
    let streamed = Box::pin(through(Arc::clone(&control), request, case, way, stop)).await;
    let swept = async {
        broker.delete_topic(&topic).await?;
        Ok::<_, Error>(control.ready_store().await?.forget_stream(&stream_of(&name)).await?)
    };
    let swept = swept.await;
    held.release().await;
    let mode = streamed?;
    swept?;
    Ok(mode)
}

/// Of a comparison, and its topic; so many records will be in it.
struct Way<'a> {
    name: &'a str,
    topic: &'a str,
    arrivals: u64,
}

/// Publishes the arrivals to the topic, and streams it.
async fn through(
    control: Arc<Control>,
    request: &ParityRequest,
    case: &Case,
    way: Way<'_>,
    stop: watch::Receiver<Stop>,
) -> Result<Mode, Error> {
    let published = ReplayRequest {
        snapshot: Some(case.snapshot.to_string()),
        faults: Faults::Named(request.faults.clone()),
        seed: None,
        out: None,
        faults_out: None,
        dry_run: false,
        topic: Some(way.topic.to_owned()),
        create_topic: true,
        speed: Speed::Max,
        metrics_file: None,
    };
    // What a comparison that was cut off has left.
    control.ready_store().await?.forget_stream(&stream_of(way.name)).await?;
    let given = Arc::clone(&control);
    let replayed = tokio::task::spawn_blocking(move || replay::replay(&given, &published, &|_| ()));
    let replayed = replayed.await.map_err(|panic| Error::Panicked { what: panic.to_string() })?;
    let streaming = StreamRequest {
        topic: way.topic.to_owned(),
        group: "parity".to_owned(),
        flow: request.flow.clone(),
        run_id: Some(format!("parity_{}", way.name)),
        once_n: Some(way.arrivals),
        ..StreamRequest::plain()
    };
    let told = stop.clone();
    let streamed = match replayed {
        Ok(_) => Box::pin(stream::run(&control, streaming, stop)).await,
        Err(error) => Err(error),
    };
    let (report, batch) = streamed?;
    // Cut short it has other values, and says nothing about the flow.
    if let (true, Stop::Drain(signal) | Stop::Now(signal)) =
        (report.counts.ledger.read < way.arrivals, *told.borrow())
    {
        return Err(Error::Interrupted { signal });
    }
    Ok(Mode::new("stream", batch, report.counts.ledger))
}

fn difference(batch: &Mode, other: &Mode) -> Option<Difference> {
    let value = |values: &[f64], at: usize| values.get(at).copied().filter(|x| x.is_finite());
    for series in &batch.batch.series {
        let same = |other: &&flow::Series| {
            other.instrument == series.instrument && other.node == series.node
        };
        let found = other.batch.series.iter().find(same);
        let theirs = found.map_or(&[][..], |series| &series.values);
        let length = series.values.len().max(theirs.len());
        let bits = |values: &[f64], at: usize| {
            values.get(at).map(|x| if x.is_finite() { Some(x.to_bits()) } else { None })
        };
        if let Some(at) = (0..length).find(|at| bits(&series.values, *at) != bits(theirs, *at)) {
            return Some(Difference {
                mode: other.view.mode,
                instrument: series.instrument.clone(),
                node: series.node.clone(),
                index: at as u64,
                batch: value(&series.values, at),
                other: value(theirs, at),
            });
        }
    }
    None
}
