//! Rows of results: staged for a batch of runs at once, read for one, found and removed when orphaned.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use super::block::{self, BLOCK_ROWS_MAX};
use super::{Error, Warehouse};
use crate::points::{Point, reach};

/// Refs of one DELETE: their text stays far below ClickHouse's limit of 256 KiB a statement.
const DELETE_MAX: usize = 500;

/// The values of one node over one instrument. `values[i]` belongs to `event_time[i]`; NaN is null.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    pub instrument: &'a str,
    pub node: &'a str,
    /// Nanoseconds since 1970 UTC.
    pub event_time: &'a [i64],
    pub values: &'a [f64],
}

/// The result of one run, under the fence that it was computed under.
#[derive(Clone, Debug)]
pub struct StagedRun<'a> {
    pub run_no: i64,
    pub run_id: &'a str,
    pub epoch: i64,
    pub fence: i64,
    pub series: Vec<Series<'a>>,
}

/// One attempt at one run that has rows here.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, clickhouse::Row)]
pub struct StagedRef {
    pub run_no: i64,
    pub run_id: String,
    pub epoch: i64,
    pub fence: i64,
    /// Rows, each counted once.
    pub rows: u64,
}

/// A series as it was staged. NaN is null.
#[derive(Clone, Debug)]
pub struct StagedSeries {
    pub instrument: String,
    pub node: String,
    pub event_time: Vec<i64>,
    pub values: Vec<f64>,
}

/// One attempt at one run: its number, its id, epoch and fence.
pub type Ref<'a> = (i64, &'a str, i64, i64);

/// What is staged of one attempt, or the gap in it.
pub type StagedRead = Result<Vec<StagedSeries>, Error>;

#[derive(Deserialize, clickhouse::Row)]
struct Row<'a> {
    run_no: i64,
    epoch: i64,
    fence: i64,
    run_id: &'a str,
    seq: u64,
    instrument: &'a str,
    node: &'a str,
    event_time: i64,
    value: Option<f64>,
}

