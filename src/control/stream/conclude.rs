//! What came of a stream, of all its parts: the report, the values, the verdict.

use std::io::Write as _;
use std::path::Path;

use super::lease::Held;
use super::report::{Counts, Part, StreamReport, values, verdict};
use super::{Setup, homes};
use crate::canonical::{write_f64, write_i64, write_text};
use crate::control::journal::fenced;
use crate::control::new_file::NewFile;
use crate::control::{Control, Error};
use crate::flow::{FeatureBatch, unite};
use crate::points::{Point, reach};
use crate::store::StreamLease;

/// Says what came of it all; the parts are of one run, and have no instrument in common. `held` are the leases under which
/// their values may be emitted.
pub(super) async fn conclude(
    control: &Control,
    setup: &Setup,
    parts: Vec<Part>,
    held: &[Box<Held>],
) -> Result<(StreamReport, FeatureBatch), Error> {
    let state = parts.iter().map(|part| part.end).max().map_or("DRAINED", |end| end.word());
    let fence = parts.iter().map(|part| part.fence).max().unwrap_or(0);
    let seq = parts.iter().map(|part| part.seq).sum();
    let seconds = setup.since.elapsed().as_secs_f64();
    let (counts, batches): (Vec<Counts>, Vec<FeatureBatch>) =
        parts.into_iter().map(|part| (part.counts, part.batch)).unzip();
    let counts = Counts::sum(counts);
    let batch = unite(&setup.flow, setup.flow.hash, batches);
    if let Some(path) = &setup.request.emit {
        let leases: Vec<StreamLease> = held.iter().map(|held| held.lease.clone()).collect();
        emit(control, &setup.identity.run_id, &leases, written(path, &batch)?).await?;
    }
    // The golden is of all that the flow reads: it says nothing of a part of the partitions.
    let is_whole = homes(setup).iter().all(|home| counts.next_offsets.contains_key(home));
    let golden = match setup.flow.golden {
        _ if !is_whole => None,
        Some(golden) => Some(golden),
        None => control.ready_store().await?.published_for(&setup.flow.hash).await?,
    };
    let applied = counts.ledger.consumed + counts.history - counts.waiting;
    let identity = &setup.identity;
    tracing::info!(run_id = identity.run_id, read = counts.ledger.read, state, "ended in order");
    let report = StreamReport {
        run_id: identity.run_id.clone(),
        topic: identity.topic.clone(),
        group: identity.group.clone(),
        flow: identity.flow,
        fence,
        seq,
        counts,
        values: values(&batch),
        values_hash: batch.values_hash,
        rows: batch.rows(),
        applied,
        verdict: verdict(golden, batch.values_hash),
        golden,
        state: state.to_owned(),
        seconds,
    };
    Ok((report, batch))
}

/// Puts the file in its place, under the leases: an owner that was overtaken does not overwrite what its successor wrote.
async fn emit(
    control: &Control,
    run_id: &str,
    leases: &[StreamLease],
    file: NewFile,
) -> Result<(), Error> {
    let store = control.ready_store().await?;
    reach(Point::EmitWritten);
    let mut placed = None;
    let place = || {
        reach(Point::EmitLocked);
        placed = Some(file.finish());
        reach(Point::EmitNamed);
    };
    let emitted = match store.emit_under(leases, run_id, place).await {
        // Cut off with the file in its place. If the leases are ours still, nobody came between.
        Err(error) if error.is_away() && placed.is_some() => {
            tracing::warn!(%error, "whether the emit was still ours is asked again");
            store.emit_under(leases, run_id, || ()).await?
        }
        emitted => emitted?,
    };
    reach(Point::EmitAcked);
    match emitted {
        Ok(()) => placed.unwrap_or(Ok(())),
        Err((lease, refusal)) => Err(fenced(&lease, refusal)),
    }
}

/// Writes the values beside their place, a line an event and instrument: `{event_time, instrument, values: {node: value}}`.
fn written(path: &Path, batch: &FeatureBatch) -> Result<NewFile, Error> {
    let mut file = NewFile::at(path)?;
    let mut line = Vec::new();
    for times in &batch.times {
        let mut series: Vec<_> =
            batch.series.iter().filter(|s| s.instrument == times.instrument).collect();
        series.sort_unstable_by(|a, b| a.node.cmp(&b.node));
        for (at, time) in times.event_time.iter().enumerate() {
            line.clear();
            line.extend_from_slice(br#"{"event_time":"#);
            write_i64(*time, &mut line);
            line.extend_from_slice(br#","instrument":"#);
            write_text(&times.instrument, &mut line);
            line.extend_from_slice(br#","values":{"#);
            for (index, series) in series.iter().enumerate() {
                if index > 0 {
                    line.push(b',');
                }
                write_text(&series.node, &mut line);
                line.push(b':');
                let value = series.values[at];
                if value.is_finite() {
                    write_f64(value, &mut line);
                } else {
                    line.extend_from_slice(b"null");
                }
            }
            line.extend_from_slice(b"}}\n");
            if let Err(source) = file.write_all(&line) {
                return Err(file.failed(source));
            }
        }
    }
    file.settle()?;
    Ok(file)
}
