//! Whether the event ids of a source are all different, in bounded memory.
//!
//! Kept are 128 bits of each id's SHA-256 and its line; what does not fit in memory is sorted in
//! runs. Two ids with the same 128 bits do not come about, not even on purpose.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Error;
use super::spill::{Run, Spill};
use crate::artifacts::Artifacts;
use crate::ids::Hash;

/// Ids in memory: 24 MiB.
#[cfg(not(test))]
const IDS_MAX: usize = 1 << 20;
#[cfg(test)]
const IDS_MAX: usize = 64;

/// Bytes of an id and its line in a run.
const RECORD: usize = 24;

type Seen = ([u8; 16], u64);

/// The ids seen so far.
#[derive(Debug, Default)]
pub(super) struct Ids {
    ids: Vec<Seen>,
    spill: Option<Spill>,
}

impl Ids {
    /// Notes the id of a line.
    pub(super) fn add(&mut self, artifacts: &Artifacts, id: &str, line: u64) -> Result<(), Error> {
        if self.ids.len() == IDS_MAX {
            self.spill_run(artifacts)?;
        }
        let hash = Hash::of(id.as_bytes());
        let half = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        self.ids.push((*half, line));
        Ok(())
    }

    fn spill_run(&mut self, artifacts: &Artifacts) -> Result<(), Error> {
        self.ids.sort_unstable();
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(Spill::new(artifacts)?),
        };
        let ids = &self.ids;
        spill.run(|out| {
            ids.iter().try_for_each(|(id, line)| {
                out.write_all(id)?;
                out.write_all(&line.to_le_bytes())
            })
        })?;
        self.ids.clear();
        Ok(())
    }

    /// The first line whose id an earlier line has, and that earlier line.
    pub(super) fn duplicate(mut self, artifacts: &Artifacts) -> Result<Option<(u64, u64)>, Error> {
        let mut first: Option<(u64, u64)> = None;
        let mut last: Option<Seen> = None;
        let mut see = |seen: Seen| {
            if let Some((id, line)) = last
                && id == seen.0
                && first.is_none_or(|(found, _)| seen.1 < found)
            {
                first = Some((seen.1, line));
            }
            last = Some(seen);
        };
        if self.spill.is_none() {
            self.ids.sort_unstable();
            self.ids.iter().for_each(|seen| see(*seen));
            return Ok(first);
        }
        self.spill_run(artifacts)?;
        let mut runs = self.spill.as_ref().map(Spill::runs).unwrap_or_default();
        let mut heap = BinaryHeap::new();
        for (at, run) in runs.iter_mut().enumerate() {
            heap.extend(next(run)?.map(|seen| Reverse((seen, at))));
        }
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((seen, at)) = *top;
            see(seen);
            match next(&mut runs[at])? {
                Some(next) => *top = Reverse((next, at)),
                None => drop(std::collections::binary_heap::PeekMut::pop(top)),
            }
        }
        Ok(first)
    }
}

fn next(run: &mut Run<'_>) -> Result<Option<Seen>, Error> {
    let record = run.peek(RECORD)?;
    let Some((id, line)) = record.split_first_chunk() else { return Ok(None) };
    let line = u64::from_le_bytes(line.try_into().expect("a record is 24 bytes"));
    let seen = (*id, line);
    run.take(RECORD);
    Ok(Some(seen))
}
