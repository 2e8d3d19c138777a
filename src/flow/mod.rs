//! A flow: what to compute, from which events; its manifest, its plan, and the batch that comes out.
//!
//! The way of a run: [`Flow::parse`] reads a manifest, [`project`] reads of a snapshot what the flow
//! needs and no more, [`compute`] sends each column through the nodes, and the [`FeatureBatch`]
//! hashes what came out. Everything here is pure: the same bytes in, the same bytes out.

mod batch;
mod duration;
mod manifest;
mod plan;
mod project;
mod read;
pub mod scan;
#[cfg(test)]
mod tests;

use crate::canonical::Value;
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::manifest::Document;

pub use batch::{
    Begun, FeatureBatch, Series, Times, compute, compute_kept, compute_on, gather, unite,
};
pub use duration::{FORM as DURATION_FORM, parse as nanoseconds};
pub use plan::{Input, InstrumentState, NodeSpec, Numbers};
pub use project::{
    Error, InstrumentColumns, Projection, Reached, check_fields, project, project_rest,
};

/// A manifest of kind `Flow` that was found good.
#[derive(Clone, Debug)]
pub struct Flow {
    pub name: String,
    /// `source.snapshot`: a name, a file or a hash, as written; a command may say another.
    pub snapshot: Option<String>,
    /// In the order written, without repetition; empty: all of the snapshot.
    pub instruments: Vec<String>,
    /// `clock.allowed_lateness` in nanoseconds; 0 when the manifest says none.
    pub allowed_lateness_ns: i64,
    /// In the order written.
    pub nodes: Vec<NodeSpec>,
    /// `sink.dataset`.
    pub dataset: String,
    /// The hash that the values are expected to have; not part of the flow's own hash.
    pub golden: Option<Hash>,
    /// The hash of `canonical`.
    pub hash: Hash,
    /// FINAZ_JSON_V1 of the document as written, without `golden`. It is a manifest as well.
    pub canonical: Vec<u8>,
    plan: plan::Plan,
}

impl Flow {
    /// Reads a manifest in YAML or JSON. `place` is its file name, or another name for errors; a
    /// name that ends in `.json` is read as JSON, `.yaml` and `.yml` as YAML, any other as JSON if
    /// it starts with `{`.
    ///
    /// # Errors
    /// A `FLOW_…` code, the place as `file:line:column`.
    pub fn parse(bytes: &[u8], place: &str) -> Result<Self, Invalid> {
        manifest::read(&Document::read(bytes, place, &manifest::FLOW)?)
    }

    /// The fields of an event that the nodes read, sorted.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        &self.plan.fields
    }

    /// The nodes for one instrument, which have seen nothing.
    #[must_use]
    pub fn start(&self) -> InstrumentState {
        InstrumentState::new(&self.nodes)
    }

    /// The nodes as [`InstrumentState::state`] left them.
    ///
    /// # Errors
    /// `NODE_STATE` for what this flow's nodes cannot have given.
    pub fn resume(&self, state: &Value) -> Result<InstrumentState, Invalid> {
        let mut nodes = self.start();
        nodes.restore(state)?;
        Ok(nodes)
    }

    /// Sends one event through the nodes: a value for each of [`Flow::fields`], NaN for null; gives one for each node.
    #[must_use]
    pub fn push(&self, nodes: &mut InstrumentState, fields: &[f64]) -> Numbers {
        nodes.push(&self.plan, fields)
    }
}
