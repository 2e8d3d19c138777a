//! What an engine is, to be kept and taken up again bit for bit; and what it has computed so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::engine::{Engine, Plan};
use super::lane::{Anchor, Lane};
use super::waitroom::Waiting;
use super::{Accepted, Applied, Delta, Identity, Ledger};
use crate::canonical::Value;
use crate::flow::{FeatureBatch, Times, gather};
use crate::ids::Hash;
use crate::invalid::Invalid;

/// Of the layout below; another one is refused, never half read.
const VERSION: i64 = 1;

/// The layout of the state, for whoever keeps it.
pub const STATE: i64 = VERSION;
/// The rules by which records are decided and values computed. Another number: the same log may come to other values.
pub const ENGINE: i64 = 1;

/// How far a kept state has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    pub next_offsets: BTreeMap<i32, i64>,
    /// W, nanoseconds since 1970 UTC; `None` while it has not moved.
    pub watermark: Option<i64>,
    pub ledger: Ledger,
}

impl Position {
    /// Of a state; `None` when it is none.
    #[must_use]
    pub fn of(state: &Value) -> Option<Self> {
        let map = as_map(state)?;
        if map.get("version") != Some(&Value::Int(VERSION)) {
            return None;
        }
        let watermark = as_int(map.get("watermark")?)?;
        let lanes = as_list(map.get("lanes")?)?.iter().map(lane_of);
        let lanes: BTreeMap<i32, Lane> = lanes.collect::<Option<_>>()?;
        let ledger = lanes.values().fold(Ledger::default(), |sum, lane| sum.plus(&lane.ledger));
        Some(Self {
            next_offsets: lanes
                .iter()
                .map(|(partition, lane)| (*partition, lane.next_offset))
                .collect(),
            watermark: (watermark > i64::MIN).then_some(watermark),
            ledger,
        })
    }
}

/// How a partition stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    pub partition: i32,
    pub next_offset: i64,
    pub ledger: Ledger,
    pub markers: u64,
    /// W_p, nanoseconds since 1970 UTC.
    pub watermark: Option<i64>,
    pub idle: bool,
    pub ended: bool,
    pub active: bool,
    pub anchor: Option<Anchor>,
}

/// What a log has become for who has read some of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Astray {
    /// What is to be read next is gone.
    Blocked { partition: i32, needed: i64, earliest: i64 },
    /// The log ends before it: that is not the log that was read.
    Ahead { partition: i32, needed: i64, end: i64 },
}

impl Standing {
    /// Whether a partition from `earliest` to `end` still has what is needed; what must be there unchanged, if anything.
    ///
    /// # Errors
    /// How it does not.
    pub fn check(&self, earliest: i64, end: i64) -> Result<Option<&Anchor>, Astray> {
        let (partition, needed) = (self.partition, self.next_offset);
        if needed < earliest {
            return Err(Astray::Blocked { partition, needed, earliest });
        }
        if needed > end {
            return Err(Astray::Ahead { partition, needed, end });
        }
        // Unless retention or compaction took it.
        Ok(self.anchor.as_ref().filter(|anchor| anchor.offset >= earliest))
    }
}

/// What is kept beside the state: the events that wait and the identities, from the segments of the journal.
#[derive(Debug, Default)]
pub struct Kept {
    /// In lists, as the segments of the journal have them.
    pub identities: Vec<Vec<Identity>>,
    /// Those not applied yet, in any order.
    pub accepted: Vec<Accepted>,
}

impl Engine {
    /// What is new since the last time, and the state with it; W says which accepted events are applied.
    pub fn cut(&mut self) -> (Delta, Value, i64) {
        let mut delta = std::mem::replace(&mut self.delta, std::mem::take(&mut self.spare));
        let accepted = |(partition, event): (i32, Waiting)| {
            let Waiting { event_time, instrument, seq, id, fields } = event;
            let instrument = Arc::clone(&self.running[instrument].name);
            Accepted { event_time, instrument, seq, id, partition, fields }
        };
        delta.accepted.extend(self.waiting.take_new(self.watermark).into_iter().map(accepted));
        (self.passed, self.fed, self.kept_bytes) = (false, false, 0);
        (delta, self.keep(), self.watermark)
    }

    /// Gives back what [`Engine::cut`] gave: the next but one is written where it was, into memory that is there.
    pub fn reuse(&mut self, mut delta: Delta) {
        delta.clear();
        self.spare = delta;
    }

    /// Records that a commit would have to keep now; whatever else was passed counts as one.
    #[must_use]
    pub fn uncommitted(&self) -> usize {
        self.delta.fates.len() + usize::from(self.passed)
    }

