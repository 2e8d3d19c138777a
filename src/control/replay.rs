//! Replay: the log of a snapshot's arrivals under a schedule of faults, into a file and into a topic.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::new_file::NewFile;
use super::publish::{self, Publication, Published};
use super::{Control, Error, inputs};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::replay::{self, Applied, Arrivals, Log, Schedule, Wanted};

pub use crate::replay::Speed;

mod metrics;

/// The topic that the fixture's drills read.
pub const TOPIC: &str = "finaz-te-sim.fixture.replay.faults.normalized.v1";
/// How a topic of ours is made.
pub(super) const PARTITIONS: u32 = 4;
/// Arrivals between two looks at whether to stop.
const STEP: u64 = 4_096;

/// What to replay, and where to.
#[derive(Clone, Debug)]
pub struct ReplayRequest {
    /// Absent: the schedule's own.
    pub snapshot: Option<String>,
    pub faults: Faults,
    /// In place of the schedule's own; a generated one is drawn from it.
    pub seed: Option<u64>,
    /// Where to write the log.
    pub out: Option<PathBuf>,
    /// Where to write the schedule.
    pub faults_out: Option<PathBuf>,
    pub dry_run: bool,
    /// Absent: [`TOPIC`].
    pub topic: Option<String>,
    /// Make the topic even if its name is close to another's.
    pub create_topic: bool,
    pub speed: Speed,
    /// Where to write what a monitor wants to know, for Prometheus.
    pub metrics_file: Option<PathBuf>,
}

/// Where the faults come from.
#[derive(Clone, Debug)]
pub enum Faults {
    /// A schedule by its reference.
    Named(String),
    /// So many, drawn from the seed, such that the values of this flow stay what they are.
    Generated { count: u64, flow: Option<String> },
}

/// A replay that is done.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    pub snapshot: Hash,
    pub schedule: Hash,
    pub seed: u64,
    pub dry_run: bool,
    pub arrivals: u64,
    pub faults_applied: u64,
    pub faults: Vec<FaultView>,
    pub log_hash: Hash,
    /// The file that holds the log.
    pub out: Option<PathBuf>,
    pub topic: Option<String>,
    pub topic_created: bool,
    /// In a header of each record.
    pub replay_id: Option<String>,
    pub published: u64,
    /// Records of the same log that a replay which ended early had left in the topic.
    pub republished: u64,
    /// Records that are there more than once because an acknowledgement was lost.
    pub doubled: u64,
    /// Arrivals by partition, of those that have any.
    pub partitions: BTreeMap<u32, u64>,
    /// How long publishing took, without the reading back.
    pub publish_seconds: f64,
}

/// What one fault did.
#[derive(Clone, Debug, Serialize)]
pub struct FaultView {
    pub event_id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub effect: String,
    /// The first arrival that it shaped, counted from 0.
    pub arrival: u64,
}

impl From<Applied> for FaultView {
    fn from(applied: Applied) -> Self {
        let Applied { event_id, kind, effect, arrival } = applied;
        Self { event_id, kind, effect, arrival }
    }
}

/// Replays a snapshot; `progress` is told the arrivals so far, and may end the work by unwinding.
///
/// # Panics
/// Outside of a runtime.
pub fn replay(
    control: &Control,
    request: &ReplayRequest,
    progress: &dyn Fn(u64),
) -> Result<Replayed, Error> {
    let note = metrics::Note::at(request.metrics_file.as_deref());
    let replayed = replay_once(control, request, progress);
    let noted = note.end(replayed.as_ref().ok());
    let replayed = replayed?;
    noted?;
    Ok(replayed)
}

fn replay_once(
    control: &Control,
    request: &ReplayRequest,
    progress: &dyn Fn(u64),
) -> Result<Replayed, Error> {
    let publishes = !request.dry_run && (request.out.is_none() || has_target(control, request));
    if publishes {
        publish::check(control, request.topic.as_deref().unwrap_or(TOPIC))?;
    }
    let (snapshot, schedule) = plan(control, request)?;
    let log = log(control, &snapshot, &schedule, request.out.as_deref(), progress)?;
    inputs::keep_schedule(control.artifacts()?, &schedule)?;
    if let Some(path) = &request.faults_out {
        write_schedule(&schedule, path)?;
    }
    let topic = request.topic.as_deref().unwrap_or(TOPIC);
    let published = if publishes {
        let publication = Publication {
            topic,
            create: request.create_topic,
            speed: request.speed,
            snapshot: &snapshot,
            schedule: &schedule,
            log_hash: log.hash,
        };
        Some(publish::publish(control, &publication, progress)?)
    } else {
        None
    };
    let topic = published.as_ref().map(|_| topic.to_owned());
    let replay_id = published.as_ref().map(|published| published.replay_id.clone());
    // Where the arrivals would lie in a topic as we make it.
    let published = published
        .unwrap_or_else(|| Published { partitions: log.partitions, ..Published::default() });
    Ok(Replayed {
        snapshot,
        schedule: schedule.hash,
        seed: request.seed.unwrap_or(schedule.seed),
        dry_run: request.dry_run,
        arrivals: log.arrivals,
        faults_applied: log.faults.len() as u64,
        faults: log.faults.into_iter().map(FaultView::from).collect(),
        log_hash: log.hash,
        out: request.out.clone(),
        topic,
        topic_created: published.topic_created,
        replay_id,
        published: published.published,
        republished: published.republished,
        doubled: published.doubled,
        partitions: published.partitions,
        publish_seconds: published.seconds,
    })
}

