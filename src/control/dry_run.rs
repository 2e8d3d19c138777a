//! What a run would give, computed here and now: no server, nothing published.

use serde::Serialize;

use super::admit::AdmitRequest;
use super::inputs;
use super::run_once::ResultView;
use super::{Control, Error};
use crate::flow;
use crate::ids::Hash;
use crate::rules::admission::Request;

/// The fields of a `run-once`, of which those that only a run has are empty.
#[derive(Clone, Debug, Serialize)]
pub struct DryRun {
    pub dry_run: bool,
    /// The id that the run would have.
    pub run_id: String,
    pub state: Option<String>,
    pub fence: Option<i64>,
    pub run_revision: Option<i64>,
    pub already_done: bool,
    pub flow: Hash,
    pub snapshot: Hash,
    pub result: ResultView,
    /// `EQUAL` or `DIFFERS`, when the flow names a golden and ran over its own snapshot.
    pub golden: Option<&'static str>,
}

/// Computes the values of a request. A flow or snapshot in a file is read, and kept in the artifact store.
pub fn dry_run(control: &Control, request: &AdmitRequest) -> Result<DryRun, Error> {
    let flow = inputs::load_flow(control, &request.flow)?;
    let snapshot = inputs::snapshot_of(control, &flow, request.snapshot.as_deref())?;
    let named = Request::new(
        &request.principal,
        &request.operation,
        request.key.as_deref(),
        flow.hash,
        snapshot,
    )?;
    let projection = inputs::project(control.artifacts()?, &flow, snapshot)?;
    let batch = flow::compute(&flow, snapshot, &projection)?;
    let golden = inputs::golden_for(control, &flow, snapshot);
    Ok(DryRun {
        dry_run: true,
        run_id: named.run_id,
        state: None,
        fence: None,
        run_revision: None,
        already_done: false,
        flow: flow.hash,
        snapshot,
        golden: golden.map(|golden| if golden == batch.values_hash { "EQUAL" } else { "DIFFERS" }),
        // Where it would be: the name of an artifact is known before it is kept.
        result: ResultView::of(Hash::of(&batch.to_blob()), &batch),
    })
}
