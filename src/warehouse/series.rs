//! Rows of streams: values that a journal has committed, in the order in which they were applied.
//!
//! A row is known by its stream, its number and its node; epoch and fence say under whom it was staged. Rows are staged
//! after they are committed, so two owners stage the same under one number, unless a journal was restored: then the
//! later epoch's counts.

use std::sync::Arc;

use super::block::{length, repeat, text};
use super::{Error, Warehouse};
use crate::points::{Point, reach};

/// Events of one block.
const BLOCK_EVENTS_MAX: usize = 65_536;

const COLUMNS: [(&str, &str); 8] = [
    ("stream", "String"),
    ("epoch", "Int64"),
    ("fence", "Int64"),
    ("row", "UInt64"),
    ("node", "String"),
    ("instrument", "String"),
    ("event_time", "DateTime64(9, 'UTC')"),
    ("value", "Nullable(Float64)"),
];

/// Neighbouring events of one stream, with the values that they gave.
#[derive(Clone, Copy, Debug)]
pub struct StreamRows<'a> {
    /// As its row in PostgreSQL is named.
    pub stream: &'a str,
    /// Those of the lease under which it is staged.
    pub epoch: i64,
    pub fence: i64,
    /// How many events of the stream were applied before the first of these.
    pub first: u64,
    pub nodes: &'a [String],
    /// One an event.
    pub instruments: &'a [Arc<str>],
    /// Nanoseconds since 1970 UTC.
    pub event_time: &'a [i64],
    /// One a node for each event, event by event; NaN is null.
    pub values: &'a [f64],
}

impl StreamRows<'_> {
    /// A part of them as a block of the Native format, each node's values one behind the other.
    fn block(&self, from: usize, to: usize) -> Vec<u8> {
        let (nodes, events) = (self.nodes.len(), to - from);
        let mut columns: [Vec<u8>; COLUMNS.len()] = Default::default();
        let [stream, epoch, fence, row, node, instrument, event_time, value] = &mut columns;
        let mut nulls = Vec::with_capacity(events * nodes);
        repeat(stream, &text(self.stream), events * nodes);
        repeat(epoch, &self.epoch.to_le_bytes(), events * nodes);
        repeat(fence, &self.fence.to_le_bytes(), events * nodes);
        for (number, name) in self.nodes.iter().enumerate() {
            repeat(node, &text(name), events);
            for at in from..to {
                row.extend_from_slice(&(self.first + at as u64).to_le_bytes());
                instrument.extend_from_slice(&text(&self.instruments[at]));
                event_time.extend_from_slice(&self.event_time[at].to_le_bytes());
                let x = self.values[at * nodes + number];
                nulls.push(u8::from(x.is_nan()));
                value.extend_from_slice(&(if x.is_nan() { 0.0 } else { x }).to_le_bytes());
            }
        }
        let mut out = Vec::new();
        length(COLUMNS.len(), &mut out);
        length(events * nodes, &mut out);
        for ((name, kind), data) in COLUMNS.iter().zip(&columns) {
            out.extend_from_slice(&text(name));
            out.extend_from_slice(&text(kind));
            if kind.starts_with("Nullable") {
                out.extend_from_slice(&nulls);
            }
            out.extend_from_slice(data);
        }
        out
    }
}

impl Warehouse {
    /// Stages values of a stream in one insert. May be repeated with the same rows, by whomever.
    ///
    /// # Errors
    /// [`Error::Away`] within twice the patience when the server hangs or dies; some of the rows may be there.
    pub async fn stage_stream(&self, rows: &StreamRows<'_>) -> Result<(), Error> {
        match self.insert_stream(rows).await {
            Err(clickhouse::error::Error::Network(_)) => self.insert_stream(rows).await,
            done => done,
        }
        .map_err(|error| self.error(&error))
    }

    async fn insert_stream(&self, rows: &StreamRows<'_>) -> clickhouse::error::Result<()> {
        let sql = format!(
            "INSERT INTO {}.stream_rows ({}) SETTINGS async_insert = 0 FORMAT Native",
            self.database,
            COLUMNS.map(|(name, _)| name).join(", ")
        );
        let mut insert = self
            .client
            .insert_formatted_with(sql)
            .with_timeouts(Some(self.patience), Some(self.patience));
        let events = rows.event_time.len();
        for from in (0..events).step_by(BLOCK_EVENTS_MAX) {
            insert.send(rows.block(from, events.min(from + BLOCK_EVENTS_MAX)).into()).await?;
        }
        reach(Point::RowsSent);
        insert.end().await?;
        reach(Point::RowsAcked);
        Ok(())
    }
}
