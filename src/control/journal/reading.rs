//! Reading a journal back: whole for its stream, in parts for whoever asks.

use crate::artifacts::Artifacts;
use crate::control::Error;
use crate::ids::Hash;
use crate::journal;
use crate::journal::{Head, Kind, Loaded, Segment, SegmentRef};
use crate::store::StreamRow;
use crate::stream::{Applied, Fate, Quarantined};

/// The head that a row points at; `None` before the first commit.
pub(in crate::control) fn head(
    artifacts: &Artifacts,
    row: &StreamRow,
) -> Result<Option<Head>, Error> {
    let Some(hash) = row.head else { return Ok(None) };
    let head = Head::parse(&artifacts.get(&hash)?, &hash.to_string())?;
    let seen = (head.epoch, head.fence, head.seq);
    if seen != (row.epoch, row.fence, row.seq) || head.identity != row.identity {
        let what = format!("is not the head of {}, which names it", row.name);
        return Err(Error::Journal(journal::Error::Damaged { place: hash.to_string(), what }));
    }
    Ok(Some(head))
}

/// What a stream goes on with. That nothing is missing of what is not read is looked at, too.
pub(super) fn load(
    artifacts: &Artifacts,
    row: &StreamRow,
) -> Result<Option<(Hash, Head, Loaded)>, Error> {
    let (Some(hash), Some(head)) = (row.head, head(artifacts, row)?) else { return Ok(None) };
    for kind in [Kind::Applied, Kind::Fates, Kind::Quarantined] {
        for segment in head.segments.of(kind) {
            if !artifacts.contains(&segment.hash)? {
                let place = artifacts.root().display().to_string();
                let hash = segment.hash;
                return Err(Error::Artifacts(crate::artifacts::Error::Missing { hash, place }));
            }
        }
    }
    let loaded = loaded(artifacts, &head)?;
    Ok(Some((hash, head, loaded)))
}

/// What a stream goes on with from this head.
pub(in crate::control) fn loaded(artifacts: &Artifacts, head: &Head) -> Result<Loaded, Error> {
    head.load(&|hash| super::bytes(artifacts, hash))
}

/// Everything that was applied, in order.
pub(in crate::control) fn applied(
    artifacts: &Artifacts,
    head: &Head,
    visit: &mut dyn FnMut(Applied),
) -> Result<(), Error> {
    each(artifacts, head, Kind::Applied, &mut |segment| segment.applied().for_each(&mut *visit))
}

/// What was applied in these segments behind the first `skip` rows, in order, as long as the visitor wants more.
pub(in crate::control) fn applied_from(
    artifacts: &Artifacts,
    segments: &[SegmentRef],
    skip: u64,
    visit: &mut dyn FnMut(Applied) -> bool,
) -> Result<(), Error> {
    let mut before = 0;
    for named in segments {
        let end = before + named.rows;
        if end > skip {
            let bytes = artifacts.get(&named.hash)?;
            let known = usize::try_from(skip.saturating_sub(before)).unwrap_or(usize::MAX);
            let segment = Segment::named(&bytes, Kind::Applied, named)?;
            if !segment.applied().skip(known).all(&mut *visit) {
                return Ok(());
            }
        }
        before = end;
    }
    Ok(())
}

/// What became of each record, in the order read, and when that was committed, in microseconds since 1970.
pub(in crate::control) fn fates(
    artifacts: &Artifacts,
    head: &Head,
    visit: &mut dyn FnMut(i64, Fate),
) -> Result<(), Error> {
    each(artifacts, head, Kind::Fates, &mut |segment| {
        segment.fates().for_each(|(at, fate)| visit(at, fate));
    })
}

/// Every record that was not taken, and when that was committed, in microseconds since 1970.
pub(in crate::control) fn quarantined(
    artifacts: &Artifacts,
    head: &Head,
    visit: &mut dyn FnMut(i64, Quarantined),
) -> Result<(), Error> {
    each(artifacts, head, Kind::Quarantined, &mut |segment| {
        segment.quarantined().for_each(|(at, row)| visit(at, row));
    })
}

/// Whether the stream knows this identity.
pub(in crate::control) fn knows(
    artifacts: &Artifacts,
    head: &Head,
    id: [u8; 16],
) -> Result<bool, Error> {
    let mut known = false;
    each(artifacts, head, Kind::Identities, &mut |segment| {
        known = known || segment.identities().any(|identity| identity.id == id);
    })?;
    Ok(known)
}

/// Reads the segments of one kind, one at a time.
pub(super) fn each(
    artifacts: &Artifacts,
    head: &Head,
    kind: Kind,
    visit: &mut dyn FnMut(&Segment<'_>),
) -> Result<(), Error> {
    for named in head.segments.of(kind) {
        let bytes = artifacts.get(&named.hash)?;
        visit(&Segment::named(&bytes, kind, named)?);
    }
    Ok(())
}
