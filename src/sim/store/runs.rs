//! Runs: admitted, claimed, published, ended, cancelled.

use std::time::Duration;

use super::{Event, Fact, Lease, Publication, Run, Scope, SimStore, micros};
use crate::ids::Owner;
use crate::rules::admission::Request;
use crate::rules::run::{Cancel, State, cancel};
use crate::sim::Mistake;
use crate::store::{Admitted, Claim, ClaimedRun, Ended, Error, RunResult, Verdict};

impl SimStore {
    /// Numbers for an admission, drawn when its transaction begins.
    pub fn draw_numbers(&mut self, count: usize) -> Vec<(i64, i64)> {
        let draw = |_| (Self::next(&mut self.run_no), Self::next(&mut self.event_id));
        (0..count).map(draw).collect()
    }

    /// Admits a set under numbers drawn before; `call` is whose insert it is.
    pub fn admit(
        &mut self,
        call: u64,
        requests: &[Request],
        numbers: &[(i64, i64)],
    ) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(requests.len());
        for (request, (run_no, event_id)) in requests.iter().zip(numbers) {
            let created = !self.scopes.contains_key(&request.scope);
            if created {
                self.insert(call, request, (*run_no, *event_id));
            }
            let held = &self.scopes[&request.scope];
            verdicts.push(if held.body_hash == request.body_hash {
                let run = &self.runs[&held.run_no];
                let seen = verdicts.iter().any(
                    |v| matches!(v, Verdict::Admitted(a) if a.run_no == held.run_no && a.created),
                );
                Verdict::Admitted(Admitted {
                    run_no: held.run_no,
                    run_id: run.run_id.clone(),
                    created: held.call == call && !seen,
                    state: run.state.name().to_owned(),
                })
            } else {
                Verdict::Conflict { held: held.body_hash }
            });
        }
        verdicts
    }

    fn insert(&mut self, call: u64, request: &Request, (run_no, event_id): (i64, i64)) {
        let body_hash = request.body_hash;
        self.scopes.insert(request.scope, Scope { run_no, call, body_hash });
        self.runs.insert(
            run_no,
            Run {
                event_id,
                run_id: request.run_id.clone(),
                flow: request.flow,
                snapshot: request.snapshot,
                state: State::Queued,
                fence: 0,
                lease_no: 0,
                revision: 0,
                attempts: 0,
                cancel_requested: false,
                error: None,
            },
        );
        self.outbox.insert(event_id, Event { run_no, ..Event::default() });
        self.facts.push(Fact::Admitted { run_id: request.run_id.clone() });
    }

    /// Claims up to `batch` runs that killed nobody yet, from event `floor` up.
    pub fn claim(
        &mut self,
        now: i64,
        owner: &Owner,
        (ttl, batch): (Duration, i64),
        floor: i64,
    ) -> Option<Claim> {
        let floor = if self.makes(Mistake::ByLastNumber) { self.last_claimed + 1 } else { floor };
        let batch = usize::try_from(batch).unwrap_or(usize::MAX);
        let free = self.outbox.range(floor..).filter(|(_, e)| !e.claimed && e.suspect == 0);
        let ids: Vec<i64> = free.map(|(id, _)| *id).take(batch).collect();
        self.last_claimed = self.last_claimed.max(*ids.last()?);
        let lease_no = Self::next(&mut self.lease_no);
        let epoch = self.epochs.get("").copied().unwrap_or(1);
        let run_nos = ids.iter().map(|id| self.outbox[id].run_no).collect();
        let lease = Lease {
            lease_no,
            owner: owner.clone(),
            epoch,
            fence: 1,
            expires_at: now + micros(ttl),
            closed: false,
            run_nos,
        };
        Some(self.begin(&format!("batch/{lease_no}"), lease, &ids))
    }

    /// Claims the least suspicious run that an owner died with, alone.
    pub fn claim_suspect(&mut self, now: i64, owner: &Owner, ttl: Duration) -> Option<Claim> {
        let suspects = self.outbox.iter().filter(|(_, event)| !event.claimed && event.suspect > 0);
        let id = *suspects.min_by_key(|(id, event)| (event.suspect, **id))?.0;
        self.claim_event(now, owner, ttl, id)
    }

    /// Claims this run if it is free.
    pub fn claim_one(
        &mut self,
        now: i64,
        owner: &Owner,
        ttl: Duration,
        run_no: i64,
    ) -> Option<Claim> {
        let id = self.runs.get(&run_no)?.event_id;
        if self.outbox.get(&id)?.claimed {
            return None;
        }
        self.claim_event(now, owner, ttl, id)
    }

    fn claim_event(&mut self, now: i64, owner: &Owner, ttl: Duration, id: i64) -> Option<Claim> {
        let run_no = self.outbox.get(&id)?.run_no;
        let name = format!("run/{}", self.runs[&run_no].run_id);
        let epoch = self.epochs.get("").copied().unwrap_or(1);
        let expires_at = now + micros(ttl);
        let lease = match self.leases.get(&name) {
            Some(held) if held.expires_at > now => return None,
            Some(held) => Lease {
                owner: owner.clone(),
                fence: held.fence + 1,
                closed: false,
                epoch,
                expires_at,
                ..held.clone()
            },
            None => Lease {
                lease_no: Self::next(&mut self.lease_no),
                owner: owner.clone(),
                epoch,
                fence: 1,
                expires_at,
                closed: false,
                run_nos: vec![run_no],
            },
        };
        Some(self.begin(&name, lease, &[id]))
    }

    /// The lease and QUEUED to RUNNING in one; an event whose run is not QUEUED any more is delivered on the way.
    fn begin(&mut self, name: &str, lease: Lease, ids: &[i64]) -> Claim {
        let mut runs = Vec::new();
        self.facts.push(Fact::Granted {
            lease: name.to_owned(),
            owner: lease.owner.clone(),
            epoch: lease.epoch,
            fence: lease.fence,
            until: lease.expires_at,
        });
        for id in ids {
            let event = self.outbox.get_mut(id).expect("it was just found");
            event.claimed = true;
            let run_no = event.run_no;
            let run = self.runs.get_mut(&run_no).expect("an event has its run");
            event.delivered = run.state != State::Queued;
            if event.delivered {
                continue;
            }
            (run.state, run.fence, run.lease_no) = (State::Running, run.fence + 1, lease.lease_no);
            self.facts.push(Fact::Began { run_no, fence: run.fence, lease: name.to_owned() });
            runs.push(ClaimedRun {
                run_no,
                event_id: run.event_id,
                run_id: run.run_id.clone(),
                fence: run.fence,
                flow: run.flow,
                snapshot: run.snapshot,
                attempts: run.attempts,
                cancel_requested: run.cancel_requested,
            });
        }
        runs.sort_by_key(|run| run.run_no);
        let Lease { lease_no, ref owner, epoch, fence, .. } = lease;
        let claim = Claim { lease_no, owner: owner.clone(), fence, epoch, runs };
        self.names.insert(lease_no, name.to_owned());
        self.leases.insert(name.to_owned(), lease);
        claim
    }

    /// One transaction of a publication: those of the set that ended, and whether by publication. `keeps`: a
    /// publication that is there is as good as ours.
    ///
    /// # Errors
    /// The error of a key that is there already.
    pub fn publish(
        &mut self,
        now: i64,
        claim: &Claim,
        results: &[RunResult],
        keeps: bool,
    ) -> Result<Vec<(i64, bool)>, Error> {
        if !self.valid(now, claim.lease_no, &claim.owner, claim.fence) {
            return Ok(Vec::new());
        }
        let loose = self.makes(Mistake::FenceUnchecked);
        let mut ours: Vec<&RunResult> = results.iter().collect();
        ours.sort_unstable_by_key(|result| result.run_no);
        ours.retain(|result| {
            self.runs.get(&result.run_no).is_some_and(|run| {
                (run.fence, run.lease_no) == (result.fence, claim.lease_no)
                    && run.state == State::Running
                    || loose && !run.state.is_final()
            })
        });
        let publishes = |result: &&&RunResult| !self.runs[&result.run_no].cancel_requested;
        let there = |result: &RunResult| self.publications.contains_key(&result.run_no);
        if !keeps && ours.iter().filter(publishes).any(|result| there(result)) {
            let why = "duplicate key value violates unique constraint".to_owned();
            return Err(Error::Statement { sqlstate: "23505".to_owned(), why });
        }
        let epoch = self.leases[&self.names[&claim.lease_no]].epoch;
        let lease = self.name_of(claim.lease_no);
        let mut ended = Vec::new();
        for result in ours {
            let run = self.runs.get_mut(&result.run_no).expect("it was just looked at");
            run.revision += 1;
            run.error = None;
            let publishes = !run.cancel_requested;
            run.state = if publishes { State::Succeeded } else { State::Cancelled };
            let (state, fence) = (run.state, run.fence);
            if let Some(event) = self.event_of(result.run_no) {
                event.delivered = true;
            }
            ended.push((result.run_no, publishes));
            let lease = Some(lease.clone());
            self.facts.push(Fact::Ended { run_no: result.run_no, fence, lease, state });
            if publishes {
                self.show(claim, result, epoch);
            }
        }
        if let Some(lease) = self.lease_mut(claim.lease_no) {
            (lease.closed, lease.expires_at) = (true, now);
        }
        self.facts.push(Fact::Over { lease });
        Ok(ended)
    }

    fn show(&mut self, claim: &Claim, result: &RunResult, epoch: i64) {
        let publication = Publication {
            epoch,
            fence: result.fence,
            blob: result.blob,
            values_hash: result.values_hash,
        };
        self.publications.entry(result.run_no).or_insert_with(|| publication.clone());
        self.facts.push(Fact::Published {
            run_no: result.run_no,
            fence: result.fence,
            lease: self.name_of(claim.lease_no),
            owner: claim.owner.clone(),
            publication,
        });
    }

    /// Those of the set that ended under this claim, and whether by publication.
    #[must_use]
    pub fn ended_among(&self, claim: &Claim, results: &[RunResult]) -> Vec<(i64, bool)> {
        let ended = |result: &RunResult| {
            let run = self.runs.get(&result.run_no)?;
            let mine = (run.fence, run.lease_no) == (result.fence, claim.lease_no);
            let over = matches!(run.state, State::Succeeded | State::Cancelled);
            (mine && over).then_some((result.run_no, run.state == State::Succeeded))
        };
        results.iter().filter_map(ended).collect()
    }

    /// Other content published for one of the set is a conflict.
    ///
    /// # Errors
    /// [`Error::PublicationConflict`].
    pub fn check_content(&self, results: &[RunResult]) -> Result<(), Error> {
        for result in results {
            let held = self.publications.get(&result.run_no).map(|held| held.blob);
            if let Some(held) = held.filter(|held| *held != result.blob) {
                return Err(Error::PublicationConflict {
                    run_id: result.run_id.clone(),
                    held: held.to_string(),
                    offered: result.blob.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Ends runs of a claim, each with its reason; gives those that were still ours.
    pub fn finish(
        &mut self,
        now: i64,
        claim: &Claim,
        runs: &[(i64, i64, Option<String>)],
        how: Ended,
    ) -> Vec<i64> {
        if !self.valid(now, claim.lease_no, &claim.owner, claim.fence) {
            return Vec::new();
        }
        let state = match how {
            Ended::Failed => State::Failed,
            Ended::Cancelled => State::Cancelled,
            Ended::GivenBack => State::Queued,
        };
        let mut kept = Vec::new();
        for (run_no, fence, error) in runs {
            let Some(run) = self.runs.get_mut(run_no) else { continue };
            if (run.fence, run.lease_no, run.state) != (*fence, claim.lease_no, State::Running) {
                continue;
            }
            run.state = state;
            run.error.clone_from(error);
            run.revision += i64::from(state.is_final());
            if let Some(event) = self.event_of(*run_no) {
                (event.claimed, event.delivered) = (state.is_final(), state.is_final());
            }
            let lease = Some(self.name_of(claim.lease_no));
            self.facts.push(Fact::Ended { run_no: *run_no, fence: *fence, lease, state });
            kept.push(*run_no);
        }
        kept
    }

    /// Releases the lease if it is still ours. What ran under it and did not end is the sweep's.
    pub fn close(&mut self, now: i64, claim: &Claim) {
        let name = self.name_of(claim.lease_no);
        let Some(lease) = self.leases.get(&name) else { return };
        if (&lease.owner, lease.fence, lease.closed) != (&claim.owner, claim.fence, false) {
            return;
        }
        let closed = self.running(&lease.run_nos, claim.lease_no).is_empty();
        if let Some(lease) = self.lease_mut(claim.lease_no) {
            (lease.expires_at, lease.closed) = (lease.expires_at.min(now), closed);
        }
        self.facts.push(Fact::Over { lease: name });
    }

    /// Lets go of a lease whose work panicked: it expires at once and is nobody's.
    pub fn disown(&mut self, now: i64, claim: &Claim) {
        let name = self.name_of(claim.lease_no);
        let Some(lease) = self.lease_mut(claim.lease_no) else { return };
        if (&lease.owner, lease.fence, lease.closed) != (&claim.owner, claim.fence, false) {
            return;
        }
        lease.expires_at = lease.expires_at.min(now);
        lease.owner = Owner::from_token(&format!("{} (panicked)", lease.owner.token()));
        self.facts.push(Fact::Over { lease: name });
    }

    /// Records effects that a fence refused; gives how many there are of runs that are known.
    pub fn record_refused(&mut self, run_nos: &[i64]) -> usize {
        let refused = run_nos.iter().filter(|no| self.runs.contains_key(no)).count();
        self.facts.extend(std::iter::repeat_n(Fact::Refused, refused));
        refused
    }

    /// Asks to cancel; gives the state that the run had.
    pub fn request_cancel(&mut self, run_id: &str) -> Option<State> {
        let (run_no, run) = self.runs.iter_mut().find(|(_, run)| run.run_id == run_id)?;
        let (run_no, was) = (*run_no, run.state);
        if cancel(was) == Cancel::TooLate {
            return Some(was);
        }
        run.cancel_requested = true;
        let fence = run.fence;
        let free = self.event_of(run_no).is_some_and(|event| !event.claimed);
        if cancel(was) == Cancel::Now && free {
            let run = self.runs.get_mut(&run_no)?;
            run.state = State::Cancelled;
            run.revision += 1;
            if let Some(event) = self.event_of(run_no) {
                (event.claimed, event.delivered) = (true, true);
            }
            let state = State::Cancelled;
            self.facts.push(Fact::Ended { run_no, fence, lease: None, state });
        }
        Some(was)
    }

    /// A run as it stands: state, fence, revision, attempts, error.
    #[must_use]
    pub fn run(&self, run_no: i64) -> Option<(State, i64, i64, i32, Option<String>)> {
        let run = self.runs.get(&run_no)?;
        Some((run.state, run.fence, run.revision, run.attempts, run.error.clone()))
    }
}
