//! A published result as a file for other programs.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::runs::find;
use super::{Control, Error};
use crate::export;
use crate::flow::FeatureBatch;
use crate::ids::Hash;
use crate::invalid::Invalid;

pub use crate::export::Format;

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Exported {
    pub run_id: String,
    #[serde(rename = "ref")]
    pub blob: Hash,
    pub values_hash: Hash,
    pub rows: u64,
    /// The file; absent: standard output.
    pub file: Option<PathBuf>,
}

/// Where an export goes.
pub enum Target<'a> {
    /// A file that appears whole or not at all; an existing one is kept unless `replace`.
    File {
        path: &'a Path,
        replace: bool,
    },
    Stream(&'a mut (dyn Write + Send)),
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path, .. } => f.debug_tuple("File").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// Writes the result of a run that is published, and of no other, from the artifact store.
pub async fn export(
    control: &Control,
    run_id: &str,
    format: Format,
    target: Target<'_>,
) -> Result<Exported, Error> {
    let row = find(control, run_id).await?;
    let Some((_, _, blob, values_hash, _)) = row.publication else {
        return Err(Error::NotPublished { run_id: row.run_id, state: row.state });
    };
    let bytes = control.artifacts()?.get(&blob)?;
    let batch = FeatureBatch::from_blob(&bytes, &blob.to_string())?;
    let (rows, file) = match target {
        Target::Stream(out) => {
            let written = write(format, &batch, out);
            (written.map_err(|source| Error::Io { place: "stdout".to_owned(), source })?, None)
        }
        Target::File { path, replace } => {
            (write_file(format, &batch, path, replace)?, Some(path.to_owned()))
        }
    };
    Ok(Exported { run_id: row.run_id, blob, values_hash, rows, file })
}

fn write(format: Format, batch: &FeatureBatch, out: impl Write + Send) -> io::Result<u64> {
    let series = super::reconcile::series(batch).into_iter().map(|series| export::Series {
        instrument: series.instrument,
        node: series.node,
        event_time: series.event_time,
        values: series.values,
    });
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let rows = export::write(format, series, &mut out)?;
    out.flush()?;
    Ok(rows)
}

/// Writes beside the file, then gives it its name: who reads it never sees half of it.
fn write_file(
    format: Format,
    batch: &FeatureBatch,
    path: &Path,
    replace: bool,
) -> Result<u64, Error> {
    let failed = |source| Error::NotWritten { place: path.display().to_string(), source };
    // A link is followed, so that it stays one; what is no plain file is not ours to put a file in the place of.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_new| path.to_owned());
    let there = std::fs::symlink_metadata(path).ok();
    if there.as_ref().is_some_and(|found| !found.is_file()) {
        return Err(Error::Invalid(Invalid::new(
            "FILE_NOT_PLAIN",
            path.display().to_string(),
            "is a device, a folder or a pipe, not a plain file",
            "name a file; without --out the rows go to stdout",
        )));
    }
    if there.is_some() && !replace {
        return Err(Error::Invalid(Invalid::new(
            "FILE_EXISTS",
            path.display().to_string(),
            "exists already",
            "name another file, or allow it with --replace",
        )));
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let written = File::options().write(true).create_new(true).mode(0o600).open(&beside).and_then(
        |file: File| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            let rows = write(format, batch, &file)?;
            file.sync_all()?;
            if replace {
                std::fs::rename(&beside, path)?;
            } else {
                // Fails where somebody made the file meanwhile.
                std::fs::hard_link(&beside, path)?;
                std::fs::remove_file(&beside)?;
            }
            Ok(rows)
        },
    );
    written.map_err(|source| {
        // Best effort: the error that counts is the first one.
        drop(std::fs::remove_file(&beside));
        failed(source)
    })
}
