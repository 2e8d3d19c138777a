//! The journal of a stream: what it knew at its last commit, and the commit itself.
//!
//! The new segments and the head that names all of them go to the artifact store first; then one transaction moves the
//! pointer, under the lease, from where this process left it. What died in between leaves blobs that nobody names.

mod handing;
mod keeping;
mod merging;
mod moving;
mod reading;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::Error;
use crate::artifacts::Artifacts;
use crate::canonical::Value;
use crate::ids::{Hash, StreamIdentity};
use crate::journal;
use crate::journal::{Head, Kind, Merge};
use crate::points::{Point, reach};
use crate::store::{
    Store, StreamBarred, StreamLease, StreamMove, StreamRefusal, StreamRow, StreamStatus,
    StreamVerdict, StreamView,
};
use crate::stream::Delta;

pub(super) use crate::journal::Loaded;
pub(super) use handing::{Handing, handoff};
pub(super) use keeping::{check_segments, keep_manifest, manifest, restore, same};
use merging::Merging;
pub(super) use moving::{Document, Imported, export, import};
pub(super) use reading::{applied, applied_from, fates, head, knows, loaded, quarantined};

/// What a stream that nobody has committed for is said to be.
const OPENED: &str = "OPENED";

/// The journal of one stream under one lease.
#[derive(Debug)]
pub(super) struct Journal {
    artifacts: Arc<Artifacts>,
    store: Store,
    lease: StreamLease,
    identity: StreamIdentity,
    /// What its row said of it when it was opened, in JSON.
    report: Option<String>,
    /// Where the pointer stands: fence and seq.
    from: (i64, i64),
    /// What it points at.
    head: Option<(Hash, Head)>,
    merging: Merging,
    /// No large merges are begun: they need space before they give some.
    spares: bool,
    clock: Clock,
}

/// A commit that was made.
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) seq: i64,
    /// As it was given, but for its order.
    pub(super) delta: Delta,
}

impl Journal {
    /// Opens the journal of a stream whose lease is held; what it holds, unless nothing was ever committed.
    ///
    /// # Errors
    /// [`Error::JournalForeign`] when it belongs to another run, topic, group or flow; [`Error::FenceRegression`] when it
    /// was written under a later fence; [`Error::StreamFenced`] when the lease is lost.
    pub(super) async fn open(
        artifacts: Arc<Artifacts>,
        store: Store,
        lease: StreamLease,
        identity: StreamIdentity,
    ) -> Result<(Self, Option<Loaded>), Error> {
        let (row, clock) = open_row(&store, &lease, &identity).await?;
        reach(Point::JournalOpened);
        let from = (row.fence, row.seq);
        let report = row.status.report.clone();
        let reader = Arc::clone(&artifacts);
        let loaded = blocking(move || reading::load(&reader, &row)).await?;
        reach(Point::JournalRead);
        let (head, loaded) = match loaded {
            None => (None, None),
            Some((hash, head, loaded)) => (Some((hash, head)), Some(loaded)),
        };
        let merging = Merging::new(Arc::clone(&artifacts));
        let spares = false;
        Ok((
            Self { artifacts, store, lease, identity, report, from, head, merging, spares, clock },
            loaded,
        ))
    }

    /// Keeps what is new, and moves the pointer to it. Accepted events before the event time `drained_before` are applied:
    /// they are not loaded again.
    ///
    /// # Errors
    /// [`Error::StreamFenced`] when the lease is another's or its time is over: nothing was committed, and nothing must be
    /// tried again. [`Error::JournalMoved`] when somebody moved the pointer. After any error, and when this was not awaited
    /// to its end, the journal has to be opened anew: whether the commit was made is then read from the database.
    pub(super) async fn commit(
        &mut self,
        delta: Delta,
        state: Value,
        drained_before: i64,
        status: StreamStatus,
    ) -> Result<Committed, Error> {
        let finished = self.merging.finished().await?;
        let mut before = self.head.as_ref().map(|(_, head)| head.segments.clone());
        for (merge, result) in finished {
            before.get_or_insert_default().adopt(&merge, result);
        }
        let draft = Draft {
            artifacts: Arc::clone(&self.artifacts),
            head: Head {
                identity: self.identity.clone(),
                epoch: self.lease.epoch,
                fence: self.lease.fence,
                seq: self.from.1 + 1,
                previous: self.head.as_ref().map(|(hash, _)| *hash),
                drained_before,
                state,
                segments: before.unwrap_or_default(),
            },
            busy: self.merging.kinds(),
            at_us: self.clock.now_us(),
        };
        reach(Point::CommitCut);
        let written = blocking(move || draft.write(delta)).await?;
        reach(Point::CommitKept);
        self.point_at(written.hash, written.head, status).await?;
        for merge in written.due.into_iter().filter(|_| !self.spares) {
            self.merging.start(merge, drained_before);
        }
        Ok(Committed { seq: self.from.1, delta: written.delta })
    }

    /// Begins no large merges from now on, or does again.
    pub(super) fn spare(&mut self, spares: bool) {
        self.spares = spares;
    }

    /// Says how it goes without a commit: it stays said, over restarts as well, until the next commit or mark.
    pub(super) async fn mark(&self, status: &StreamStatus) -> Result<(), Error> {
        let marked = self.store.mark_stream(&self.lease, &self.identity.run_id, status).await?;
        marked.map_err(|refusal| fenced(&self.lease, refusal))
    }

    /// What was said of the stream before this owner.
    pub(super) fn report_before(&self) -> Option<&str> {
        self.report.as_deref()
    }

