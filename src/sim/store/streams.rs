//! Streams: opened, moved, marked, read.

use super::{Fact, SimStore, Stream};
use crate::ids::StreamIdentity;
use crate::sim::Mistake;
use crate::store::{
    StreamBarred, StreamLease, StreamMove, StreamRefusal, StreamRow, StreamStatus, StreamVerdict,
    StreamView,
};

impl SimStore {
    /// Refuses who has not the lease, and puts that on record.
    fn under(&mut self, now: i64, asker: &StreamLease) -> Result<(), StreamRefusal> {
        let lease = self.leases.get(&asker.name);
        let valid = lease.is_some_and(|lease| {
            let mine = (&lease.owner, lease.epoch, lease.fence)
                == (&asker.owner, asker.epoch, asker.fence);
            let by_name = self.makes(Mistake::OwnerByName) && lease.fence == asker.fence;
            (mine || by_name || self.makes(Mistake::FenceUnchecked))
                && (lease.is_live(now) || self.makes(Mistake::ExpiryUnchecked))
        });
        if valid {
            return Ok(());
        }
        let refusal = StreamRefusal {
            owner: lease.map(|lease| lease.owner.clone()),
            fence: lease.map(|lease| lease.fence),
        };
        self.facts.push(Fact::Refused);
        Err(refusal)
    }

    /// The row of a stream under its lease, made where there is none.
    ///
    /// # Errors
    /// Who is in the way.
    pub fn open_stream(
        &mut self,
        now: i64,
        lease: &StreamLease,
        identity: &StreamIdentity,
        state: &str,
    ) -> Result<StreamView, StreamBarred> {
        self.under(now, lease).map_err(StreamBarred::Lease)?;
        if let Some(other) = self.in_the_way(now, &lease.name, identity) {
            let view = self.stream(now, &other).expect("it was just found");
            return Err(StreamBarred::By(Box::new(view)));
        }
        let new = || Stream {
            identity: identity.clone(),
            epoch: 1,
            fence: 0,
            seq: 0,
            head: None,
            status: StreamStatus { state: state.to_owned(), reason: None, report: None },
        };
        self.streams.entry(lease.name.clone()).or_insert_with(new);
        Ok(self.stream(now, &lease.name).expect("it was just made"))
    }

    fn in_the_way(&self, now: i64, name: &str, mine: &StreamIdentity) -> Option<String> {
        let source = |identity: &StreamIdentity| {
            let StreamIdentity { cluster, topic_id, group, flow, .. } = identity;
            (cluster.clone(), topic_id.clone(), group.clone(), *flow)
        };
        let meets = |a: &Option<Vec<i32>>, b: &Option<Vec<i32>>| match (a, b) {
            (Some(a), Some(b)) => a.iter().any(|partition| b.contains(partition)),
            (None, _) | (_, None) => true,
        };
        let bars = |(other, stream): &(&String, &Stream)| {
            let theirs = &stream.identity;
            let lease = self.leases.get(*other);
            let live = lease.is_some_and(|lease| lease.is_live(now));
            let same_source = source(theirs) == source(mine);
            let split_differs = theirs.partitions.is_some() != mine.partitions.is_some();
            other.as_str() != name
                && (theirs.run_id == mine.run_id
                    && (stream.seq > 0 || live)
                    && (split_differs || !same_source)
                    || same_source && live && meets(&theirs.partitions, &mine.partitions))
        };
        let others = self.streams.iter().filter(bars);
        others
            .map(|(n, s)| (s.identity.run_id != mine.run_id, n.clone()))
            .min()
            .map(|found| found.1)
    }

    /// One transaction of a commit. [`StreamVerdict::Moved`] is without the row.
    pub fn move_stream(
        &mut self,
        now: i64,
        lease: &StreamLease,
        next: &StreamMove,
    ) -> StreamVerdict {
        if let Err(refusal) = self.under(now, lease) {
            return StreamVerdict::Refused(refusal);
        }
        let loose = self.makes(Mistake::PointerUnchecked);
        let Some(row) = self.streams.get_mut(&lease.name) else {
            return StreamVerdict::Moved(None);
        };
        let stands = (row.fence, row.seq) == (next.from_fence, next.from_seq) || loose;
        if !stands || (row.epoch, row.fence) > (lease.epoch, lease.fence) {
            return StreamVerdict::Moved(None);
        }
        (row.epoch, row.fence, row.seq) = (lease.epoch, lease.fence, next.seq);
        row.head = Some(next.head);
        row.status = next.status.clone();
        self.facts.push(Fact::Moved {
            lease: lease.name.clone(),
            owner: lease.owner.clone(),
            fence: (lease.epoch, lease.fence),
            seq: next.seq,
            head: next.head,
            blobs: next.blobs.clone(),
        });
        StreamVerdict::Committed
    }

    /// Says how a stream goes, under its lease.
    ///
    /// # Errors
    /// Who has the lease instead.
    pub fn mark_stream(
        &mut self,
        now: i64,
        lease: &StreamLease,
        status: &StreamStatus,
    ) -> Result<(), StreamRefusal> {
        self.under(now, lease)?;
        if let Some(row) = self.streams.get_mut(&lease.name) {
            row.status = status.clone();
        }
        Ok(())
    }

    /// The stream of this name, and who has it.
    #[must_use]
    pub fn stream(&self, now: i64, name: &str) -> Option<StreamView> {
        let stream = self.streams.get(name)?;
        let lease = self.leases.get(name);
        Some(StreamView {
            row: StreamRow {
                name: name.to_owned(),
                identity: stream.identity.clone(),
                epoch: stream.epoch,
                fence: stream.fence,
                seq: stream.seq,
                head: stream.head,
                status: stream.status.clone(),
                committed_at: None,
            },
            owner: lease.map(|lease| lease.owner.clone()),
            lease_epoch: lease.map(|lease| lease.epoch),
            lease_fence: lease.map(|lease| lease.fence),
            expires_at: None,
            live: lease.is_some_and(|lease| lease.is_live(now)),
            read_at_us: now,
        })
    }
}
