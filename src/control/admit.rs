//! Admission: one request, or a file of them in sets.

use std::io::BufRead;

use serde::{Deserialize, Serialize};

use super::{Control, Error, inputs};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::rules::admission::Request;
use crate::store::{Store, Verdict};

/// Who asks, and what for, where nobody says.
pub const PRINCIPAL: &str = "local";
pub const OPERATION: &str = "flow.run";
/// Requests admitted in one transaction: one commit for many, and a wait short enough for others.
const SET_MAX: usize = 2_000;
/// Bytes of one line of a file of requests.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// What a request names; `snapshot` absent means the flow's own, `key` absent the body's hash.
#[derive(Clone, Debug)]
pub struct AdmitRequest {
    pub flow: String,
    pub snapshot: Option<String>,
    pub principal: String,
    pub operation: String,
    pub key: Option<String>,
}

/// The run of a request.
#[derive(Clone, Debug, Serialize)]
pub struct Admitted {
    pub run_id: String,
    pub body_hash: Hash,
    pub created: bool,
    pub state: String,
}

/// A file of requests, admitted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AdmittedSet {
    pub created: u64,
    pub existing: u64,
    pub conflicts: Vec<AdmitConflict>,
}

/// A line whose key was used with another body.
#[derive(Clone, Debug, Serialize)]
pub struct AdmitConflict {
    pub line: u64,
    pub key: String,
    pub body_hash: Hash,
    pub other_hash: Hash,
}

/// Admits one request and wakes a worker.
pub async fn admit(control: &Control, request: &AdmitRequest) -> Result<Admitted, Error> {
    let request = resolve(control, request)?;
    let store = control.ready_store().await?;
    control.pair(store).await?;
    let admitted = admit_one(store, &request, true).await?;
    Ok(Admitted {
        run_id: admitted.run_id,
        body_hash: request.body_hash,
        created: admitted.created,
        state: admitted.state,
    })
}

/// Finds out what a request names; reads no database.
pub(super) fn resolve(control: &Control, request: &AdmitRequest) -> Result<Request, Error> {
    let (flow, snapshot) =
        inputs::Inputs::new(control).pair(&request.flow, request.snapshot.as_deref())?;
    // Before anything is admitted: a run over fields that are not there could only fail.
    inputs::check_fields(control, flow, snapshot)?;
    Ok(Request::new(
        &request.principal,
        &request.operation,
        request.key.as_deref(),
        flow,
        snapshot,
    )?)
}

/// Admits one resolved request and wakes a worker if asked; a used key with another body is a refusal.
pub(super) async fn admit_one(
    store: &Store,
    request: &Request,
    wake: bool,
) -> Result<crate::store::Admitted, Error> {
    let mut verdicts = store.admit(std::slice::from_ref(request), wake).await?;
    match verdicts.pop().expect("a verdict for each request") {
        Verdict::Admitted(admitted) => Ok(admitted),
        Verdict::Conflict { held } => Err(Error::IdempotencyConflict {
            key: request.key.clone(),
            body_hash: request.body_hash,
            other_hash: held,
        }),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    flow: String,
    snapshot: Option<String>,
    principal: Option<String>,
    operation: Option<String>,
    key: Option<String>,
}

/// Admits a file of JSON lines in sets, each set in one transaction. A bad line ends it: the set it is in is not
/// admitted, those before it are (the same file may be given again). Conflicts are listed, not admitted.
pub async fn admit_set(
    control: &Control,
    source: &mut (dyn BufRead + Send),
    place: &str,
    defaults: &AdmitRequest,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<AdmittedSet, Error> {
    let store = control.ready_store().await?;
    control.pair(store).await?;
    let mut done = AdmittedSet::default();
    let ended = admit_sets(control, store, (source, place), defaults, (&mut done, progress)).await;
    match ended {
        Ok(()) => Ok(done),
        Err(Error::Invalid(invalid)) if done.created + done.existing > 0 => {
            let before = done.created + done.existing;
            let hint = format!(
                "{}; {before} requests of earlier sets are admitted: mend the line and give the same file again",
                invalid.hint
            );
            Err(Error::Invalid(Invalid { hint, ..invalid }))
        }
        Err(error) => Err(error),
    }
}

async fn admit_sets(
    control: &Control,
    store: &Store,
    (source, place): (&mut (dyn BufRead + Send), &str),
    defaults: &AdmitRequest,
    (done, progress): (&mut AdmittedSet, &(dyn Fn(u64) + Sync)),
) -> Result<(), Error> {
    let mut names = inputs::Inputs::new(control);
    let mut set: Vec<(u64, Request)> = Vec::with_capacity(SET_MAX);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let at = || format!("{place}:{line}");
        let read = std::io::Read::take(&mut *source, LINE_BYTES_MAX + 1)
            .read_until(b'\n', &mut text)
            .map_err(|error| unreadable(&at(), &error.to_string()))?;
        if u64::try_from(read).unwrap_or(u64::MAX) > LINE_BYTES_MAX {
            return Err(unreadable(&at(), "the line is longer than 64 KiB").into());
        }
        if text.iter().any(|byte| !byte.is_ascii_whitespace()) {
            set.push((line, request_of(&mut names, &text, &at(), defaults)?));
        }
        if set.len() == SET_MAX || (read == 0 && !set.is_empty()) {
            admit_lines(store, &set, done).await?;
            progress(done.created + done.existing);
            set.clear();
        }
        if read == 0 {
            break;
        }
    }
    Ok(())
}

async fn admit_lines(
    store: &Store,
    set: &[(u64, Request)],
    done: &mut AdmittedSet,
) -> Result<(), Error> {
    let requests: Vec<Request> = set.iter().map(|(_, request)| request.clone()).collect();
    let verdicts = store.admit(&requests, true).await?;
    for ((line, request), verdict) in set.iter().zip(verdicts) {
        match verdict {
            Verdict::Admitted(admitted) if admitted.created => done.created += 1,
            Verdict::Admitted(_) => done.existing += 1,
            Verdict::Conflict { held } => done.conflicts.push(AdmitConflict {
                line: *line,
                key: request.key.clone(),
                body_hash: request.body_hash,
                other_hash: held,
            }),
        }
    }
    Ok(())
}

fn unreadable(place: &str, what: &str) -> Invalid {
    Invalid::new(
        "ADMIT_LINE_INVALID",
        place,
        what,
        "write one JSON object a line: flow, and snapshot, principal, operation, key if needed",
    )
}

fn request_of(
    names: &mut inputs::Inputs<'_>,
    text: &[u8],
    place: &str,
    defaults: &AdmitRequest,
) -> Result<Request, Error> {
    let line: Line =
        serde_json::from_slice(text).map_err(|error| unreadable(place, &error.to_string()))?;
    let snapshot = line.snapshot.as_deref().or(defaults.snapshot.as_deref());
    let (flow, snapshot) = names.pair(&line.flow, snapshot).map_err(|error| at(error, place))?;
    let principal = line.principal.as_deref().unwrap_or(&defaults.principal);
    let operation = line.operation.as_deref().unwrap_or(&defaults.operation);
    Request::new(principal, operation, line.key.as_deref(), flow, snapshot)
        .map_err(|invalid| at(invalid.into(), place))
}

/// Puts the line in front of the place of a refusal.
fn at(error: Error, place: &str) -> Error {
    if let Error::Invalid(invalid) = error {
        return Error::Invalid(Invalid { place: format!("{place}: {}", invalid.place), ..invalid });
    }
    error
}
