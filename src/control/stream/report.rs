//! How a stream stands: what its command prints at the end, and what its row keeps for `stream status`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::session::End;
use crate::broker::{Edge, Position};
use crate::flow::FeatureBatch;
use crate::ids::Hash;
use crate::stream::{Engine, Ledger, Standing};

/// Values are shown up to this many rows.
const VALUES_SHOWN_MAX: u64 = 1_000;

/// A stream as it ended.
#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    pub run_id: String,
    pub topic: String,
    pub group: String,
    pub flow: Hash,
    pub fence: i64,
    /// Commits of the run so far.
    pub seq: i64,
    #[serde(flatten)]
    pub counts: Counts,
    /// Of all accepted events in event-time order, those still buffered included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Box<RawValue>>,
    pub values_hash: Hash,
    pub rows: u64,
    /// Events that are past the watermark: what they gave is final.
    #[serde(rename = "final")]
    pub applied: u64,
    /// `EQUAL_TO_BATCH_GOLDEN`, `DIFFERS_FROM_BATCH_GOLDEN` or `NO_GOLDEN`.
    pub verdict: &'static str,
    /// What the verdict was held against.
    pub golden: Option<Hash>,
    pub state: String,
    pub seconds: f64,
}

/// What one session came to: that of a whole run, or of one partition.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) end: End,
    pub(super) fence: i64,
    pub(super) seq: i64,
    pub(super) counts: Counts,
    pub(super) batch: FeatureBatch,
}

/// The ledger and the position of a stream, in total and by partition. Kept in its row as well.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Counts {
    #[serde(flatten)]
    pub ledger: Ledger,
    pub ledger_ok: bool,
    pub next_offsets: BTreeMap<i32, i64>,
    /// Nanoseconds since 1970 UTC.
    pub watermark: Option<i64>,
    /// Events of the snapshot that the run goes on from: accepted, and no records of the ledger.
    #[serde(default)]
    pub history: u64,
    /// Accepted, and waiting for the watermark.
    pub waiting: u64,
    /// Known identities, and the bytes that they take in memory.
    pub identities: u64,
    pub identity_bytes: u64,
    /// Records that the broker has and the stream has not read, as far as it knows.
    pub lag: Option<u64>,
    /// Seconds until retention will have deleted what was not read, at the pace of the last hour; absent: not expected.
    pub blocked_in_sec: Option<f64>,
    /// Applied events whose values can be read in ClickHouse: the first so many.
    pub staged: Option<u64>,
    /// When this was so, in microseconds since 1970 UTC, by the database.
    pub as_of: Option<i64>,
    pub per_partition: Vec<PartitionView>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PartitionView {
    pub partition: i32,
    pub next_offset: i64,
    #[serde(flatten)]
    pub ledger: Ledger,
    pub markers: u64,
    pub ledger_ok: bool,
    pub watermark: Option<i64>,
    /// Holds the watermark of the whole.
    pub active: bool,
    pub idle: bool,
    pub ended: bool,
    pub earliest: Option<i64>,
    pub high_water: Option<i64>,
    pub waits_for_transaction: bool,
    /// Offsets a second that retention deletes; absent until it was seen twice.
    pub retention_per_sec: Option<f64>,
    pub blocked_in_sec: Option<f64>,
}

impl Counts {
    /// Of an engine; the edges of the log are those that the reader saw last, else those of the start.
    pub(super) fn of(engine: &Engine, positions: &[Position], edges: &[Edge]) -> Self {
        let ledger = engine.ledger();
        let standings = engine.standings();
        let ok = ledger.holds() && standings.iter().all(|standing| standing.ledger.holds());
        let (identities, identity_bytes) = engine.identities();
        let per_partition: Vec<PartitionView> = standings
            .iter()
            .map(|standing| {
                let at = standing.partition;
                let position = positions.iter().find(|position| position.partition == at);
                let start = edges.iter().find(|edge| edge.partition == at);
                partition(standing, position, start)
            })
            .collect();
        let behind = |view: &PartitionView| {
            view.high_water.map(|end| u64::try_from(end - view.next_offset).unwrap_or(0))
        };
        Self {
            ledger,
            ledger_ok: ok,
            next_offsets: standings.iter().map(|s| (s.partition, s.next_offset)).collect(),
            watermark: engine.watermark(),
            history: engine.history(),
            waiting: engine.waiting() as u64,
            identities: identities as u64,
            identity_bytes: identity_bytes as u64,
            lag: per_partition.iter().map(behind).sum(),
            blocked_in_sec: None,
            staged: None,
            as_of: None,
            per_partition,
        }
    }
}

