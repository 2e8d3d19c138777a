//! The invariants, held against what the store's transactions did: by a bookkeeping of their own, which trusts nothing
//! that the store decided.

use std::collections::{BTreeMap, BTreeSet};

use super::disk::Disk;
use super::seen::Seen;
use super::store::{Fact, Publication, SimStore};
use super::world::Warehouse;
use crate::ids::{Hash, Owner};
use crate::journal::Head;
use crate::rules::run::{DEAD_OWNERS_MAX, State};
use crate::stream::Position;

/// Of so many heads one is read.
const HEADS: i64 = 5;

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(super) struct Violation {
    pub(super) rule: &'static str,
    pub(super) what: String,
}

/// A lease as the grants and renewals say.
#[derive(Debug)]
struct Tenure {
    owner: Owner,
    fence: (i64, i64),
    until: i64,
}

/// A run as what happened to it says.
#[derive(Debug, Default)]
struct Course {
    fence: i64,
    lease: String,
    /// Owners under which it began.
    owners: BTreeSet<Owner>,
    ended: Option<State>,
    orphaned: i32,
    published: u64,
}

/// A stream as its commits say.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) fence: (i64, i64),
    pub(super) seq: i64,
    pub(super) head: Hash,
    /// As far as heads were read.
    pub(super) offsets: BTreeMap<i32, i64>,
    /// The fence of the first commit.
    pub(super) began: i64,
}

/// What a transaction is held against besides.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) disk: &'a Disk,
    pub(super) warehouse: &'a Warehouse,
}

/// What a run shall come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Golden {
    pub(super) blob: Hash,
    pub(super) values_hash: Hash,
}

/// The judge of one seed.
#[derive(Debug, Default)]
pub(super) struct Judge {
    leases: BTreeMap<String, Tenure>,
    runs: BTreeMap<i64, Course>,
    pub(super) streams: BTreeMap<String, Progress>,
    /// Run ids that a client has asked for, and those that it was told of.
    pub(super) attempted: BTreeSet<String>,
    pub(super) acked: BTreeSet<String>,
    pub(super) cancels: BTreeSet<String>,
    /// What (flow, snapshot) comes to; absent: the run cannot succeed.
    pub(super) goldens: BTreeMap<(Hash, Hash), Golden>,
    highest_event: i64,
    pub(super) violations: Vec<Violation>,
    pub(super) judged: u64,
}

impl Judge {
    pub(super) fn breaks(&mut self, rule: &'static str, what: String) {
        self.violations.push(Violation { rule, what });
    }

    fn hold(&mut self, rule: &'static str, holds: bool, what: impl FnOnce() -> String) {
        self.judged += 1;
        if !holds {
            self.breaks(rule, what());
        }
    }

    /// Looks at what a transaction did; gives what is worth to have been seen.
    pub(super) fn see(&mut self, now: i64, fact: &Fact, around: &Surroundings<'_>) -> Vec<Seen> {
        match fact {
            Fact::Admitted { run_id } => {
                let known = self.attempted.contains(run_id);
                self.hold("I6", known, || format!("{run_id} is there, and nobody asked for it"));
                Vec::new()
            }
            Fact::Granted { lease, owner, epoch, fence, until } => {
                self.granted(now, lease, owner, ((*epoch, *fence), *until));
                Vec::new()
            }
            Fact::Renewed { lease, until } => {
                self.renewed(now, lease, *until);
                Vec::new()
            }
            Fact::Over { lease } => {
                if let Some(tenure) = self.leases.get_mut(lease) {
                    tenure.until = tenure.until.min(now);
                }
                Vec::new()
            }
            Fact::Began { run_no, fence, lease } => self.began(*run_no, *fence, lease),
            Fact::Ended { run_no, fence, lease, state } => {
                self.ended(now, (*run_no, *fence), lease.as_deref(), *state)
            }
            Fact::Orphaned { run_no, attempts, state } => {
                self.orphaned(now, *run_no, *attempts, *state)
            }
            Fact::Published { run_no, fence, lease, owner, publication } => {
                self.published(now, (*run_no, *fence), (lease, owner), (publication, around))
            }
            Fact::Moved { lease, owner, fence, seq, head, blobs } => {
                let before = self.streams.get(lease);
                let began = before.map_or(fence.1, |before| before.began);
                let held = before.map(|before| before.offsets.clone()).unwrap_or_default();
                // The first of each owner, and then some: reading a head costs more than writing one.
                let looks = *seq % HEADS == 1 || before.is_none_or(|before| before.fence != *fence);
                let head = *head;
                let offsets = if looks { self.offsets(&head, around) } else { held };
                let progress = Progress { fence: *fence, seq: *seq, head, offsets, began };
                self.moved(now, (lease, owner), progress, (blobs, around));
                Vec::new()
            }
            Fact::Refused => vec![Seen::StaleRefused],
        }
    }

