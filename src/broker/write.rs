//! Writing: one lane a partition, one batch after the other, so that a partition keeps its order
//! whatever is sent twice.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::record::Record;
use tokio::time::{Instant, timeout};

use super::error::chain;
use super::{Broker, Error, Topic};

/// Nagle's algorithm and delayed acknowledgements hold a request between these sizes for 40 ms (the client
/// does not turn the former off): a batch is smaller or larger.
const SMALL_MAX: usize = 7 << 10;
const LARGE_MIN: usize = 72 << 10;
/// A broker takes up to 1 MiB by default.
const BATCH_MAX: usize = 512 << 10;
/// What a record costs besides its parts, about.
const RECORD_OVERHEAD: usize = 24;
/// Of one call; a broker that is there answers in milliseconds.
const CALL_MAX: Duration = Duration::from_secs(8);

/// A record to write.
#[derive(Clone, Debug)]
pub struct Message {
    pub key: Vec<u8>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(&'static str, Vec<u8>)>,
}

impl Message {
    fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(key, value)| key.len() + value.len() + 2);
        RECORD_OVERHEAD
            + self.key.len()
            + self.value.as_ref().map_or(0, Vec::len)
            + headers.sum::<usize>()
    }
}

/// Writes to one partition.
#[derive(Debug)]
pub struct Lane {
    broker: Broker,
    topic: String,
    partition: i32,
    client: Option<PartitionClient>,
    pending: Vec<Message>,
    bytes: usize,
    written: u64,
}

impl Lane {
    /// A lane to a partition of the topic, which is there; connects with the first batch.
    #[must_use]
    pub fn new(broker: &Broker, topic: &Topic, partition: u32) -> Self {
        Self {
            broker: broker.clone(),
            topic: topic.name.clone(),
            partition: i32::try_from(partition).expect("the broker counts in i32"),
            client: None,
            pending: Vec::new(),
            bytes: 0,
            written: 0,
        }
    }

    /// How many records the broker has acknowledged.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Adds records, and writes what fills a batch.
    ///
    /// # Errors
    /// [`Error::Away`] when a batch was not acknowledged while patience lasted, and what the broker refuses.
    pub async fn push(&mut self, messages: Vec<Message>) -> Result<(), Error> {
        for message in messages {
            let size = message.size();
            if self.bytes + size > BATCH_MAX {
                self.write_all().await?;
            }
            self.bytes += size;
            self.pending.push(message);
        }
        Ok(())
    }

    /// Writes what was held back for a full batch.
    ///
    /// # Errors
    /// As [`Lane::push`].
    pub async fn flush(&mut self) -> Result<(), Error> {
        if self.bytes > SMALL_MAX && self.bytes < LARGE_MIN {
            let held = std::mem::take(&mut self.pending);
            self.bytes = 0;
            for message in held {
                let size = message.size();
                if self.bytes + size > SMALL_MAX {
                    self.write_all().await?;
                }
                self.bytes += size;
                self.pending.push(message);
            }
        }
        self.write_all().await
    }

    /// Writes the pending records as one batch.
    async fn write_all(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let messages = std::mem::take(&mut self.pending);
        self.bytes = 0;
        let count = messages.len() as u64;
        let end = Instant::now() + self.broker.patience;
        let records = records(messages);
        loop {
            let error = match self.attempt(records.clone(), end).await {
                Ok(()) => break,
                Err(error) => error,
            };
            // Whatever it is, that connection may still carry the request: a new one comes next.
            self.client = None;
            if !error.is_away() || Instant::now() >= end {
                return Err(error);
            }
            tracing::warn!(%error, "a batch is sent again");
        }
        self.written += count;
        Ok(())
    }

    async fn attempt(&mut self, records: Vec<Record>, end: Instant) -> Result<(), Error> {
        let place = self.broker.place.clone();
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        let most = CALL_MAX.min(left);
        let late = |what: &str| Error::Away {
            place: place.clone(),
            why: format!("{what} within {} s", most.as_secs_f64()),
        };
        let client = match &self.client {
            Some(client) => client,
            None => {
                let opened = timeout(most, self.open()).await;
                self.client.insert(opened.map_err(|_late| late("no connection"))??)
            }
        };
        let count = records.len();
        match timeout(most, client.produce(records, Compression::NoCompression)).await {
            Ok(Ok(offsets)) if offsets.len() == count => Ok(()),
            Ok(Ok(offsets)) => {
                let why = format!("{} offsets for {count} records", offsets.len());
                Err(Error::Refused { place, why })
            }
            Ok(Err(error)) => Err(of_writer(&error, place)),
            Err(_late) => Err(late("no acknowledgement")),
        }
    }

    async fn open(&self) -> Result<PartitionClient, Error> {
        let client = self.broker.writer().await?;
        client
            .partition_client(&self.topic, self.partition, UnknownTopicHandling::Error)
            .await
            .map_err(|error| of_writer(&error, self.broker.place.clone()))
    }
}

/// What `rskafka` says, as one of ours.
fn of_writer(error: &rskafka::client::error::Error, place: String) -> Error {
    use rskafka::client::error::Error as Writer;
    use rskafka::client::error::ProtocolError;
    let why = chain(error);
    match error {
        Writer::Connection(_) | Writer::Request(_) | Writer::RetryFailed(_) | Writer::Timeout => {
            Error::Away { place, why }
        }
        Writer::ServerError { protocol_error, .. } => match protocol_error {
            ProtocolError::TopicAuthorizationFailed | ProtocolError::ClusterAuthorizationFailed => {
                Error::Denied { place, why }
            }
            ProtocolError::NotEnoughReplicas
            | ProtocolError::NotEnoughReplicasAfterAppend
            | ProtocolError::RequestTimedOut
            | ProtocolError::KafkaStorageError => Error::Away { place, why },
            _ => Error::Refused { place, why },
        },
        _ => Error::Refused { place, why },
    }
}

/// Retention deletes by the record's timestamp, so that is now; the event's time is in the payload.
#[expect(clippy::disallowed_methods, reason = "the timestamp of a record is the wall clock's")]
fn records(messages: Vec<Message>) -> Vec<Record> {
    let timestamp = SystemTime::now().into();
    let record = |message: Message| Record {
        key: Some(message.key),
        value: message.value,
        headers: message
            .headers
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<BTreeMap<_, _>>(),
        timestamp,
    };
    messages.into_iter().map(record).collect()
}
