//! From a document to a [`Flow`]: one typed model for YAML and JSON, every error at its place.

use std::collections::{HashMap, HashSet};

use super::plan::{Input, NodeSpec, Plan};
use super::{Flow, duration};
use crate::canonical::{Step, Value};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::manifest::{self, Codes, Dialect, Document, Object, shown};
use crate::nodes;

pub(super) static FLOW: Dialect = Dialect {
    kind: "Flow",
    noun: "flow",
    // A flow of a thousand nodes is below a tenth of these.
    bytes_max: 1 << 20,
    values_max: 100_000,
    too_large_hint: "is this the right file? A snapshot goes to `finaz snapshot import`",
    codes: Codes {
        too_large: "FLOW_TOO_LARGE",
        too_complex: "FLOW_TOO_COMPLEX",
        syntax: "FLOW_SYNTAX",
        bom: "FLOW_BOM",
        duplicate_key: "FLOW_DUPLICATE_KEY",
        kind: "FLOW_KIND",
        unknown_field: "FLOW_UNKNOWN_FIELD",
        missing_field: "FLOW_MISSING_FIELD",
        wrong_type: "FLOW_WRONG_TYPE",
        name: "FLOW_NAME",
    },
};

/// Each node holds state for each instrument.
const NODES_MAX: usize = 1000;

/// The fields that every event has. A node of such a name would hide it from the nodes after it.
const EVENT_FIELDS: [&str; 5] = ["close", "event_id", "event_time", "instrument", "seq"];

pub(super) fn read(document: &Document<'_>) -> Result<Flow, Invalid> {
    let root = Object::root(document)?;
    root.only(&["kind", "name", "source", "instruments", "clock", "nodes", "sink", "golden"])?;
    let name = root.name("name")?;
    let snapshot = match root.object("source")? {
        None => None,
        Some(source) => {
            source.only(&["snapshot"])?;
            Some(source.name("snapshot")?.to_owned())
        }
    };
    let allowed_lateness_ns = match root.object("clock")? {
        None => 0,
        Some(clock) => {
            clock.only(&["allowed_lateness"])?;
            duration(&clock, "allowed_lateness")?
        }
    };
    let sink = root.object("sink")?.ok_or_else(|| root.missing("sink", "{dataset: features}"))?;
    sink.only(&["dataset"])?;
    let dataset = sink.name("dataset")?;
    let golden = golden(&root)?;
    let instruments = instruments(&root)?;
    let nodes = read_nodes(&root)?;
    let plan = Plan::of(&nodes).map_err(|cycle| refuse_cycle(&root, &nodes, &cycle))?;
    let mut written = root.fields().clone();
    written.remove("golden");
    let canonical = Value::Map(written).to_bytes()?;
    Ok(Flow {
        name: name.to_owned(),
        snapshot,
        instruments,
        allowed_lateness_ns,
        nodes,
        dataset: dataset.to_owned(),
        golden,
        hash: Hash::of(&canonical),
        canonical,
        plan,
    })
}

fn read_nodes(root: &Object<'_>) -> Result<Vec<NodeSpec>, Invalid> {
    let objects = root.objects("nodes")?.ok_or_else(|| {
        root.missing(
            "nodes",
            "a list of nodes such as {id: ema3, type: ema, period: 3, input: close}",
        )
    })?;
    if objects.is_empty() || objects.len() > NODES_MAX {
        let message = format!("a flow has from 1 to {NODES_MAX} nodes, not {}", objects.len());
        return Err(root.refuse("nodes", "FLOW_NODES", message, "list what is to be computed"));
    }
    let mut ids: HashMap<&str, usize> = HashMap::new();
    for (index, node) in objects.iter().enumerate() {
        node.only(&["id", "type", "period", "input"])?;
        let id = node.name("id")?;
        if EVENT_FIELDS.contains(&id) {
            let message = format!("{} is a field of every event", shown(id));
            return Err(node.refuse("id", "FLOW_NODE_ID", message, "give the node another id"));
        }
        if ids.insert(id, index).is_some() {
            let message = format!("another node has the id {}", shown(id));
            return Err(node.refuse(
                "id",
                "FLOW_NODE_ID",
                message,
                "give each node an id of its own",
            ));
        }
    }
    objects.iter().map(|node| read_node(node, &ids)).collect()
}

