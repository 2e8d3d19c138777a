//! A journal as one file, out of one pair of stores and into another.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::artifacts::Artifacts;
use crate::control::Error;
use crate::ids::{Hash, Hashed};
use crate::journal;
use crate::journal::{Exported, Head, Kind, NewSegment};
use crate::store::{Store, StreamLease, StreamMove, StreamRow, StreamStatus};

use super::{blocking, open_row, reading, settled};

/// Blobs of an import that go to the artifact store in one round; more than a hundred become one pack.
const ROUND_BYTES_MAX: usize = 64 << 20;

/// `cas gc` removes nothing younger than a minute.
const YOUNG: Duration = Duration::from_secs(20);

/// Writes a whole journal as one document of FINAZ_JSON_V1; `false`, and nothing written, before its first commit.
pub(in crate::control) fn export(
    artifacts: &Artifacts,
    row: &StreamRow,
    out: &mut dyn Write,
) -> Result<bool, Error> {
    let Some(head) = reading::head(artifacts, row)? else { return Ok(false) };
    let document = Exported::of(&row.name, &head.to_bytes());
    let mut said = out.write_all(&document.open);
    let mut first = true;
    for kind in Kind::ALL {
        reading::each(artifacts, &head, kind, &mut |segment| {
            if said.is_ok() {
                let comma: &[u8] = if std::mem::take(&mut first) { b"" } else { b"," };
                said =
                    out.write_all(comma).and_then(|()| out.write_all(&journal::exported(segment)));
            }
        })?;
    }
    said.and_then(|()| out.write_all(&document.close)).map(|()| true).map_err(|source| {
        Error::NotWritten { place: format!("the export of {}", row.name), source }
    })
}

/// An exported journal, read and found whole.
#[derive(Debug)]
pub(in crate::control) struct Document {
    /// Of the stream and its lease.
    pub(in crate::control) name: String,
    pub(in crate::control) head: Head,
    pub(super) segments: Vec<NewSegment>,
}

impl Document {
    /// Reads what [`export`] wrote; `place` is the file.
    pub(in crate::control) fn read(bytes: &[u8], place: &str) -> Result<Self, Error> {
        let read = journal::imported(bytes, place);
        let (name, head, segments) = read.map_err(Error::JournalFile)?;
        Ok(Self { name, head, segments })
    }
}

/// What an import did.
#[derive(Clone, Copy, Debug)]
pub(in crate::control) struct Imported {
    pub(in crate::control) seq: i64,
    /// It was there, as an earlier import left it or as it was exported.
    pub(in crate::control) already_present: bool,
}

/// Takes a journal in under a lease of its name, as a commit of this lease's fence.
///
/// # Errors
/// [`Error::JournalForeign`] when the lease is of another name, or a stream of that name has come to another head.
pub(in crate::control) async fn import(
    artifacts: Arc<Artifacts>,
    store: &Store,
    lease: &StreamLease,
    document: Document,
) -> Result<Imported, Error> {
    let Document { name, head, segments } = document;
    if lease.name != name {
        let (held, offered) = (lease.name.clone(), name);
        return Err(Error::JournalForeign { name: held.clone(), field: "name", held, offered });
    }
    let identity = head.identity.clone();
    let (row, _clock) = open_row(store, lease, &identity).await?;
    let exported = Hash::of(&head.to_bytes());
    if let Some(held) = row.head {
        let reader = Arc::clone(&artifacts);
        let seq = row.seq;
        let found = blocking(move || reading::head(&reader, &row)).await?;
        let before = found.and_then(|found| found.previous);
        if held == exported || before == Some(exported) {
            return Ok(Imported { seq, already_present: true });
        }
        let (held, offered) = (held.to_string(), exported.to_string());
        return Err(Error::JournalForeign { name, field: "head", held, offered });
    }
    let next = Head {
        epoch: lease.epoch,
        fence: lease.fence,
        seq: head.seq + 1,
        previous: Some(exported),
        ..head
    };
    let from = (row.fence, row.seq);
    let (next, hash) = blocking(move || keep(&artifacts, next, segments)).await?;
    let mut blobs = next.needs();
    blobs.push(hash);
    let status = StreamStatus { state: "IMPORTED".to_owned(), reason: None, report: None };
    let (from_fence, from_seq) = from;
    let moved = StreamMove {
        from_fence,
        from_seq,
        seq: next.seq,
        head: hash,
        blobs,
        status,
        restored: None,
    };
    settled(lease, store.commit_stream(lease, &identity.run_id, &moved).await?)?;
    Ok(Imported { seq: next.seq, already_present: false })
}

/// Keeps the segments and the head, in rounds of bounded size. What takes long is done twice: the second time finds
/// all of it there, and makes it young again, so that `cas gc` leaves it until it is named.
pub(super) fn keep(
    artifacts: &Artifacts,
    head: Head,
    segments: Vec<NewSegment>,
) -> Result<(Head, Hash), Error> {
    let mut rounds = vec![Vec::new()];
    let mut bytes = 0;
    for segment in segments {
        let size = segment.blob.bytes().len();
        bytes += size;
        if bytes > ROUND_BYTES_MAX {
            rounds.push(Vec::new());
            bytes = size;
        }
        rounds.last_mut().expect("there is one").push(segment.blob);
    }
    rounds.push(vec![Hashed::of(head.to_bytes())]);
    let began = Instant::now();
    let all = || rounds.iter().try_for_each(|round| artifacts.put_hashed(round));
    all()?;
    if began.elapsed() > YOUNG {
        all()?;
    }
    let hash = Hash::of(&head.to_bytes());
    Ok((head, hash))
}
