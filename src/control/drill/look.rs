//! What can be seen of a stream from outside of it: its lease, its pointer, its journal, what it emitted.

use std::collections::BTreeMap;

use serde_json::Value;

use super::stage::{SOON, Stage};
use super::wait::{unable, until};
use crate::artifacts::Artifacts;
use crate::drill::chaos::CommitEnd;
use crate::drill::{Broke, Moment, QueueNumbers};
use crate::ids::Hash;
use crate::journal::{Head, Kind, Segment};
use crate::store::{LeaseRow, StreamView};
use crate::stream::Position;

/// A stream as its row has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Standing {
    pub(super) fence: i64,
    pub(super) seq: i64,
    pub(super) head: Option<Hash>,
    pub(super) read: u64,
}

impl Standing {
    fn of(view: &StreamView) -> Self {
        let report = view.row.status.report.as_deref().unwrap_or_default();
        let report: Value = serde_json::from_str(report).unwrap_or(Value::Null);
        Self {
            fence: view.row.fence,
            seq: view.row.seq,
            head: view.row.head,
            read: report["read"].as_u64().unwrap_or(0),
        }
    }

    /// Its pointer, in words.
    pub(super) fn pointer(&self) -> String {
        let head = self.head.map_or("-".to_owned(), |head| head.hex()[..12].to_owned());
        format!("fence {}, commit {}, head {head}", self.fence, self.seq)
    }
}

impl Stage {
    /// The lease of this name; there must be one.
    pub(super) async fn lease(&self, name: &str) -> Result<LeaseRow, Broke> {
        let row = self.store.lease(name).await?;
        row.ok_or_else(|| Broke::Failed(format!("there is no lease {name}")))
    }

    /// How far a stream has come; one that nobody has opened yet has not come far.
    pub(super) async fn standing(&self, name: &str) -> Result<Standing, Broke> {
        let view = self.store.stream(name).await?;
        Ok(view.as_ref().map(Standing::of).unwrap_or_default())
    }

    /// Waits until so many records are committed under this fence.
    pub(super) async fn committed(
        &self,
        name: &str,
        fence: i64,
        records: u64,
    ) -> Result<Standing, Broke> {
        let what = format!("{records} records of {name} are committed under fence {fence}");
        until(&what, SOON, async || {
            let standing = self.standing(name).await?;
            Ok((standing.fence == fence && standing.read == records).then_some(standing))
        })
        .await
    }

    /// Waits until the lease has run out, by the clock of the database.
    pub(super) async fn run_out(&self, name: &str) -> Result<LeaseRow, Broke> {
        let what = format!("the lease {name} runs out");
        until(&what, SOON, async || {
            let lease = self.lease(name).await?;
            Ok((!lease.live).then_some(lease))
        })
        .await
    }

    /// What happened to this lease so far.
    pub(super) async fn moments(&self, name: &str) -> Result<Vec<Moment>, Broke> {
        let mut moments = self.store.drill_history().await?;
        moments.retain(|moment| moment.is_of(name));
        Ok(moments)
    }

    /// What was emitted into this file of the drill's folder; `None` where there is none.
    pub(super) fn emitted(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }
}

/// A journal, read from its blobs.
#[derive(Debug)]
pub(super) struct Journal {
    /// From the newest to the first.
    heads: Vec<(Hash, Head)>,
    /// How often each place of the topic was decided, and how.
    pub(super) fates: BTreeMap<(i32, i64), Vec<&'static str>>,
    /// Ids of consumed records.
    pub(super) consumed: Vec<[u8; 16]>,
}

