//! Handoffs of a stream, as its journal has them: read before it is opened, written down under its lease.

use super::{Journal, blocking, fenced};
use crate::artifacts::Artifacts;
use crate::control::Error;
use crate::ids::Hash;
use crate::journal::{HandedCommit, Handoff, HandoffPart, History};
use crate::points::{Point, reach};
use crate::store::{HandoffNote, HandoffRow, Store};

/// What is on record about the handoffs of a stream, as far as it matters to whoever opens it.
#[derive(Debug)]
pub(in crate::control) struct Handing {
    rows: Vec<HandoffRow>,
}

impl Handing {
    pub(in crate::control) async fn of(store: &Store, name: &str) -> Result<Self, Error> {
        Ok(Self { rows: store.handoffs_at(name).await? })
    }

    fn find(&self, part: HandoffPart, of_history: bool) -> Option<&HandoffRow> {
        let is =
            |row: &&HandoffRow| row.part == part.word() && row.snapshot.is_some() == of_history;
        self.rows.iter().find(is)
    }

    /// The snapshot that the stream goes on from, if it does.
    pub(in crate::control) fn snapshot(&self) -> Option<Hash> {
        self.find(HandoffPart::Captured, true)?.snapshot
    }

    /// The captured ends of the log.
    pub(in crate::control) fn captured(&self) -> Option<&HandoffRow> {
        self.find(HandoffPart::Captured, true)
    }

    /// The end of a handoff from history.
    pub(in crate::control) fn history(&self) -> Option<&HandoffRow> {
        self.find(HandoffPart::Given, true)
    }

    /// What the owner of this commit said when it left it, if it left in order.
    fn given(&self, commit: &HandedCommit) -> Option<&HandoffRow> {
        self.rows.iter().find(|row| {
            row.part == HandoffPart::Given.word()
                && (row.epoch, row.fence, row.seq) == (commit.epoch, commit.fence, commit.seq)
        })
    }

    /// Refuses a stream whose history is not whole yet.
    pub(in crate::control) fn check_whole(&self, name: &str) -> Result<(), Error> {
        match (self.snapshot(), self.history()) {
            (Some(snapshot), None) => {
                Err(Error::HandoffIncomplete { name: name.to_owned(), snapshot })
            }
            (Some(_), Some(_)) | (None, _) => Ok(()),
        }
    }
}

/// A part as its blob has it.
pub(in crate::control) fn handoff(artifacts: &Artifacts, hash: &Hash) -> Result<Handoff, Error> {
    Ok(Handoff::parse(&artifacts.get(hash)?, &hash.to_string())?)
}

impl Journal {
    /// What is on record about handoffs of this stream.
    pub(in crate::control) async fn handing(&self) -> Result<Handing, Error> {
        Handing::of(&self.store, &self.lease.name).await
    }

    /// The last commit.
    pub(in crate::control) fn commit_made(&self) -> Option<HandedCommit> {
        let (hash, head) = self.head.as_ref()?;
        let (epoch, fence, seq) = (head.epoch, head.fence, head.seq);
        Some(HandedCommit { epoch, fence, seq, head: *hash })
    }

    /// A part of this owner, about the last commit; the rest of it is the caller's to say.
    pub(in crate::control) fn draft(&self, part: HandoffPart) -> Handoff {
        Handoff {
            part,
            identity: self.identity.clone(),
            owner: self.lease.owner.token().to_owned(),
            epoch: self.lease.epoch,
            fence: self.lease.fence,
            commit: self.commit_made(),
            given: None,
            reason: None,
            history: None,
            watermark: None,
            partitions: Vec::new(),
        }
    }

    /// Names the part of the owner before in a part of the one that takes over. Says whether there is anything to take:
    /// a session that begins anew from its own commit takes nothing.
    pub(in crate::control) fn takes(&self, handing: &Handing, taken: &mut Handoff) -> bool {
        let Some(commit) = &taken.commit else { return true };
        taken.given = handing.given(commit).map(|row| row.manifest);
        (commit.epoch, commit.fence) != (self.lease.epoch, self.lease.fence)
    }

    /// Keeps a part and writes it down under the lease; gives its hash. The same part of the same owner is written down
    /// once.
    pub(in crate::control) async fn sign(&self, handoff: &Handoff) -> Result<Hash, Error> {
        let artifacts = std::sync::Arc::clone(&self.artifacts);
        let bytes = handoff.to_bytes();
        let manifest = blocking(move || Ok(artifacts.put(&bytes)?)).await?;
        reach(Point::HandoffKept);
        let snapshot = |history: &History| history.snapshot;
        let note = HandoffNote {
            part: handoff.part.word(),
            seq: handoff.commit.as_ref().map_or(0, |commit| commit.seq),
            manifest,
            snapshot: handoff.history.as_ref().map(snapshot),
        };
        let noted = self.store.note_handoff(&self.lease, &self.identity.run_id, &note).await?;
        noted.map_err(|refusal| fenced(&self.lease, refusal))?;
        Ok(manifest)
    }
}