    /// Bytes of records that were not taken and that no commit has yet.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// How each partition stands.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
        let lateness = self.plan.flow.allowed_lateness_ns;
        let standing = |(partition, lane): (i32, &Lane)| Standing {
            partition,
            next_offset: lane.next_offset,
            ledger: lane.ledger,
            markers: lane.markers,
            watermark: lane.watermark(lateness),
            idle: lane.idle,
            ended: lane.ended,
            active: lane.active,
            anchor: lane.anchor.clone(),
        };
        self.lanes.iter().map(standing).collect()
    }

    /// W, the watermark of the whole; `None` while it has not moved.
    #[must_use]
    pub fn watermark(&self) -> Option<i64> {
        (self.watermark > i64::MIN).then_some(self.watermark)
    }

    /// Partitions that gave nothing yet and hold the watermark of the whole, while events wait for it.
    #[must_use]
    pub fn silent(&self) -> Vec<i32> {
        let lateness = self.plan.flow.allowed_lateness_ns;
        let holds = |lane: &Lane| lane.says(lateness) == Some(i64::MIN);
        let silent = self.lanes.iter().filter(|(_, lane)| self.waiting.len() > 0 && holds(lane));
        silent.map(|(partition, _)| partition).collect()
    }

    /// Accepted events that wait for the watermark.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Identities known, and the bytes that they take.
    #[must_use]
    pub fn identities(&self) -> (usize, usize) {
        (self.identities.len(), self.identities.bytes())
    }

    fn keep(&mut self) -> Value {
        let lanes = self.lanes.iter_mut().map(|(partition, lane)| lane_value(partition, lane));
        let lanes = Value::List(lanes.collect());
        let instruments = self.running.iter().map(|running| {
            object([
                ("name", Value::Text(running.name.to_string())),
                ("nodes", running.nodes.state()),
                ("applied", count(running.applied)),
            ])
        });
        object([
            ("version", Value::Int(VERSION)),
            ("lanes", lanes),
            ("instruments", Value::List(instruments.collect())),
            ("watermark", Value::Int(self.watermark)),
        ])
    }

    /// The engine as [`Engine::cut`] left it.
    ///
    /// # Errors
    /// `STREAM_STATE`: no state, one of another layout or of other partitions.
    pub fn restore(plan: Plan, state: &Value, kept: Kept) -> Result<Self, Invalid> {
        let mut engine = Self::new(plan);
        engine.take_up(state).ok_or_else(|| wrong("this is no state of this stream's flow"))?;
        engine.identities.reserve(kept.identities.iter().map(Vec::len).sum());
        for list in kept.identities {
            for identity in list {
                engine.identities.note(identity);
            }
        }
        for event in kept.accepted {
            if event.event_time < engine.watermark {
                continue;
            }
            let instrument = engine.index.get(&*event.instrument).copied();
            let instrument =
                instrument.ok_or_else(|| wrong("an event of an unknown instrument"))?;
            let Accepted { event_time, seq, id, partition, fields, .. } = event;
            engine.waiting.push(partition, Waiting { event_time, instrument, seq, id, fields });
        }
        engine.waiting.are_kept();
        Ok(engine)
    }

    fn take_up(&mut self, state: &Value) -> Option<()> {
        let map = as_map(state)?;
        if map.get("version") != Some(&Value::Int(VERSION)) || map.len() != 4 {
            return None;
        }
        self.watermark = as_int(map.get("watermark")?)?;
        for lane in as_list(map.get("lanes")?)? {
            let (partition, lane) = lane_of(lane)?;
            *self.lanes.get_mut(partition)? = lane;
        }
        for instrument in as_list(map.get("instruments")?)? {
            let map = as_map(instrument)?;
            let Value::Text(name) = map.get("name")? else { return None };
            let number = match self.index.get(name) {
                Some(number) => *number,
                None if self.plan.flow.instruments.is_empty() => self.instrument(name),
                None => return None,
            };
            let nodes = self.plan.flow.resume(map.get("nodes")?).ok()?;
            let applied = u64::try_from(as_int(map.get("applied")?)?).ok()?;
            let running = &mut self.running[number];
            (running.nodes, running.applied) = (nodes, applied);
        }
        Some(())
    }

    /// What every accepted event comes to, those that still wait included, in event-time order: what was applied up to here
    /// is to be added in that order. The engine itself stays as it is.
    #[must_use]
    pub fn gather(&self) -> Gathering<'_> {
        let nodes = self.plan.flow.nodes.len();
        let column = |_| (Vec::new(), vec![Vec::new(); nodes]);
        Gathering { engine: self, columns: self.running.iter().map(column).collect() }
    }
}

/// The values of a stream while they are put together.
#[derive(Debug)]
pub struct Gathering<'a> {
    engine: &'a Engine,
    /// For each instrument its times, and a column for each node.
    columns: Vec<(Vec<i64>, Vec<Vec<f64>>)>,
}

