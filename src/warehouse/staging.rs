//! Rows of results: staged for a batch of runs at once, read for one, found and removed when orphaned.

use serde::Deserialize;

use super::block::{self, BLOCK_ROWS_MAX};
use super::{Error, Warehouse};

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

#[derive(Deserialize, clickhouse::Row)]
struct Row<'a> {
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
        let mut blocks = block::blocks(runs, BLOCK_ROWS_MAX).peekable();
        if blocks.peek().is_none() {
            return Ok(());
        }
        // Servers from 26 on gather inserts by themselves, which only adds to the wait.
        let sql = format!(
            "INSERT INTO {}.staging ({}) SETTINGS async_insert = 0 FORMAT Native",
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
        insert.end().await
    }

    /// The rows of one attempt at one run, in order. Empty when nothing is staged; a series without
    /// rows leaves no trace here.
    ///
    /// # Errors
    /// [`Error::Gap`] when a row is missing before the last one.
    pub async fn read_run(
        &self,
        run_no: i64,
        run_id: &str,
        epoch: i64,
        fence: i64,
    ) -> Result<Vec<StagedSeries>, Error> {
        let sql = format!(
            "SELECT seq, instrument, node, event_time, value FROM {}.staging
             WHERE run_no = ? AND run_id = ? AND epoch = ? AND fence = ?
             ORDER BY seq, staged_at DESC LIMIT 1 BY seq",
            self.database
        );
        let query = self.client.query(&sql).bind(run_no).bind(run_id).bind(epoch).bind(fence);
        let (mut series, mut seq) = (Vec::new(), 0);
        let mut rows = query.fetch::<Row<'_>>().map_err(|error| self.error(&error))?;
        // Our patience is for each wait, not for all of a long result.
        while let Some(row) = self.timed(rows.next()).await.map_err(|error| self.error(&error))? {
            if row.seq != seq {
                return Err(Error::Gap { run_id: run_id.to_owned(), seq });
            }
            seq += 1;
            push(&mut series, &row);
        }
        Ok(series)
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