    /// The database's time, counted on: microseconds since 1970.
    pub(super) fn now_us(&self) -> i64 {
        self.clock.now_us()
    }

    /// The head of the last commit, for [`applied`] and the other readers.
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref().map(|(_, head)| head)
    }

    async fn point_at(
        &mut self,
        hash: Hash,
        head: Head,
        status: StreamStatus,
    ) -> Result<(), Error> {
        let mut blobs = head.needs();
        blobs.push(hash);
        let next = StreamMove {
            from_fence: self.from.0,
            from_seq: self.from.1,
            seq: head.seq,
            head: hash,
            blobs,
            status,
            restored: None,
        };
        let verdict = self.store.commit_stream(&self.lease, &self.identity.run_id, &next).await?;
        settled(&self.lease, verdict)?;
        self.from = (head.fence, head.seq);
        self.head = Some((hash, head));
        Ok(())
    }
}

/// Whether a stream can be opened: nothing is in its way, and its row is its own. Makes the row.
pub(super) async fn admit(
    store: &Store,
    lease: &StreamLease,
    identity: &StreamIdentity,
) -> Result<(), Error> {
    open_row(store, lease, identity).await.map(|_opened| ())
}

/// The row of a stream, made or found, and found to be this stream's.
async fn open_row(
    store: &Store,
    lease: &StreamLease,
    identity: &StreamIdentity,
) -> Result<(StreamRow, Clock), Error> {
    let view = store.open_stream(lease, identity, OPENED).await?;
    let view = view.map_err(|barred| match barred {
        StreamBarred::Lease(refusal) => fenced(lease, refusal),
        StreamBarred::By(other) => in_the_way(lease, identity, *other),
    })?;
    let clock = Clock { at_us: view.read_at_us, since: Instant::now() };
    let row = view.row;
    if let Some((field, held, offered)) = row.identity.difference(identity) {
        return Err(Error::JournalForeign { name: row.name, field, held, offered });
    }
    if (row.epoch, row.fence) > (lease.epoch, lease.fence) {
        return Err(Error::FenceRegression {
            name: row.name,
            epoch: lease.epoch,
            fence: lease.fence,
            known_epoch: row.epoch,
            known_fence: row.fence,
        });
    }
    Ok((row, clock))
}

/// The database's time, counted on: for people, nothing depends on it.
#[derive(Clone, Copy, Debug)]
struct Clock {
    at_us: i64,
    since: Instant,
}

impl Clock {
    fn now_us(self) -> i64 {
        let passed = i64::try_from(self.since.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.at_us.saturating_add(passed)
    }
}

/// Another stream bars this one: of the same run, or one that reads the same.
fn in_the_way(lease: &StreamLease, mine: &StreamIdentity, other: StreamView) -> Error {
    let StreamView { row, owner, expires_at, .. } = other;
    let name = lease.name.clone();
    if row.identity.run_id != mine.run_id {
        return Error::StreamOverlap { name, other: row.name, owner, expires_at };
    }
    if row.identity.partitions.is_some() != mine.partitions.is_some() {
        return Error::StreamMixed {
            run_id: row.identity.run_id,
            split: mine.partitions.is_none(),
        };
    }
    let mine = StreamIdentity { partitions: row.identity.partitions.clone(), ..mine.clone() };
    match row.identity.difference(&mine) {
        Some((field, held, offered)) => {
            Error::JournalForeign { name: row.name, field, held, offered }
        }
        None => Error::StreamOverlap { name, other: row.name, owner, expires_at },
    }
}

/// The lease was lost, and to whom.
pub(super) fn fenced(lease: &StreamLease, refusal: StreamRefusal) -> Error {
    Error::StreamFenced {
        name: lease.name.clone(),
        yours: lease.owner.clone(),
        fence: lease.fence,
        owner: refusal.owner,
        current_fence: refusal.fence,
    }
}

fn settled(lease: &StreamLease, verdict: StreamVerdict) -> Result<(), Error> {
    match verdict {
        StreamVerdict::Committed => Ok(()),
        StreamVerdict::Refused(refusal) => Err(fenced(lease, refusal)),
        StreamVerdict::Moved(row) => {
            let name = lease.name.clone();
            let found = row.map(|row| (row.fence, row.seq));
            Err(Error::JournalMoved { name, fence: lease.fence, found })
        }
    }
}

/// Moves work that blocks off the threads that must not be.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::Panicked { what: error.to_string() }),
    }
}

/// A head that is not yet whole.
struct Draft {
    artifacts: Arc<Artifacts>,
    head: Head,
    /// Kinds of which segments are being merged at this moment.
    busy: HashSet<Kind>,
    at_us: i64,
}

/// A head in the artifact store, with everything that it names.
struct Written {
    hash: Hash,
    head: Head,
    /// Merges that are too large for a commit.
    due: Vec<Merge>,
    delta: Delta,
}

impl Draft {
    fn write(self, delta: Delta) -> Result<Written, Error> {
        let Self { artifacts, head, busy, at_us } = self;
        let draft = journal::Draft { head, busy, at_us };
        let drafted: journal::Drafted = draft.write(delta, &|hash| bytes(&artifacts, hash))?;
        artifacts.put_hashed(&drafted.blobs)?;
        let journal::Drafted { hash, head, due, delta, .. } = drafted;
        Ok(Written { hash, head, due, delta })
    }
}

/// The bytes of a blob.
fn bytes(artifacts: &Artifacts, hash: &Hash) -> Result<Vec<u8>, Error> {
    Ok(artifacts.get(hash)?)
}

#[cfg(test)]
mod tests;
