//! Journals as files, and markers into topics.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::lease::Held;
use super::session::MARKER;
use super::{find, look};
use crate::broker::{Batch, Lane};
use crate::control::new_file::NewFile;
use crate::control::{Control, Error, brokers, journal};
use crate::invalid::Invalid;
use crate::store::StreamView;
use crate::stream::Marker;

/// Bytes of a journal in a file.
const DOCUMENT_BYTES_MAX: u64 = 4 << 30;

/// Markers that were written.
#[derive(Clone, Debug, Serialize)]
pub struct MarkReport {
    pub topic: String,
    pub marker: &'static str,
    pub partitions: Vec<u32>,
}

/// Writes a marker into one partition, or into each.
pub async fn mark(
    control: &Control,
    topic: &str,
    partition: Option<u32>,
    marker: &str,
) -> Result<MarkReport, Error> {
    let marker = Marker::parse(marker.as_bytes()).ok_or_else(|| {
        let hint = "IDLE_CONFIRMED or END_OF_BOUNDED_SOURCE";
        Invalid::new("MARKER_INVALID", marker.escape_debug().to_string(), "no such marker", hint)
    })?;
    let options = brokers::options(control)?;
    options.check()?;
    let broker = brokers::connect(&options).await?;
    let topic = find(&broker, topic).await?;
    if let Some(wrong) = partition.filter(|partition| *partition >= topic.partitions) {
        let message = format!("{} has {} partitions", topic.name, topic.partitions);
        let place = format!("--partition {wrong}");
        return Err(Invalid::new("PARTITION_UNKNOWN", place, message, "they count from 0").into());
    }
    let partitions: Vec<u32> = match partition {
        Some(partition) => vec![partition],
        None => (0..topic.partitions).collect(),
    };
    for partition in &partitions {
        let mut batch = Batch::default();
        let word = marker.word().as_bytes();
        batch.push(b"", Some(word), [(MARKER, word)]);
        Lane::new(&broker, &topic, *partition).write(&batch).await?;
    }
    Ok(MarkReport { topic: topic.name, marker: marker.word(), partitions })
}

/// A journal that was written to a file.
#[derive(Clone, Debug, Serialize)]
pub struct ExportReport {
    pub run_id: String,
    pub seq: i64,
    pub file: String,
}

/// Writes the journal of a run, of a split run that of one partition, to a file, whole or not at all.
pub async fn export(
    control: &Control,
    run_id: Option<&str>,
    partition: Option<u32>,
    path: &Path,
) -> Result<ExportReport, Error> {
    let view = one_of(look::find(control, run_id).await?, partition)?;
    let handing = journal::Handing::of(control.ready_store().await?, &view.row.name).await?;
    handing.check_whole(&view.row.name)?;
    let mut file = NewFile::at(path)?;
    let run_id = view.row.identity.run_id.clone();
    if !journal::export(control.artifacts()?, &view.row, &mut file)? {
        return Err(empty(run_id).into());
    }
    file.finish()?;
    Ok(ExportReport { run_id, seq: view.row.seq, file: path.display().to_string() })
}

/// The journal of a run that is meant: the only one, or that of a partition.
pub(super) fn one_of(
    mut views: Vec<StreamView>,
    partition: Option<u32>,
) -> Result<StreamView, Invalid> {
    let wanted = partition.map(|partition| vec![i32::try_from(partition).unwrap_or(i32::MAX)]);
    let has = |view: &StreamView| view.row.identity.partitions == wanted;
    match views.iter().position(has) {
        Some(at) => Ok(views.swap_remove(at)),
        None => Err(not_one(&views, partition)),
    }
}

/// A run that has a row and nothing else.
pub(super) fn empty(run_id: String) -> Invalid {
    let hint = "let it run until its first commit";
    Invalid::new("STREAM_EMPTY", run_id, "nothing was committed yet", hint)
}

/// What to say to make it one journal.
fn not_one(views: &[StreamView], partition: Option<u32>) -> Invalid {
    let Some(partition) = partition else {
        let message = format!("{} is split by partition", views[0].row.identity.run_id);
        let hint = "each partition has a journal of its own: say which with --partition";
        return Invalid::new("PARTITION_MISSING", "--partition", message, hint);
    };
    let place = format!("--partition {partition}");
    let message = "the run has no such journal";
    Invalid::new("PARTITION_UNKNOWN", place, message, "see `finaz stream status`")
}

/// A journal that was taken in.
#[derive(Clone, Debug, Serialize)]
pub struct ImportReport {
    pub run_id: String,
    pub seq: i64,
    pub already_present: bool,
}

/// Takes a journal in, under a lease of its own.
pub async fn import(control: &Control, path: &Path) -> Result<ImportReport, Error> {
    let place = path.display().to_string();
    let failed = |source| Error::Io { place: place.clone(), source };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > DOCUMENT_BYTES_MAX {
        let message = format!("{size} bytes are more than any journal of ours");
        let hint = "name a file that `finaz stream export` wrote";
        return Err(Invalid::new("JOURNAL_TOO_LARGE", place, message, hint).into());
    }
    let bytes = fs::read(path).map_err(failed)?;
    let document = journal::Document::read(&bytes, &place)?;
    let run_id = document.head.identity.run_id.clone();
    super::check_name("run_id", "RUN_ID_INVALID", &run_id)?;
    let store = control.ready_store().await?;
    control.pair(store).await?;
    let name = document.head.identity.lease_name();
    let mut held = Held::acquire(control, &control.second_store()?, &name).await?;
    let artifacts = Arc::clone(control.artifacts()?);
    let imported = Box::pin(journal::import(artifacts, store, &held.lease, document)).await;
    held.release().await;
    let journal::Imported { seq, already_present } = imported?;
    Ok(ImportReport { run_id, seq, already_present })
}
