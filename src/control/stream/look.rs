//! Looking at streams from the outside: the rows and the journals, no lease and no broker.

use serde::Serialize;

use super::report::Counts;
use crate::artifacts::Artifacts;
use crate::control::{Control, Error, journal};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::journal::Head;
use crate::store::StreamView;
use crate::stream::{Fate, Quarantined, identity_of};

/// Records of a list, at most.
const LIST_MAX: usize = 10_000;

/// How streams stand.
#[derive(Clone, Debug, Serialize)]
pub struct StreamsReport {
    pub streams: Vec<StandingView>,
}

/// One stream as its row has it: as of its last commit.
#[derive(Clone, Debug, Serialize)]
pub struct StandingView {
    pub run_id: String,
    pub topic: String,
    pub group: String,
    pub flow: Hash,
    pub flow_name: String,
    /// `FLOWING`, `RECOVERY_BLOCKED`, `DRAINED` and others.
    pub state: String,
    pub reason: Option<String>,
    pub fence: i64,
    pub seq: i64,
    /// RFC 3339, UTC, by the database.
    pub committed_at: Option<String>,
    /// Who has it now.
    pub owner: Option<String>,
    pub live: bool,
    pub head: Option<Hash>,
    #[serde(flatten)]
    pub counts: Counts,
}

impl StandingView {
    fn of(view: StreamView) -> Self {
        let row = view.row;
        let report = row.status.report.as_deref();
        Self {
            run_id: row.identity.run_id,
            topic: row.identity.topic,
            group: row.identity.group,
            flow: row.identity.flow,
            flow_name: row.identity.flow_name,
            state: row.status.state,
            reason: row.status.reason,
            fence: row.fence,
            seq: row.seq,
            committed_at: row.committed_at,
            owner: view.owner.filter(|_| view.live).map(|owner| owner.to_string()),
            live: view.live,
            head: row.head,
            // A row without a report has read nothing yet.
            counts: report
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_else(|| Counts { ledger_ok: report.is_none(), ..Counts::default() }),
        }
    }
}

impl StreamsReport {
    /// Whether every ledger holds and nothing is blocked.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let blocked = ["RECOVERY_BLOCKED", "OFFSET_AHEAD"];
        self.streams
            .iter()
            .all(|view| view.counts.ledger_ok && !blocked.contains(&view.state.as_str()))
    }
}

/// The streams of a run, of a group, or all.
pub async fn status(
    control: &Control,
    run_id: Option<&str>,
    group: Option<&str>,
) -> Result<StreamsReport, Error> {
    let views = control.ready_store().await?.streams(run_id, group).await?;
    if let (Some(run_id), true) = (run_id, views.is_empty()) {
        return Err(unknown(run_id));
    }
    Ok(StreamsReport { streams: views.into_iter().map(StandingView::of).collect() })
}

/// What became of an event.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    pub event_id: String,
    pub run_id: String,
    pub seen: Vec<SeenView>,
}

/// One record that had the event's id.
#[derive(Clone, Debug, Serialize)]
pub struct SeenView {
    pub partition: i32,
    pub offset: i64,
    pub treatment: &'static str,
    pub reason: &'static str,
    /// Microseconds since 1970 UTC, of the commit.
    pub at: i64,
}

/// Looks an event up in the journal of a run.
pub async fn explain(
    control: &Control,
    run_id: Option<&str>,
    event_id: &str,
) -> Result<Explained, Error> {
    let wanted = identity_of(event_id);
    let mut seen = Vec::new();
    let (run_id, journal) = open(control, run_id).await?;
    if let Some((artifacts, head)) = journal {
        journal::fates(artifacts, &head, &mut |at, fate: Fate| {
            if fate.id == wanted {
                seen.push(SeenView {
                    partition: fate.partition,
                    offset: fate.offset,
                    treatment: fate.treatment.word(),
                    reason: fate.reason.word(),
                    at,
                });
            }
        })?;
    }
    Ok(Explained { event_id: event_id.to_owned(), run_id, seen })
}

