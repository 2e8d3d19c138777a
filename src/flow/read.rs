//! A batch back from its blob. What is read is written again and compared with what was read, so
//! that nothing in a blob goes unchecked: no hash, no count, no order.

use std::collections::BTreeMap;

use super::batch::{FeatureBatch, Part, Times};
use crate::canonical::{self, Value};
use crate::ids::Hash;
use crate::invalid::Invalid;

pub(super) fn batch(bytes: &[u8], place: &str) -> Result<FeatureBatch, Invalid> {
    let damaged = |message: &str| {
        let hint = "run `finaz cas verify`, then compute the result anew";
        Invalid::new("BATCH_DAMAGED", place, message, hint)
    };
    let value = canonical::parse(bytes, place)
        .map_err(|error| Invalid { code: "BATCH_DAMAGED", ..error })?;
    let batch = assemble(&value).ok_or_else(|| damaged("this is no FeatureBatch"))?;
    if batch.to_blob() == bytes {
        return Ok(batch);
    }
    Err(damaged("what it says of its values (a hash, a count, an order) is not so"))
}

fn assemble(value: &Value) -> Option<FeatureBatch> {
    let map = object(value)?;
    let flow = hash(map.get("flow")?)?;
    let snapshot = hash(map.get("snapshot")?)?;
    let times = object(map.get("times")?)?;
    let (mut instruments, mut nodes): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for series in list(map.get("series")?)? {
        let series = object(series)?;
        let (instrument, node) = (text(series.get("instrument")?)?, text(series.get("node")?)?);
        if instruments.last() != Some(&instrument) {
            instruments.push(instrument);
        }
        if instruments.len() == 1 {
            nodes.push(node);
        }
    }
    let values = map.get("values")?;
    let mut parts = Vec::with_capacity(instruments.len());
    for &instrument in &instruments {
        let of_instrument =
            if instruments.len() > 1 { object(values)?.get(instrument)? } else { values };
        let column = |node: &&str| {
            floats(if nodes.len() > 1 { object(of_instrument)?.get(*node)? } else { of_instrument })
        };
        let values: Vec<Vec<f64>> = nodes.iter().map(column).collect::<Option<_>>()?;
        let event_time: Vec<i64> =
            list(times.get(instrument)?)?.iter().map(whole).collect::<Option<_>>()?;
        if values.iter().any(|values| values.len() != event_time.len()) {
            return None;
        }
        parts.push(Part { times: Times { instrument: instrument.to_owned(), event_time }, values });
    }
    Some(FeatureBatch::assemble(flow, snapshot, &nodes, parts))
}

fn object(value: &Value) -> Option<&BTreeMap<String, Value>> {
    if let Value::Map(map) = value { Some(map) } else { None }
}

fn list(value: &Value) -> Option<&[Value]> {
    if let Value::List(items) = value { Some(items) } else { None }
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn whole(value: &Value) -> Option<i64> {
    if let Value::Int(x) = value { Some(*x) } else { None }
}

fn hash(value: &Value) -> Option<Hash> {
    text(value)?.parse().ok()
}

fn floats(value: &Value) -> Option<Vec<f64>> {
    let float = |value: &Value| match value {
        Value::Null => Some(f64::NAN),
        Value::Float(x) => Some(*x),
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Map(_) => None,
    };
    list(value)?.iter().map(float).collect()
}
