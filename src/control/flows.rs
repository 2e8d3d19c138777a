//! Flow manifests: check, keep, list, show.

use std::path::PathBuf;

use serde::Serialize;

use super::{Control, Error, inputs};
use crate::artifacts::{Kind, Label};
use crate::flow::{Flow, Input};
use crate::ids::Hash;

/// Flows, each as its manifest says.
#[derive(Clone, Debug, Serialize)]
pub struct FlowsReport {
    pub flows: Vec<FlowView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FlowView {
    pub flow: Hash,
    pub name: String,
    /// The flow's own snapshot, as written: a hash, a file or a name.
    pub snapshot: Option<String>,
    /// Empty: all instruments of the snapshot.
    pub instruments: Vec<String>,
    pub allowed_lateness_ns: i64,
    pub nodes: Vec<NodeView>,
    pub dataset: String,
    pub golden: Option<Hash>,
    /// Kept in the artifact store under its name.
    pub saved: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub period: u32,
    /// A field of the event or another node's id.
    pub input: String,
}

impl FlowView {
    fn of(flow: Flow, saved: bool) -> Self {
        let nodes = flow.nodes.iter().map(|node| NodeView {
            id: node.id.clone(),
            kind: node.definition.name,
            period: node.period,
            input: match &node.input {
                Input::Field(field) => field.clone(),
                Input::Node(index) => flow.nodes[*index].id.clone(),
            },
        });
        Self {
            flow: flow.hash,
            nodes: nodes.collect(),
            name: flow.name,
            snapshot: flow.snapshot,
            instruments: flow.instruments,
            allowed_lateness_ns: flow.allowed_lateness_ns,
            dataset: flow.dataset,
            golden: flow.golden,
            saved,
        }
    }
}

/// Checks manifests. With `save` each is kept in the artifact store under its name; then all of them
/// are good, or none is kept.
pub fn validate(
    control: &Control,
    files: &[PathBuf],
    save: bool,
    replace: bool,
) -> Result<FlowsReport, Error> {
    let flows: Vec<Flow> =
        files.iter().map(|file| inputs::read_flow(file)).collect::<Result<_, _>>()?;
    if save {
        let artifacts = control.artifacts()?;
        for flow in &flows {
            artifacts.put(&flow.canonical)?;
            let label = Label { hash: flow.hash, golden: flow.golden };
            artifacts.set_label(Kind::Flow, &flow.name, &label, replace)?;
        }
    }
    Ok(FlowsReport { flows: flows.into_iter().map(|flow| FlowView::of(flow, save)).collect() })
}

/// A name and the flow that it stands for.
#[derive(Clone, Debug, Serialize)]
pub struct NamedFlow {
    pub name: String,
    pub flow: Hash,
    pub golden: Option<Hash>,
}

#[derive(Clone, Debug, Serialize)]
pub struct NamedFlows {
    pub flows: Vec<NamedFlow>,
}

/// The flows that have a name, by name.
pub fn list(control: &Control) -> Result<NamedFlows, Error> {
    let labels = match control.existing_artifacts()? {
        Some(artifacts) => artifacts.labels(Kind::Flow)?,
        None => Vec::new(),
    };
    let named =
        |(name, label): (String, Label)| NamedFlow { name, flow: label.hash, golden: label.golden };
    Ok(NamedFlows { flows: labels.into_iter().map(named).collect() })
}

/// One flow, by hash, file or name.
pub fn show(control: &Control, reference: &str) -> Result<FlowView, Error> {
    let (flow, saved) = inputs::look_at_flow(control, reference)?;
    Ok(FlowView::of(flow, saved))
}