/// Records that were not taken.
#[derive(Clone, Debug, Serialize)]
pub struct QuarantineReport {
    pub run_id: String,
    /// All that there are, also those beyond the list.
    pub total: u64,
    pub quarantined: Vec<QuarantinedView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct QuarantinedView {
    pub partition: i32,
    pub offset: i64,
    pub treatment: &'static str,
    pub reason: &'static str,
    pub detail: String,
    pub event_id: Option<String>,
    /// Of the value's bytes.
    pub hash: Hash,
    /// Bytes of the value; none for a tombstone.
    pub bytes: Option<usize>,
    /// Microseconds since 1970 UTC, of the commit.
    pub at: i64,
    /// The bytes in hex, for one record alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_hex: Option<String>,
    /// The value as text, where it is some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl QuarantinedView {
    fn of(at: i64, row: &Quarantined) -> Self {
        Self {
            partition: row.partition,
            offset: row.offset,
            treatment: row.treatment.word(),
            reason: row.reason.word(),
            detail: row.detail.clone(),
            event_id: row.event_id.clone(),
            hash: row.hash,
            bytes: row.value.as_ref().map(Vec::len),
            at,
            key_hex: None,
            value_hex: None,
            value: None,
        }
    }

    fn with_bytes(mut self, row: &Quarantined) -> Self {
        self.key_hex = row.key.as_deref().map(hex);
        self.value_hex = row.value.as_deref().map(hex);
        self.value = row.value.clone().and_then(|value| String::from_utf8(value).ok());
        self
    }
}

/// The quarantine of a run, in the order read.
pub async fn quarantine_list(
    control: &Control,
    run_id: Option<&str>,
) -> Result<QuarantineReport, Error> {
    let (mut total, mut quarantined) = (0, Vec::new());
    let (run_id, journal) = open(control, run_id).await?;
    if let Some((artifacts, head)) = journal {
        journal::quarantined(artifacts, &head, &mut |at, row| {
            total += 1;
            if quarantined.len() < LIST_MAX {
                quarantined.push(QuarantinedView::of(at, &row));
            }
        })?;
    }
    Ok(QuarantineReport { run_id, total, quarantined })
}

/// One record of the quarantine with its bytes; `place` is `partition:offset`.
pub async fn quarantine_show(
    control: &Control,
    run_id: Option<&str>,
    place: &str,
) -> Result<QuarantinedView, Error> {
    let wanted = place
        .split_once(':')
        .and_then(|(partition, offset)| Some((partition.parse().ok()?, offset.parse().ok()?)));
    let (partition, offset): (i32, i64) = wanted.ok_or_else(|| {
        let message = "not a partition and an offset";
        Invalid::new("PLACE_INVALID", place, message, "write them as 3:17")
    })?;
    let mut found = None;
    let (_, journal) = open(control, run_id).await?;
    if let Some((artifacts, head)) = journal {
        journal::quarantined(artifacts, &head, &mut |at, row| {
            if (row.partition, row.offset) == (partition, offset) {
                found = Some(QuarantinedView::of(at, &row).with_bytes(&row));
            }
        })?;
    }
    found.ok_or_else(|| {
        let message = "no such record in the quarantine";
        let hint = "see `finaz stream quarantine list`";
        Invalid::new("QUARANTINE_UNKNOWN", place, message, hint).into()
    })
}

/// A stream by its run, or the only one there is.
pub(super) async fn find(control: &Control, run_id: Option<&str>) -> Result<StreamView, Error> {
    let store = control.ready_store().await?;
    if let Some(run_id) = run_id {
        let view = store.stream(&format!("stream/{run_id}")).await?;
        return view.ok_or_else(|| unknown(run_id));
    }
    let mut views = store.streams(None, None).await?;
    match (views.pop(), views.len()) {
        (Some(view), 0) => Ok(view),
        (None, _) => Err(unknown("")),
        (Some(_), others) => {
            let message = format!("there are {} streams", others + 1);
            let hint = "say which with --run-id; see `finaz stream status`";
            Err(Invalid::new("RUN_ID_MISSING", "--run-id", message, hint).into())
        }
    }
}

/// The run and its journal; no journal when nothing was committed yet.
async fn open<'a>(
    control: &'a Control,
    run_id: Option<&str>,
) -> Result<(String, Option<(&'a Artifacts, Head)>), Error> {
    let view = find(control, run_id).await?;
    let artifacts = control.artifacts()?;
    let head = journal::head(artifacts, &view.row)?;
    Ok((view.row.identity.run_id, head.map(|head| (&**artifacts, head))))
}

fn unknown(run_id: &str) -> Error {
    let message = "no such stream";
    let place = run_id.escape_debug().to_string();
    Invalid::new("STREAM_UNKNOWN", place, message, "see `finaz stream status`").into()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes all");
    }
    text
}
