//! From the log to the topic: written with one client, read back with the other.

use std::collections::BTreeMap;
use std::io;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{Control, Error, brokers};
use crate::artifacts::{Fields, Turn};
use crate::broker::{Batch, Broker, Got, Lane, Options, Reader, Topic, check_topic_name};
use crate::canonical::{Value, write_i64};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::replay::{self, Arrival, Arrivals, Log, Schedule, Speed};

/// Headers of a record. They are never identity: that is the event's own id.
const ARRIVAL: &str = "finaz-arrival";
const REPLAY: &str = "finaz-replay";
/// Of the event that a tombstone stands for, which has no value to say it in.
const EVENT: &str = "finaz-event";

/// Batches that wait for a lane.
const QUEUE: usize = 4;
/// Arrivals between two looks at whether to stop; a wait is cut into as many looks a second.
const STEP: u64 = 4_096;
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// What to publish, and how.
#[derive(Debug)]
pub(super) struct Publication<'a> {
    pub(super) topic: &'a str,
    /// Make the topic even if its name is close to another's.
    pub(super) create: bool,
    pub(super) speed: Speed,
    pub(super) snapshot: &'a Hash,
    pub(super) schedule: &'a Schedule,
    pub(super) log_hash: Hash,
}

/// What was published.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) replay_id: String,
    pub(super) topic_created: bool,
    pub(super) published: u64,
    pub(super) republished: u64,
    pub(super) doubled: u64,
    pub(super) partitions: BTreeMap<u32, u64>,
    pub(super) seconds: f64,
}

/// Refuses what cannot be published to, before any work is done.
pub(super) fn check(control: &Control, topic: &str) -> Result<(), Error> {
    check_topic_name(topic)?;
    Ok(brokers::options(control)?.check()?)
}

/// Publishes a log that is known to be sound, and reads it back.
pub(super) fn publish(
    control: &Control,
    publication: &Publication<'_>,
    progress: &dyn Fn(u64),
) -> Result<Published, Error> {
    let name = publication.topic;
    let options = brokers::options(control)?;
    let turn = match control.artifacts()?.take_turn("replay", name)? {
        Ok(turn) => turn,
        Err(taken) => {
            let (pid, age) = (taken.pid, taken.age);
            return Err(Error::ReplayRunning { topic: name.to_owned(), pid, age });
        }
    };
    let handle = Handle::current();
    let (broker, topic, topic_created) = handle.block_on(open(&options, publication))?;
    let republished = handle.block_on(left_over(&turn, &broker, &topic, publication.log_hash))?;
    let starts = handle.block_on(broker.offsets(&topic))?;
    let replay_id = Uuid::new_v4().to_string();
    turn.mark(mark(&replay_id, &topic, &starts, publication.log_hash))?;
    let began = Instant::now();
    let mut sending =
        Sending { handle: &handle, progress, lanes: lanes(&handle, &broker, &topic), began };
    let sent = send(control, publication, &replay_id, &mut sending);
    // The lanes end also where sending failed; what they say first is why.
    let partitions = finish(&handle, sending.lanes);
    let partitions = match (sent, partitions) {
        (Ok(()), partitions) => partitions?,
        (Err(Error::LaneEnded), Err(error)) | (Err(error), _) => return Err(error),
    };
    let seconds = began.elapsed().as_secs_f64();
    let ends = handle.block_on(broker.offsets(&topic))?;
    let ranges: Vec<_> = starts.iter().zip(&ends).map(|(from, to)| (from.1, to.1)).collect();
    let reader = handle.block_on(broker.reader(&topic, &ranges))?;
    let mut reading =
        Reading { handle: &handle, progress, reader, replay_id: &replay_id, doubled: 0 };
    read_back(control, publication, topic.partitions, &mut reading)?;
    let doubled = reading.doubled;
    handle.block_on(reading.reader.close())?;
    turn.done()?;
    let published = partitions.values().sum();
    Ok(Published { replay_id, topic_created, published, republished, doubled, partitions, seconds })
}

/// The broker and the topic, made if it is not there and its name is no slip; whether it was made comes third.
async fn open(
    options: &Options,
    publication: &Publication<'_>,
) -> Result<(Broker, Topic, bool), Error> {
    let broker = brokers::connect(options).await?;
    let name = publication.topic;
    if let Some(topic) = broker.find_topic(name).await? {
        return Ok((broker, topic, false));
    }
    if !publication.create && name != super::replay::TOPIC {
        let mut names = broker.topic_names().await?;
        names.push(super::replay::TOPIC.to_owned());
        if let Some(meant) = slip_of(name, &names) {
            let message = format!("there is no topic {name}, but there is {meant}");
            let hint = format!("did you mean `{meant}`? --create-topic makes a new one");
            return Err(Invalid::new("TOPIC_UNKNOWN", "--topic", message, hint).into());
        }
    }
    let topic = broker.create_topic(name, super::replay::PARTITIONS).await?;
    Ok((broker, topic, true))
}

