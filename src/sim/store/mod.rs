//! What PostgreSQL is to this program, without PostgreSQL: the transactions of `store`, each at one instant of virtual
//! time, with the answers of the real ones. `tests/conformance` holds both to one model.

mod leases;
mod runs;
mod streams;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};

use super::Mistake;
use crate::ids::{Hash, Owner, StreamIdentity};
use crate::rules::lease::Held;
use crate::rules::run::State;
use crate::store::StreamStatus;

/// A run as its row has it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) event_id: i64,
    pub(super) run_id: String,
    pub(super) flow: Hash,
    pub(super) snapshot: Hash,
    pub(super) state: State,
    pub(super) fence: i64,
    pub(super) lease_no: i64,
    pub(super) revision: i64,
    pub(super) attempts: i32,
    pub(super) cancel_requested: bool,
    pub(super) error: Option<String>,
}

/// A key that was used.
#[derive(Clone, Debug)]
struct Scope {
    run_no: i64,
    call: u64,
    body_hash: Hash,
}

/// An event of the queue.
#[derive(Clone, Debug, Default)]
struct Event {
    run_no: i64,
    suspect: i32,
    claimed: bool,
    delivered: bool,
}

/// A lease as its row has it; time in microseconds.
#[derive(Clone, Debug)]
struct Lease {
    lease_no: i64,
    owner: Owner,
    epoch: i64,
    fence: i64,
    expires_at: i64,
    closed: bool,
    run_nos: Vec<i64>,
}

impl Lease {
    fn is_live(&self, now: i64) -> bool {
        !self.closed && self.expires_at > now
    }

    fn held(&self, now: i64) -> Held {
        Held {
            owner: self.owner.clone(),
            epoch: self.epoch,
            fence: self.fence,
            live: self.is_live(now),
        }
    }
}

/// What readers may see of a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Publication {
    pub(super) epoch: i64,
    pub(super) fence: i64,
    pub(super) blob: Hash,
    pub(super) values_hash: Hash,
}

/// A stream as its row has it.
#[derive(Clone, Debug)]
struct Stream {
    identity: StreamIdentity,
    epoch: i64,
    fence: i64,
    seq: i64,
    head: Option<Hash>,
    status: StreamStatus,
}

/// What a transaction did, for whoever judges it by rules of his own.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    Admitted {
        run_id: String,
    },
    /// A lease got another owner, or the same one anew.
    Granted {
        lease: String,
        owner: Owner,
        epoch: i64,
        fence: i64,
        until: i64,
    },
    Renewed {
        lease: String,
        until: i64,
    },
    /// Released, closed or disowned.
    Over {
        lease: String,
    },
    /// A run began under a lease, with the next fence.
    Began {
        run_no: i64,
        fence: i64,
        lease: String,
    },
    /// It ended or went back, by the hand of its owner; an end without one is nobody's.
    Ended {
        run_no: i64,
        fence: i64,
        lease: Option<String>,
        state: State,
    },
    /// Its owner was found dead: `attempts` of them so far.
    Orphaned {
        run_no: i64,
        attempts: i32,
        state: State,
    },
    Published {
        run_no: i64,
        fence: i64,
        lease: String,
        owner: Owner,
        publication: Publication,
    },
    Moved {
        lease: String,
        owner: Owner,
        fence: (i64, i64),
        seq: i64,
        head: Hash,
        blobs: Vec<Hash>,
    },
    /// An effect that a fence refused.
    Refused,
}

/// The control store, simulated.
#[derive(Clone, Debug, Default)]
pub struct SimStore {
    pub(super) runs: BTreeMap<i64, Run>,
    scopes: BTreeMap<Hash, Scope>,
    outbox: BTreeMap<i64, Event>,
    leases: BTreeMap<String, Lease>,
    /// The name of each lease.
    names: BTreeMap<i64, String>,
    pub(super) publications: BTreeMap<i64, Publication>,
    epochs: BTreeMap<String, i64>,
    streams: BTreeMap<String, Stream>,
    run_no: i64,
    event_id: i64,
    lease_no: i64,
    /// When the server came up, in microseconds.
    started_at: i64,
    pub(super) facts: Vec<Fact>,
    pub(super) mistake: Option<Mistake>,
    /// Highest number that a claim has taken, for a mistake that goes by it.
    last_claimed: i64,
}

impl SimStore {
    /// An empty one, with the schema.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The server comes up again: nothing that was committed is gone.
    pub fn restart(&mut self, now: i64) {
        self.started_at = now;
    }

    fn next(counter: &mut i64) -> i64 {
        *counter += 1;
        *counter
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The lease of this number that is this owner's under this fence, if it is neither closed nor over.
    fn valid(&self, now: i64, lease_no: i64, owner: &Owner, fence: i64) -> bool {
        let Some(lease) = self.names.get(&lease_no).and_then(|name| self.leases.get(name)) else {
            return false;
        };
        let mine = (&lease.owner, lease.fence) == (owner, fence) && !lease.closed;
        mine && (lease.expires_at > now || self.makes(Mistake::ExpiryUnchecked))
            || self.makes(Mistake::FenceUnchecked)
    }

    fn lease_mut(&mut self, lease_no: i64) -> Option<&mut Lease> {
        self.leases.get_mut(self.names.get(&lease_no)?)
    }

    fn name_of(&self, lease_no: i64) -> String {
        self.names.get(&lease_no).cloned().unwrap_or_default()
    }

    /// Runs of these that run under this lease.
    fn running(&self, run_nos: &[i64], lease_no: i64) -> BTreeSet<i64> {
        let runs = |no: &&i64| {
            self.runs
                .get(no)
                .is_some_and(|run| run.state == State::Running && run.lease_no == lease_no)
        };
        run_nos.iter().filter(runs).copied().collect()
    }

    fn event_of(&mut self, run_no: i64) -> Option<&mut Event> {
        self.outbox.get_mut(&self.runs.get(&run_no)?.event_id)
    }
}

/// Microseconds of a time to live.
fn micros(ttl: std::time::Duration) -> i64 {
    i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX)
}