    fn granted(&mut self, now: i64, lease: &str, owner: &Owner, (fence, until): ((i64, i64), i64)) {
        if let Some(before) = self.leases.get(lease) {
            let (free, rises) = (before.until <= now, fence > before.fence);
            let held = before.owner.clone();
            self.hold("I2", free, || format!("{lease} is {held}'s and was given to {owner}"));
            self.hold("I2", rises, || format!("the fence of {lease} does not rise: {fence:?}"));
        }
        self.leases.insert(lease.to_owned(), Tenure { owner: owner.clone(), fence, until });
    }

    fn renewed(&mut self, now: i64, lease: &str, until: i64) {
        let live = self.leases.get(lease).is_some_and(|tenure| tenure.until > now);
        self.hold("I9", live, || format!("{lease} was over and is renewed"));
        if let Some(tenure) = self.leases.get_mut(lease) {
            tenure.until = until;
        }
    }

    fn began(&mut self, run_no: i64, fence: i64, lease: &str) -> Vec<Seen> {
        let owner = self.leases.get(lease).map(|tenure| tenure.owner.clone());
        let course = self.runs.entry(run_no).or_default();
        let (over, rises) = (course.ended, fence > course.fence);
        (course.fence, course.lease) = (fence, lease.to_owned());
        course.owners.extend(owner);
        let first = course.owners.len() == 1;
        self.hold("I9", over.is_none(), || format!("run {run_no} is {over:?} and begins again"));
        self.hold("I2", rises, || format!("run {run_no} begins under a fence it had: {fence}"));
        let below = first && run_no < self.highest_event;
        self.highest_event = self.highest_event.max(run_no);
        if below { vec![Seen::BelowFloor] } else { Vec::new() }
    }

    /// Whether the lease is live: an effect under it counts.
    fn works(&mut self, now: i64, lease: &str, what: &str) {
        let live = self.leases.get(lease).is_some_and(|tenure| tenure.until > now);
        self.hold("I9", live, || format!("{what} under {lease}, which is over"));
    }

    fn ended(
        &mut self,
        now: i64,
        (run_no, fence): (i64, i64),
        lease: Option<&str>,
        state: State,
    ) -> Vec<Seen> {
        if let Some(lease) = lease.filter(|_| state.is_final()) {
            self.works(now, lease, &format!("run {run_no} is {state}"));
        }
        let course = self.runs.entry(run_no).or_default();
        let (over, current) = (course.ended, course.fence);
        let own = lease.is_none_or(|lease| lease == course.lease);
        let handed = course.owners.len() > 1 && state == State::Succeeded;
        course.ended = state.is_final().then_some(state);
        self.hold("I1", over.is_none(), || format!("run {run_no} is {over:?}, then {state}"));
        self.hold("I9", own && fence == current, || {
            format!("run {run_no} is {state} under fence {fence}, and {current} is current")
        });
        let cancelled = lease.is_some() && state == State::Cancelled;
        let seen = [(handed, Seen::Handoff), (cancelled, Seen::CancelledRunning)];
        seen.into_iter().filter(|(is, _)| *is).map(|(_, seen)| seen).collect()
    }

    fn orphaned(&mut self, now: i64, run_no: i64, attempts: i32, state: State) -> Vec<Seen> {
        let course = self.runs.entry(run_no).or_default();
        let (over, lease) = (course.ended, course.lease.clone());
        let excused = attempts == course.orphaned;
        course.orphaned = attempts;
        course.ended = state.is_final().then_some(state);
        let dead = self.leases.get(&lease).is_none_or(|tenure| tenure.until <= now);
        self.hold("I2", dead, || format!("run {run_no} is taken from {lease}, which is live"));
        self.hold("I1", over.is_none(), || format!("run {run_no} is {over:?}, then {state}"));
        let poison = state == State::Failed;
        self.hold("I1", !poison || attempts >= DEAD_OWNERS_MAX, || {
            format!("run {run_no} is poison after {attempts}")
        });
        let seen = [(true, Seen::Swept), (excused, Seen::Excused), (poison, Seen::Poison)];
        seen.into_iter().filter(|(is, _)| *is).map(|(_, seen)| seen).collect()
    }

