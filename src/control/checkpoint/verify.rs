//! Checkpoints held against what is stored.

use serde::Serialize;

use super::{RowView, find, manifest_of, run};
use crate::artifacts::{self, Artifacts};
use crate::control::stream::head_of;
use crate::control::{Control, Error};
use crate::ids::Hash;
use crate::journal::{BlobRef, Manifest};

/// A checkpoint held against what is stored.
#[derive(Clone, Debug, Serialize)]
pub struct VerifiedView {
    #[serde(flatten)]
    pub row: RowView,
    pub ok: bool,
    pub blobs: Vec<BlobRef>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Each names its blob.
    pub faults: Vec<String>,
}

/// Checkpoints held against what is stored.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    pub ok: bool,
    pub checkpoints: Vec<VerifiedView>,
}

/// Reads all that a checkpoint names, or that all do; `progress` is told the bytes that were read.
pub async fn verify(
    control: &Control,
    id: Option<&str>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<VerifyReport, Error> {
    let rows = match id {
        Some(id) => vec![find(control, id).await?],
        None => control.ready_store().await?.checkpoints(None).await?,
    };
    let artifacts = control.artifacts()?;
    let mut read = 0;
    let mut checkpoints = Vec::with_capacity(rows.len());
    for row in rows {
        let mut view = VerifiedView {
            row: row.clone().into(),
            ok: false,
            blobs: Vec::new(),
            bytes: 0,
            faults: Vec::new(),
        };
        match manifest_of(artifacts, &row) {
            Err(error) => view.faults.push(error.to_string()),
            Ok(manifest) => {
                view.faults = faults(artifacts, &manifest, &mut |bytes| {
                    view.bytes += bytes;
                    read += bytes;
                    progress(read);
                })?;
                view.blobs = manifest.blobs().to_vec();
            }
        }
        view.ok = view.faults.is_empty();
        checkpoints.push(view);
    }
    Ok(VerifyReport { ok: checkpoints.iter().all(|one| one.ok), checkpoints })
}

/// Reads everything that a checkpoint names.
///
/// # Errors
/// [`Error::CheckpointDamaged`] with the blob.
pub(in crate::control) fn require_whole(
    artifacts: &Artifacts,
    manifest: &Manifest,
) -> Result<(), Error> {
    let Some(what) = faults(artifacts, manifest, &mut |_bytes| {})?.into_iter().next() else {
        return Ok(());
    };
    let named = manifest.blobs().iter().map(|blob| blob.hash);
    let blob: Option<Hash> = named.into_iter().find(|hash| what.contains(&hash.to_string()));
    Err(Error::CheckpointDamaged { id: manifest.id(), blob, what })
}

/// What is wrong with what a manifest names; `read` is told the bytes of each blob.
fn faults(
    artifacts: &Artifacts,
    manifest: &Manifest,
    read: &mut dyn FnMut(u64),
) -> Result<Vec<String>, Error> {
    let mut faults = Vec::new();
    for blob in manifest.blobs() {
        match size_of(artifacts, &blob.hash) {
            Ok(bytes) if bytes == blob.bytes => read(bytes),
            Ok(bytes) => {
                faults.push(format!("{} has {bytes} bytes, not {}", blob.hash, blob.bytes));
            }
            Err(error) if is_of_blob(&error) => faults.push(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    if !faults.is_empty() {
        return Ok(faults);
    }
    let fits = match manifest {
        Manifest::Stream(checkpoint) => head_of(artifacts, checkpoint).map(drop),
        Manifest::Run(checkpoint) => run::begun(artifacts, checkpoint).map(drop),
    };
    match fits {
        Ok(()) => Ok(faults),
        Err(error @ (Error::Journal(_) | Error::Invalid(_))) => Ok(vec![error.to_string()]),
        Err(error) => Err(error),
    }
}

/// Whether a blob is at fault, and not the disk.
pub(super) fn is_of_blob(error: &artifacts::Error) -> bool {
    matches!(
        error,
        artifacts::Error::Missing { .. }
            | artifacts::Error::Corrupt { .. }
            | artifacts::Error::PackCorrupt { .. }
    )
}

/// The bytes of a blob, all of which were read and are what its name says.
fn size_of(artifacts: &Artifacts, hash: &Hash) -> Result<u64, artifacts::Error> {
    let mut reader = artifacts.reader(hash)?;
    let place = hash.to_string();
    let bytes = std::io::copy(&mut reader, &mut std::io::sink())
        .map_err(|source| artifacts::Error::Io { place, source })?;
    reader.finish()?;
    Ok(bytes)
}
