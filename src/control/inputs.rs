//! What a reference to a flow or a snapshot means: `sha256:…` is a hash, what has a `/` or ends like a
//! file is a file, all else is a name.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, Read as _};
use std::path::Path;

use super::{Control, Error};
use crate::artifacts::{self, Artifacts, Kind, Label};
use crate::canonical::{self, Value};
use crate::flow::{Flow, Projection};
use crate::ids::Hash;
use crate::invalid::{Invalid, nearest};
use crate::replay::Schedule;
use crate::snapshot::{self, ImportOptions};

/// Bytes of a flow manifest; a real one has a few hundred.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a fault schedule.
const SCHEDULE_BYTES_MAX: u64 = 16 << 20;
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
        let snapshot = snapshot.or(own.as_deref()).ok_or_else(|| no_snapshot(flow))?;
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

/// A flow by its reference, in the artifact store when this returns: one from a file is kept there,
/// under its name if that is free.
pub(super) fn load_flow(control: &Control, text: &str) -> Result<Flow, Error> {
    let (flow, saved) = look_at_flow(control, text)?;
    if !saved {
        keep_flow(control.artifacts()?, &flow)?;
    }
    Ok(flow)
}

/// A flow by its reference, and whether it is in the artifact store; changes nothing.
pub(super) fn look_at_flow(control: &Control, text: &str) -> Result<(Flow, bool), Error> {
    let (artifacts, hash, golden) = match reference(text) {
        Reference::File(path) => return Ok((read_flow(path)?, false)),
        Reference::Hash(hash) => {
            let artifacts = holding(control, Kind::Flow, &hash)?;
            let labels = artifacts.labels(Kind::Flow)?;
            let label = labels.into_iter().map(|(_, label)| label).find(|label| label.hash == hash);
            (artifacts, hash, label.and_then(|label| label.golden))
        }
        Reference::Name(name) => {
            let (artifacts, label) = labelled(control, Kind::Flow, name)?;
            (artifacts, label.hash, label.golden)
        }
    };
    let mut flow = Flow::parse(&artifacts.get(&hash)?, text)?;
    flow.golden = golden;
    Ok((flow, true))
}

/// Reads a flow manifest; touches nothing else.
pub(super) fn read_flow(path: &Path) -> Result<Flow, Error> {
    let (place, bytes) = read_manifest(path, "FLOW_UNREADABLE", MANIFEST_BYTES_MAX)?;
    Ok(Flow::parse(&bytes, &place)?)
}

/// The bytes of a manifest, and what to call it.
fn read_manifest(path: &Path, code: &'static str, most: u64) -> Result<(String, Vec<u8>), Error> {
    let place = path.display().to_string();
    let unreadable =
        |message: String| Invalid::new(code, &place, message, "name a manifest, YAML or JSON");
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > most {
        return Err(Error::Invalid(unreadable(format!("over {} MiB", most >> 20))));
    }
    Ok((place, bytes))
}

/// A fault schedule by its reference; changes nothing.
pub(super) fn find_schedule(control: &Control, text: &str) -> Result<Schedule, Error> {
    let (artifacts, hash) = match reference(text) {
        Reference::File(path) => {
            let most = SCHEDULE_BYTES_MAX;
            let (place, bytes) = read_manifest(path, "FAULTS_UNREADABLE", most)?;
            return Ok(Schedule::parse(&bytes, &place)?);
        }
        Reference::Hash(hash) => (holding(control, Kind::Faults, &hash)?, hash),
        Reference::Name(name) => {
            let (artifacts, label) = labelled(control, Kind::Faults, name)?;
            (artifacts, label.hash)
        }
    };
    Ok(Schedule::parse(&artifacts.get(&hash)?, text)?)
}

/// Keeps a schedule in the artifact store, under its name if it has one and that is free.
pub(super) fn keep_schedule(artifacts: &Artifacts, schedule: &Schedule) -> Result<(), Error> {
    artifacts.put(&schedule.canonical)?;
    let Some(name) = &schedule.name else { return Ok(()) };
    keep_name(artifacts, Kind::Faults, name, schedule.hash, None)
}

fn keep_flow(artifacts: &Artifacts, flow: &Flow) -> Result<(), Error> {
    artifacts.put(&flow.canonical)?;
    keep_name(artifacts, Kind::Flow, &flow.name, flow.hash, flow.golden)
}

/// Gives a name that is free; one that is taken stays with what has it.
fn keep_name(
    artifacts: &Artifacts,
    kind: Kind,
    name: &str,
    hash: Hash,
    golden: Option<Hash>,
) -> Result<(), Error> {
    match artifacts.set_label(kind, name, &Label { hash, golden }, false) {
        Err(artifacts::Error::LabelTaken { name, held, .. }) => {
            tracing::warn!("the name {name} stays with {held}; what was given now is {hash}");
            Ok(())
        }
        other => Ok(other?),
    }
}

/// The snapshot that a run of the flow reads: the one asked for, else the flow's own.
pub(super) fn snapshot_of(
    control: &Control,
    flow: &Flow,
    asked: Option<&str>,
) -> Result<Hash, Error> {
    let own = flow.snapshot.as_deref();
    find_snapshot(control, asked.or(own).ok_or_else(|| no_snapshot(&flow.name))?)
}

fn no_snapshot(flow: &str) -> Invalid {
    let hint = "give one with --snapshot";
    Invalid::new("SNAPSHOT_MISSING", flow, "the flow names no snapshot", hint)
}