    fn published(
        &mut self,
        now: i64,
        (run_no, fence): (i64, i64),
        (lease, owner): (&str, &Owner),
        (publication, around): (&Publication, &Surroundings<'_>),
    ) -> Vec<Seen> {
        self.owned(now, lease, owner, "publishes");
        let course = self.runs.entry(run_no).or_default();
        course.published += 1;
        let (times, current) = (course.published, course.fence);
        self.hold("I4", times == 1, || format!("run {run_no} is published {times} times"));
        self.hold("I9", fence == current, || {
            format!("run {run_no} is published under fence {fence}, and {current} is current")
        });
        let blob = publication.blob;
        self.hold("I11", around.disk.keeps(&blob), || {
            format!("run {run_no} is published, and its blob {blob} may be gone")
        });
        let staged = around.warehouse.get(&(run_no, publication.epoch, fence));
        let staged = staged == Some(&publication.values_hash);
        self.hold("I5", staged, || format!("run {run_no} is published without its rows"));
        Vec::new()
    }

    fn owned(&mut self, now: i64, lease: &str, owner: &Owner, what: &str) {
        let tenure = self.leases.get(lease);
        let held = tenure.map(|tenure| (tenure.owner.clone(), tenure.until));
        let mine = held.as_ref().is_some_and(|(held, until)| held == owner && *until > now);
        self.hold("I9", mine, || format!("{owner} {what} under {lease}, which is {held:?}"));
    }

    /// How far a head has come; it is read as its successor will read it.
    fn offsets(&mut self, head: &Hash, around: &Surroundings<'_>) -> BTreeMap<i32, i64> {
        let read = around.disk.get(head).map_err(|fault| fault.to_string());
        let read = read.and_then(|bytes| Head::parse(&bytes, "head").map_err(|e| e.to_string()));
        let position = read.as_ref().ok().and_then(|head| Position::of(&head.state));
        let holds = position.as_ref().is_some_and(|position| position.ledger.holds());
        self.hold("I11", read.is_ok(), || format!("{head} cannot be read: {read:?}"));
        self.hold("I5", holds, || format!("{head} has a ledger that does not hold"));
        position.map(|position| position.next_offsets).unwrap_or_default()
    }

    fn moved(
        &mut self,
        now: i64,
        (lease, owner): (&str, &Owner),
        next: Progress,
        (blobs, around): (&[Hash], &Surroundings<'_>),
    ) {
        self.owned(now, lease, owner, "commits");
        let current = self.leases.get(lease).map(|tenure| tenure.fence);
        self.hold("I9", current == Some(next.fence), || {
            format!("{lease} is moved under fence {:?}, and {current:?} is current", next.fence)
        });
        if let Some(before) = self.streams.get(lease).cloned() {
            let (rises, follows) = (next.fence >= before.fence, next.seq == before.seq + 1);
            self.hold("I2", rises, || format!("{lease} goes back to fence {:?}", next.fence));
            self.hold("I1", follows, || {
                format!("{lease} goes from commit {} to {}", before.seq, next.seq)
            });
        }
        if let Some(before) = self.streams.get(lease).map(|before| before.offsets.clone()) {
            let back = before.iter().find(|(n, offset)| next.offsets.get(n) < Some(offset));
            let back = back.map(|(partition, _)| *partition);
            self.hold("I3", back.is_none(), || format!("{lease} goes back in {back:?}"));
        }
        let gone = blobs.iter().find(|blob| !around.disk.keeps(blob)).copied();
        self.hold("I11", gone.is_none(), || {
            format!("{lease} commits, and its blob {gone:?} may be gone")
        });
        self.streams.insert(lease.to_owned(), next);
    }

    /// What must be so at the end, when all was given time to come to it.
    pub(super) fn end(&mut self, store: &SimStore) -> Vec<Seen> {
        let there: BTreeSet<String> = store.runs.values().map(|run| run.run_id.clone()).collect();
        let lost = self.acked.difference(&there).next().cloned();
        self.hold("I5", lost.is_none(), || format!("{lost:?} was acknowledged and is not there"));
        let mut seen = Vec::new();
        for (run_no, run) in &store.runs {
            let golden = self.goldens.get(&(run.flow, run.snapshot)).copied();
            let publication = store.publications.get(run_no);
            let shown = publication.map(|p| Golden { blob: p.blob, values_hash: p.values_hash });
            let asked = self.cancels.contains(&run.run_id);
            let poison = run.attempts >= DEAD_OWNERS_MAX;
            let holds = match run.state {
                State::Succeeded => shown.is_some() && shown == golden,
                State::Cancelled => shown.is_none() && asked,
                State::Failed => shown.is_none() && (poison || golden.is_none()),
                State::Queued | State::Running => false,
            };
            let state = run.state;
            let rule = if state.is_final() { "I8" } else { "I12" };
            self.hold(rule, holds, || {
                format!("run {run_no} is {state}, shows {shown:?}, and should come to {golden:?}")
            });
            if asked && state == State::Succeeded {
                seen.push(Seen::CancelledTooLate);
            }
            if golden.is_none() && state == State::Failed && !poison {
                seen.push(Seen::BadRun);
            }
        }
        seen
    }
}
