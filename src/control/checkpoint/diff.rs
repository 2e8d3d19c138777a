//! In what two checkpoints differ.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value as Json;

use super::{find, manifest_of};
use crate::artifacts::Artifacts;
use crate::canonical::{self, Value};
use crate::control::stream::head_of;
use crate::control::{Control, Error};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::journal::Manifest;

/// Instruments that are named.
const NAMED_MAX: usize = 100;

/// Two checkpoints side by side.
#[derive(Clone, Debug, Serialize)]
pub struct DiffReport {
    pub a: String,
    pub b: String,
    /// Nodes, offsets, watermark and counters are the same to the bit.
    pub same_state: bool,
    pub differences: Vec<DifferenceView>,
    /// Instruments of which nodes stand differently, a hundred at most.
    pub instruments: Vec<String>,
    /// Blobs that only one of them needs, and their bytes.
    pub only_a: Only,
    pub only_b: Only,
}

/// A field that differs.
#[derive(Clone, Debug, Serialize)]
pub struct DifferenceView {
    /// The way to it, by dots.
    pub field: String,
    pub a: Json,
    pub b: Json,
}

/// Blobs of one side.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Only {
    pub blobs: u64,
    pub bytes: u64,
}

/// Holds two checkpoints against each other, both of streams or both of batch runs.
pub async fn diff(control: &Control, a: &str, b: &str) -> Result<DiffReport, Error> {
    let artifacts = control.artifacts()?;
    let (a, b) = (find(control, a).await?, find(control, b).await?);
    let (first, second) = (manifest_of(artifacts, &a)?, manifest_of(artifacts, &b)?);
    if std::mem::discriminant(&first) != std::mem::discriminant(&second) {
        let message = format!("{} is of a stream or a batch run, {} of the other", a.id, b.id);
        let hint = "compare two of streams, or two of batch runs";
        return Err(Invalid::new("CHECKPOINT_KINDS_DIFFER", a.id, message, hint).into());
    }
    let same_state = first.state() == second.state();
    let mut instruments = Vec::new();
    if !same_state {
        let nodes = (nodes(&state_of(artifacts, &first)?), nodes(&state_of(artifacts, &second)?));
        let names: BTreeSet<&String> = nodes.0.keys().chain(nodes.1.keys()).collect();
        let differs = |name: &&&String| nodes.0.get(**name) != nodes.1.get(**name);
        instruments = names.iter().filter(differs).take(NAMED_MAX).map(|n| (*n).clone()).collect();
    }
    let mut differences = Vec::new();
    compare("", &fields(&first), &fields(&second), &mut differences);
    Ok(DiffReport {
        a: a.id,
        b: b.id,
        same_state,
        differences,
        instruments,
        only_a: only(&first, &second),
        only_b: only(&second, &first),
    })
}

/// The state of each node.
fn state_of(artifacts: &Artifacts, manifest: &Manifest) -> Result<Value, Error> {
    match manifest {
        Manifest::Stream(checkpoint) => Ok(head_of(artifacts, checkpoint)?.state),
        Manifest::Run(checkpoint) => {
            let (state, place) = (checkpoint.state, checkpoint.state.to_string());
            Ok(canonical::parse(&artifacts.get(&state)?, &place)?)
        }
    }
}

/// All but the lists of blobs, which `only` counts.
fn fields(manifest: &Manifest) -> Json {
    let mut json = serde_json::to_value(manifest).expect("texts and whole numbers");
    if let Json::Object(map) = &mut json {
        for list in ["blobs", "dedupe"] {
            map.remove(list);
        }
        if let Some(Json::Object(sink)) = map.get_mut("sink") {
            sink.remove("values");
        }
    }
    json
}

fn compare(at: &str, a: &Json, b: &Json, found: &mut Vec<DifferenceView>) {
    if a == b {
        return;
    }
    let (Json::Object(left), Json::Object(right)) = (a, b) else {
        return found.push(DifferenceView { field: at.to_owned(), a: a.clone(), b: b.clone() });
    };
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for name in names {
        let field = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let of = |map: &serde_json::Map<String, Json>| map.get(name).cloned().unwrap_or(Json::Null);
        compare(&field, &of(left), &of(right), found);
    }
}

/// The state of each instrument's nodes.
fn nodes(state: &Value) -> BTreeMap<String, Vec<u8>> {
    let Value::Map(state) = state else { return BTreeMap::new() };
    let Some(Value::List(instruments)) = state.get("instruments") else { return BTreeMap::new() };
    let one = |instrument: &Value| {
        let Value::Map(map) = instrument else { return None };
        let Some(Value::Text(name)) = map.get("name") else { return None };
        Some((name.clone(), instrument.to_bytes().ok()?))
    };
    instruments.iter().filter_map(one).collect()
}

fn only(one: &Manifest, other: &Manifest) -> Only {
    let others: BTreeSet<Hash> = other.blobs().iter().map(|blob| blob.hash).collect();
    let mine = one.blobs().iter().filter(|blob| !others.contains(&blob.hash));
    mine.fold(Only::default(), |sum, blob| Only {
        blobs: sum.blobs + 1,
        bytes: sum.bytes + blob.bytes,
    })
}