/// Whether anything says where to publish to. A log that goes to a file needs nowhere else to go.
fn has_target(control: &Control, request: &ReplayRequest) -> bool {
    request.topic.is_some() || control.settings.brokers.is_some()
}

/// What is to be replayed, found and read.
fn plan(control: &Control, request: &ReplayRequest) -> Result<(Hash, Schedule), Error> {
    let asked = request.snapshot.as_deref();
    match &request.faults {
        Faults::Named(reference) => {
            let schedule = inputs::find_schedule(control, reference)?;
            let named = asked.or(schedule.snapshot.as_deref()).ok_or_else(no_snapshot)?;
            Ok((inputs::find_snapshot(control, named)?, schedule))
        }
        Faults::Generated { count, flow } => {
            let snapshot = inputs::find_snapshot(control, asked.ok_or_else(no_snapshot)?)?;
            let flow = match flow {
                Some(flow) => {
                    let flow = inputs::look_at_flow(control, flow)?.0;
                    Some((flow.instruments.into_iter().collect(), flow.allowed_lateness_ns))
                }
                None => None,
            };
            let seed = request.seed.unwrap_or(0);
            let wanted = Wanted { faults: *count, seed, flow };
            let artifacts = control.artifacts()?;
            let open = || artifacts.reader(&snapshot).map_err(Error::from);
            Ok((snapshot, replay::generate(open, &snapshot, &wanted)?))
        }
    }
}

fn no_snapshot() -> Invalid {
    let hint = "give one with --snapshot";
    Invalid::new("SNAPSHOT_MISSING", "--snapshot", "nothing says which snapshot to replay", hint)
}

/// The log as a whole.
struct WholeLog {
    hash: Hash,
    arrivals: u64,
    partitions: BTreeMap<u32, u64>,
    faults: Vec<Applied>,
}

/// Goes through all arrivals once, writing their log if a file is asked for. Only then is it known that the
/// snapshot is sound and that every fault can be applied.
fn log(
    control: &Control,
    snapshot: &Hash,
    schedule: &Schedule,
    out: Option<&Path>,
    progress: &dyn Fn(u64),
) -> Result<WholeLog, Error> {
    let place = snapshot.to_string();
    let mut file = out.map(NewFile::at).transpose()?;
    let mut arrivals = Arrivals::new(control.artifacts()?.reader(snapshot)?, &place, schedule);
    let mut whole =
        WholeLog { hash: *snapshot, arrivals: 0, partitions: BTreeMap::new(), faults: Vec::new() };
    let sink: &mut dyn io::Write = match &mut file {
        Some(file) => file,
        None => &mut io::sink(),
    };
    let mut log = Log::new(sink);
    let mut counts = [0; PARTITIONS as usize];
    let done = loop {
        match arrivals.pull() {
            Ok(Some(arrival)) => {
                counts[replay::partition(arrival.key.as_bytes(), PARTITIONS) as usize] += 1;
                if let Err(source) = log.add(&arrival) {
                    break Err(Error::NotWritten { place: shown(out), source });
                }
                whole.arrivals += 1;
                if whole.arrivals.is_multiple_of(STEP) {
                    progress(whole.arrivals);
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    whole.faults = arrivals.applied();
    // Damage explains all else that may have been found.
    arrivals.into_body().finish()?;
    done?;
    let (hash, _) =
        log.finish().map_err(|source| Error::NotWritten { place: shown(out), source })?;
    whole.hash = hash;
    let counts = (0..).zip(counts).filter(|(_, count)| *count > 0);
    whole.partitions = counts.collect();
    file.map_or(Ok(()), NewFile::finish)?;
    Ok(whole)
}

fn shown(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

fn write_schedule(schedule: &Schedule, path: &Path) -> Result<(), Error> {
    use std::io::Write as _;
    let mut file = NewFile::at(path)?;
    file.write_all(&schedule.to_lines()).map_err(|source| file.failed(source))?;
    file.finish()
}
