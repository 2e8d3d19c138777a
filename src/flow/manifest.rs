//! From a document to a [`Flow`]: one typed model for YAML and JSON, every error at its place.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::document::Document;
use super::plan::{Input, NodeSpec, Plan};
use super::suggest::{self, shown};
use super::{Flow, duration};
use crate::canonical::{Step, Value};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::nodes;

/// Names become keys, labels and columns: long enough for any of them, short enough for a table.
const NAME_BYTES_MAX: usize = 200;
/// Each node holds state for each instrument.
const NODES_MAX: usize = 1000;

/// The fields that every event has. A node of such a name would hide it from the nodes after it.
const EVENT_FIELDS: [&str; 5] = ["close", "event_id", "event_time", "instrument", "seq"];

pub(super) fn read(document: &Document<'_>) -> Result<Flow, Invalid> {
    let root = Object::of(document, &document.value, Vec::new())?;
    root.kind()?;
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
            clock.duration("allowed_lateness")?
        }
    };
    let sink = root.object("sink")?.ok_or_else(|| root.missing("sink", "{dataset: features}"))?;
    sink.only(&["dataset"])?;
    let dataset = sink.name("dataset")?;
    let golden = root.golden()?;
    let instruments = root.instruments()?;
    let nodes = read_nodes(&root)?;
    let plan = Plan::of(&nodes).map_err(|cycle| refuse_cycle(&root, &nodes, &cycle))?;
    let mut written = root.fields.clone();
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
    let items = root.list("nodes")?.ok_or_else(|| {
        root.missing(
            "nodes",
            "a list of nodes such as {id: ema3, type: ema, period: 3, input: close}",
        )
    })?;
    if items.is_empty() || items.len() > NODES_MAX {
        let message = format!("a flow has from 1 to {NODES_MAX} nodes, not {}", items.len());
        return Err(root.refuse("nodes", "FLOW_NODES", message, "list what is to be computed"));
    }
    let objects: Vec<Object<'_>> = items
        .iter()
        .enumerate()
        .map(|(index, item)| {
            let path = root.path(Step::Field("nodes")).into_iter().chain([Step::Item(index)]);
            Object::of(root.document, item, path.collect())
        })
        .collect::<Result<_, _>>()?;
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
        let hint = suggest::hint(kind, nodes::names(), "node types");
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
    let period = node.period(&definition.periods)?;
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
    root.document.invalid(&path, "FLOW_CYCLE", message, hint)
}

/// An object of the document, and the way to it.
struct Object<'a> {
    document: &'a Document<'a>,
    fields: &'a BTreeMap<String, Value>,
    path: Vec<Step<'a>>,
}

impl<'a> Object<'a> {
    fn of(
        document: &'a Document<'a>,
        value: &'a Value,
        path: Vec<Step<'a>>,
    ) -> Result<Self, Invalid> {
        let Value::Map(fields) = value else {
            let message = format!("this is {}, and an object is needed here", value.kind());
            let hint = "write `key: value` pairs, or {key: value}";
            return Err(document.invalid(&path, "FLOW_WRONG_TYPE", message, hint));
        };
        Ok(Self { document, fields, path })
    }

    /// Only these fields are there.
    fn only(&self, known: &[&str]) -> Result<(), Invalid> {
        let Some(field) = self.fields.keys().find(|field| !known.contains(&field.as_str())) else {
            return Ok(());
        };
        let message = format!("there is no field {}", shown(field));
        let hint = suggest::hint(field, known.iter().copied(), "fields here");
        let path = self.path(Step::Key(field));
        Err(self.document.invalid(&path, "FLOW_UNKNOWN_FIELD", message, hint))
    }

    /// The document says that it is a flow.
    fn kind(&self) -> Result<(), Invalid> {
        let kind = self.text("kind")?;
        if kind == "Flow" {
            return Ok(());
        }
        let message = format!("the kind is {}, and this must be a Flow", shown(kind));
        Err(self.refuse("kind", "FLOW_KIND", message, "kind: Flow"))
    }

    fn object(&self, field: &'a str) -> Result<Option<Self>, Invalid> {
        let read = |value| Self::of(self.document, value, self.path(Step::Field(field)));
        self.fields.get(field).map(read).transpose()
    }

