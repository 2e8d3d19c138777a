//! Reading: explicit offsets only, committed records only, bounded memory.

use std::collections::VecDeque;
use std::time::Duration;

use krafka::__private::protocol::Record;
use krafka::ConsumerRecord;
use krafka::consumer::{AutoOffsetReset, Consumer, IsolationLevel};
use tokio::time::{Instant, sleep};

use super::inplace::InPlace;
use super::{Broker, Error, Topic};

/// Records held for one partition before it is paused while another is waited for.
const HELD_MAX: usize = 20_000;
const POLL: Duration = Duration::from_millis(500);
/// Between two attempts.
const LOOK: Duration = Duration::from_millis(100);

/// A record as it was read. It keeps alive what came with it, a megabyte or more: whoever holds records for
/// long copies what is needed.
#[derive(Debug)]
pub struct Got(Kind);

/// By the client's consumer, by its decoder, or by us from the batch.
#[derive(Debug)]
enum Kind {
    Polled(ConsumerRecord),
    Walked(Record),
    InPlace(InPlace),
}

impl Got {
    pub(super) fn walked(record: Record) -> Self {
        Self(Kind::Walked(record))
    }

    pub(super) fn in_place(record: InPlace) -> Self {
        Self(Kind::InPlace(record))
    }

    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Polled(record) => record.key.as_deref(),
            Kind::Walked(record) => record.key.as_deref(),
            Kind::InPlace(record) => record.key(),
        }
    }

    /// `None` is a tombstone.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Polled(record) => record.value.as_deref(),
            Kind::Walked(record) => record.value.as_deref(),
            Kind::InPlace(record) => record.value(),
        }
    }

    /// The first header of this name, if it has a value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        match &self.0 {
            Kind::Polled(record) => record.header(name).flatten().map(|value| &value[..]),
            Kind::Walked(record) => {
                let mut headers = record.headers.iter();
                headers.find(|header| header.key == name.as_bytes())?.value.as_deref()
            }
            Kind::InPlace(record) => record.header(name),
        }
    }
}

/// Reads a range of offsets of every partition.
pub struct Reader {
    broker: Broker,
    topic: String,
    consumer: Consumer,
    lanes: Vec<Lane>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("topic", &self.topic).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Lane {
    held: VecDeque<ConsumerRecord>,
    /// The next offset to come from the broker.
    next: i64,
    end: i64,
    paused: bool,
}

impl Broker {
    /// The first offset and the one after the last of each partition, as committed readers see them.
    ///
    /// # Errors
    /// The broker's.
    pub async fn offsets(&self, topic: &Topic) -> Result<Vec<(i64, i64)>, Error> {
        let consumer = self.consumer().await?;
        let end = Instant::now() + self.patience;
        let offsets = loop {
            match self.offsets_by(&consumer, topic).await {
                Err(error) if error.is_away() && Instant::now() < end => {
                    tracing::debug!(%error, "asking again");
                }
                other => break other?,
            }
            sleep(LOOK).await;
            // The client refuses to forget a leader that was voted out until it is told to look.
            let looked = consumer.fetch_metadata(Some(&topic.name)).await;
            looked.map(drop).or_else(|error| match Error::of(&error, &self.place) {
                error if error.is_away() => Ok(()),
                error => Err(error),
            })?;
        };
        self.admin(consumer.close().await)?;
        Ok(offsets)
    }

    async fn offsets_by(
        &self,
        consumer: &Consumer,
        topic: &Topic,
    ) -> Result<Vec<(i64, i64)>, Error> {
        let mut offsets = Vec::new();
        for partition in 0..count(topic) {
            offsets.push(self.admin(consumer.fetch_watermarks(&topic.name, partition).await)?);
        }
        Ok(offsets)
    }

    /// A reader of what lies between two offsets of each partition, the second excluded.
    ///
    /// # Errors
    /// The broker's.
    pub async fn reader(&self, topic: &Topic, ranges: &[(i64, i64)]) -> Result<Reader, Error> {
        let consumer = self.consumer().await?;
        let lanes: Vec<Lane> = ranges
            .iter()
            .map(|(next, end)| Lane {
                held: VecDeque::new(),
                next: *next,
                end: *end,
                paused: false,
            })
            .collect();
        let read: Vec<i32> = (0..)
            .zip(&lanes)
            .filter(|(_, lane)| lane.next < lane.end)
            .map(|(partition, _)| partition)
            .collect();
        self.admin(consumer.assign(&topic.name, read.clone()).await)?;
        for partition in read {
            let next = lanes[usize::try_from(partition).expect("counted from 0")].next;
            self.admin(consumer.seek(&topic.name, partition, next).await)?;
        }
        Ok(Reader { broker: self.clone(), topic: topic.name.clone(), consumer, lanes })
    }

