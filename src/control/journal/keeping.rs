//! Checkpoints of a journal: one of its commits named, and its pointer taken back to one.

use std::sync::Arc;

use super::{Journal, Merging, blocking, fenced, open_row, reading, settled};
use crate::artifacts::Artifacts;
use crate::control::Error;
use crate::flow::Flow;
use crate::ids::Hash;
use crate::journal::{BlobRef, Checkpoint, Head, Kind, Manifest};
use crate::points::{Point, reach};
use crate::store::{
    Named, NewCheckpoint, Restored, Source, Store, StreamLease, StreamMove, StreamStatus,
};

/// The manifest of a commit; `snapshot` is what the stream goes on from besides its log.
pub(in crate::control) fn manifest(
    artifacts: &Artifacts,
    head: &Head,
    snapshot: Option<Hash>,
) -> Result<Manifest, Error> {
    let flow = artifacts.get(&head.identity.flow)?;
    let own = BlobRef { hash: head.identity.flow, bytes: flow.len() as u64 };
    let flow = Flow::parse(&flow, &head.identity.flow.to_string())?;
    let side_input = |hash: Hash| -> Result<BlobRef, Error> {
        Ok(BlobRef { hash, bytes: artifacts.reader(&hash)?.size() })
    };
    let side_inputs: Vec<BlobRef> = snapshot.map(side_input).transpose()?.into_iter().collect();
    let checkpoint = Checkpoint::of(head, (own, &flow.dataset), &side_inputs)?;
    Ok(Manifest::Stream(Box::new(checkpoint)))
}

/// Keeps a manifest, ready to be named.
pub(in crate::control) fn keep_manifest(
    artifacts: &Artifacts,
    checkpoint: &Manifest,
    made_by: &str,
    reason: Option<&str>,
) -> Result<NewCheckpoint, Error> {
    let (bytes, manifest_hash) = checkpoint.to_bytes();
    let manifest = artifacts.put(&bytes)?;
    let needed = checkpoint.blobs().iter().map(|blob| blob.hash);
    let (epoch, fence, seq) = checkpoint.at();
    let source = match checkpoint {
        Manifest::Stream(_) => Source::Stream,
        Manifest::Run(_) => Source::Run,
    };
    Ok(NewCheckpoint {
        id: checkpoint.id(),
        source,
        name: checkpoint.name(),
        run_id: checkpoint.run_id().to_owned(),
        epoch,
        fence,
        seq,
        head: checkpoint.head(),
        manifest,
        manifest_hash,
        blobs: needed.chain([manifest]).collect(),
        next_offsets: serde_json::to_string(checkpoint.next_offsets()).expect("texts and numbers"),
        made_by: made_by.to_owned(),
        reason: reason.map(str::to_owned),
    })
}

/// Reads every segment of a head; the first thing that is wrong with any.
pub(in crate::control) fn check_segments(artifacts: &Artifacts, head: &Head) -> Result<(), Error> {
    for kind in Kind::ALL {
        reading::each(artifacts, head, kind, &mut |_segment| {})?;
    }
    Ok(())
}

/// Takes the pointer of a stream to a head that it had before, as a commit of this lease's: a new fence, a higher seq, the
/// old state. What the stream stands at now need not be readable.
pub(in crate::control) async fn restore(
    artifacts: Arc<Artifacts>,
    store: &Store,
    lease: &StreamLease,
    (head, report): (Head, Option<String>),
    restored: Restored,
) -> Result<(Journal, i64), Error> {
    let (row, clock) = open_row(store, lease, &head.identity).await?;
    let next = Head {
        epoch: lease.epoch,
        fence: lease.fence,
        seq: row.seq.max(head.seq) + 1,
        previous: row.head,
        ..head
    };
    let bytes = next.to_bytes();
    let keeper = Arc::clone(&artifacts);
    let hash = blocking(move || Ok(keeper.put(&bytes)?)).await?;
    let mut blobs = next.needs();
    blobs.push(hash);
    let reason =
        format!("taken back to {} by {}: {}", restored.checkpoint, restored.who, restored.reason);
    let moved = StreamMove {
        from_fence: row.fence,
        from_seq: row.seq,
        seq: next.seq,
        head: hash,
        blobs,
        status: StreamStatus { state: "RESTORED".to_owned(), reason: Some(reason), report },
        restored: Some(restored),
    };
    settled(lease, store.commit_stream(lease, &next.identity.run_id, &moved).await?)?;
    let merging = Merging::new(Arc::clone(&artifacts));
    let journal = Journal {
        artifacts,
        store: store.clone(),
        lease: lease.clone(),
        identity: next.identity.clone(),
        from: (next.fence, next.seq),
        report: None,
        head: Some((hash, next)),
        merging,
        spares: false,
        clock,
    };
    Ok((journal, row.seq))
}

impl Journal {
    /// Names the last commit, and forgets the oldest of those that were named this way before.
    pub(in crate::control) async fn checkpoint(
        &self,
        snapshot: Option<Hash>,
        keep: i64,
    ) -> Result<(), Error> {
        let Some((_, head)) = self.head.clone() else { return Ok(()) };
        let artifacts = Arc::clone(&self.artifacts);
        let owner = self.lease.owner.token().to_owned();
        let new = blocking(move || {
            let checkpoint = manifest(&artifacts, &head, snapshot)?;
            keep_manifest(&artifacts, &checkpoint, &owner, None)
        });
        let new = new.await?;
        reach(Point::CheckpointKept);
        let named = self.store.add_periodic(&self.lease, &new, keep).await?;
        reach(Point::CheckpointNamed);
        match named.map_err(|refusal| fenced(&self.lease, refusal))? {
            Named::New => Ok(()),
            Named::Known(held) => same(&new, held),
            Named::Moved => Err(Error::JournalMoved {
                name: self.lease.name.clone(),
                fence: self.lease.fence,
                found: None,
            }),
        }
    }
}

/// Two checkpoints of one id are one, or something is wrong.
pub(in crate::control) fn same(new: &NewCheckpoint, held: Hash) -> Result<(), Error> {
    if held == new.manifest_hash {
        return Ok(());
    }
    Err(Error::CheckpointConflict { id: new.id.clone(), held, offered: new.manifest_hash })
}