/// The topic that was probably meant: within two letters, one in a short name. Names that differ in their
/// digits are meant to.
fn slip_of<'a>(name: &str, names: &'a [String]) -> Option<&'a str> {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let own = digits(name);
    let most = if name.len() < 8 { 1 } else { 2 };
    names.iter().map(String::as_str).find(|other| {
        digits(other) == own
            && other.len().abs_diff(name.len()) <= most
            && strsim::damerau_levenshtein(name, other) <= most
    })
}

fn mark(replay_id: &str, topic: &Topic, starts: &[(i64, i64)], log_hash: Hash) -> Fields {
    let starts = starts.iter().map(|(_, next)| Value::Int(*next)).collect();
    [
        ("cluster", Value::Text(topic.cluster.clone())),
        ("log_hash", Value::Text(log_hash.to_string())),
        ("replay", Value::Text(replay_id.to_owned())),
        ("starts", Value::List(starts)),
        ("topic_id", Value::Text(topic.id.clone())),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// How many records of the same log a replay has left in the topic that did not come to its end.
async fn left_over(
    turn: &Turn<'_>,
    broker: &Broker,
    topic: &Topic,
    log_hash: Hash,
) -> Result<u64, Error> {
    let Some(left) = turn.left()? else { return Ok(0) };
    let says = |key, what: &str| left.get(key) == Some(&Value::Text(what.to_owned()));
    let same = says("topic_id", &topic.id)
        && says("cluster", &topic.cluster)
        && says("log_hash", &log_hash.to_string());
    let (Some(Value::Text(replay_id)), Some(Value::List(starts)), true) =
        (left.get("replay"), left.get("starts"), same)
    else {
        tracing::warn!("a replay of another log into this topic ended early: its records stay");
        return Ok(0);
    };
    let mut ranges = broker.offsets(topic).await?;
    for (range, start) in ranges.iter_mut().zip(starts) {
        if let Value::Int(start) = start {
            range.0 = range.0.max(*start);
        }
    }
    let mut reader = broker.reader(topic, &ranges).await?;
    let mut count = 0;
    for partition in 0..topic.partitions {
        while reader.wait(partition).await? {
            while let Some(got) = reader.held(partition) {
                count += u64::from(got.header(REPLAY) == Some(replay_id.as_bytes()));
            }
        }
    }
    reader.close().await?;
    tracing::warn!("a replay ended early after {count} records: the whole log is published again");
    Ok(count)
}

/// A lane at work, and what is gathered for it.
struct AtWork {
    queue: mpsc::Sender<Batch>,
    task: JoinHandle<Result<u64, Error>>,
    gathered: Batch,
}

impl AtWork {
    /// Hands over what was gathered.
    fn send(&mut self) -> Result<(), Error> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.gathered);
        self.queue.blocking_send(batch).map_err(|_closed| Error::LaneEnded)
    }
}

fn lanes(handle: &Handle, broker: &Broker, topic: &Topic) -> Vec<AtWork> {
    let lane = |partition| {
        let (queue, mut batches) = mpsc::channel::<Batch>(QUEUE);
        let mut lane = Lane::new(broker, topic, partition);
        let task = handle.spawn(async move {
            while let Some(batch) = batches.recv().await {
                lane.write(&batch).await?;
            }
            Ok(lane.written())
        });
        AtWork { queue, task, gathered: Batch::default() }
    };
    (0..topic.partitions).map(lane).collect()
}

/// Waits for the lanes: how many records each has written, of those that have any.
fn finish(handle: &Handle, lanes: Vec<AtWork>) -> Result<BTreeMap<u32, u64>, Error> {
    // All queues first: a lane ends when its own is closed.
    let tasks: Vec<_> = lanes.into_iter().map(|lane| lane.task).collect();
    let mut partitions = BTreeMap::new();
    let mut failed = None;
    for (partition, task) in (0..).zip(tasks) {
        match handle.block_on(task) {
            Ok(Ok(0)) => {}
            Ok(Ok(written)) => drop(partitions.insert(partition, written)),
            Ok(Err(error)) => failed = failed.or(Some(error)),
            Err(panic) => failed = failed.or(Some(Error::Panicked { what: panic.to_string() })),
        }
    }
    failed.map_or(Ok(partitions), Err)
}

/// What sending needs besides the log.
struct Sending<'a> {
    handle: &'a Handle,
    progress: &'a dyn Fn(u64),
    lanes: Vec<AtWork>,
    began: Instant,
}

impl Sending<'_> {
    /// Lets the wall clock reach `due`; what was gathered goes out first.
    fn wait_until(&mut self, due: Instant, number: u64) -> Result<(), Error> {
        if due <= Instant::now() {
            return Ok(());
        }
        self.lanes.iter_mut().try_for_each(AtWork::send)?;
        loop {
            (self.progress)(number);
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.handle.block_on(sleep(left.min(LOOK)));
        }
    }
}