    async fn consumer(&self) -> Result<Consumer, Error> {
        let consumer = self
            .kafka
            .consumer_without_group()
            .auto_offset_reset(AutoOffsetReset::None)
            .isolation_level(IsolationLevel::ReadCommitted)
            .enable_auto_commit(false)
            .max_poll_records(10_000)
            // A cap would count what lies there for a paused partition, and stop the others as well. Without
            // one a partition has an answer at most, and none is asked for while it lies there.
            .max_buffered_records(0)
            .build();
        self.admin(consumer.await)
    }
}

fn count(topic: &Topic) -> i32 {
    i32::try_from(topic.partitions).expect("the broker counts in i32")
}

impl Reader {
    /// The next record of a partition, if it is here already.
    pub fn held(&mut self, partition: u32) -> Option<Got> {
        self.lanes[at(partition)].held.pop_front().map(|record| Got(Kind::Polled(record)))
    }

    /// Waits until a record of the partition is held; says whether there will be one.
    ///
    /// # Errors
    /// The broker's; [`Error::Away`] when nothing comes while patience lasts, as behind a
    /// transaction that nobody ends.
    pub async fn wait(&mut self, partition: u32) -> Result<bool, Error> {
        let mut end = Instant::now() + self.broker.patience;
        let mut why = None;
        loop {
            let lane = &self.lanes[at(partition)];
            if !lane.held.is_empty() {
                return Ok(true);
            }
            if lane.next >= lane.end {
                return Ok(false);
            }
            self.balance().await;
            let records = match self.consumer.poll(POLL).await {
                Ok(records) => records,
                Err(error) => {
                    let error = Error::of(&error, &self.broker.place);
                    if !error.is_away() {
                        return Err(error);
                    }
                    tracing::debug!(%error, "reading again");
                    why = Some(error);
                    sleep(LOOK).await;
                    Vec::new()
                }
            };
            if self.take(records).await {
                end = Instant::now() + self.broker.patience;
                why = None;
            } else if Instant::now() >= end {
                if let Some(error) = why {
                    return Err(error);
                }
                let lane = &self.lanes[at(partition)];
                let why = format!(
                    "partition {partition} of {} gives nothing between offsets {} and {}",
                    self.topic, lane.next, lane.end
                );
                return Err(Error::Away { place: self.broker.place.clone(), why });
            }
        }
    }

    /// Ends the reading in order.
    ///
    /// # Errors
    /// The broker's.
    pub async fn close(self) -> Result<(), Error> {
        let closed = self.consumer.close().await;
        self.broker.admin(closed)
    }

    /// Pauses the partitions that have enough, and lets the others go on.
    async fn balance(&mut self) {
        for (partition, lane) in (0..).zip(&mut self.lanes) {
            let full = lane.held.len() >= HELD_MAX || lane.next >= lane.end;
            if full && !lane.paused {
                self.consumer.pause(&self.topic, &[partition]).await;
            } else if !full && lane.paused {
                self.consumer.resume(&self.topic, &[partition]).await;
            }
            lane.paused = full;
        }
    }

    /// Sorts what came into the lanes; says whether anything moved.
    async fn take(&mut self, records: Vec<ConsumerRecord>) -> bool {
        let mut moved = !records.is_empty();
        for record in records {
            let Ok(lane) = usize::try_from(record.partition) else { continue };
            let Some(lane) = self.lanes.get_mut(lane) else { continue };
            lane.next = record.offset + 1;
            if record.offset < lane.end {
                lane.held.push_back(record);
            }
        }
        // Markers and aborted records move the position and give nothing.
        for (partition, lane) in (0..).zip(&mut self.lanes) {
            if lane.next < lane.end {
                let position = self.consumer.position(&self.topic, partition).await;
                if let Some(position) = position.filter(|position| *position > lane.next) {
                    lane.next = position;
                    moved = true;
                }
            }
        }
        moved
    }
}

fn at(partition: u32) -> usize {
    usize::try_from(partition).expect("32 bits fit")
}
