//! Looking at streams from the outside: the rows and the journals, no lease and no broker.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::outlook::{about, later};
use super::report::Counts;
use crate::artifacts::Artifacts;
use crate::control::{Control, Error, journal};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::journal::Head;
use crate::store::StreamView;
use crate::stream::{Fate, Ledger, Quarantined, Reason, Treatment, identity_of};

/// Records of a list, at most.
const LIST_MAX: usize = 10_000;

/// How streams stand.
#[derive(Clone, Debug, Serialize)]
pub struct StreamsReport {
    /// One a run, or one a partition of a split run.
    pub streams: Vec<StandingView>,
    pub total: TotalView,
}

/// Streams added up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TotalView {
    pub streams: u64,
    pub live: u64,
    #[serde(flatten)]
    pub ledger: Ledger,
    /// Of the sums, and of each stream.
    pub ledger_ok: bool,
    pub waiting: u64,
    pub identities: u64,
    /// Of those that know theirs; absent when none does.
    pub lag: Option<u64>,
    /// Of the one that is blocked first.
    pub blocked_in_sec: Option<f64>,
}

impl TotalView {
    fn of(views: &[StandingView]) -> Self {
        let counts = Counts::sum(views.iter().map(|view| view.counts.clone()).collect());
        let count = |n: usize| n as u64;
        Self {
            streams: count(views.len()),
            live: count(views.iter().filter(|view| view.live).count()),
            ledger: counts.ledger,
            ledger_ok: counts.ledger_ok,
            waiting: counts.waiting,
            identities: counts.identities,
            blocked_in_sec: counts.blocked_in_sec,
            lag: views.iter().filter_map(|view| view.counts.lag).reduce(|a, b| a + b),
        }
    }
}

/// One stream as its row has it: as of its last commit.
#[derive(Clone, Debug, Serialize)]
pub struct StandingView {
    pub run_id: String,
    /// Of a split run; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<i32>>,
    pub topic: String,
    pub group: String,
    pub flow: Hash,
    pub flow_name: String,
    /// `FLOWING`, `RECOVERY_BLOCKED`, `DRAINED` and others.
    pub state: String,
    pub reason: Option<String>,
    /// Of the last commit.
    pub fence: i64,
    pub seq: i64,
    /// RFC 3339, UTC, by the database.
    pub committed_at: Option<String>,
    /// Who has it now.
    pub owner: Option<String>,
    /// The owner's, which is above that of the last commit until it commits itself.
    pub lease_fence: Option<i64>,
    pub live: bool,
    pub head: Option<Hash>,
    #[serde(flatten)]
    pub counts: Counts,
}

