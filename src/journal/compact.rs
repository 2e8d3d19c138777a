//! Compaction: which segments become one, and what that one holds.
//!
//! A commit writes segments of level 0. Sixteen of one level become one of the next, so each row is written once a level
//! and a head names at most fifteen segments a level. A segment that would pass [`MERGE_BYTES_MAX`] is not made: then as
//! many as fit become one that is never merged again ([`SEALED`]). So a merge never needs more memory than twice that,
//! whatever a stream has seen.

use std::ops::Range;

use super::head::{SegmentRef, Segments};
use super::segment::{Kind, NewSegment, Segment};
use super::{Error, damaged, rows};

/// How many segments of one level become one of the next.
pub(super) const FANOUT: usize = 16;

/// Bytes that the inputs of one merge have at most.
const MERGE_BYTES_MAX: u64 = 64 << 20;

/// The level of a segment that is not merged any more.
pub(super) const SEALED: u8 = u8::MAX;

/// Levels below [`SEALED`] that there can be: 16^20 commits are never made.
const LEVEL_MAX: u8 = 20;

/// A level as a head has it.
pub(super) fn level_of(level: i64) -> Option<u8> {
    u8::try_from(level).ok().filter(|level| *level <= LEVEL_MAX || *level == SEALED)
}

/// Segments that shall become one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Merge {
    pub kind: Kind,
    /// Neighbours, in their order.
    pub inputs: Vec<SegmentRef>,
    /// Of the result.
    pub level: u8,
}

impl Merge {
    /// Bytes to be read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.bytes).sum()
    }
}

impl Segments {
    /// What to merge next in this kind; `None` when nothing is due. Segments that became too large for a merge are
    /// sealed by the way.
    pub fn plan(&mut self, kind: Kind) -> Option<Merge> {
        loop {
            let group = due(self.of(kind))?;
            let list = self.of_mut(kind);
            let level = list[group.start].level;
            let fits = fitting(&list[group.clone()]);
            if fits == FANOUT && level < LEVEL_MAX {
                return Some(Merge { kind, inputs: list[group].to_vec(), level: level + 1 });
            }
            // What stands before a sealed one is sealed: levels never rise along the list.
            let sealed = if fits > 1 { group.start } else { group.start + 1 };
            list[..sealed].iter_mut().for_each(|segment| segment.level = SEALED);
            if fits > 1 {
                let inputs = list[group.start..group.start + fits].to_vec();
                return Some(Merge { kind, inputs, level: SEALED });
            }
        }
    }

    /// Puts the result of a merge where its inputs stand; `None`: nothing of them is needed any more. `false`, and nothing
    /// changed, when they do not stand there any more.
    pub fn adopt(&mut self, merge: &Merge, result: Option<SegmentRef>) -> bool {
        let list = self.of_mut(merge.kind);
        let at = list.windows(merge.inputs.len()).position(|held| {
            held.iter().zip(&merge.inputs).all(|(held, input)| held.hash == input.hash)
        });
        let Some(at) = at else { return false };
        let inputs = at..at + merge.inputs.len();
        // Sealed meanwhile, as what stood before a sealed one: so is what takes their place.
        let level = list[inputs.clone()].iter().map(|s| s.level).fold(merge.level, u8::max);
        list.splice(inputs, result.map(|segment| SegmentRef { level, ..segment }));
        true
    }

    /// Drops segments of accepted events that are all applied.
    pub fn drop_drained(&mut self, drained_before: i64) {
        self.of_mut(Kind::Accepted)
            .retain(|segment| segment.until.is_none_or(|until| until >= drained_before));
    }
}

/// The oldest [`FANOUT`] of the lowest level that has as many.
fn due(list: &[SegmentRef]) -> Option<Range<usize>> {
    let mut end = list.len();
    while end > 0 {
        let level = list[end - 1].level;
        if level == SEALED {
            return None;
        }
        let start = list[..end].iter().rposition(|s| s.level != level).map_or(0, |at| at + 1);
        if end - start >= FANOUT {
            return Some(start..start + FANOUT);
        }
        end = start;
    }
    None
}

/// How many of a group, from its first, are small enough together.
fn fitting(group: &[SegmentRef]) -> usize {
    let mut bytes = 0;
    group
        .iter()
        .take_while(|segment| {
            bytes += segment.bytes;
            bytes <= MERGE_BYTES_MAX
        })
        .count()
}

/// The segment that holds what these hold, in their order; `None` when none of it is needed: accepted events before
/// `drained_before` are not.
///
/// # Errors
/// [`Error::Damaged`] when they are not of one kind and one width.
pub(super) fn merge(
    inputs: &[Segment<'_>],
    level: u8,
    drained_before: i64,
) -> Result<Option<NewSegment>, Error> {
    let Some(first) = inputs.first() else { return Ok(None) };
    if inputs.iter().any(|input| input.header.kind != first.header.kind) {
        return Err(damaged("a merge", "is of segments of two kinds"));
    }
    let (header, body) = match first.header.kind {
        Kind::Fates | Kind::Quarantined => rows::joined(inputs),
        Kind::Identities => rows::merged_identities(inputs),
        Kind::Accepted => rows::remapped(inputs, drained_before)?,
        Kind::Applied => rows::remapped(inputs, i64::MIN)?,
    };
    Ok(header.written(body).map(|segment| segment.at_level(level)))
}
