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
const FULL: usize = 256 << 10;
/// A broker takes up to 1 MiB by default: a long record goes alone rather than on top of a batch.
const MOST: usize = 768 << 10;
/// What a record costs besides its parts, about.
const RECORD_OVERHEAD: usize = 24;
/// Of one call; a broker that is there answers in milliseconds.
const CALL_MAX: Duration = Duration::from_secs(8);

/// Records on their way to one partition, in one piece of memory.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    headers: Vec<(&'static str, usize)>,
}

/// Where the parts of a record end in the batch's bytes and headers; they follow one another.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: usize,
    /// `None` is a tombstone.
    value: Option<usize>,
    headers: usize,
}

impl Batch {
    /// Adds a record; a value that is not there is a tombstone.
    pub fn push(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'static str, impl AsRef<[u8]>)>,
    ) {
        self.bytes.extend_from_slice(key);
        let key = self.bytes.len();
        let value = value.map(|value| {
            self.bytes.extend_from_slice(value);
            self.bytes.len()
        });
        for (name, text) in headers {
            self.bytes.extend_from_slice(text.as_ref());
            self.headers.push((name, self.bytes.len()));
        }
        self.entries.push(Entry { key, value, headers: self.headers.len() });
    }

    /// Whether a record with so many bytes of a value still goes with the others.
    #[must_use]
    pub fn has_room(&self, value: usize) -> bool {
        self.is_empty() || self.size() + value <= MOST
    }

    /// Whether it is large enough to be sent as it is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.size() >= FULL
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn size(&self) -> usize {
        let names = self.headers.iter().map(|(name, _)| name.len());
        // Most of them are alike, and this is asked for every record.
        let name = names.take(2).sum::<usize>();
        self.bytes.len() + self.entries.len() * (RECORD_OVERHEAD + name)
    }

    /// The records, as the client takes them. Retention deletes by a record's timestamp, so that is now;
    /// the event's time is in the payload.
    #[expect(clippy::disallowed_methods, reason = "the timestamp of a record is the wall clock's")]
    fn records(&self) -> Vec<Record> {
        let timestamp = SystemTime::now().into();
        let (mut at, mut header) = (0, 0);
        let mut take = |end: usize| {
            let part = self.bytes[at..end].to_vec();
            at = end;
            part
        };
        let record = |entry: &Entry| Record {
            key: Some(take(entry.key)),
            value: entry.value.map(&mut take),
            headers: self.headers[std::mem::replace(&mut header, entry.headers)..entry.headers]
                .iter()
                .map(|(name, end)| ((*name).to_owned(), take(*end)))
                .collect::<BTreeMap<_, _>>(),
            timestamp,
        };
        self.entries.iter().map(record).collect()
    }
}

/// Writes to one partition.
#[derive(Debug)]
pub struct Lane {
    broker: Broker,
    topic: String,
    partition: i32,
    client: Option<PartitionClient>,
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
            written: 0,
        }
    }

    /// How many records the broker has acknowledged.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes a batch; its records are acknowledged when this returns.
    ///
    /// # Errors
    /// [`Error::Away`] when it was not acknowledged while patience lasted, and what the broker refuses.
    pub async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut records = batch.records();
        let size = batch.size();
        if size <= SMALL_MAX || size >= LARGE_MIN || records.len() < 2 {
            return self.write_at_once(|| batch.records(), records).await;
        }
        // Pieces of about the same size, each below the stall.
        let each = (records.len() * SMALL_MAX / size).max(1);
        while !records.is_empty() {
            let rest = records.split_off(each.min(records.len()));
            let piece = std::mem::replace(&mut records, rest);
            self.write_at_once(|| piece.clone(), piece.clone()).await?;
        }
        Ok(())
    }

    /// Writes records in one request; `again` makes them once more.
    async fn write_at_once(
        &mut self,
        again: impl Fn() -> Vec<Record>,
        mut records: Vec<Record>,
    ) -> Result<(), Error> {
        let count = records.len() as u64;
        let end = Instant::now() + self.broker.patience;
        loop {
            let error = match self.attempt(records, end).await {
                Ok(()) => break,
                Err(error) => error,
            };
            // Whatever it is, that connection may still carry the request: a new one comes next.
            self.client = None;
            if !error.is_away() || Instant::now() >= end {
                return Err(error);
            }
            tracing::warn!(%error, "a batch is sent again");
            records = again();
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
    let says = |matches: fn(&ProtocolError) -> bool| matches!(error, Writer::ServerError { protocol_error, .. } if matches(protocol_error));
    let denied = says(|code| {
        matches!(
            code,
            ProtocolError::TopicAuthorizationFailed | ProtocolError::ClusterAuthorizationFailed
        )
    });
    let passes = says(|code| {
        matches!(
            code,
            ProtocolError::NotEnoughReplicas
                | ProtocolError::NotEnoughReplicasAfterAppend
                | ProtocolError::RequestTimedOut
                | ProtocolError::KafkaStorageError
        )
    });
    let lost = matches!(
        error,
        Writer::Connection(_) | Writer::Request(_) | Writer::RetryFailed(_) | Writer::Timeout
    );
    if says(|code| matches!(code, ProtocolError::MessageTooLarge)) {
        return Error::TooLarge { place };
    }
    if denied {
        Error::Denied { place, why }
    } else if passes || lost {
        Error::Away { place, why }
    } else {
        Error::Refused { place, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_of_a_batch_as_they_went_in() {
        let mut batch = Batch::default();
        batch.push(b"a", Some(b"one"), [("n", "1"), ("m", "x")]);
        batch.push(b"", None, [("n", "22")]);
        batch.push(b"c", Some(b""), [] as [(&str, &str); 0]);
        let records = batch.records();
        let parts: Vec<_> = records
            .iter()
            .map(|record| (record.key.as_deref(), record.value.as_deref(), record.headers.len()))
            .collect();
        assert_eq!(
            parts,
            [
                (Some(&b"a"[..]), Some(&b"one"[..]), 2),
                (Some(&b""[..]), None, 1),
                (Some(&b"c"[..]), Some(&b""[..]), 0),
            ]
        );
        assert_eq!(records[0].headers["m"], b"x");
        assert_eq!(records[1].headers["n"], b"22");
        assert!(!batch.is_full() && !batch.is_empty());
    }

    #[test]
    fn a_long_record_goes_alone() {
        let mut batch = Batch::default();
        assert!(batch.has_room(4 << 20));
        batch.push(b"a", Some(b"one"), [] as [(&str, &str); 0]);
        assert!(batch.has_room(FULL) && !batch.has_room(MOST));
    }
}