impl StandingView {
    fn of(view: StreamView) -> Self {
        let row = view.row;
        let report = row.status.report.as_deref();
        // A row without a report has read nothing yet.
        let mut counts = report
            .and_then(|text| serde_json::from_str::<Counts>(text).ok())
            .unwrap_or_else(|| Counts { ledger_ok: report.is_none(), ..Counts::default() });
        if let Some(as_of) = counts.as_of {
            later(&mut counts, seconds(view.read_at_us.saturating_sub(as_of)), view.live);
        }
        Self {
            run_id: row.identity.run_id,
            partitions: row.identity.partitions,
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
            lease_fence: view.lease_fence.filter(|_| view.live),
            live: view.live,
            head: row.head,
            counts,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}

impl StandingView {
    /// When retention will have blocked it, in words; of one that is blocked its reason says more.
    #[must_use]
    pub fn expects(&self) -> Option<String> {
        let seconds = self.counts.blocked_in_sec.filter(|_| self.state != "RECOVERY_BLOCKED")?;
        Some(format!("blocked in {}: retention moves on faster than it reads", about(seconds)))
    }
}

impl StreamsReport {
    /// Whether every ledger holds and nothing is blocked.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let blocked = ["RECOVERY_BLOCKED", "OFFSET_AHEAD"];
        let is_blocked = |view: &StandingView| blocked.contains(&view.state.as_str());
        self.total.ledger_ok && !self.streams.iter().any(is_blocked)
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
    let mut streams: Vec<StandingView> = views.into_iter().map(StandingView::of).collect();
    // By number, where names go by digit.
    streams.sort_by(|a, b| (&a.run_id, &a.partitions).cmp(&(&b.run_id, &b.partitions)));
    let total = TotalView::of(&streams);
    Ok(StreamsReport { streams, total })
}

/// What became of an event.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    pub event_id: String,
    pub run_id: String,
    /// The event is of the snapshot that the run goes on from; records of it are duplicates.
    pub history: bool,
    pub seen: Vec<SeenView>,
}

/// One record that had the event's id.
#[derive(Clone, Debug, Serialize)]
pub struct SeenView {
    pub partition: i32,
    pub offset: i64,
    pub treatment: &'static str,
    pub reason: &'static str,
    /// In words, of what is in quarantine; of what was retried, by whom and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
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
    let (run_id, artifacts, heads) = open(control, run_id).await?;
    for head in &heads {
        journal::fates(artifacts, head, &mut |at, fate: Fate| {
            if fate.id == wanted {
                seen.push(SeenView {
                    partition: fate.partition,
                    offset: fate.offset,
                    treatment: fate.treatment.word(),
                    reason: fate.reason.word(),
                    detail: None,
                    at,
                });
            }
        })?;
        in_words(artifacts, head, &mut seen)?;
    }
    // Known, and no record of it was the first.
    let first = [Treatment::Consumed.word(), Treatment::Late.word()];
    let mut history = false;
    if !seen.iter().any(|seen| first.contains(&seen.treatment)) {
        for head in &heads {
            history |= journal::knows(artifacts, head, wanted)?;
        }
    }
    Ok(Explained { event_id: event_id.to_owned(), run_id, history, seen })
}

/// Adds what the quarantine says of these records.
fn in_words(artifacts: &Artifacts, head: &Head, seen: &mut [SeenView]) -> Result<(), Error> {
    if seen.is_empty() {
        return Ok(());
    }
    journal::quarantined(artifacts, head, &mut |_at, row| {
        let (treatment, reason) = (row.treatment.word(), row.reason.word());
        let said = |view: &&mut SeenView| {
            (view.partition, view.offset) == (row.partition, row.offset)
                && (view.treatment, view.reason) == (treatment, reason)
        };
        if let Some(view) = seen.iter_mut().find(said) {
            view.detail = Some(row.detail).filter(|detail| !detail.is_empty());
        }
    })
}

/// Records that were not taken.
#[derive(Clone, Debug, Serialize)]
pub struct QuarantineReport {
    pub run_id: String,
    /// All that there are, also those beyond the list.
    pub total: u64,
    /// Of these: taken later on, by `retry`.
    pub retried: u64,
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
    /// Of one that was taken later on: who did it and why, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried_at: Option<i64>,
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
            retried: None,
            retried_at: None,
            key_hex: None,
            value_hex: None,
            value: None,
        }
    }

    fn take_back(&mut self, at: i64, note: String) {
        (self.retried, self.retried_at) = (Some(note), Some(at));
    }

    fn with_bytes(mut self, row: &Quarantined) -> Self {
        self.key_hex = row.key.as_deref().map(hex);
        self.value_hex = row.value.as_deref().map(hex);
        self.value = row.value.clone().and_then(|value| String::from_utf8(value).ok());
        self
    }
}

