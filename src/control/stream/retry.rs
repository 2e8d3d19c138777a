//! Records that were omitted, decided about anew under the run's lease: what is taken enters by one commit, or not at all.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;

use super::lease::Held;
use super::report::Counts;
use super::session::End;
use super::{find, look, owners};
use crate::artifacts::Artifacts;
use crate::broker::{Edge, reread};
use crate::control::journal::{self, Journal, Loaded};
use crate::control::{Control, Error, brokers, inputs};
use crate::flow::Flow;
use crate::invalid::Invalid;
use crate::journal::Head;
use crate::replay::partition;
use crate::store::{StreamRow, StreamStatus, StreamView};
use crate::stream::{Engine, Kept, Plan, Quarantined, Reason, Record, Treatment, partitions_of};

/// Records of a list, at most.
const LIST_MAX: usize = 10_000;

/// Which records to decide about anew, and how.
#[derive(Clone, Debug)]
pub struct RetryRequest {
    /// Absent: that of the only run there is.
    pub run_id: Option<String>,
    /// `partition:offset`; none: all that were omitted.
    pub places: Vec<String>,
    /// Absent: as the artifact store has it.
    pub flow: Option<String>,
    pub max_jump: String,
    /// Why; kept with what is taken.
    pub reason: String,
    pub dry_run: bool,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct RetryReport {
    pub run_id: String,
    pub dry_run: bool,
    /// Records that were decided about; and of them those that are consumed by now, or would be.
    pub tried: u64,
    pub taken: u64,
    /// The first of them, partition by partition in the order read.
    pub records: Vec<RetriedView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RetriedView {
    pub partition: i32,
    pub offset: i64,
    pub event_id: Option<String>,
    /// Why it was omitted.
    pub was: &'static str,
    /// What it is today; `consumed`: it was taken.
    pub treatment: &'static str,
    pub reason: &'static str,
    pub detail: String,
}

/// The request, checked.
struct Order {
    places: Option<HashSet<(i32, i64)>>,
    max_jump_ns: i64,
    reason: String,
    dry_run: bool,
}

/// Decides anew about records that were omitted.
///
/// # Errors
/// Somebody runs the stream, unless it is only looked at; a place that is not in quarantine; another flow.
pub async fn retry(control: &Control, request: RetryRequest) -> Result<RetryReport, Error> {
    let order = check(&request)?;
    let views = look::find(control, request.run_id.as_deref()).await?;
    let identity = views[0].row.identity.clone();
    let flow = request.flow.unwrap_or_else(|| identity.flow.to_string());
    let (flow, _kept) = inputs::look_at_flow(control, &flow)?;
    if flow.hash != identity.flow {
        let (held, offered) = (identity.flow.to_string(), flow.hash.to_string());
        return Err(Error::JournalForeign { name: identity.run_id, field: "flow", held, offered });
    }
    let mut report = RetryReport {
        run_id: identity.run_id,
        dry_run: order.dry_run,
        tried: 0,
        taken: 0,
        records: Vec::new(),
    };
    known(control, &views, &order)?;
    let (flow, count) = (Arc::new(flow), topic_partitions(control, &views).await?);
    for view in &views {
        let concerns = |own: &Vec<i32>| {
            order.places.as_ref().is_none_or(|wanted| wanted.iter().any(|at| own.contains(&at.0)))
        };
        if view.row.head.is_some() && view.row.identity.partitions.as_ref().is_none_or(concerns) {
            Box::pin(of_stream(control, view, &order, (&flow, count), &mut report)).await?;
        }
    }
    Ok(report)
}

fn check(request: &RetryRequest) -> Result<Order, Invalid> {
    let places: Result<HashSet<_>, _> = request.places.iter().map(|at| look::place(at)).collect();
    let max_jump_ns = super::max_jump(&request.max_jump)?;
    if !request.dry_run && request.reason.trim().is_empty() {
        let hint = "say why: it is kept with what is taken";
        return Err(Invalid::new("REASON_MISSING", "--reason", "says nothing", hint));
    }
    Ok(Order {
        places: Some(places?).filter(|places| !places.is_empty()),
        max_jump_ns,
        reason: request.reason.clone(),
        dry_run: request.dry_run,
    })
}

/// Each place that was named is in quarantine.
fn known(control: &Control, views: &[StreamView], order: &Order) -> Result<(), Error> {
    let Some(mut missing) = order.places.clone() else { return Ok(()) };
    let artifacts = control.artifacts()?;
    for view in views {
        if let Some(head) = journal::head(artifacts, &view.row)? {
            journal::quarantined(artifacts, &head, &mut |_at, row| {
                missing.remove(&(row.partition, row.offset));
            })?;
        }
    }
    match missing.iter().min() {
        None => Ok(()),
        Some((partition, offset)) => {
            Err(look::not_in_quarantine(&format!("{partition}:{offset}")).into())
        }
    }
}

/// Partitions of the topic, where it matters: in a split run each instrument has its own.
async fn topic_partitions(control: &Control, views: &[StreamView]) -> Result<u32, Error> {
    let identity = &views[0].row.identity;
    if identity.partitions.is_none() {
        return Ok(0);
    }
    let options = brokers::options(control)?;
    options.check()?;
    let topic = find(&brokers::connect(&options).await?, &identity.topic).await?;
    if topic.id != identity.topic_id {
        let (name, held) = (identity.lease_name(), identity.topic_id.clone());
        return Err(Error::JournalForeign { name, field: "topic_id", held, offered: topic.id });
    }
    Ok(topic.partitions)
}

/// One journal: that of a whole run, or of a partition.
async fn of_stream(
    control: &Control,
    view: &StreamView,
    order: &Order,
    flow: (&Arc<Flow>, u32),
    report: &mut RetryReport,
) -> Result<(), Error> {
    let row = &view.row;
    let artifacts = control.artifacts()?;
    if order.dry_run {
        let Some(head) = journal::head(artifacts, row)? else { return Ok(()) };
        let loaded = journal::loaded(artifacts, &head)?;
        let mut engine = resumed(row, order, flow, loaded)?;
        decide((artifacts, &head), order, &mut engine, "", report)?;
        return Ok(());
    }
    let name = row.identity.lease_name();
    let mut held = Held::acquire(control, &control.second_store()?, &name).await?;
    let done = Box::pin(under(control, row, order, flow, (&held, report))).await;
    held.release().await;
    done
}

/// As the owner of the stream: what it holds by now, the decisions, one commit.
async fn under(
    control: &Control,
    row: &StreamRow,
    order: &Order,
    flow: (&Arc<Flow>, u32),
    (held, report): (&Held, &mut RetryReport),
) -> Result<(), Error> {
    let artifacts = Arc::clone(control.artifacts()?);
    let store = control.ready_store().await?.clone();
    let lease = held.lease.clone();
    let (mut journal, loaded) =
        Journal::open(artifacts, store, lease, row.identity.clone()).await?;
    let handing = journal.handing().await?;
    handing.check_whole(&held.lease.name)?;
    let (Some(loaded), Some(head)) = (loaded, journal.head().cloned()) else { return Ok(()) };
    let mut engine = resumed(row, order, flow, loaded)?;
    let note = format!("retried by {}: {}", held.lease.owner, order.reason);
    if decide((control.artifacts()?, &head), order, &mut engine, &note, report)? == 0 {
        return Ok(());
    }
    // As it was left by its last owner, the figures apart.
    let row = control
        .ready_store()
        .await?
        .stream(&row.name)
        .await?
        .map_or_else(|| row.clone(), |v| v.row);
    let (counts, edges) = counted(&engine, &row);
    if !counts.ledger_ok {
        return Err(Error::LedgerBroken { run_id: row.identity.run_id });
    }
    let StreamStatus { state, reason, .. } = row.status;
    let status = StreamStatus { state, reason, report: serde_json::to_string(&counts).ok() };
    owners::take(&journal, &handing, &engine, &edges).await?;
    let (delta, kept, watermark) = engine.cut();
    journal.commit(delta, kept, watermark, status).await?;
    owners::give(&journal, &engine, &edges, End::Stopped).await;
    Ok(())
}

fn resumed(
    row: &StreamRow,
    order: &Order,
    (flow, topic_partitions): (&Arc<Flow>, u32),
    loaded: Loaded,
) -> Result<Engine, Error> {
    let plan = Plan {
        flow: Arc::clone(flow),
        partitions: partitions_of(&loaded.state),
        // Which these are the state knows.
        active: Vec::new(),
        home: row.identity.partitions.is_some().then_some(partition),
        topic_partitions,
        max_jump_ns: order.max_jump_ns,
    };
    let identities = loaded.identities;
    Ok(Engine::restore(plan, &loaded.state, Kept { identities, accepted: loaded.accepted })?)
}

/// Goes through the quarantine in the order read; gives how many were taken.
fn decide(
    (artifacts, head): (&Artifacts, &Head),
    order: &Order,
    engine: &mut Engine,
    note: &str,
    report: &mut RetryReport,
) -> Result<u64, Error> {
    let mut done = HashSet::new();
    journal::quarantined(artifacts, head, &mut |_at, row| {
        if row.reason == Reason::Retried {
            done.insert((row.partition, row.offset));
        }
    })?;
    let before = report.taken;
    // The bytes of a batch were kept with the first of its records.
    let mut batch: Option<Quarantined> = None;
    journal::quarantined(artifacts, head, &mut |_at, row| {
        let place = (row.partition, row.offset);
        let wanted = match &order.places {
            Some(places) => places.contains(&place),
            None => row.treatment == Treatment::Omitted && row.reason != Reason::Mute,
        };
        if wanted && row.reason != Reason::Retried {
            let view = if done.contains(&place) {
                view(&row, Treatment::Consumed, Reason::Retried, "it was taken before".to_owned())
            } else {
                again(engine, &row, batch.as_ref(), note)
            };
            report.tried += 1;
            report.taken +=
                u64::from(view.treatment == Treatment::Consumed.word() && !done.contains(&place));
            if report.records.len() < LIST_MAX {
                report.records.push(view);
            }
        }
        if row.reason == Reason::Undecodable
            && row.value.as_ref().is_some_and(|raw| !raw.is_empty())
        {
            batch = Some(row);
        }
    })?;
    Ok(report.taken - before)
}

/// One record, by its kept bytes.
fn again(
    engine: &mut Engine,
    row: &Quarantined,
    batch: Option<&Quarantined>,
    note: &str,
) -> RetriedView {
    let Quarantined { partition, offset, .. } = *row;
    if row.treatment != Treatment::Omitted || row.reason == Reason::Mute {
        let why = match row.treatment {
            Treatment::Late => "late stays late: what was decided behind it stands",
            Treatment::Consumed
            | Treatment::Filtered
            | Treatment::Duplicate
            | Treatment::Omitted => "it was not omitted for what it says",
        };
        return view(row, row.treatment, row.reason, why.to_owned());
    }
    let read = if row.reason == Reason::Undecodable {
        let own = row.value.as_deref().filter(|raw| !raw.is_empty());
        let of_batch = batch.filter(|batch| batch.partition == partition);
        let raw = own.or_else(|| of_batch.and_then(|batch| batch.value.as_deref()));
        let Some(got) = raw.and_then(|raw| reread(partition, offset, raw)) else {
            return view(row, row.treatment, row.reason, row.detail.clone());
        };
        Some(got)
    } else {
        None
    };
    let (key, value) = match &read {
        Some(got) => (got.key(), got.value()),
        None => (row.key.as_deref(), row.value.as_deref()),
    };
    let retried = engine.retry(Record { partition, offset, key, value }, note);
    RetriedView {
        event_id: retried.event_id.or_else(|| row.event_id.clone()),
        ..view(row, retried.treatment, retried.reason, retried.detail)
    }
}

fn view(row: &Quarantined, treatment: Treatment, reason: Reason, detail: String) -> RetriedView {
    RetriedView {
        partition: row.partition,
        offset: row.offset,
        event_id: row.event_id.clone(),
        was: row.reason.word(),
        treatment: treatment.word(),
        reason: reason.word(),
        detail,
    }
}

/// The figures, with the edges of the log as its last owner saw them.
fn counted(engine: &Engine, row: &StreamRow) -> (Counts, Vec<Edge>) {
    let before: Counts = row
        .status
        .report
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let edge = |view: &super::PartitionView| {
        let (earliest, high_water) = (view.earliest?, view.high_water?);
        Some(Edge { partition: view.partition, earliest, stable: high_water, high_water })
    };
    let edges: Vec<Edge> = before.per_partition.iter().filter_map(edge).collect();
    let mut counts = Counts::of(engine, &[], &edges);
    for (view, seen) in counts.per_partition.iter_mut().zip(&before.per_partition) {
        (view.retention_per_sec, view.blocked_in_sec) =
            (seen.retention_per_sec, seen.blocked_in_sec);
    }
    counts.staged = before.staged;
    (counts.as_of, counts.blocked_in_sec) = (before.as_of, before.blocked_in_sec);
    (counts, edges)
}
