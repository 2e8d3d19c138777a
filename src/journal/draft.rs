//! A commit on its way: what is new becomes segments, small merges are made, and a head names all that is needed.

use std::collections::{HashMap, HashSet};

use super::compact::{Merge, merge};
use super::head::{Head, SegmentRef};
use super::segment::{Kind, NewSegment, Segment};
use super::{Error, damaged, rows};
use crate::canonical::Value;
use crate::ids::{Hash, Hashed};
use crate::stream::{Accepted, Delta, Identity};

/// Merges of fewer bytes are made within a commit; reading and hashing this much takes about a millisecond.
const INLINE_BYTES_MAX: u64 = 1 << 20;

/// Gives the bytes of a blob.
type Get<'a, E> = &'a dyn Fn(&Hash) -> Result<Vec<u8>, E>;

/// A head that is not yet whole.
#[derive(Debug)]
pub struct Draft {
    pub head: Head,
    /// Kinds of which segments are being merged at this moment.
    pub busy: HashSet<Kind>,
    /// Of the commit, in microseconds since 1970.
    pub at_us: i64,
}

/// A commit that is to be kept: its blobs, then the pointer to its head.
#[derive(Debug)]
pub struct Drafted {
    pub hash: Hash,
    pub head: Head,
    /// The head among them.
    pub blobs: Vec<Hashed>,
    /// Merges that are too large for a commit.
    pub due: Vec<Merge>,
    /// What was taken in, as it was given but for its order.
    pub delta: Delta,
}

impl Draft {
    /// Takes in what is new; `get` gives the segments of before that are merged.
    ///
    /// # Errors
    /// What `get` met, and [`Error::Damaged`].
    pub fn write<E: From<Error>>(
        mut self,
        mut delta: Delta,
        get: Get<'_, E>,
    ) -> Result<Drafted, E> {
        let mut blobs: HashMap<Hash, Hashed> = HashMap::new();
        self.head.segments.drop_drained(self.head.drained_before);
        for segment in encoded(&mut delta, self.head.seq, self.at_us) {
            self.head.segments.append(segment.kind, segment.named);
            blobs.insert(segment.named.hash, segment.blob);
        }
        // Events may be accepted and applied within one commit.
        self.head.segments.drop_drained(self.head.drained_before);
        let mut due = Vec::new();
        for kind in Kind::ALL {
            due.extend(self.compact(kind, &mut blobs, get)?);
        }
        let named: HashSet<Hash> = self.head.segments.hashes().collect();
        let head = Hashed::of(self.head.to_bytes());
        let hash = head.hash();
        blobs.retain(|blob, _| named.contains(blob));
        let blobs: Vec<Hashed> = blobs.into_values().chain([head]).collect();
        Ok(Drafted { hash, head: self.head, blobs, due, delta })
    }

    /// Makes the small merges that are due; gives a large one.
    fn compact<E: From<Error>>(
        &mut self,
        kind: Kind,
        blobs: &mut HashMap<Hash, Hashed>,
        get: Get<'_, E>,
    ) -> Result<Option<Merge>, E> {
        while let Some(merge) = self.head.segments.plan(kind) {
            if merge.bytes() > INLINE_BYTES_MAX {
                return Ok((!self.busy.contains(&kind)).then_some(merge));
            }
            let result = merged(&merge, self.head.drained_before, &|hash| {
                blobs.get(hash).map_or_else(|| get(hash), |blob| Ok(blob.bytes().to_vec()))
            })?;
            self.head.segments.adopt(&merge, result.as_ref().map(|result| result.named));
            blobs.extend(result.map(|result| (result.named.hash, result.blob)));
        }
        Ok(None)
    }
}

/// What is new as segments, each kind that has rows.
fn encoded(delta: &mut Delta, seq: i64, at_us: i64) -> Vec<NewSegment> {
    [
        rows::accepted(&delta.accepted, seq),
        rows::applied(&delta.applied, seq),
        rows::fates(&delta.fates, seq, at_us),
        rows::identities(&mut delta.identities, seq),
        rows::quarantined(&delta.quarantined, seq, at_us),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The one segment that these become; `None` when nothing of them is needed.
///
/// # Errors
/// What `get` met, and [`Error::Damaged`].
pub fn merged<E: From<Error>>(
    inputs: &Merge,
    drained_before: i64,
    get: Get<'_, E>,
) -> Result<Option<NewSegment>, E> {
    let blobs: Vec<Vec<u8>> =
        inputs.inputs.iter().map(|input| get(&input.hash)).collect::<Result<_, _>>()?;
    let segments: Vec<Segment<'_>> = blobs
        .iter()
        .zip(&inputs.inputs)
        .map(|(blob, named)| Segment::named(blob, inputs.kind, named))
        .collect::<Result<_, _>>()?;
    Ok(merge(&segments, inputs.level, drained_before)?)
}

impl<'a> Segment<'a> {
    /// Reads the segment that a head names so.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is another one, or none.
    pub fn named(bytes: &'a [u8], kind: Kind, named: &SegmentRef) -> Result<Self, Error> {
        let place = named.hash.to_string();
        let segment = Self::parse(bytes, kind, &place)?;
        if segment.is(named) {
            return Ok(segment);
        }
        let what = format!("is not the segment of {} that its head says", kind.field());
        Err(damaged(&place, what))
    }
}

/// What a stream goes on with. What became of records, and what was applied, is not among it: that is read where it is
/// asked for.
#[derive(Debug)]
pub struct Loaded {
    /// The engine's own.
    pub state: Value,
    /// Each list sorted by id; no id is in two of them.
    pub identities: Vec<Vec<Identity>>,
    /// Accepted, and not yet applied.
    pub accepted: Vec<Accepted>,
    pub seq: i64,
}

impl Head {
    /// What a stream goes on with from this head.
    ///
    /// # Errors
    /// What `get` met, and [`Error::Damaged`].
    pub fn load<E: From<Error>>(&self, get: Get<'_, E>) -> Result<Loaded, E> {
        let mut identities = Vec::new();
        let mut accepted = Vec::new();
        for named in self.segments.of(Kind::Identities) {
            let bytes = get(&named.hash)?;
            let segment = Segment::named(&bytes, Kind::Identities, named)?;
            identities.push(segment.identities().collect());
        }
        for named in self.segments.of(Kind::Accepted) {
            let bytes = get(&named.hash)?;
            let segment = Segment::named(&bytes, Kind::Accepted, named)?;
            let left = segment.accepted().filter(|event| event.event_time >= self.drained_before);
            accepted.extend(left);
        }
        Ok(Loaded { state: self.state.clone(), identities, accepted, seq: self.seq })
    }
}