fn read_node(node: &Object<'_>, ids: &HashMap<&str, usize>) -> Result<NodeSpec, Invalid> {
    let kind = node.text("type")?;
    let definition = nodes::find(kind).ok_or_else(|| {
        let hint = manifest::hint(kind, nodes::names(), "node types");
        node.refuse("type", "FLOW_NODE_TYPE", format!("no node is of type {}", shown(kind)), hint)
    })?;
    let input = node.name("input")?;
    let input = match ids.get(input) {
        Some(&index) => Input::Node(index),
        None if ["event_id", "instrument"].contains(&input) => {
            let message = format!("{} is a text, and a node computes with numbers", shown(input));
            let hint = "name a field with numbers, such as close, or another node's id";
            return Err(node.refuse("input", "FLOW_INPUT", message, hint));
        }
        None => Input::Field(input.to_owned()),
    };
    let period = period(node, &definition.periods)?;
    Ok(NodeSpec { id: node.name("id")?.to_owned(), definition, period, input })
}

fn refuse_cycle(root: &Object<'_>, nodes: &[NodeSpec], cycle: &[usize]) -> Invalid {
    let first = cycle[0];
    let mut way: Vec<String> = cycle.iter().map(|&node| shown(&nodes[node].id)).collect();
    way.truncate(10);
    way.push(if cycle.len() > 10 { "…".to_owned() } else { shown(&nodes[first].id) });
    let message = format!("the nodes wait for each other: {}", way.join(" <- "));
    let path = [Step::Field("nodes"), Step::Item(first), Step::Field("input")];
    let hint = "let one of them take a field of the event";
    root.refuse_at(&path, "FLOW_CYCLE", message, hint)
}

fn instruments(root: &Object<'_>) -> Result<Vec<String>, Invalid> {
    let Some(items) = root.list("instruments")? else {
        return Ok(Vec::new());
    };
    if items.is_empty() {
        let hint = "leave the field out to take all instruments of the snapshot";
        return Err(root.refuse("instruments", "FLOW_INSTRUMENTS", "the list is empty", hint));
    }
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let way = [Step::Field("instruments"), Step::Item(index)];
        let Value::Text(name) = item else {
            let message = format!("this is {}, and an instrument's name is a text", item.kind());
            return Err(root.refuse_at(&way, "FLOW_WRONG_TYPE", message, "put it in quotes"));
        };
        root.check_name(&way, name)?;
        if !seen.insert(name.as_str()) {
            let message = format!("the instrument {} is here twice", shown(name));
            return Err(root.refuse_at(&way, "FLOW_INSTRUMENTS", message, "name it once"));
        }
    }
    let text = |item: &Value| if let Value::Text(name) = item { Some(name.clone()) } else { None };
    Ok(items.iter().filter_map(text).collect())
}

fn golden(root: &Object<'_>) -> Result<Option<Hash>, Invalid> {
    if !root.fields().contains_key("golden") {
        return Ok(None);
    }
    let parsed = root.text("golden")?.parse();
    parsed.map(Some).map_err(|error: crate::ids::NotAHash| {
        let hint = "take the values_hash of a run that is known to be right, or leave it out";
        root.refuse("golden", "FLOW_GOLDEN", error.to_string(), hint)
    })
}

fn period(node: &Object<'_>, periods: &std::ops::RangeInclusive<u32>) -> Result<u32, Invalid> {
    let range = format!("a whole number from {} to {}", periods.start(), periods.end());
    let x = node.whole("period", &range)?;
    u32::try_from(x).ok().filter(|x| periods.contains(x)).ok_or_else(|| {
        let message = format!("a period of {x} is not possible");
        node.refuse("period", "FLOW_PERIOD", message, range)
    })
}

fn duration<'a>(object: &Object<'a>, field: &'a str) -> Result<i64, Invalid> {
    let text = object.text(field)?;
    duration::parse(text).ok_or_else(|| {
        let message = format!("{} is no duration", shown(text));
        object.refuse(field, "FLOW_DURATION", message, duration::FORM)
    })
}