impl Journal {
    /// All of it, from its head.
    pub(super) fn read(artifacts: &Artifacts, head: Option<Hash>) -> Result<Self, Broke> {
        let failed = |error: &dyn std::fmt::Display| Broke::Failed(format!("the journal: {error}"));
        let mut heads = Vec::new();
        let mut next = head;
        while let Some(hash) = next {
            let bytes = artifacts.get(&hash).map_err(|error| failed(&error))?;
            let head = Head::parse(&bytes, "a head").map_err(|error| failed(&error))?;
            next = head.previous;
            heads.push((hash, head));
        }
        let mut journal = Self { heads, fates: BTreeMap::new(), consumed: Vec::new() };
        let Some((_, newest)) = journal.heads.first() else { return Ok(journal) };
        for named in newest.segments.of(Kind::Fates) {
            let bytes = artifacts.get(&named.hash).map_err(|error| failed(&error))?;
            let segment =
                Segment::parse(&bytes, Kind::Fates, "fates").map_err(|error| failed(&error))?;
            for (_, fate) in segment.fates() {
                let place = (fate.partition, fate.offset);
                journal.fates.entry(place).or_default().push(fate.treatment.word());
                if fate.treatment.word() == "consumed" {
                    journal.consumed.push(fate.id);
                }
            }
        }
        Ok(journal)
    }

    /// The last commit under this fence, and the first one after it: seq and hash of the head of the one, seq and hash
    /// of the previous head of the other.
    pub(super) fn handover(&self, fence: i64) -> Option<Handover> {
        let at = self.heads.iter().position(|(_, head)| head.fence == fence)?;
        let (hash, last) = &self.heads[at];
        let (_, next) = self.heads.get(at.checked_sub(1)?)?;
        Some(Handover { last: (last.seq, *hash), next: (next.seq, next.previous, next.fence) })
    }

    /// Whether each commit follows the one before it, under no lower fence.
    pub(super) fn is_unbroken(&self) -> bool {
        self.heads.windows(2).all(|pair| {
            let [(_, newer), (_, older)] = pair else { return false };
            newer.seq == older.seq + 1 && (newer.epoch, newer.fence) >= (older.epoch, older.fence)
        })
    }

    /// All commits, from the first to the newest.
    pub(super) fn commits(&self) -> Vec<CommitEnd> {
        let commit = |(_, head): &(Hash, Head)| CommitEnd {
            epoch: head.epoch,
            fence: head.fence,
            seq: head.seq,
            next_offsets: Position::of(&head.state).map(|at| at.next_offsets).unwrap_or_default(),
        };
        self.heads.iter().rev().map(commit).collect()
    }

    /// Places that were decided more than once.
    pub(super) fn twice(&self) -> u64 {
        self.fates.values().map(|fates| fates.len() as u64 - 1).sum()
    }

    /// The queue numbers of a topic with these ends; `before` were committed by the one who was stopped or killed.
    pub(super) fn numbers(&self, ends: &[(i32, i64)], before: u64) -> QueueNumbers {
        let attempted: u64 = ends.iter().map(|(_, end)| u64::try_from(*end).unwrap_or(0)).sum();
        let is_there = |(partition, offset): &(i32, i64)| {
            ends.iter().any(|(at, end)| at == partition && offset < end)
        };
        let acked = self.fates.keys().filter(|place| is_there(place)).count() as u64;
        QueueNumbers {
            attempted,
            acked,
            lost: attempted - acked,
            unexpected: self.fates.len() as u64 - acked,
            duplicated: self.twice(),
            recovered: acked.saturating_sub(before),
        }
    }
}

/// From one owner's last commit to the next owner's first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handover {
    pub(super) last: (i64, Hash),
    pub(super) next: (i64, Option<Hash>, i64),
}

/// Consumed, filtered, duplicates, late, omitted of a report.
pub(super) fn counts(report: &Value) -> [u64; 5] {
    ["consumed", "filtered", "duplicates_skipped", "late", "omitted"]
        .map(|name| report[name].as_u64().unwrap_or(u64::MAX))
}

/// Where the log of each partition ends.
pub(super) async fn ends(stage: &Stage, topic: &str) -> Result<Vec<(i32, i64)>, Broke> {
    let found = stage.broker.find_topic(topic).await?;
    let found = found.ok_or_else(|| unable(&topic, &"there is no such topic"))?;
    let all: Vec<i32> = (0..i32::try_from(found.partitions).unwrap_or(0)).collect();
    let edges = stage.broker.edges(&found, &all).await?;
    Ok(edges.iter().map(|edge| (edge.partition, edge.high_water)).collect())
}