impl Gathering<'_> {
    /// Adds an event that was applied.
    pub fn add(&mut self, event: &Applied) {
        if let Some(instrument) = self.engine.index.get(&*event.instrument) {
            self.push(*instrument, event.event_time, &event.values);
        }
    }

    fn push(&mut self, instrument: usize, time: i64, values: &[f64]) {
        let (times, columns) = &mut self.columns[instrument];
        times.push(time);
        for (column, value) in columns.iter_mut().zip(values) {
            column.push(*value);
        }
    }

    /// Adds what still waits; `source` names where it all came from.
    ///
    /// # Panics
    /// Never: a state that the engine has given can be taken up by its own flow.
    #[must_use]
    pub fn finish(mut self, source: Hash) -> FeatureBatch {
        let (engine, flow) = (self.engine, &self.engine.plan.flow);
        let mut nodes: Vec<_> = engine
            .running
            .iter()
            .map(|running| flow.resume(&running.nodes.state()).expect("a state of its own"))
            .collect();
        for event in engine.waiting.sorted() {
            let values = flow.push(&mut nodes[event.instrument], &event.fields);
            self.push(event.instrument, event.event_time, &values);
        }
        let mut parts: Vec<(Times, Vec<Vec<f64>>)> = engine
            .running
            .iter()
            .zip(self.columns)
            .map(|(running, (event_time, values))| {
                (Times { instrument: running.name.to_string(), event_time }, values)
            })
            .collect();
        if flow.instruments.is_empty() {
            parts.sort_unstable_by(|a, b| a.0.instrument.cmp(&b.0.instrument));
        }
        gather(flow, source, parts)
    }
}

/// The partitions of a state that [`Engine::cut`] gave; none for anything else.
#[must_use]
pub fn partitions_of(state: &Value) -> Vec<i32> {
    let lanes = as_map(state).and_then(|map| as_list(map.get("lanes")?)).unwrap_or_default();
    let number = |lane: &Value| i32::try_from(as_int(as_map(lane)?.get("partition")?)?).ok();
    lanes.iter().filter_map(number).collect()
}

fn lane_value(partition: i32, lane: &mut Lane) -> Value {
    let anchor = lane.anchor().map_or(Value::Null, |anchor| {
        object([
            ("offset", Value::Int(anchor.offset)),
            ("hash", Value::Text(anchor.hash.to_string())),
        ])
    });
    object([
        ("partition", Value::Int(i64::from(partition))),
        ("next_offset", Value::Int(lane.next_offset)),
        ("max_time", lane.max_time.map_or(Value::Null, Value::Int)),
        ("ledger", lane.ledger.to_value()),
        ("markers", count(lane.markers)),
        ("idle", Value::Bool(lane.idle)),
        ("ended", Value::Bool(lane.ended)),
        ("active", Value::Bool(lane.active)),
        ("anchor", anchor),
    ])
}

fn lane_of(value: &Value) -> Option<(i32, Lane)> {
    let map = as_map(value)?;
    let truth = |name: &str| {
        let Value::Bool(truth) = map.get(name)? else { return None };
        Some(*truth)
    };
    let given =
        |name: &str| Some(map.get(name)?).map(|value| Some(value).filter(|v| **v != Value::Null));
    let anchor = match given("anchor")? {
        Some(anchor) => Some(anchor_of(as_map(anchor)?)?),
        None => None,
    };
    let max_time = match given("max_time")? {
        Some(time) => Some(as_int(time)?),
        None => None,
    };
    let lane = Lane {
        next_offset: as_int(map.get("next_offset")?)?,
        max_time,
        ledger: Ledger::from_map(as_map(map.get("ledger")?)?)?,
        markers: u64::try_from(as_int(map.get("markers")?)?).ok()?,
        idle: truth("idle")?,
        ended: truth("ended")?,
        active: truth("active")?,
        anchor,
        last: None,
    };
    let partition = i32::try_from(as_int(map.get("partition")?)?).ok()?;
    (map.len() == 9).then_some((partition, lane))
}

fn anchor_of(map: &BTreeMap<String, Value>) -> Option<Anchor> {
    let Value::Text(hash) = map.get("hash")? else { return None };
    Some(Anchor { offset: as_int(map.get("offset")?)?, hash: hash.parse().ok()? })
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Map(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

fn count(count: u64) -> Value {
    Value::Int(i64::try_from(count).expect("no log is that long"))
}

fn as_map(value: &Value) -> Option<&BTreeMap<String, Value>> {
    if let Value::Map(map) = value { Some(map) } else { None }
}

fn as_list(value: &Value) -> Option<&[Value]> {
    if let Value::List(list) = value { Some(list) } else { None }
}

fn as_int(value: &Value) -> Option<i64> {
    if let Value::Int(int) = value { Some(*int) } else { None }
}

fn wrong(message: &str) -> Invalid {
    Invalid::new("STREAM_STATE", "state", message, "name the journal of this very run")
}
