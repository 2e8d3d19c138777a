//! Leases by name.

use std::time::Duration;

use super::{Fact, Lease, SimStore, micros};
use crate::ids::Owner;
use crate::rules::lease::{Grant, Held, HighWater, Refusal, acquire, admit_effect};
use crate::sim::Mistake;

impl SimStore {
    /// The lease of this name as it stands, if there is one.
    #[must_use]
    pub fn lease(&self, now: i64, name: &str) -> Option<Held> {
        self.leases.get(name).map(|lease| lease.held(now))
    }

    /// Asks for a lease; gives what became of it, and the lease as it stands then.
    pub fn acquire(
        &mut self,
        now: i64,
        name: &str,
        (owner, ttl): (&Owner, Duration),
        known: Option<HighWater>,
    ) -> (Grant, Option<Held>) {
        let mut held = self.lease(now, name);
        if self.makes(Mistake::OwnerByName) {
            held = held.map(|held| named_alike(&held, owner));
        }
        let grant = acquire(held.as_ref(), owner, known);
        match grant {
            Grant::Claim { epoch, fence } => self.grant(now, name, (owner, ttl), (epoch, fence)),
            Grant::Renew => self.extend(now, name, ttl),
            Grant::Held | Grant::Regression { .. } | Grant::Exhausted => {}
        }
        (grant, self.lease(now, name))
    }

    fn grant(
        &mut self,
        now: i64,
        name: &str,
        (owner, ttl): (&Owner, Duration),
        (epoch, fence): (i64, i64),
    ) {
        let works = name.starts_with("batch/") || name.starts_with("run/");
        let common = if works { self.epochs.get("").copied().unwrap_or(1) } else { 1 };
        let known = self.leases.get(name);
        let lease = Lease {
            lease_no: known.map_or_else(|| 0, |known| known.lease_no),
            owner: owner.clone(),
            epoch: epoch.max(common),
            fence,
            expires_at: now + micros(ttl),
            closed: false,
            run_nos: known.map(|known| known.run_nos.clone()).unwrap_or_default(),
        };
        self.facts.push(Fact::Granted {
            lease: name.to_owned(),
            owner: owner.clone(),
            epoch: lease.epoch,
            fence,
            until: lease.expires_at,
        });
        let lease_no =
            if known.is_some() { lease.lease_no } else { Self::next(&mut self.lease_no) };
        self.names.insert(lease_no, name.to_owned());
        self.leases.insert(name.to_owned(), Lease { lease_no, ..lease });
    }

    fn extend(&mut self, now: i64, name: &str, ttl: Duration) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.expires_at = now + micros(ttl);
            self.facts.push(Fact::Renewed { lease: name.to_owned(), until: lease.expires_at });
        }
    }

    /// Gives a lease that is still the owner's more time.
    ///
    /// # Errors
    /// Why not.
    pub fn renew(
        &mut self,
        now: i64,
        name: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Held, Refusal> {
        let held = self.lease(now, name);
        let fence = held.as_ref().map_or(0, |held| held.fence);
        match admit_effect(held.as_ref(), owner, fence) {
            Err(Refusal::Expired) if self.makes(Mistake::ExpiryUnchecked) => {}
            verdict => verdict?,
        }
        self.extend(now, name, ttl);
        self.lease(now, name).ok_or(Refusal::Missing)
    }

    /// Ends a lease that is still the owner's; the fence stays.
    ///
    /// # Errors
    /// Why not.
    pub fn release(&mut self, now: i64, name: &str, owner: &Owner) -> Result<Held, Refusal> {
        let held = self.lease(now, name);
        let fence = held.as_ref().map_or(0, |held| held.fence);
        admit_effect(held.as_ref(), owner, fence)?;
        if let Some(lease) = self.leases.get_mut(name) {
            lease.expires_at = now;
        }
        self.facts.push(Fact::Over { lease: name.to_owned() });
        self.lease(now, name).ok_or(Refusal::Missing)
    }

    /// Begins a new epoch, above everything on record and outside. `None`: of all batch and run leases to come.
    pub fn new_epoch(
        &mut self,
        now: i64,
        name: Option<&str>,
        who: &str,
        known: Option<HighWater>,
    ) -> i64 {
        let scope = name.unwrap_or_default();
        let held = self.leases.get(scope);
        let highest = [
            known.map_or(0, |known| known.epoch),
            1,
            self.epochs.get(scope).copied().unwrap_or_default(),
            held.map_or(0, |held| held.epoch),
        ];
        let epoch = highest.into_iter().fold(1, i64::max) + 1;
        self.epochs.insert(scope.to_owned(), epoch);
        let fence = known.map_or(0, |known| known.fence);
        if let Some(name) = name {
            if let Some(lease) = self.leases.get_mut(name) {
                (lease.epoch, lease.expires_at) = (epoch, now);
                lease.fence = lease.fence.max(fence);
            } else {
                let lease_no = Self::next(&mut self.lease_no);
                let lease = Lease {
                    lease_no,
                    owner: Owner::from_token(who),
                    epoch,
                    fence: fence.max(1),
                    expires_at: now,
                    closed: false,
                    run_nos: Vec::new(),
                };
                self.names.insert(lease_no, name.to_owned());
                self.leases.insert(name.to_owned(), lease);
            }
            self.facts.push(Fact::Over { lease: name.to_owned() });
        }
        epoch
    }

    /// Renews all these leases that are still the owner's; gives those.
    pub fn renew_many(
        &mut self,
        now: i64,
        owner: &Owner,
        lease_nos: &[i64],
        ttl: Duration,
    ) -> Vec<i64> {
        let mut renewed = Vec::new();
        for lease_no in lease_nos {
            let late = self.makes(Mistake::ExpiryUnchecked);
            let Some(lease) = self.lease_mut(*lease_no) else { continue };
            if lease.owner == *owner && (lease.is_live(now) || late && !lease.closed) {
                lease.expires_at = now + micros(ttl);
                let until = lease.expires_at;
                let lease = self.name_of(*lease_no);
                self.facts.push(Fact::Renewed { lease, until });
                renewed.push(*lease_no);
            }
        }
        renewed.sort_unstable();
        renewed
    }
}

/// The lease as it looks to who tells owners apart by name alone.
fn named_alike(held: &Held, asker: &Owner) -> Held {
    let name = |owner: &Owner| owner.token().split('/').next().map(str::to_owned);
    let owner = if name(&held.owner) == name(asker) { asker.clone() } else { held.owner.clone() };
    Held { owner, ..held.clone() }
}
