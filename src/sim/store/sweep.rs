//! Orphans, and events and runs that disagree.

use std::time::Duration;

use super::{Fact, Lease, SimStore, micros};
use crate::ids::Owner;
use crate::rules::run::{Orphan, State, orphan};
use crate::sim::Mistake;
use crate::store::Swept;

/// Leases looked at in one transaction.
const LEASES_MAX: usize = 20;
/// Runs that a periodic look at events covers.
const MEND_NEWEST: i64 = 100_000;

impl SimStore {
    /// One page of others' expired leases; gives how many leases there were, and what became of their runs.
    pub fn sweep_page(&mut self, now: i64, sweeper: &Owner, ttl: Duration) -> (usize, Swept) {
        let eager = self.makes(Mistake::SweepOfTheLiving);
        let mut expired: Vec<(i64, String)> = self
            .leases
            .iter()
            .filter(|(name, _)| name.starts_with("batch/") || name.starts_with("run/"))
            .filter(|(_, lease)| !lease.closed && lease.owner != *sweeper)
            .filter(|(_, lease)| lease.expires_at <= now || eager)
            .map(|(name, lease)| (lease.lease_no, name.clone()))
            .collect();
        expired.sort_unstable();
        expired.truncate(LEASES_MAX);
        let mut swept = Swept::default();
        for (lease_no, name) in &expired {
            let lease = &self.leases[name];
            let excused = lease.expires_at < self.started_at + micros(ttl);
            for run_no in self.running(&lease.run_nos.clone(), *lease_no) {
                self.return_orphan(run_no, excused, &mut swept);
            }
            if let Some(lease) = self.lease_mut(*lease_no) {
                lease.closed = true;
            }
            self.facts.push(Fact::Over { lease: name.clone() });
        }
        (expired.len(), swept)
    }

    fn return_orphan(&mut self, run_no: i64, excused: bool, swept: &mut Swept) {
        let Some(run) = self.runs.get_mut(&run_no) else { return };
        let attempts = match orphan(run.attempts, excused) {
            Orphan::Requeue { attempts } => {
                run.state = State::Queued;
                swept.requeued += 1;
                attempts
            }
            Orphan::Poison { attempts } => {
                run.state = State::Failed;
                run.revision += 1;
                run.error = Some(format!("POISON_RUN: its owner died with it {attempts} times"));
                swept.poisoned += 1;
                attempts
            }
        };
        run.attempts = attempts;
        let (state, poison) = (run.state, run.state == State::Failed);
        if let Some(event) = self.event_of(run_no) {
            (event.claimed, event.suspect, event.delivered) = (poison, attempts, poison);
        }
        self.facts.push(Fact::Orphaned { run_no, attempts, state });
    }

    /// Gives back the events of QUEUED runs from `floor` up that look taken, and reopens leases of RUNNING runs that are
    /// closed or gone.
    pub fn mend_events(&mut self, now: i64, floor: i64) -> (u64, i64) {
        let running: Vec<(i64, i64)> = self
            .runs
            .range(floor..)
            .filter(|(_, run)| run.state == State::Running)
            .map(|(no, run)| (*no, run.lease_no))
            .collect();
        for (run_no, lease_no) in running {
            self.refind(now, lease_no);
            let Some(lease) = self.lease_mut(lease_no) else { continue };
            if lease.closed {
                (lease.closed, lease.expires_at) = (false, lease.expires_at.min(now));
            }
            if lease.owner.token() == "lost" && !lease.run_nos.contains(&run_no) {
                lease.run_nos.push(run_no);
            }
        }
        let queued = self.runs.range(floor..).filter(|(_, run)| run.state == State::Queued);
        let events: Vec<i64> = queued.map(|(_, run)| run.event_id).collect();
        let mut mended = 0;
        for id in events {
            if let Some(event) =
                self.outbox.get_mut(&id).filter(|event| event.claimed || event.delivered)
            {
                (event.claimed, event.delivered) = (false, false);
                mended += 1;
            }
        }
        (mended, self.run_no - MEND_NEWEST)
    }

    /// A lease that is not there any more, made anew, expired.
    fn refind(&mut self, now: i64, lease_no: i64) {
        let name = format!("batch/{lease_no}");
        if self.names.contains_key(&lease_no) || self.leases.contains_key(&name) {
            return;
        }
        let lease = Lease {
            lease_no,
            owner: Owner::from_token("lost"),
            epoch: 1,
            fence: 1,
            expires_at: now,
            closed: false,
            run_nos: Vec::new(),
        };
        self.names.insert(lease_no, name.clone());
        self.leases.insert(name, lease);
    }

    /// Gives back what is on record as `owner`'s and is not among the leases that he knows of.
    pub fn give_back_own(&mut self, now: i64, owner: &Owner, known: &[i64]) -> u64 {
        let lost = self.leases.values().filter(|lease| !lease.closed && lease.owner == *owner);
        let lost = lost.filter(|lease| !known.contains(&lease.lease_no));
        let lost: Vec<(i64, Vec<i64>)> =
            lost.map(|lease| (lease.lease_no, lease.run_nos.clone())).collect();
        let mut given = 0;
        for (lease_no, run_nos) in lost {
            let name = self.name_of(lease_no);
            for run_no in self.running(&run_nos, lease_no) {
                let Some(run) = self.runs.get_mut(&run_no) else { continue };
                run.state = State::Queued;
                let (fence, state) = (run.fence, run.state);
                if let Some(event) = self.event_of(run_no) {
                    event.claimed = false;
                }
                let lease = Some(name.clone());
                self.facts.push(Fact::Ended { run_no, fence, lease, state });
                given += 1;
            }
            if let Some(lease) = self.lease_mut(lease_no) {
                (lease.closed, lease.expires_at) = (true, lease.expires_at.min(now));
            }
            self.facts.push(Fact::Over { lease: name });
        }
        given
    }

    /// Whether anything is queued, or held by anybody.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let held = |(name, lease): (&String, &Lease)| {
            let works = name.starts_with("batch/") || name.starts_with("run/");
            works && !lease.closed && !lease.run_nos.is_empty()
        };
        self.outbox.values().any(|event| !event.claimed) || self.leases.iter().any(held)
    }
}
