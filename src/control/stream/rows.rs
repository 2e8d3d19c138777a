//! Values of a stream to ClickHouse, beside the work: what a commit has made final is read back from the journal and
//! staged in one insert. How many rows are there is kept with the stream in PostgreSQL, and only up to there they count.
//!
//! So nothing is lost or doubled, whoever dies when: rows that were staged and not noted are staged again, the same under
//! the same numbers. While ClickHouse is away the stream goes on, and holds nothing for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::artifacts::{self, Artifacts};
use crate::control::{Error, journal};
use crate::flow::Flow;
use crate::journal::{Head, Kind, SegmentRef};
use crate::store::StreamLease;
use crate::stream::Applied;
use crate::warehouse::{StreamRows, Warehouse};

/// Values of one insert.
const VALUES_MAX: usize = 1 << 19;
/// While ClickHouse is away it is tried this often.
const PAUSE: Duration = Duration::from_secs(1);

/// What was committed, to be staged.
#[derive(Clone, Debug, Default)]
struct Offer {
    applied: Vec<SegmentRef>,
    rows: u64,
}

/// How far it has come.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Progress {
    /// Applied events of the stream whose values are in ClickHouse, from the first on.
    staged: u64,
    /// Why nothing can be staged at this moment.
    trouble: Option<String>,
}

/// The task that stages the rows of one session.
#[derive(Debug)]
pub(super) struct Rows {
    offers: watch::Sender<Offer>,
    progress: watch::Receiver<Progress>,
    /// None: this setup has no warehouse, and what was staged before stays.
    task: Option<JoinHandle<()>>,
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Rows {
    /// Goes on behind what was staged before.
    pub(super) fn begin(
        warehouse: Option<&Warehouse>,
        artifacts: &Arc<Artifacts>,
        lease: &StreamLease,
        flow: &Flow,
        staged: u64,
    ) -> Self {
        let (offers, offered) = watch::channel(Offer::default());
        let (tell, progress) = watch::channel(Progress { staged, trouble: None });
        let task = warehouse.map(|warehouse| {
            let stager = Stager {
                warehouse: warehouse.clone(),
                artifacts: Arc::clone(artifacts),
                lease: lease.clone(),
                nodes: flow.nodes.iter().map(|node| node.id.clone()).collect(),
                tell,
            };
            tokio::spawn(stager.run(offered))
        });
        Self { offers, progress, task }
    }

    /// There is a new commit.
    pub(super) fn offer(&self, head: &Head) {
        if self.task.is_some() {
            let applied = head.segments.of(Kind::Applied).to_vec();
            let rows = applied.iter().map(|segment| segment.rows).sum();
            self.offers.send_replace(Offer { applied, rows });
        }
    }

    fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// `None`: there never were rows in a warehouse.
    pub(super) fn staged(&self) -> Option<u64> {
        let staged = self.progress.borrow().staged;
        (self.task.is_some() || staged > 0).then_some(staged)
    }

    /// What the reason of a state has to add.
    pub(super) fn says(&self) -> Option<String> {
        let Progress { staged, trouble } = self.progress();
        let behind = self.offers.borrow().rows.saturating_sub(staged);
        trouble.map(|why| format!("{behind} rows wait for ClickHouse: {why}"))
    }

    /// Waits until all that is committed is staged; not for long, and not for a server that is away.
    pub(super) async fn settle(&self, patience: Duration) {
        if self.task.is_none() {
            return;
        }
        let rows = self.offers.borrow().rows;
        let mut progress = self.progress.clone();
        let done = progress.wait_for(|seen| seen.staged >= rows || seen.trouble.is_some());
        let settled = timeout(patience, done).await.is_ok();
        let left = rows.saturating_sub(self.progress().staged);
        if !settled || left > 0 {
            tracing::warn!(left, "rows are not in ClickHouse yet: the next owner stages them");
        }
    }
}

struct Stager {
    warehouse: Warehouse,
    artifacts: Arc<Artifacts>,
    lease: StreamLease,
    nodes: Vec<String>,
    tell: watch::Sender<Progress>,
}

/// Neighbouring events, column by column.
#[derive(Default)]
struct Chunk {
    instruments: Vec<Arc<str>>,
    event_time: Vec<i64>,
    values: Vec<f64>,
}

impl Chunk {
    fn push(&mut self, event: Applied) {
        self.instruments.push(event.instrument);
        self.event_time.push(event.event_time);
        self.values.extend(event.values);
    }
}

impl Stager {
    async fn run(self, mut offered: watch::Receiver<Offer>) {
        loop {
            let offer = offered.borrow_and_update().clone();
            match self.catch_up(offer).await {
                Ok(()) => {
                    if offered.changed().await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "rows are staged later");
                    self.tell.send_modify(|seen| seen.trouble = Some(error.to_string()));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Stages what is offered and not there yet, in inserts of bounded size.
    async fn catch_up(&self, offer: Offer) -> Result<(), Error> {
        let from = self.tell.borrow().staged;
        if from >= offer.rows {
            return Ok(());
        }
        let (give, mut chunks) = mpsc::channel::<Chunk>(1);
        let artifacts = Arc::clone(&self.artifacts);
        let most = (VALUES_MAX / self.nodes.len().max(1)).max(1);
        let reader = tokio::task::spawn_blocking(move || {
            let mut chunk = Chunk::default();
            let read = journal::applied_from(&artifacts, &offer.applied, from, &mut |event| {
                chunk.push(event);
                chunk.event_time.len() < most
                    || give.blocking_send(std::mem::take(&mut chunk)).is_ok()
            });
            if !chunk.event_time.is_empty() && read.is_ok() {
                // Who does not listen any more has failed, and says so.
                drop(give.blocking_send(chunk));
            }
            read
        });
        while let Some(chunk) = chunks.recv().await {
            let first = self.tell.borrow().staged;
            let rows = StreamRows {
                stream: &self.lease.name,
                epoch: self.lease.epoch,
                fence: self.lease.fence,
                first,
                nodes: &self.nodes,
                instruments: &chunk.instruments,
                event_time: &chunk.event_time,
                values: &chunk.values,
            };
            self.warehouse.stage_stream(&rows).await?;
            let staged = first + chunk.event_time.len() as u64;
            self.tell.send_replace(Progress { staged, trouble: None });
        }
        let read = reader.await.map_err(|e| Error::Panicked { what: e.to_string() })?;
        match read {
            // Merged into another by a later commit, and swept: that one is offered as well.
            Err(Error::Artifacts(artifacts::Error::Missing { hash, .. })) => {
                tracing::debug!(%hash, "a segment was merged away");
                Ok(())
            }
            read => read,
        }
    }
}
