//! Runs: list, show, cancel, wait, trace.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Control, Error};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::rules::run::{Cancel, State, cancel as decide_cancel};
use crate::store::{RunFilter, RunRow};

/// `run_` and 6 digits: shorter beginnings would meet many.
const PREFIX_BYTES_MIN: usize = 10;
/// How often a waiting command looks.
const WAIT_POLL: Duration = Duration::from_millis(100);

/// Runs as they stand.
#[derive(Clone, Debug, Serialize)]
pub struct RunsReport {
    pub runs: Vec<RunView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    pub run_id: String,
    pub state: String,
    pub fence: i64,
    pub run_revision: i64,
    pub attempts: i32,
    pub error: Option<String>,
    pub result: Option<ResultRef>,
    pub flow: Hash,
    pub snapshot: Hash,
    pub cancel_requested: bool,
}

/// Where a published result is.
#[derive(Clone, Debug, Serialize)]
pub struct ResultRef {
    /// The FeatureBatch in the artifact store.
    #[serde(rename = "ref")]
    pub blob: Hash,
    pub values_hash: Hash,
    pub rows: i64,
    pub epoch: i64,
    pub fence: i64,
}

impl From<RunRow> for RunView {
    fn from(row: RunRow) -> Self {
        let result = row.publication.map(|(epoch, fence, blob, values_hash, rows)| ResultRef {
            blob,
            values_hash,
            rows,
            epoch,
            fence,
        });
        Self {
            run_id: row.run_id,
            state: row.state,
            fence: row.fence,
            run_revision: row.run_revision,
            attempts: row.attempts,
            error: row.error,
            result,
            flow: row.flow,
            snapshot: row.snapshot,
            cancel_requested: row.cancel_requested,
        }
    }
}

/// The newest runs, the newest first.
pub async fn list(control: &Control, state: Option<&str>, limit: i64) -> Result<RunsReport, Error> {
    let state = match state {
        None => None,
        Some(text) => {
            let state = text.to_uppercase().parse::<State>().map_err(|()| {
                Invalid::new(
                    "STATE_UNKNOWN",
                    "--state",
                    format!("{text:?} is no state of a run"),
                    "give QUEUED, RUNNING, SUCCEEDED, FAILED or CANCELLED",
                )
            })?;
            Some(state.to_string())
        }
    };
    let filter = RunFilter { state, limit: limit.min(super::evidence::LIST_MAX) };
    let rows = control.ready_store().await?.runs(&filter).await?;
    Ok(RunsReport { runs: rows.into_iter().map(RunView::from).collect() })
}

/// One run.
pub async fn show(control: &Control, run_id: &str) -> Result<RunsReport, Error> {
    let row = find(control, run_id).await?;
    Ok(RunsReport { runs: vec![row.into()] })
}

/// A run by its id, or by the beginning of one as tables show it.
pub(super) async fn find(control: &Control, run_id: &str) -> Result<RunRow, Error> {
    let digits = run_id.strip_prefix("run_").unwrap_or_default();
    let is_short = run_id.len() < PREFIX_BYTES_MIN && !digits.is_empty();
    if is_short && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let hint = "give six digits or more of its id";
        return Err(Invalid::new("RUN_ID_SHORT", run_id, "is too short a beginning", hint).into());
    }
    if !run_id.starts_with("run_") || run_id.len() < PREFIX_BYTES_MIN {
        return Err(Error::RunUnknown { run_id: run_id.to_owned() });
    }
    let mut rows = control.ready_store().await?.runs_like(run_id).await?;
    match (rows.pop(), rows.pop()) {
        (Some(row), None) => Ok(row),
        (None, _) => Err(Error::RunUnknown { run_id: run_id.to_owned() }),
        (Some(_), Some(_)) => Err(Error::Invalid(Invalid::new(
            "RUN_AMBIGUOUS",
            run_id,
            "more than one run begins so",
            "give more of its id",
        ))),
    }
}

/// Asks to cancel. A run that has not started is CANCELLED at once; one that runs is at its next safe boundary.
pub async fn cancel(control: &Control, run_id: &str) -> Result<RunsReport, Error> {
    let run_id = &find(control, run_id).await?.run_id;
    let was = control.ready_store().await?.request_cancel(run_id).await?;
    let row = find(control, run_id).await?;
    let was = was.unwrap_or_else(|| row.state.clone());
    let verdict = was.parse().map_or(Cancel::TooLate, decide_cancel);
    // Asking twice is asking once.
    if verdict == Cancel::TooLate && row.state != State::Cancelled.name() {
        return Err(Error::TooLate { run_id: row.run_id, state: row.state });
    }
    Ok(RunsReport { runs: vec![row.into()] })
}

/// Waits until the runs are over, at most `timeout`; a run that failed or was cancelled is an error.
pub async fn wait(
    control: &Control,
    run_ids: &[String],
    timeout: Option<Duration>,
) -> Result<RunsReport, Error> {
    let started = Instant::now();
    let mut runs = Vec::with_capacity(run_ids.len());
    for run_id in run_ids {
        let row = loop {
            let row = find(control, run_id).await?;
            if row.state.parse::<State>().is_ok_and(State::is_final) {
                break row;
            }
            if timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
                return Err(Error::StillRunning { run_id: row.run_id, state: row.state });
            }
            tokio::time::sleep(WAIT_POLL).await;
        };
        match row.state.as_str() {
            "FAILED" => {
                return Err(Error::RunFailed {
                    run_id: row.run_id,
                    error: row.error.unwrap_or_default(),
                });
            }
            "CANCELLED" => return Err(Error::RunCancelled { run_id: row.run_id }),
            _ => runs.push(row.into()),
        }
    }
    Ok(RunsReport { runs })
}

/// The whole life of a run.
#[derive(Clone, Debug, Serialize)]
pub struct TraceReport {
    pub run_id: String,
    pub events: Vec<TraceEvent>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TraceEvent {
    pub at: String,
    pub what: String,
    pub fence: Option<i64>,
    pub owner: Option<String>,
}

/// What happened to a run, from the database alone.
pub async fn trace(control: &Control, run_id: &str) -> Result<TraceReport, Error> {
    let row = find(control, run_id).await?;
    let events = control.ready_store().await?.trace(row.run_no).await?;
    let event = |event: crate::store::TraceEvent| TraceEvent {
        at: event.at,
        what: event.what,
        fence: event.fence,
        owner: event.owner,
    };
    Ok(TraceReport { run_id: row.run_id, events: events.into_iter().map(event).collect() })
}
