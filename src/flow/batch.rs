//! What a flow computes over a snapshot: every series, its hash, and the hash of all of them.

use std::collections::BTreeMap;

use super::plan::InstrumentState;
use super::project::{Projection, Reached};
use super::{Flow, read};
use crate::canonical::{write_f64, write_i64, write_text};
use crate::ids::Hash;
use crate::invalid::Invalid;

/// The values of one node over one instrument.
#[derive(Clone, Debug)]
pub struct Series {
    pub instrument: String,
    pub node: String,
    /// One an event, in the order of events; NaN for null.
    pub values: Vec<f64>,
    /// Of the canonical list of these values.
    pub values_hash: Hash,
}

/// When the events of one instrument were.
#[derive(Clone, Debug)]
pub struct Times {
    pub instrument: String,
    /// Nanoseconds since 1970 UTC, as many as each series of the instrument has values.
    pub event_time: Vec<i64>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct FeatureBatch {
    pub flow: Hash,
    pub snapshot: Hash,
    /// Instrument by instrument in the projection's order, each node in the flow's.
    pub series: Vec<Series>,
    /// One an instrument, in the same order.
    pub times: Vec<Times>,
    /// Of [`FeatureBatch::values_bytes`].
    pub values_hash: Hash,
    values: Vec<u8>,
}

/// Runs the nodes of `flow` over what [`project`](super::project()) read of `snapshot` for it.
///
/// # Errors
/// `FLOW_PROJECTION`: the projection was made for another flow.
pub fn compute(
    flow: &Flow,
    snapshot: Hash,
    projection: &Projection,
) -> Result<FeatureBatch, Invalid> {
    run(flow, snapshot, projection, &mut BTreeMap::new(), Vec::new())
}

/// Also gives the nodes as they are after the last event.
///
/// # Errors
/// As [`compute`].
pub fn compute_kept(
    flow: &Flow,
    snapshot: Hash,
    projection: &Projection,
) -> Result<Begun, Invalid> {
    let mut nodes = BTreeMap::new();
    let batch = run(flow, snapshot, projection, &mut nodes, Vec::new())?;
    Ok(Begun { reached: projection.reached.clone(), nodes, batch })
}

/// Runs the nodes on over what [`project_rest`](super::project_rest()) read of `snapshot` behind what was computed before:
/// the same batch, bit for bit, as from the first event on.
///
/// # Errors
/// As [`compute`].
pub fn compute_on(
    flow: &Flow,
    snapshot: Hash,
    projection: &Projection,
    begun: Begun,
) -> Result<FeatureBatch, Invalid> {
    let Begun { mut nodes, batch, .. } = begun;
    run(flow, snapshot, projection, &mut nodes, batch.into_parts(flow.nodes.len()))
}

/// What a flow has computed over the first events of a snapshot, and its nodes behind them.
#[derive(Debug)]
pub struct Begun {
    pub reached: Reached,
    /// By instrument, each that the batch has.
    pub nodes: BTreeMap<String, InstrumentState>,
    pub batch: FeatureBatch,
}

impl Begun {
    pub(super) fn instruments(&self) -> impl Iterator<Item = &str> {
        self.batch.times.iter().map(|times| times.instrument.as_str())
    }
}

/// `before` has the instruments that were computed before, in the order of the projection, which has them all.
fn run(
    flow: &Flow,
    snapshot: Hash,
    projection: &Projection,
    states: &mut BTreeMap<String, InstrumentState>,
    before: Vec<Part>,
) -> Result<FeatureBatch, Invalid> {
    let nodes: Vec<&str> = flow.nodes.iter().map(|node| node.id.as_str()).collect();
    let mut parts = Vec::with_capacity(projection.instruments.len());
    let mut before = before.into_iter().peekable();
    for columns in &projection.instruments {
        let fields: Option<Vec<&[f64]>> = flow
            .plan
            .fields
            .iter()
            .map(|field| columns.fields.get(field).map(Vec::as_slice))
            .collect();
        let fields = fields.ok_or_else(|| {
            let message = format!("the projection lacks a field of the flow {}", flow.name);
            Invalid::new("FLOW_PROJECTION", &columns.name, message, "project for this flow")
        })?;
        let state = states.entry(columns.name.clone()).or_insert_with(|| flow.start());
        let values = state.extend(&flow.plan, &fields);
        let part = match before.next_if(|part| part.times.instrument == columns.name) {
            Some(part) => part.followed_by(&columns.event_time, &values),
            None => {
                let (instrument, event_time) = (columns.name.clone(), columns.event_time.clone());
                Part { times: Times { instrument, event_time }, values }
            }
        };
        parts.push(part);
    }
    Ok(FeatureBatch::assemble(flow.hash, snapshot, &nodes, parts))
}

/// A batch of values that were computed elsewhere: for each instrument, in the flow's order, its times and a column
/// for each node. `source` names what they were computed from.
#[must_use]
pub fn gather(flow: &Flow, source: Hash, columns: Vec<(Times, Vec<Vec<f64>>)>) -> FeatureBatch {
    let nodes: Vec<&str> = flow.nodes.iter().map(|node| node.id.as_str()).collect();
    let parts = columns.into_iter().map(|(times, values)| Part { times, values }).collect();
    FeatureBatch::assemble(flow.hash, source, &nodes, parts)
}

/// One batch of several of the same flow that were computed apart. Each instrument has values in one of them at most; the
/// order is that in which [`gather`] is given them: the flow's, else by name.
#[must_use]
pub fn unite(flow: &Flow, source: Hash, mut batches: Vec<FeatureBatch>) -> FeatureBatch {
    if batches.len() == 1 {
        return batches.swap_remove(0);
    }
    let mut columns: BTreeMap<String, (Times, Vec<Vec<f64>>)> = BTreeMap::new();
    for batch in batches {
        for Part { times, values } in batch.into_parts(flow.nodes.len()) {
            let name = times.instrument.clone();
            let longer = columns
                .get(&name)
                .is_none_or(|(held, _)| held.event_time.len() < times.event_time.len());
            if longer {
                columns.insert(name, (times, values));
            }
        }
    }
    let none = |name: &String| {
        let times = Times { instrument: name.clone(), event_time: Vec::new() };
        (times, vec![Vec::new(); flow.nodes.len()])
    };
    let columns = if flow.instruments.is_empty() {
        columns.into_values().collect()
    } else {
        let of = |name: &String| columns.remove(name).unwrap_or_else(|| none(name));
        flow.instruments.iter().map(of).collect()
    };
    gather(flow, source, columns)
}

/// One instrument of a batch: its times, and a column for each node.
pub(super) struct Part {
    pub(super) times: Times,
    pub(super) values: Vec<Vec<f64>>,
}

impl Part {
    fn followed_by(mut self, event_time: &[i64], values: &[Vec<f64>]) -> Self {
        self.times.event_time.extend_from_slice(event_time);
        for (column, more) in self.values.iter_mut().zip(values) {
            column.extend_from_slice(more);
        }
        self
    }
}

impl FeatureBatch {
    pub(super) fn assemble(flow: Hash, snapshot: Hash, nodes: &[&str], parts: Vec<Part>) -> Self {
        let mut values = Vec::new();
        let mut hashes: BTreeMap<(&str, &str), Hash> = BTreeMap::new();
        let mut by_node: Vec<(usize, &str)> = nodes.iter().copied().enumerate().collect();
        by_node.sort_unstable_by_key(|(_, id)| *id);
        let mut by_name: Vec<&Part> = parts.iter().collect();
        by_name.sort_unstable_by_key(|part| part.times.instrument.as_str());
        // A flow over all instruments of a log in which none came yet: an object of none.
        object(by_name.len() != 1, &by_name, &mut values, |part, values| {
            if by_name.len() > 1 {
                write_key(&part.times.instrument, values);
            }
            object(nodes.len() > 1, &by_node, values, |(index, id), values| {
                if nodes.len() > 1 {
                    write_key(id, values);
                }
                let from = values.len();
                write_list(&part.values[*index], values);
                hashes.insert((&part.times.instrument, id), Hash::of(&values[from..]));
            });
        });
        let values_hash = match (hashes.len(), hashes.first_key_value()) {
            (1, Some((_, hash))) => *hash,
            _ => Hash::of(&values),
        };
        let of = |part: &Part, id: &str| hashes[&(part.times.instrument.as_str(), id)];
        let hashes: Vec<Hash> =
            parts.iter().flat_map(|part| nodes.iter().map(move |id| of(part, id))).collect();
        let mut series = Vec::with_capacity(hashes.len());
        let mut times = Vec::with_capacity(parts.len());
        let mut hashes = hashes.into_iter();
        for part in parts {
            for (values, node) in part.values.into_iter().zip(nodes) {
                let values_hash = hashes.next().expect("one hash a series");
                let (instrument, node) = (part.times.instrument.clone(), (*node).to_owned());
                series.push(Series { instrument, node, values, values_hash });
            }
            times.push(part.times);
        }
        Self { flow, snapshot, series, times, values_hash, values }
    }

