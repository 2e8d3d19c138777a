//! Renewal of leases: a beat each third of the TTL, on a session of its own, that stops with its work.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::ids::Owner;
use crate::store::Store;

/// Beats for the leases that are alive in this process. Dropping it stops all renewal.
#[derive(Debug)]
pub(super) struct Heart {
    leases: Arc<Mutex<BTreeSet<i64>>>,
    /// When a lease was taken, or a beat was answered, last.
    heard: Arc<Mutex<Instant>>,
    task: JoinHandle<()>,
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Heart {
    /// Starts to beat for `owner`. `store` is its own: a pool that is busy with work must not make a lease expire.
    pub(super) fn start(store: Store, owner: Owner, ttl: Duration) -> Self {
        let leases: Arc<Mutex<BTreeSet<i64>>> = Arc::default();
        let heard = Arc::new(Mutex::new(Instant::now()));
        let task = tokio::spawn(beat(store, owner, ttl, (Arc::clone(&leases), Arc::clone(&heard))));
        Self { leases, heard, task }
    }

    /// Keeps a lease alive until the guard is dropped, by whatever way its work ends, a panic included.
    pub(super) fn keep(&self, lease_no: i64) -> Kept {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.insert(lease_no);
        hear(&self.heard);
        Kept { lease_no, leases: Arc::clone(&self.leases) }
    }

    /// Resolves when no beat was answered for so long, leases being kept all the while.
    pub(super) async fn is_unheard_for(&self, limit: Duration) {
        loop {
            let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            if heard.elapsed() >= limit {
                return;
            }
            tokio::time::sleep_until((heard + limit).into()).await;
        }
    }

    /// The leases that are being renewed now.
    pub(super) fn kept(&self) -> Vec<i64> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// One lease that is being renewed.
#[derive(Debug)]
pub(super) struct Kept {
    lease_no: i64,
    leases: Arc<Mutex<BTreeSet<i64>>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.lease_no);
    }
}

fn hear(heard: &Mutex<Instant>) {
    *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
}

type Beats = (Arc<Mutex<BTreeSet<i64>>>, Arc<Mutex<Instant>>);

async fn beat(store: Store, owner: Owner, ttl: Duration, (leases, heard): Beats) {
    loop {
        tokio::time::sleep(ttl / 3).await;
        let alive: Vec<i64> =
            leases.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        if alive.is_empty() {
            continue;
        }
        // One that comes back unrenewed is lost; its effects will be refused. An error is tried again at the next
        // beat: two may fail before a lease expires.
        match tokio::time::timeout(ttl / 3, store.renew_many(&owner, &alive, ttl)).await {
            Ok(Ok(renewed)) => {
                hear(&heard);
                // Work that ended meanwhile has released its lease itself.
                let still = leases.lock().unwrap_or_else(PoisonError::into_inner);
                let lost = alive.iter().filter(|no| still.contains(no) && !renewed.contains(no));
                let lost = lost.count();
                if lost > 0 {
                    tracing::warn!(lost, "leases were lost");
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "leases could not be renewed"),
            Err(_late) => tracing::warn!("leases could not be renewed in time"),
        }
    }
}
