//! One fetch: several partitions of one leader, the answer sorted by what it means for each.

use std::sync::Arc;
use std::time::Duration;

use krafka::__private::protocol::{
    ApiKey, FetchPartitionRequest, FetchPartitionResponse, FetchRequest, FetchResponse,
    FetchTopicRequest, VersionedDecode as _, VersionedEncode as _, versions,
};
use krafka::error::ErrorCode;
use krafka::{Kafka, KrafkaError};
use tokio::time::timeout;

use super::edges::{edges, unknown};
use super::error::chain;
use super::frames::{Frames, cut};
use super::{Edge, Error, Topic};

/// Read committed.
const COMMITTED: i8 = 1;
/// The first version that names topics by id, so that one made anew under the name is another.
const BY_ID: i16 = 13;
const WITH_LOG_START: i16 = 5;
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Of a whole answer; the first batch comes whole, however large.
const ANSWER_MAX: i32 = 32 << 20;

/// The way to a topic.
#[derive(Clone, Debug)]
pub(super) struct Line {
    kafka: Kafka,
    place: Arc<str>,
    topic: Arc<Topic>,
    id: [u8; 16],
}

/// A partition that is wanted, from an offset on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) partition: i32,
    pub(super) from: i64,
    /// Of what came before it, -1 for none.
    pub(super) epoch: i32,
    pub(super) bytes: i32,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    Brought {
        frames: Frames,
        /// First offset and producer of each transaction that was aborted.
        aborted: Vec<(i64, i64)>,
        edge: Edge,
    },
    /// The offset is not in the log.
    OutOfRange(Edge),
    /// From this offset on, the log is not the one that was read.
    Diverged(i64),
    Failed(Error),
}

impl Line {
    pub(super) fn new(kafka: Kafka, place: String, topic: &Topic) -> Result<Self, Error> {
        let mut id = [0; 16];
        let digits = topic.id.as_bytes().chunks(2).map(|two| {
            std::str::from_utf8(two).ok().and_then(|two| u8::from_str_radix(two, 16).ok())
        });
        for (byte, digits) in id.iter_mut().zip(digits) {
            *byte = digits.ok_or_else(|| {
                let why = format!("`{}` is no id of a topic", topic.id.escape_debug());
                Error::Refused { place: place.clone(), why }
            })?;
        }
        Ok(Self { kafka, place: place.into(), topic: Arc::new(topic.clone()), id })
    }

    pub(super) fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    pub(super) fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Who leads a partition, as far as is known.
    pub(super) fn leader(&self, partition: i32) -> Option<i32> {
        krafka::__private::kafka_metadata(&self.kafka).leader(&self.topic.name, partition)
    }

