//! The manifest of a checkpoint, of whatever it is: what both have in common.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{BatchCheckpoint, BlobRef, Checkpoint, Difference, Error};
use crate::ids::Hash;

/// A manifest.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Manifest {
    Stream(Box<Checkpoint>),
    /// Of a batch run.
    Run(Box<BatchCheckpoint>),
}

impl Manifest {
    /// Reads a blob that a row of this name names; `place` is the blob's. Gives its `manifest_hash` too, which was checked.
    ///
    /// # Errors
    /// As [`Checkpoint::parse`].
    pub fn parse(name: &str, bytes: &[u8], place: &str) -> Result<(Self, Hash), Error> {
        if name.starts_with(BatchCheckpoint::NAMES) {
            let (checkpoint, hash) = BatchCheckpoint::parse(bytes, place)?;
            return Ok((Self::Run(Box::new(checkpoint)), hash));
        }
        let (checkpoint, hash) = Checkpoint::parse(bytes, place)?;
        Ok((Self::Stream(Box::new(checkpoint)), hash))
    }

    /// The blob, and its `manifest_hash`.
    #[must_use]
    pub fn to_bytes(&self) -> (Vec<u8>, Hash) {
        match self {
            Self::Stream(checkpoint) => checkpoint.to_bytes(),
            Self::Run(checkpoint) => checkpoint.to_bytes(),
        }
    }

    /// What people call it.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Self::Stream(checkpoint) => checkpoint.id(),
            Self::Run(checkpoint) => checkpoint.id(),
        }
    }

    /// The name of its row.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Stream(checkpoint) => checkpoint.identity.lease_name(),
            Self::Run(checkpoint) => checkpoint.name(),
        }
    }

    #[must_use]
    pub fn run_id(&self) -> &str {
        match self {
            Self::Stream(checkpoint) => &checkpoint.identity.run_id,
            Self::Run(checkpoint) => &checkpoint.run_id,
        }
    }

    /// Epoch, fence and number of the commit.
    #[must_use]
    pub fn at(&self) -> (i64, i64, i64) {
        match self {
            Self::Stream(checkpoint) => (checkpoint.epoch, checkpoint.fence, checkpoint.seq),
            Self::Run(checkpoint) => (checkpoint.epoch, checkpoint.fence, checkpoint.seq),
        }
    }

    /// What the commit is: the head of a stream, the result of a run.
    #[must_use]
    pub fn head(&self) -> Hash {
        match self {
            Self::Stream(checkpoint) => checkpoint.head,
            Self::Run(checkpoint) => checkpoint.sink.result,
        }
    }

    /// The hash of the state of each node.
    #[must_use]
    pub fn state(&self) -> Hash {
        match self {
            Self::Stream(checkpoint) => checkpoint.state,
            Self::Run(checkpoint) => checkpoint.state,
        }
    }

    #[must_use]
    pub fn next_offsets(&self) -> &BTreeMap<String, i64> {
        match self {
            Self::Stream(checkpoint) => &checkpoint.next_offsets,
            Self::Run(checkpoint) => &checkpoint.next_offsets,
        }
    }

    /// All that is needed, in order of hash.
    #[must_use]
    pub fn blobs(&self) -> &[BlobRef] {
        match self {
            Self::Stream(checkpoint) => &checkpoint.blobs,
            Self::Run(checkpoint) => &checkpoint.blobs,
        }
    }

    /// What keeps this program from taking it up.
    #[must_use]
    pub fn foreign(&self) -> Option<Difference> {
        match self {
            Self::Stream(checkpoint) => checkpoint.foreign(),
            Self::Run(checkpoint) => checkpoint.made.foreign(),
        }
    }
}