impl Warehouse {
    /// Stages the results of a batch of runs in one insert. When it returns they are on the disk.
    ///
    /// Hot path: one round trip; nothing is asked for before it, no settings travel as parameters.
    /// May be repeated with the same runs. After an error some of the rows may be there: they are
    /// orphans unless the same runs are staged again under the same fence.
    ///
    /// # Errors
    /// [`Error::Away`] within twice the patience when the server hangs or dies.
    pub async fn stage(&self, runs: &[StagedRun<'_>]) -> Result<(), Error> {
        let mut runs: Vec<_> = runs.iter().collect();
        // In the table's order, which spares the server the sorting.
        runs.sort_unstable_by_key(|run| (run.run_no, run.epoch, run.fence, run.run_id));
        match self.insert(&runs).await {
            Err(clickhouse::error::Error::Network(_)) => self.insert(&runs).await,
            done => done,
        }
        .map_err(|error| self.error(&error))
    }

    async fn insert(&self, runs: &[&StagedRun<'_>]) -> clickhouse::error::Result<()> {
        let mut blocks = block::blocks(runs, BLOCK_ROWS_MAX, staged_at()).peekable();
        if blocks.peek().is_none() {
            return Ok(());
        }
        // Servers from 26 on gather inserts by themselves, which only adds to the wait. More than one thread has
        // nothing to do and costs a small insert a tenth.
        let sql = format!(
            "INSERT INTO {}.staging ({}) SETTINGS async_insert = 0, max_threads = 1 FORMAT Native",
            self.database,
            block::column_names()
        );
        let mut insert = self
            .client
            .insert_formatted_with(sql)
            .with_timeouts(Some(self.patience), Some(self.patience));
        for block in blocks {
            insert.send(block.into()).await?;
        }
        reach(Point::RowsSent);
        insert.end().await?;
        reach(Point::RowsAcked);
        Ok(())
    }

    /// The rows of attempts, each in order, in one query. Empty where nothing is staged; a series without rows leaves
    /// no trace here. [`Error::Gap`] stands for an attempt of which a row is missing before the last one.
    ///
    /// Some hundreds of refs at once: they travel as text.
    pub async fn read_runs(&self, refs: &[Ref<'_>]) -> Result<Vec<StagedRead>, Error> {
        let places: HashMap<&Ref<'_>, usize> = refs.iter().zip(0..).collect();
        let mut reads: Vec<StagedRead> = refs.iter().map(|_| Ok(Vec::new())).collect();
        if refs.is_empty() {
            return Ok(reads);
        }
        let sql = format!(
            "SELECT run_no, epoch, fence, run_id, seq, instrument, node, event_time, value FROM {}.staging
             WHERE (run_no, epoch, fence, run_id) IN ?
             ORDER BY run_no, epoch, fence, run_id, seq, staged_at DESC
             LIMIT 1 BY run_no, epoch, fence, run_id, seq",
            self.database
        );
        let keys: Vec<_> =
            refs.iter().map(|&(no, id, epoch, fence)| (no, epoch, fence, id)).collect();
        let query = self.client.query(&sql).bind(&keys);
        let mut rows = query.fetch::<Row<'_>>().map_err(|error| self.error(&error))?;
        let (mut place, mut seq) = (None, 0);
        // Our patience is for each wait, not for all of a long result.
        while let Some(row) = self.timed(rows.next()).await.map_err(|error| self.error(&error))? {
            let key = (row.run_no, row.run_id, row.epoch, row.fence);
            if place.is_none_or(|place: usize| refs[place] != key) {
                place = places.get(&key).copied();
                seq = 0;
            }
            let Some(read) = place.map(|place| &mut reads[place]) else { continue };
            let Ok(series) = read else { continue };
            if row.seq == seq {
                push(series, &row);
                seq += 1;
            } else {
                *read = Err(Error::Gap { run_id: row.run_id.to_owned(), seq });
            }
        }
        Ok(reads)
    }

    /// Up to `limit` attempts that have rows here, behind `after`, by run number. The next page
    /// begins behind the last one of this.
    ///
    /// Whoever looks for orphans reads these first and PostgreSQL second: a ref that was here, is not
    /// published then and is held by no live lease will never be published.
    pub async fn refs(
        &self,
        after: Option<&StagedRef>,
        limit: u32,
    ) -> Result<Vec<StagedRef>, Error> {
        let (run_no, epoch, fence, run_id) = after
            .map_or((i64::MIN, i64::MIN, i64::MIN, ""), |after| {
                (after.run_no, after.epoch, after.fence, after.run_id.as_str())
            });
        // The first condition is what the index understands, the second is the place.
        let sql = format!(
            "SELECT run_no, run_id, epoch, fence, uniqExact(seq) AS rows FROM {}.staging
             WHERE run_no >= ? AND (run_no, epoch, fence, run_id) > (?, ?, ?, ?)
             GROUP BY run_no, epoch, fence, run_id
             ORDER BY run_no, epoch, fence, run_id LIMIT ?
             SETTINGS optimize_aggregation_in_order = 1",
            self.database
        );
        self.retried(|| {
            let query = self.client.query(&sql).bind(run_no);
            let query = query.bind(run_no).bind(epoch).bind(fence).bind(run_id).bind(limit);
            query.fetch_all::<StagedRef>()
        })
        .await
    }

    /// Removes all rows of these attempts. May be repeated; what is not there is no error.
    ///
    /// Returns when no reader sees them any more. Past the patience it is [`Error::Away`] and goes on
    /// in the server.
    pub async fn delete(&self, refs: &[StagedRef]) -> Result<(), Error> {
        let sql = format!(
            "DELETE FROM {}.staging WHERE (run_no, epoch, fence, run_id) IN ?",
            self.database
        );
        for refs in refs.chunks(DELETE_MAX) {
            let keys: Vec<_> = refs
                .iter()
                .map(|one| (one.run_no, one.epoch, one.fence, one.run_id.as_str()))
                .collect();
            self.retried(|| self.client.query(&sql).bind(&keys).execute()).await?;
        }
        Ok(())
    }
}

/// Adds a row to the last series, or opens the next.
fn push(series: &mut Vec<StagedSeries>, row: &Row<'_>) {
    let known = series
        .last()
        .is_some_and(|last| last.instrument == row.instrument && last.node == row.node);
    if !known {
        series.push(StagedSeries {
            instrument: row.instrument.to_owned(),
            node: row.node.to_owned(),
            event_time: Vec::new(),
            values: Vec::new(),
        });
    }
    let last = series.last_mut().expect("a series was just opened if there was none");
    last.event_time.push(row.event_time);
    last.values.push(row.value.unwrap_or(f64::NAN));
}

/// Microseconds since 1970. Decides nothing but which of two stagings of the same row is the later one.
#[expect(clippy::disallowed_methods, reason = "no lease is held against it")]
fn staged_at() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
