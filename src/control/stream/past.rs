//! A snapshot taken into a stream as its past, commit by commit, so that memory is bounded and a run that was cut short
//! goes on where it was.

use std::io::{BufRead as _, Read as _};

use tokio::sync::watch;

use super::report::Counts;
use crate::artifacts;
use crate::control::journal::Journal;
use crate::control::worker::Stop;
use crate::control::{Control, Error};
use crate::ids::Hash;
use crate::invalid::Invalid;
use crate::store::StreamStatus;
use crate::stream::{Engine, Seeded};

/// While it is taken in.
pub(super) const SEEDING: &str = "SEEDING";
/// Events from one commit to the next.
const CHUNK: u64 = 200_000;
/// No event is longer: the import takes no line of this size.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// Takes all events of the snapshot that the flow reads, those that an earlier attempt has committed left out. The last
/// commit is the caller's.
pub(super) async fn seed(
    control: &Control,
    journal: &mut Journal,
    engine: &mut Engine,
    snapshot: Hash,
    stop: &watch::Receiver<Stop>,
) -> Result<(), Error> {
    let place = snapshot.to_string();
    let failed = |source| artifacts::Error::Io { place: place.clone(), source };
    let mut body = control.artifacts()?.reader(&snapshot)?;
    let before = engine.history();
    let (mut lines, mut known, mut new) = (0, 0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut body).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(failed)? == 0 {
            break;
        }
        lines += 1;
        let whole = line.strip_suffix(b"\n").ok_or_else(|| damaged(&place, lines))?;
        match engine.seed(whole, (&place, lines))? {
            Seeded::Filtered => continue,
            Seeded::Known => known += 1,
            Seeded::New => new += 1,
        }
        // What is there of an earlier attempt is the beginning of the same snapshot.
        if known > before || new > 0 && known < before {
            return Err(Invalid::new(
                "SNAPSHOT_DAMAGED",
                format!("{place}:{lines}"),
                "an event id that comes twice",
                "name a snapshot that `finaz snapshot import` made",
            )
            .into());
        }
        if new > 0 && new % CHUNK == 0 {
            commit(journal, engine, SEEDING).await?;
            if let Stop::Drain(signal) | Stop::Now(signal) = *stop.borrow() {
                return Err(Error::Interrupted { signal });
            }
        }
    }
    body.finish()?;
    Ok(())
}

fn damaged(place: &str, line: u64) -> Invalid {
    let message = "the line does not end, or is longer than any event";
    let hint = "name a snapshot that `finaz snapshot import` made";
    Invalid::new("SNAPSHOT_DAMAGED", format!("{place}:{line}"), message, hint)
}

/// Commits what is new.
pub(super) async fn commit(
    journal: &mut Journal,
    engine: &mut Engine,
    state: &str,
) -> Result<(), Error> {
    let report = serde_json::to_string(&Counts::of(engine, &[], &[])).ok();
    let status = StreamStatus { state: state.to_owned(), reason: None, report };
    let (delta, kept, watermark) = engine.cut();
    journal.commit(delta, kept, watermark, status).await?;
    Ok(())
}