    fn list(&self, field: &'a str) -> Result<Option<&'a [Value]>, Invalid> {
        match self.fields.get(field) {
            None => Ok(None),
            Some(Value::List(items)) => Ok(Some(items)),
            Some(other) => Err(self.wrong_type(field, other, "a list")),
        }
    }

    fn text(&self, field: &'a str) -> Result<&'a str, Invalid> {
        match self.fields.get(field) {
            Some(Value::Text(text)) => Ok(text),
            Some(other) => Err(self.wrong_type(field, other, "a text")),
            None => Err(self.missing(field, "a text")),
        }
    }

    /// A text that is fit to be a name.
    fn name(&self, field: &'a str) -> Result<&'a str, Invalid> {
        let name = self.text(field)?;
        self.check_name(&[Step::Field(field)], name)?;
        Ok(name)
    }

    fn check_name(&self, way: &[Step<'a>], name: &str) -> Result<(), Invalid> {
        let message = if name.is_empty() {
            "a name has at least one character".to_owned()
        } else if name.len() > NAME_BYTES_MAX {
            format!("a name of {} bytes; {NAME_BYTES_MAX} is the most", name.len())
        } else if name.chars().any(char::is_control) {
            format!("a control character in the name {}", shown(name))
        } else if name.trim() != name {
            format!("space around the name {}", shown(name))
        } else {
            return Ok(());
        };
        let path: Vec<_> = self.path.iter().chain(way).copied().collect();
        Err(self.document.invalid(
            &path,
            "FLOW_NAME",
            message,
            "letters, digits, `.`, `_` and `-` are safe",
        ))
    }

    fn instruments(&self) -> Result<Vec<String>, Invalid> {
        let Some(items) = self.list("instruments")? else {
            return Ok(Vec::new());
        };
        if items.is_empty() {
            let hint = "leave the field out to take all instruments of the snapshot";
            return Err(self.refuse("instruments", "FLOW_INSTRUMENTS", "the list is empty", hint));
        }
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let way = [Step::Field("instruments"), Step::Item(index)];
            let path: Vec<_> = self.path.iter().chain(&way).copied().collect();
            let Value::Text(name) = item else {
                let message =
                    format!("this is {}, and an instrument's name is a text", item.kind());
                return Err(self.document.invalid(
                    &path,
                    "FLOW_WRONG_TYPE",
                    message,
                    "put it in quotes",
                ));
            };
            self.check_name(&way, name)?;
            if !seen.insert(name.as_str()) {
                let message = format!("the instrument {} is here twice", shown(name));
                return Err(self.document.invalid(
                    &path,
                    "FLOW_INSTRUMENTS",
                    message,
                    "name it once",
                ));
            }
        }
        let text =
            |item: &Value| if let Value::Text(name) = item { Some(name.clone()) } else { None };
        Ok(items.iter().filter_map(text).collect())
    }

    fn golden(&self) -> Result<Option<Hash>, Invalid> {
        if !self.fields.contains_key("golden") {
            return Ok(None);
        }
        let parsed = self.text("golden")?.parse();
        parsed.map(Some).map_err(|error: crate::ids::NotAHash| {
            let hint = "take the values_hash of a run that is known to be right, or leave it out";
            self.refuse("golden", "FLOW_GOLDEN", error.to_string(), hint)
        })
    }

    fn period(&self, periods: &std::ops::RangeInclusive<u32>) -> Result<u32, Invalid> {
        let range = format!("a whole number from {} to {}", periods.start(), periods.end());
        match self.fields.get("period") {
            None => Err(self.missing("period", &range)),
            Some(Value::Int(x)) => {
                u32::try_from(*x).ok().filter(|x| periods.contains(x)).ok_or_else(|| {
                    let message = format!("a period of {x} is not possible");
                    self.refuse("period", "FLOW_PERIOD", message, range)
                })
            }
            Some(Value::Uint(x)) => {
                let message = format!("a period of {x} is not possible");
                Err(self.refuse("period", "FLOW_PERIOD", message, range))
            }
            Some(other) => Err(self.wrong_type("period", other, &range)),
        }
    }

    fn duration(&self, field: &'a str) -> Result<i64, Invalid> {
        let text = self.text(field)?;
        duration::parse(text).ok_or_else(|| {
            let message = format!("{} is no duration", shown(text));
            self.refuse(field, "FLOW_DURATION", message, duration::FORM)
        })
    }

    fn missing(&self, field: &str, wanted: &str) -> Invalid {
        let message = format!("the field `{field}` is missing");
        let hint = format!("add `{field}: …`, {wanted}");
        self.document.invalid(&self.path, "FLOW_MISSING_FIELD", message, hint)
    }

    fn wrong_type(&self, field: &'a str, found: &Value, wanted: &str) -> Invalid {
        let message = format!("`{field}` is {}, and {wanted} is needed", found.kind());
        let hint = match (found, wanted) {
            (Value::Int(_) | Value::Uint(_) | Value::Float(_) | Value::Bool(_), "a text") => {
                "put it in quotes if it is meant as a text"
            }
            _ => "see the fixture's manifest for the form of a flow",
        };
        self.refuse(field, "FLOW_WRONG_TYPE", message, hint)
    }

    /// An error at the value of a field.
    fn refuse(
        &self,
        field: &'a str,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Invalid {
        self.document.invalid(&self.path(Step::Field(field)), code, message, hint)
    }

    fn path(&self, step: Step<'a>) -> Vec<Step<'a>> {
        self.path.iter().copied().chain([step]).collect()
    }
}