    /// Looks again who leads; what fails here shows at the next fetch.
    pub(super) async fn look(&self) {
        let metadata = krafka::__private::kafka_metadata(&self.kafka);
        match timeout(LOOK_MAX, metadata.force_refresh(Some(&[&self.topic.name]))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "looking for the leaders"),
            Err(_late) => tracing::debug!("nobody says who leads"),
        }
    }

    /// Fetches one partition at once, whoever leads it.
    ///
    /// # Errors
    /// What no waiting heals.
    pub(super) async fn fetch_one(&self, want: Want) -> Result<Outcome, Error> {
        if self.leader(want.partition).is_none() {
            self.look().await;
        }
        let Some(leader) = self.leader(want.partition) else {
            return Ok(Outcome::Failed(self.leaderless(want.partition)));
        };
        match self.fetch(leader, &[want], Duration::ZERO).await {
            Ok(mut outcomes) => Ok(outcomes.pop().map_or_else(
                || Outcome::Failed(self.away("an answer without the partition".to_owned())),
                |(_, outcome)| outcome,
            )),
            Err(error) if error.is_away() => {
                self.look().await;
                Ok(Outcome::Failed(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Fetches from one leader; each wanted partition that the answer names is in what is returned.
    ///
    /// # Errors
    /// The connection's and the whole answer's, and a topic that is gone.
    pub(super) async fn fetch(
        &self,
        leader: i32,
        wants: &[Want],
        wait: Duration,
    ) -> Result<Vec<(Want, Outcome)>, Error> {
        let answer = self.ask(leader, wants, wait).await.map_err(|e| Error::of(&e, &self.place))?;
        if !answer.error_code.is_ok() {
            return Err(self.of_code(answer.error_code, -1));
        }
        let mut outcomes = Vec::with_capacity(wants.len());
        let mut stale = false;
        for found in answer.responses.into_iter().flat_map(|topic| topic.partitions) {
            let Some(want) = wants.iter().find(|want| want.partition == found.partition) else {
                continue;
            };
            let (code, partition) = (found.error_code, found.partition);
            let outcome = if code.is_ok() {
                brought(found, want.from)
            } else if code == ErrorCode::OffsetOutOfRange {
                self.out_of_range(partition).await
            } else {
                if is_unknown(code) {
                    self.still_there().await?;
                }
                stale = true;
                Outcome::Failed(self.of_code(code, partition))
            };
            outcomes.push((*want, outcome));
        }
        if stale {
            self.look().await;
        }
        Ok(outcomes)
    }

    async fn ask(
        &self,
        leader: i32,
        wants: &[Want],
        wait: Duration,
    ) -> krafka::Result<FetchResponse> {
        let metadata = krafka::__private::kafka_metadata(&self.kafka);
        let connection = metadata.get_broker_connection(leader).await?;
        let no_version = || KrafkaError::config("the broker speaks no version of Fetch with ours");
        let version = connection
            .negotiate_api_version(ApiKey::Fetch, versions::FETCH_MAX, WITH_LOG_START)
            .ok_or_else(no_version)?;
        let partition = |want: &Want| {
            let mut partition = FetchPartitionRequest::default();
            partition.partition = want.partition;
            partition.fetch_offset = want.from;
            partition.last_fetched_epoch = want.epoch;
            partition.partition_max_bytes = want.bytes;
            let epoch = metadata.leader_epoch(&self.topic.name, want.partition);
            partition.current_leader_epoch = epoch.unwrap_or(-1);
            partition
        };
        let mut topic = FetchTopicRequest::default();
        topic.topic.clone_from(&self.topic.name);
        topic.topic_id = (version >= BY_ID).then_some(self.id);
        topic.partitions = wants.iter().map(partition).collect();
        let mut request = FetchRequest::default();
        request.max_wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        request.min_bytes = 1;
        request.max_bytes = ANSWER_MAX;
        request.isolation_level = COMMITTED;
        request.topics = vec![topic];
        let encode = |buffer: &mut _| request.encode_versioned(version, buffer);
        let mut answer = connection.send_request(ApiKey::Fetch, version, encode).await?;
        let answer = FetchResponse::decode_versioned(version, &mut answer)?;
        connection.notify_throttle(answer.throttle_time_ms);
        Ok(answer)
    }

    async fn out_of_range(&self, partition: i32) -> Outcome {
        match edges(&self.kafka, &self.place, &self.topic.name, &[partition]).await {
            Ok(edges) => edges.first().map_or_else(
                || Outcome::Failed(self.away("no edges".to_owned())),
                |edge| Outcome::OutOfRange(*edge),
            ),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Whether the topic is there and the same; a broker that lost sight of it for a moment is no proof.
    pub(super) async fn still_there(&self) -> Result<(), Error> {
        use krafka::admin::DescribeTopicsOptions;
        let Topic { name, id, .. } = &*self.topic;
        let found =
            self.kafka.admin().describe_topics([name], DescribeTopicsOptions::default()).await;
        match found.map_err(|error| Error::of(&error, &self.place))?.remove(name) {
            None
            | Some(Err(KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. })) => {
                Err(unknown(name).into())
            }
            Some(Ok(found)) if found.topic_id != self.id => {
                let why = format!("the topic {name} was deleted and made anew: its id was {id}");
                Err(Error::Refused { place: self.place.to_string(), why })
            }
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(Error::of(&error, &self.place)),
        }
    }

    pub(super) fn leaderless(&self, partition: i32) -> Error {
        self.away(format!("partition {partition} of {} has no leader", self.topic.name))
    }

    fn of_code(&self, code: ErrorCode, partition: i32) -> Error {
        let message = if partition < 0 {
            format!("fetching from {}", self.topic.name)
        } else {
            format!("fetching from partition {partition} of {}", self.topic.name)
        };
        let error = KrafkaError::broker(code, message);
        // The topic is there, so these pass.
        if is_passing(code) { self.away(chain(&error)) } else { Error::of(&error, &self.place) }
    }

    pub(super) fn away(&self, why: String) -> Error {
        Error::Away { place: self.place.to_string(), why }
    }
}

/// The topic is another, or gone, or not seen by this broker yet.
fn is_unknown(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId
    )
}

fn is_passing(code: ErrorCode) -> bool {
    let broker = [
        ErrorCode::UnknownServerError,
        ErrorCode::CorruptMessage,
        ErrorCode::KafkaStorageException,
    ];
    is_unknown(code) || broker.contains(&code)
}

fn brought(found: FetchPartitionResponse, from: i64) -> Outcome {
    if let Some(diverging) = found.diverging_epoch {
        return Outcome::Diverged(diverging.end_offset);
    }
    let edge = Edge {
        partition: found.partition,
        earliest: found.log_start_offset,
        stable: found.last_stable_offset,
        high_water: found.high_watermark,
    };
    let aborted = found.aborted_transactions.iter().map(|a| (a.first_offset, a.producer_id));
    let frames = cut(found.records.unwrap_or_default(), from, found.high_watermark);
    Outcome::Brought { frames, aborted: aborted.collect(), edge }
}
