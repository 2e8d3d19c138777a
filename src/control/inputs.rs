//! What a reference to a flow or a snapshot means: `sha256:…` is a hash, what has a `/` or ends like a
//! file is a file, all else is a name.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, Read as _};
use std::path::Path;

use super::{Control, Error};
use crate::artifacts::{Artifacts, Kind, Label};
use crate::canonical;
use crate::flow::Flow;
use crate::ids::Hash;
use crate::invalid::{Invalid, nearest};
use crate::snapshot::{self, ImportOptions};

/// Bytes of a flow manifest; a real one has a few hundred.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the first event of a snapshot, read to see that a hash names one.
const EVENT_BYTES_MAX: u64 = 1 << 20;
/// References remembered in one call; a set of requests names few and repeats them.
const REMEMBERED_MAX: usize = 10_000;

enum Reference<'a> {
    Hash(Hash),
    File(&'a Path),
    Name(&'a str),
}

fn reference(text: &str) -> Reference<'_> {
    const ENDINGS: &[&str] = &["yaml", "yml", "json", "jsonl", "csv", "gz", "parquet"];
    if let Ok(hash) = text.parse() {
        return Reference::Hash(hash);
    }
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    if text.contains('/') || ENDINGS.contains(&ending) {
        return Reference::File(Path::new(text));
    }
    Reference::Name(text)
}

/// Flows and snapshots as they were named, each looked up once.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    control: &'a Control,
    flows: HashMap<String, (Hash, Option<String>)>,
    snapshots: HashMap<String, Hash>,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(control: &'a Control) -> Self {
        Self { control, flows: HashMap::new(), snapshots: HashMap::new() }
    }

    /// The hashes of a flow and of its snapshot, which the flow itself may name. Both are in the
    /// artifact store when this returns.
    pub(super) fn pair(
        &mut self,
        flow: &str,
        snapshot: Option<&str>,
    ) -> Result<(Hash, Hash), Error> {
        let (hash, own) = match self.flows.get(flow) {
            Some(known) => known.clone(),
            None => {
                let found = load_flow(self.control, flow)?;
                let known = (found.hash, found.snapshot);
                if self.flows.len() < REMEMBERED_MAX {
                    self.flows.insert(flow.to_owned(), known.clone());
                }
                known
            }
        };
        let Some(snapshot) = snapshot.or(own.as_deref()) else {
            return Err(Error::Invalid(Invalid::new(
                "SNAPSHOT_MISSING",
                flow,
                "the flow names no snapshot",
                "give one with --snapshot",
            )));
        };
        if let Some(known) = self.snapshots.get(snapshot) {
            return Ok((hash, *known));
        }
        let found = find_snapshot(self.control, snapshot)?;
        if self.snapshots.len() < REMEMBERED_MAX {
            self.snapshots.insert(snapshot.to_owned(), found);
        }
        Ok((hash, found))
    }
}

/// A flow by its reference. One from a file is kept in the artifact store, under its name if that is free.
pub(super) fn load_flow(control: &Control, text: &str) -> Result<Flow, Error> {
    match reference(text) {
        Reference::File(path) => {
            let flow = read_flow(path)?;
            keep_flow(control.artifacts()?, &flow)?;
            Ok(flow)
        }
        Reference::Hash(hash) => {
            let Some(artifacts) = holding(control, &hash)? else {
                return Err(unknown(Kind::Flow, text, None));
            };
            let labels = artifacts.labels(Kind::Flow)?;
            let label = labels.into_iter().map(|(_, label)| label).find(|label| label.hash == hash);
            stored_flow(artifacts, &hash, label.and_then(|label| label.golden), text)
        }
        Reference::Name(name) => {
            let (artifacts, label) = labelled(control, Kind::Flow, name)?;
            stored_flow(artifacts, &label.hash, label.golden, text)
        }
    }
}

/// Reads a flow manifest; touches nothing else.
pub(super) fn read_flow(path: &Path) -> Result<Flow, Error> {
    let place = path.display().to_string();
    let unreadable = |message: String| {
        Invalid::new("FLOW_UNREADABLE", &place, message, "name a manifest, YAML or JSON")
    };
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(MANIFEST_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(Error::Invalid(unreadable("over 1 MiB".to_owned())));
    }
    Ok(Flow::parse(&bytes, &place)?)
}

fn keep_flow(artifacts: &Artifacts, flow: &Flow) -> Result<(), Error> {
    artifacts.put(&flow.canonical)?;
    let label = Label { hash: flow.hash, golden: flow.golden };
    match artifacts.set_label(Kind::Flow, &flow.name, &label, false) {
        Err(crate::artifacts::Error::LabelTaken { name, held, .. }) => {
            tracing::warn!("the name {name} stays with {held}; this flow is {}", flow.hash);
            Ok(())
        }
        other => Ok(other?),
    }
}

fn stored_flow(
    artifacts: &Artifacts,
    hash: &Hash,
    golden: Option<Hash>,
    place: &str,
) -> Result<Flow, Error> {
    let mut flow = Flow::parse(&artifacts.get(hash)?, place)?;
    flow.golden = golden;
    Ok(flow)
}

/// A snapshot by its reference. A file is imported on the fly if it needs no flags.
pub(super) fn find_snapshot(control: &Control, text: &str) -> Result<Hash, Error> {
    match reference(text) {
        Reference::File(path) => import_plain(control.artifacts()?, path),
        Reference::Hash(hash) => {
            let Some(artifacts) = holding(control, &hash)? else {
                return Err(unknown(Kind::Snapshot, text, None));
            };
            check_snapshot(artifacts, &hash, text)?;
            Ok(hash)
        }
        Reference::Name(name) => Ok(labelled(control, Kind::Snapshot, name)?.1.hash),
    }
}

/// JSON lines with the standard names need no flags; anything else must be imported first.
fn import_plain(artifacts: &Artifacts, path: &Path) -> Result<Hash, Error> {
    let place = path.display().to_string();
    if path.extension().is_none_or(|ending| ending != "jsonl") {
        return Err(Error::Invalid(Invalid::new(
            "SNAPSHOT_NOT_IMPORTED",
            &place,
            "only JSON lines can be used without an import",
            format!("run `finaz snapshot import {place} --name NAME ...` and use the name"),
        )));
    }
    let imported = snapshot::import(artifacts, path, &ImportOptions::default(), &|_, _| ())?;
    Ok(imported.snapshot)
}

/// A hash may name any blob: the first line tells whether this one is a snapshot.
fn check_snapshot(artifacts: &Artifacts, hash: &Hash, text: &str) -> Result<(), Error> {
    let mut line = Vec::new();
    let mut reader = artifacts.reader(hash)?.take(EVENT_BYTES_MAX);
    reader.read_until(b'\n', &mut line).map_err(|error| {
        let place = control_place(text);
        crate::artifacts::Error::Io { place, source: error }
    })?;
    let event = canonical::parse(line.strip_suffix(b"\n").unwrap_or(&line), text);
    let is_event = match event {
        Ok(canonical::Value::Map(fields)) => ["event_id", "event_time", "instrument", "seq"]
            .iter()
            .all(|key| fields.contains_key(*key)),
        Ok(_) | Err(_) => false,
    };
    if is_event { Ok(()) } else { Err(not_a(Kind::Snapshot, text)) }
}
