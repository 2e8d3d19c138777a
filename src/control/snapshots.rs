//! Snapshots of market data: import, list, show.

use std::path::Path;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use super::{Control, Error, inputs};
use crate::artifacts::{Kind, Label};
use crate::ids::Hash;
use crate::snapshot;

pub use crate::snapshot::{Format, ImportOptions};

/// What an import made, or found made before.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    pub snapshot: Hash,
    pub name: Option<String>,
    pub events: u64,
    pub instruments: u64,
    pub already_present: bool,
}

/// Imports a file; `progress` is told bytes done and bytes in all. A refused file leaves nothing behind.
pub fn import(
    control: &Control,
    file: &Path,
    options: &ImportOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<Imported, Error> {
    let imported = snapshot::import(control.artifacts()?, file, options, progress)?;
    Ok(Imported {
        snapshot: imported.snapshot,
        name: imported.name,
        events: imported.events,
        instruments: imported.instruments,
        already_present: imported.already_present,
    })
}

/// A name and the snapshot that it stands for.
#[derive(Clone, Debug, Serialize)]
pub struct NamedSnapshot {
    pub name: String,
    pub snapshot: Hash,
}

#[derive(Clone, Debug, Serialize)]
pub struct NamedSnapshots {
    pub snapshots: Vec<NamedSnapshot>,
}

/// The snapshots that have a name, by name.
pub fn list(control: &Control) -> Result<NamedSnapshots, Error> {
    let labels = match control.existing_artifacts()? {
        Some(artifacts) => artifacts.labels(Kind::Snapshot)?,
        None => Vec::new(),
    };
    let named = |(name, label): (String, Label)| NamedSnapshot { name, snapshot: label.hash };
    Ok(NamedSnapshots { snapshots: labels.into_iter().map(named).collect() })
}

/// What is in a snapshot.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotView {
    pub snapshot: Hash,
    pub names: Vec<String>,
    pub events: u64,
    /// Fields of the events besides those that every event has.
    pub fields: Vec<String>,
    pub instruments: Vec<InstrumentView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct InstrumentView {
    pub name: String,
    pub events: u64,
    /// Event times, RFC 3339, UTC.
    pub first: String,
    pub last: String,
}

/// Describes a snapshot, by hash, file or name; reads and verifies all of it.
pub fn show(control: &Control, reference: &str) -> Result<SnapshotView, Error> {
    let hash = inputs::find_snapshot(control, reference)?;
    let artifacts = control.artifacts()?;
    let labels = artifacts.labels(Kind::Snapshot)?;
    let names = labels.into_iter().filter(|(_, label)| label.hash == hash).map(|(name, _)| name);
    let names = names.collect();
    let described = snapshot::describe(artifacts, &hash)?;
    let instrument = |instrument: snapshot::DescribedInstrument| InstrumentView {
        name: instrument.name,
        events: instrument.events,
        first: time(instrument.first),
        last: time(instrument.last),
    };
    Ok(SnapshotView {
        snapshot: hash,
        names,
        events: described.events,
        fields: described.fields,
        instruments: described.instruments.into_iter().map(instrument).collect(),
    })
}

/// Nanoseconds since 1970 for people; as many digits as it needs.
fn time(nanoseconds: i64) -> String {
    DateTime::<Utc>::from_timestamp_nanos(nanoseconds).to_rfc3339_opts(SecondsFormat::AutoSi, true)
}
