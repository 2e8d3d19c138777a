//! Where the log of a partition begins and ends, and one record of it; asked on connections that no long
//! poll holds up.

use std::collections::HashMap;
use std::time::Duration;

use krafka::KrafkaError;
use krafka::admin::{ListOffsetsOptions, ListedOffset, OffsetSpec, TopicPartition};
use krafka::error::ErrorCode;
use tokio::time::{Instant, sleep};

use super::fetch::{Line, Outcome, Want};
use super::lane::Lane;
use super::{Broker, Error, Event, Got, Topic};
use crate::invalid::Invalid;

/// Between two attempts.
const LOOK: Duration = Duration::from_millis(100);
/// The batch in which one record lies comes whole, however large it is.
const ONE_BATCH: i32 = 1;

/// How far the log of a partition reaches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Edge {
    pub partition: i32,
    /// The first offset that retention left.
    pub earliest: i64,
    /// The last stable offset: nothing from here on may be read yet. Below the high-water it is where
    /// the first transaction that is still open begins.
    pub stable: i64,
    /// One past the last offset.
    pub high_water: i64,
}

impl Edge {
    /// A reader that stands here waits for somebody to end a transaction.
    #[must_use]
    pub fn waits_for_transaction(&self, next: i64) -> bool {
        next >= self.stable && self.stable < self.high_water
    }
}

impl Broker {
    /// The edges of some partitions, in the order in which they are asked for.
    ///
    /// # Errors
    /// `TOPIC_UNKNOWN`; the broker's; [`Error::Away`] when patience ends.
    pub async fn edges(&self, topic: &Topic, partitions: &[i32]) -> Result<Vec<Edge>, Error> {
        let end = Instant::now() + self.patience;
        loop {
            match edges(&self.kafka, &self.place, &topic.name, partitions).await {
                Err(error) if error.is_away() && Instant::now() + LOOK < end => {
                    tracing::debug!(%error, "asking for the edges again");
                    if self.find_topic(&topic.name).await?.is_none() {
                        return Err(unknown(&topic.name).into());
                    }
                    sleep(LOOK).await;
                }
                other => return other,
            }
        }
    }

    /// The record at exactly this offset; `None` when none lies there (any more).
    ///
    /// # Errors
    /// `TOPIC_UNKNOWN`; the broker's, [`Error::Refused`] too when the record cannot be decoded;
    /// [`Error::Away`] when patience ends.
    pub async fn record_at(
        &self,
        topic: &Topic,
        partition: i32,
        offset: i64,
    ) -> Result<Option<Got>, Error> {
        let line = Line::new(self.kafka.clone(), self.place.clone(), topic)?;
        let end = Instant::now() + self.patience;
        loop {
            let want = Want { partition, from: offset, epoch: -1, bytes: ONE_BATCH };
            let error = match line.fetch_one(want).await? {
                Outcome::Brought { frames, aborted, .. } => {
                    if let Some(why) = frames.stuck {
                        return Err(Error::Refused {
                            place: self.place.clone(),
                            why: why.to_string(),
                        });
                    }
                    let mut lane = Lane::new(partition, offset);
                    lane.take(frames.frames, aborted);
                    return first(lane, offset, &self.place);
                }
                Outcome::OutOfRange(_) | Outcome::Diverged(_) => return Ok(None),
                Outcome::Failed(error) => error,
            };
            if !error.is_away() || Instant::now() + LOOK >= end {
                return Err(error);
            }
            tracing::debug!(%error, "reading one record again");
            sleep(LOOK).await;
        }
    }
}

fn first(mut lane: Lane, offset: i64, place: &str) -> Result<Option<Got>, Error> {
    let mut events = Vec::new();
    lane.hand_over(1, &mut events);
    match events.pop() {
        Some(Event::Record { offset: at, got, .. }) if at == offset => Ok(Some(got)),
        Some(Event::Undecodable { offset: at, why, .. }) if at == offset => {
            Err(Error::Refused { place: place.to_owned(), why: why.to_string() })
        }
        _ => Ok(None),
    }
}

/// The edges as one broker's client sees them now.
pub(super) async fn edges(
    kafka: &krafka::Kafka,
    place: &str,
    topic: &str,
    partitions: &[i32],
) -> Result<Vec<Edge>, Error> {
    let admin = kafka.admin();
    let ask = |spec: OffsetSpec, committed: bool| {
        let wanted = partitions.iter().map(move |p| (TopicPartition::new(topic, *p), spec));
        admin.list_offsets(wanted, ListOffsetsOptions::default().read_committed(committed))
    };
    // Never a stable end beyond the high-water, nor a first offset beyond either: asked in this order.
    let earliest = answered(ask(OffsetSpec::Earliest, false).await, place, topic)?;
    let stable = answered(ask(OffsetSpec::Latest, true).await, place, topic)?;
    let high_water = answered(ask(OffsetSpec::Latest, false).await, place, topic)?;
    let of = |offsets: &HashMap<i32, i64>, partition: i32| {
        let missing = || {
            let why = format!("it says nothing of partition {partition} of {topic}");
            Error::Refused { place: place.to_owned(), why }
        };
        offsets.get(&partition).copied().ok_or_else(missing)
    };
    partitions
        .iter()
        .map(|&partition| {
            Ok(Edge {
                partition,
                earliest: of(&earliest, partition)?,
                stable: of(&stable, partition)?,
                high_water: of(&high_water, partition)?,
            })
        })
        .collect()
}

type Listed = HashMap<TopicPartition, krafka::Result<ListedOffset>>;

fn answered(
    answer: krafka::Result<Listed>,
    place: &str,
    topic: &str,
) -> Result<HashMap<i32, i64>, Error> {
    let answer = answer.map_err(|error| Error::of(&error, place))?;
    let one = |(at, listed): (TopicPartition, krafka::Result<ListedOffset>)| match listed {
        Ok(listed) => Ok((at.partition, listed.offset)),
        Err(KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) => {
            let why = format!("it does not know partition {} of {topic}", at.partition);
            Err(Error::Away { place: place.to_owned(), why })
        }
        Err(error) => Err(Error::of(&error, place)),
    };
    answer.into_iter().map(one).collect()
}

/// A topic that is not there.
pub(super) fn unknown(topic: &str) -> Invalid {
    let message = format!("there is no topic {topic}");
    let hint = "name one that is there; reading creates none";
    Invalid::new("TOPIC_UNKNOWN", "--topic", message, hint)
}