/// A snapshot by its reference. A file is imported on the fly if it needs no flags.
pub(super) fn find_snapshot(control: &Control, text: &str) -> Result<Hash, Error> {
    match reference(text) {
        Reference::File(path) => import_plain(control.artifacts()?, path),
        Reference::Hash(hash) => {
            check_snapshot(holding(control, Kind::Snapshot, &hash)?, &hash)?;
            Ok(hash)
        }
        Reference::Name(name) => Ok(labelled(control, Kind::Snapshot, name)?.1.hash),
    }
}

/// The golden that a run of this flow over this snapshot is held to: the flow's, over the flow's own snapshot.
pub(super) fn golden_for(control: &Control, flow: &Flow, snapshot: Hash) -> Option<Hash> {
    let golden = flow.golden?;
    let own = find_snapshot(control, flow.snapshot.as_deref()?).ok()?;
    (own == snapshot).then_some(golden)
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

/// Whether the events of a snapshot have the fields that a flow reads, told by the first of them.
pub(super) fn check_fields(control: &Control, flow: Hash, snapshot: Hash) -> Result<(), Error> {
    let artifacts = control.artifacts()?;
    let flow = Flow::parse(&artifacts.get(&flow)?, &flow.to_string())?;
    let line = first_line(artifacts, &snapshot)?;
    Ok(crate::flow::check_fields(&flow, &line, &snapshot.to_string())?)
}

/// What a flow reads of a snapshot, found to be what its hash names.
pub(super) fn project(
    artifacts: &Artifacts,
    flow: &Flow,
    snapshot: Hash,
) -> Result<Projection, Error> {
    let mut body = artifacts.reader(&snapshot)?;
    let projection = crate::flow::project(flow, &mut body, &snapshot.to_string());
    // First whether what was read is what the hash names: damage explains all else.
    body.finish()?;
    Ok(projection?)
}

fn first_line(artifacts: &Artifacts, snapshot: &Hash) -> Result<Vec<u8>, Error> {
    let mut line = Vec::new();
    let mut reader = artifacts.reader(snapshot)?.take(EVENT_BYTES_MAX);
    reader
        .read_until(b'\n', &mut line)
        .map_err(|source| artifacts::Error::Io { place: snapshot.to_string(), source })?;
    Ok(line)
}

/// A hash may name any blob: the first line tells whether this one is a snapshot.
fn check_snapshot(artifacts: &Artifacts, hash: &Hash) -> Result<(), Error> {
    const FIELDS: &[&str] = &["event_id", "event_time", "instrument", "seq"];
    let place = hash.to_string();
    let line = first_line(artifacts, hash)?;
    let event = canonical::parse(line.strip_suffix(b"\n").unwrap_or(&line), &place);
    match event {
        Ok(Value::Map(event)) if FIELDS.iter().all(|field| event.contains_key(*field)) => Ok(()),
        Ok(_) | Err(_) => Err(Error::Invalid(Invalid::new(
            "SNAPSHOT_UNKNOWN",
            place,
            "this artifact is no snapshot",
            "see `finaz snapshot list`",
        ))),
    }
}

/// The artifact store, if it holds this blob.
fn holding<'a>(control: &'a Control, kind: Kind, hash: &Hash) -> Result<&'a Artifacts, Error> {
    match control.existing_artifacts()? {
        Some(artifacts) if artifacts.contains(hash)? => Ok(artifacts),
        Some(_) | None => Err(unknown(kind, &hash.to_string(), None)),
    }
}

/// What a name stands for.
fn labelled<'a>(
    control: &'a Control,
    kind: Kind,
    name: &str,
) -> Result<(&'a Artifacts, Label), Error> {
    let Some(artifacts) = control.existing_artifacts()? else {
        return Err(unknown(kind, name, None));
    };
    if let Some(label) = artifacts.label(kind, name)? {
        return Ok((artifacts, label));
    }
    let labels = artifacts.labels(kind)?;
    Err(unknown(kind, name, nearest(name, labels.iter().map(|(name, _)| name.as_str()))))
}

fn unknown(kind: Kind, text: &str, meant: Option<&str>) -> Error {
    let (code, what) = match kind {
        Kind::Flow => ("FLOW_UNKNOWN", "flow"),
        Kind::Snapshot => ("SNAPSHOT_UNKNOWN", "snapshot"),
        Kind::Faults => ("FAULTS_UNKNOWN", "fault schedule"),
    };
    let hint = match (meant, kind) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, Kind::Faults) => {
            "name a manifest: a file has a `/` or ends in .yaml or .json".to_owned()
        }
        (None, Kind::Flow | Kind::Snapshot) => {
            format!("see `finaz {what} list`; a file has a `/` or ends like one")
        }
    };
    Error::Invalid(Invalid::new(
        code,
        text.escape_debug().to_string(),
        format!("no such {what}"),
        hint,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_hash_a_file_or_a_name() {
        let hash = Hash::of(b"x").to_string();
        assert!(matches!(reference(&hash), Reference::Hash(_)));
        for file in
            ["./x", "a/b", "x.yaml", "x.yml", "x.json", "x.jsonl", "x.csv", "x.csv.gz", "x.parquet"]
        {
            assert!(matches!(reference(file), Reference::File(_)), "{file}");
        }
        for name in ["fixture.snapshot.01", "fixture.01_A_feature", "yaml", "sha256:12", ""] {
            assert!(matches!(reference(name), Reference::Name(_)), "{name}");
        }
    }
}