    /// Taken apart, instrument by instrument, of a flow of so many nodes.
    fn into_parts(self, nodes: usize) -> Vec<Part> {
        let mut series = self.series.into_iter().map(|series| series.values);
        let part = |times| Part { times, values: series.by_ref().take(nodes).collect() };
        self.times.into_iter().map(part).collect()
    }

    /// How many values there are, nulls included, over all series.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.series.iter().map(|series| length(series.values.len())).sum()
    }

    /// The values in FINAZ_JSON_V1, in the shape that is hashed: a list for one node over one
    /// instrument; an object by node id for several nodes; an object by instrument around it for
    /// several instruments.
    #[must_use]
    pub fn values_bytes(&self) -> &[u8] {
        &self.values
    }

    /// The document that the artifact store keeps, in FINAZ_JSON_V1.
    #[must_use]
    pub fn to_blob(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.values.len() + 512);
        out.extend_from_slice(br#"{"flow":"#);
        write_hash(self.flow, &mut out);
        out.extend_from_slice(br#","kind":"FeatureBatch","rows":"#);
        write_count(self.rows(), &mut out);
        out.extend_from_slice(br#","series":["#);
        for (index, series) in self.series.iter().enumerate() {
            out.extend_from_slice(if index > 0 {
                br#",{"instrument":"#
            } else {
                br#"{"instrument":"#
            });
            write_text(&series.instrument, &mut out);
            out.extend_from_slice(br#","node":"#);
            write_text(&series.node, &mut out);
            out.extend_from_slice(br#","rows":"#);
            write_count(length(series.values.len()), &mut out);
            out.extend_from_slice(br#","values_hash":"#);
            write_hash(series.values_hash, &mut out);
            out.push(b'}');
        }
        out.extend_from_slice(br#"],"snapshot":"#);
        write_hash(self.snapshot, &mut out);
        out.extend_from_slice(br#","times":"#);
        self.write_times(&mut out);
        out.extend_from_slice(br#","values":"#);
        out.extend_from_slice(&self.values);
        out.extend_from_slice(br#","values_hash":"#);
        write_hash(self.values_hash, &mut out);
        out.push(b'}');
        out
    }

    /// Reads what [`FeatureBatch::to_blob`] gave; every hash in it is computed anew.
    ///
    /// # Errors
    /// `BATCH_DAMAGED`: no batch, or one whose hashes are not those of its values.
    pub fn from_blob(bytes: &[u8], place: &str) -> Result<Self, Invalid> {
        read::batch(bytes, place)
    }

    fn write_times(&self, out: &mut Vec<u8>) {
        let mut sorted: Vec<&Times> = self.times.iter().collect();
        sorted.sort_unstable_by_key(|times| times.instrument.as_str());
        object(true, &sorted, out, |times, out| {
            write_key(&times.instrument, out);
            out.push(b'[');
            for (index, time) in times.event_time.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_i64(*time, out);
            }
            out.push(b']');
        });
    }
}

/// Writes the items one after another; in braces and with commas if they are an object's.
fn object<T>(braces: bool, items: &[T], out: &mut Vec<u8>, mut item: impl FnMut(&T, &mut Vec<u8>)) {
    if braces {
        out.push(b'{');
    }
    for (index, one) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        item(one, out);
    }
    if braces {
        out.push(b'}');
    }
}

fn write_key(key: &str, out: &mut Vec<u8>) {
    write_text(key, out);
    out.push(b':');
}

fn write_list(values: &[f64], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, &x) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        if x.is_nan() {
            out.extend_from_slice(b"null");
        } else {
            write_f64(x, out);
        }
    }
    out.push(b']');
}

fn write_hash(hash: Hash, out: &mut Vec<u8>) {
    write_text(&hash.to_string(), out);
}

fn write_count(count: u64, out: &mut Vec<u8>) {
    write_i64(i64::try_from(count).expect("no memory holds 2^63 values"), out);
}

fn length(length: usize) -> u64 {
    u64::try_from(length).expect("a length fits 64 bits")
}