/// Hands every arrival to the lane of its partition when its time has come.
fn send(
    control: &Control,
    publication: &Publication<'_>,
    replay_id: &str,
    sending: &mut Sending<'_>,
) -> Result<(), Error> {
    let place = publication.snapshot.to_string();
    let body = control.artifacts()?.reader(publication.snapshot)?;
    let mut arrivals = Arrivals::new(body, &place, publication.schedule);
    let count = u32::try_from(sending.lanes.len()).expect("partitions are counted in 32 bits");
    let mut first = None;
    let mut paused = std::time::Duration::ZERO;
    while let Some(arrival) = arrivals.pull()? {
        let first = *first.get_or_insert(arrival.arrival_ns);
        paused += std::time::Duration::from_millis(arrival.wait_ms);
        let after = i128::from(arrival.arrival_ns) - i128::from(first);
        let due = publication.speed.due(after) + paused;
        if !due.is_zero() {
            sending.wait_until(sending.began + due, arrival.number)?;
        }
        let partition = replay::partition(arrival.key.as_bytes(), count);
        let lane = usize::try_from(partition).expect("32 bits fit");
        let lane = &mut sending.lanes[lane];
        if !lane.gathered.has_room(arrival.event.map_or(0, <[u8]>::len)) {
            lane.send()?;
        }
        push(&mut lane.gathered, &arrival, replay_id);
        if lane.gathered.is_full() {
            lane.send()?;
        }
        if arrival.number.is_multiple_of(STEP) {
            (sending.progress)(arrival.number);
        }
    }
    sending.lanes.iter_mut().try_for_each(AtWork::send)
}

fn push(batch: &mut Batch, arrival: &Arrival<'_>, replay_id: &str) {
    let mut number = Vec::with_capacity(20);
    write_i64(i64::try_from(arrival.number).expect("counted one by one"), &mut number);
    let missing = arrival.missing.map(|event_id| (EVENT, event_id.as_bytes()));
    let headers = [(ARRIVAL, &number[..]), (REPLAY, replay_id.as_bytes())];
    batch.push(arrival.key.as_bytes(), arrival.event, headers.into_iter().chain(missing));
}

/// What reading back needs besides the log.
struct Reading<'a> {
    handle: &'a Handle,
    progress: &'a dyn Fn(u64),
    reader: Reader,
    replay_id: &'a str,
    doubled: u64,
}

impl Reading<'_> {
    /// The next record of this replay in a partition, and its arrival number.
    fn next(&mut self, partition: u32) -> Result<Option<(u64, Got)>, Error> {
        loop {
            let got = match self.reader.held(partition) {
                Some(got) => got,
                None if self.handle.block_on(self.reader.wait(partition))? => continue,
                None => return Ok(None),
            };
            if got.header(REPLAY) != Some(self.replay_id.as_bytes()) {
                continue;
            }
            let number = got.header(ARRIVAL).and_then(|text| std::str::from_utf8(text).ok());
            let number = number.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
            return Ok(Some((number, got)));
        }
    }
}

/// Makes the log again out of what the topic holds, and compares.
fn read_back(
    control: &Control,
    publication: &Publication<'_>,
    partitions: u32,
    reading: &mut Reading<'_>,
) -> Result<(), Error> {
    let differs = |what: String| Error::ReadBackDiffers {
        topic: publication.topic.to_owned(),
        log_hash: publication.log_hash,
        what,
    };
    let place = publication.snapshot.to_string();
    let body = control.artifacts()?.reader(publication.snapshot)?;
    let mut arrivals = Arrivals::new(body, &place, publication.schedule);
    let mut log = Log::new(io::sink());
    while let Some(arrival) = arrivals.pull()? {
        let partition = replay::partition(arrival.key.as_bytes(), partitions);
        let got = loop {
            match reading.next(partition)? {
                // Sent again because its acknowledgement was lost.
                Some((number, _)) if number < arrival.number => reading.doubled += 1,
                Some((number, got)) if number == arrival.number => break got,
                Some(_) | None => {
                    let number = arrival.number;
                    return Err(differs(format!(
                        "arrival {number} is not in partition {partition}"
                    )));
                }
            }
        };
        let key = got.key().and_then(|key| std::str::from_utf8(key).ok()).unwrap_or_default();
        let read = Arrival { key, event: got.value(), ..arrival };
        log.add(&read).expect("a sink takes every byte");
        if arrival.number.is_multiple_of(STEP) {
            (reading.progress)(arrival.number);
        }
    }
    for partition in 0..partitions {
        while reading.next(partition)?.is_some() {
            reading.doubled += 1;
        }
    }
    let (hash, _) = log.finish().expect("a sink takes every byte");
    if hash == publication.log_hash {
        return Ok(());
    }
    Err(differs(format!("what was read back hashes to {hash}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_from_another_topic() {
        let names = ["finaz-te-sim.fixture.replay.faults.normalized.v1", "drill-1", "prices"];
        let names = names.map(str::to_owned);
        assert_eq!(
            slip_of("finaz-te-sim.fixture.replay.faults.normalised.v1", &names),
            Some(names[0].as_str())
        );
        assert_eq!(slip_of("pricse", &names), Some("prices"));
        for other in ["finaz-te-sim.fixture.replay.faults.normalized.v2", "drill-2", "orders"] {
            assert_eq!(slip_of(other, &names), None, "{other}");
        }
    }
}