impl Counts {
    /// Of several parts of one run.
    pub(super) fn sum(parts: Vec<Self>) -> Self {
        let mut sum = Self { ledger_ok: true, lag: Some(0), ..Self::default() };
        for part in parts {
            sum.ledger = sum.ledger.plus(&part.ledger);
            sum.ledger_ok &= part.ledger_ok;
            sum.next_offsets.extend(part.next_offsets);
            // A partition that has none holds nothing back: its nodes are its own.
            sum.watermark = sum.watermark.into_iter().chain(part.watermark).min();
            sum.history += part.history;
            sum.waiting += part.waiting;
            sum.identities += part.identities;
            sum.identity_bytes += part.identity_bytes;
            sum.lag = sum.lag.zip(part.lag).map(|(a, b)| a + b);
            sum.blocked_in_sec =
                sum.blocked_in_sec.into_iter().chain(part.blocked_in_sec).reduce(f64::min);
            sum.staged = match (sum.staged, part.staged) {
                (Some(a), Some(b)) => Some(a + b),
                (one, other) => one.or(other),
            };
            sum.as_of = sum.as_of.into_iter().chain(part.as_of).min();
            sum.per_partition.extend(part.per_partition);
        }
        sum.per_partition.sort_by_key(|view| view.partition);
        sum.ledger_ok &= sum.ledger.holds();
        sum
    }
}

/// What a report that was kept says of the rows in ClickHouse; `None`: there never were any.
pub(super) fn staged_before(report: Option<&str>) -> Option<u64> {
    report.and_then(|text| serde_json::from_str::<Counts>(text).ok()).and_then(|seen| seen.staged)
}

fn partition(
    standing: &Standing,
    position: Option<&Position>,
    start: Option<&Edge>,
) -> PartitionView {
    // Zeros before the first answer: they say nothing.
    let seen = position.map(|position| position.edge).filter(|edge| edge.high_water > 0);
    // While nothing is fetched, the edges that were asked for are the younger ones: both only rise.
    let edge = [seen, start.copied()].into_iter().flatten();
    let edge = edge.max_by_key(|edge| (edge.earliest, edge.high_water));
    PartitionView {
        partition: standing.partition,
        next_offset: standing.next_offset,
        ledger: standing.ledger,
        markers: standing.markers,
        ledger_ok: standing.ledger.holds(),
        watermark: standing.watermark,
        active: standing.active,
        idle: standing.idle,
        ended: standing.ended,
        earliest: edge.map(|edge| edge.earliest),
        high_water: edge.map(|edge| edge.high_water),
        waits_for_transaction: position.is_some_and(|position| position.waits_for_transaction),
        retention_per_sec: None,
        blocked_in_sec: None,
    }
}

/// The values of a result, when they are few.
pub(super) fn values(batch: &FeatureBatch) -> Option<Box<RawValue>> {
    (batch.rows() <= VALUES_SHOWN_MAX).then(|| {
        let text =
            String::from_utf8(batch.values_bytes().to_vec()).expect("FINAZ_JSON_V1 is UTF-8");
        RawValue::from_string(text).expect("FINAZ_JSON_V1 is JSON")
    })
}

/// What the golden says of a hash.
pub(super) fn verdict(golden: Option<Hash>, seen: Hash) -> &'static str {
    match golden {
        Some(golden) if golden == seen => "EQUAL_TO_BATCH_GOLDEN",
        Some(_) => "DIFFERS_FROM_BATCH_GOLDEN",
        None => "NO_GOLDEN",
    }
}
