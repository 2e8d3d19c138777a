//! The order in which the nodes of a flow run, and the state of one instrument.

use crate::canonical::Value;
use crate::invalid::Invalid;
use crate::nodes::{self, Node};

/// A few numbers of one event: its fields, or what the nodes made of them; NaN for null. Most flows have one or two.
pub type Numbers = smallvec::SmallVec<[f64; 2]>;

/// One node of a flow.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub id: String,
    /// What it computes: its name and how to make one.
    pub definition: &'static nodes::Definition,
    pub period: u32,
    pub input: Input,
}

/// Where a node takes its values from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Input {
    /// A field of the event.
    Field(String),
    /// The node at this index of the flow's list.
    Node(usize),
}

/// Which nodes run in which order on which fields: each after the one it takes its input from.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The fields of an event that the flow reads, sorted.
    pub(super) fields: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// The index of the node in the flow's list.
    node: usize,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The index in the plan's fields.
    Field(usize),
    /// The index in the flow's list.
    Node(usize),
}

impl Plan {
    /// The plan, or the indices of nodes that form a cycle, each fed by the next.
    pub(super) fn of(nodes: &[NodeSpec]) -> Result<Self, Vec<usize>> {
        let mut fields: Vec<String> = nodes.iter().filter_map(NodeSpec::field).collect();
        fields.sort_unstable();
        fields.dedup();
        let mut steps = Vec::with_capacity(nodes.len());
        let mut planned = vec![false; nodes.len()];
        for start in 0..nodes.len() {
            // A node has one input, so what it waits for is a chain.
            let mut chain = Vec::new();
            let mut next = Some(start);
            while let Some(node) = next.filter(|&node| !planned[node]) {
                planned[node] = true;
                chain.push(node);
                next = match nodes[node].input {
                    Input::Field(_) => None,
                    Input::Node(input) => Some(input),
                };
            }
            // It ends at a field, at a node planned before, or in itself.
            if let Some(at) = chain.iter().position(|&node| Some(node) == next) {
                return Err(chain.split_off(at));
            }
            let step = |node: usize| Step { node, source: source(&nodes[node].input, &fields) };
            steps.extend(chain.into_iter().rev().map(step));
        }
        Ok(Self { fields, steps })
    }
}

fn source(input: &Input, fields: &[String]) -> Source {
    match input {
        Input::Node(node) => Source::Node(*node),
        Input::Field(field) => {
            Source::Field(fields.binary_search(field).expect("every field of a node is listed"))
        }
    }
}

impl NodeSpec {
    fn field(&self) -> Option<String> {
        match &self.input {
            Input::Field(field) => Some(field.clone()),
            Input::Node(_) => None,
        }
    }
}

/// The nodes of a flow over one instrument, each with its state, in the flow's order.
#[derive(Debug)]
pub struct InstrumentState {
    nodes: Vec<Box<dyn Node>>,
}

impl InstrumentState {
    /// Nodes that have seen nothing.
    pub(super) fn new(nodes: &[NodeSpec]) -> Self {
        let make = |node: &NodeSpec| (node.definition.make)(node.period);
        Self { nodes: nodes.iter().map(make).collect() }
    }

    /// Takes in a column for each of the plan's fields, all of one length; gives a column for each
    /// node, in the flow's order.
    pub(super) fn extend(&mut self, plan: &Plan, columns: &[&[f64]]) -> Vec<Vec<f64>> {
        let mut outputs: Vec<Vec<f64>> = vec![Vec::new(); self.nodes.len()];
        for step in &plan.steps {
            let mut output = Vec::new();
            let input = match step.source {
                Source::Field(field) => columns[field],
                Source::Node(node) => &outputs[node],
            };
            self.nodes[step.node].extend(input, &mut output);
            outputs[step.node] = output;
        }
        outputs
    }

    /// Takes in one event: a value for each of the plan's fields, NaN for null; gives one for each node.
    pub(super) fn push(&mut self, plan: &Plan, fields: &[f64]) -> Numbers {
        let mut values = Numbers::from_elem(f64::NAN, self.nodes.len());
        for step in &plan.steps {
            let x = match step.source {
                Source::Field(field) => fields[field],
                Source::Node(node) => values[node],
            };
            values[step.node] = self.nodes[step.node].push(x);
        }
        values
    }

    /// All that the nodes remember.
    #[must_use]
    pub fn state(&self) -> Value {
        Value::List(self.nodes.iter().map(|node| node.state()).collect())
    }

    /// Takes up what [`InstrumentState::state`] gave.
    pub(super) fn restore(&mut self, state: &Value) -> Result<(), Invalid> {
        let states = if let Value::List(states) = state { states.as_slice() } else { &[] };
        if states.len() != self.nodes.len() {
            let hint = "restore a state of the same flow";
            let message = "not the states of this flow's nodes";
            return Err(Invalid::new("NODE_STATE", "nodes", message, hint));
        }
        self.nodes.iter_mut().zip(states).try_for_each(|(node, state)| node.restore(state))
    }
}