/// The quarantine of a run, in the order read; of a split run, partition by partition.
pub async fn quarantine_list(
    control: &Control,
    run_id: Option<&str>,
) -> Result<QuarantineReport, Error> {
    let (mut total, mut retried) = (0, 0);
    let mut quarantined: Vec<QuarantinedView> = Vec::new();
    let (run_id, artifacts, heads) = open(control, run_id).await?;
    for head in &heads {
        let first = quarantined.len();
        let mut notes = HashMap::new();
        journal::quarantined(artifacts, head, &mut |at, row| {
            if row.reason == Reason::Retried {
                retried += 1;
                notes.insert((row.partition, row.offset), (at, row.detail));
                return;
            }
            total += 1;
            if quarantined.len() < LIST_MAX {
                quarantined.push(QuarantinedView::of(at, &row));
            }
        })?;
        for view in &mut quarantined[first..] {
            if let Some((at, note)) = notes.remove(&(view.partition, view.offset)) {
                view.take_back(at, note);
            }
        }
    }
    Ok(QuarantineReport { run_id, total, retried, quarantined })
}

/// One record of the quarantine with its bytes; `place` is `partition:offset`.
pub async fn quarantine_show(
    control: &Control,
    run_id: Option<&str>,
    place: &str,
) -> Result<QuarantinedView, Error> {
    let wanted = self::place(place)?;
    let mut found: Option<QuarantinedView> = None;
    let (_, artifacts, heads) = open(control, run_id).await?;
    for head in &heads {
        journal::quarantined(artifacts, head, &mut |at, row| {
            if (row.partition, row.offset) != wanted {
                return;
            }
            match (&mut found, row.reason) {
                (Some(found), Reason::Retried) => found.take_back(at, row.detail),
                _ => found = Some(QuarantinedView::of(at, &row).with_bytes(&row)),
            }
        })?;
    }
    found.ok_or_else(|| not_in_quarantine(place).into())
}

/// `partition:offset`.
pub(super) fn place(text: &str) -> Result<(i32, i64), Invalid> {
    let parts = text
        .split_once(':')
        .and_then(|(partition, offset)| Some((partition.parse().ok()?, offset.parse().ok()?)));
    parts.ok_or_else(|| {
        let (place, message) = (text.escape_debug().to_string(), "not a partition and an offset");
        Invalid::new("PLACE_INVALID", place, message, "write them as 3:17")
    })
}

pub(super) fn not_in_quarantine(place: &str) -> Invalid {
    let message = "no such record in the quarantine";
    Invalid::new("QUARANTINE_UNKNOWN", place, message, "see `finaz stream quarantine list`")
}

/// A run, or the only one there is: its stream, or that of each partition, which are never none.
pub(super) async fn find(
    control: &Control,
    run_id: Option<&str>,
) -> Result<Vec<StreamView>, Error> {
    let mut views = control.ready_store().await?.streams(run_id, None).await?;
    views.sort_by(|a, b| a.row.identity.partitions.cmp(&b.row.identity.partitions));
    let Some(first) = views.first() else { return Err(unknown(run_id.unwrap_or_default())) };
    let first = first.row.identity.run_id.clone();
    if views.iter().any(|view| view.row.identity.run_id != first) {
        let runs: BTreeSet<&str> =
            views.iter().map(|view| view.row.identity.run_id.as_str()).collect();
        let message = format!("there are {} streams", runs.len());
        let hint = "say which with --run-id; see `finaz stream status`";
        return Err(Invalid::new("RUN_ID_MISSING", "--run-id", message, hint).into());
    }
    Ok(views)
}

/// The run and its journals: one, or one a partition, without those in which nothing was committed yet.
async fn open<'a>(
    control: &'a Control,
    run_id: Option<&str>,
) -> Result<(String, &'a Artifacts, Vec<Head>), Error> {
    let views = find(control, run_id).await?;
    let artifacts = control.artifacts()?;
    let run_id = views[0].row.identity.run_id.clone();
    let mut heads = Vec::with_capacity(views.len());
    for view in &views {
        heads.extend(journal::head(artifacts, &view.row)?);
    }
    Ok((run_id, artifacts, heads))
}

fn unknown(run_id: &str) -> Error {
    if run_id.is_empty() {
        let hint = "`finaz stream --topic --group --flow` begins one";
        return Invalid::new("STREAM_UNKNOWN", "--run-id", "no stream was begun yet", hint).into();
    }
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
