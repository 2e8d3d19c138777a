//! The lease of a stream: taken, renewed on a session of its own, given back.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::control::{Control, Error, leases};
use crate::ids::Owner;
use crate::store::{Store, StreamLease};

/// A lease that is renewed until this is dropped.
#[derive(Debug)]
pub(in crate::control) struct Held {
    pub(in crate::control) lease: StreamLease,
    store: Store,
    /// Turns true when a renewal was refused.
    lost: watch::Receiver<bool>,
    heart: JoinHandle<()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.heart.abort();
    }
}

impl Held {
    /// Takes the lease of this name; its fence is noted outside of the database before anything is done under it.
    /// `store`: sessions that work with all others busy leaves free, so that the lease is renewed.
    pub(in crate::control) async fn acquire(
        control: &Control,
        store: &Store,
        name: &str,
    ) -> Result<Self, Error> {
        let (name, store) = (name.to_owned(), store.clone());
        let owner = Owner::of_process(&control.settings.owner);
        let ttl = control.settings.lease_ttl;
        let mut taken = match leases::acquire(control, &name, Some(owner.token()), ttl).await {
            Ok(taken) => taken,
            Err(Error::LeaseHeld { name, owner, fence, expires_at }) => {
                return Err(Error::StreamHeld { name, owner, fence, expires_at });
            }
            Err(error) => return Err(error),
        };
        let view = taken.leases.pop().expect("the lease that was taken");
        let lease = StreamLease { name, owner, epoch: view.epoch, fence: view.fence };
        let (tell, lost) = watch::channel(false);
        let heart = tokio::spawn(beat(store.clone(), lease.clone(), ttl, tell));
        Ok(Self { lease, store, lost, heart })
    }

    /// Resolves when the lease is lost.
    pub(super) async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            // Without its heart it runs out by itself, and the next commit is refused.
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    pub(in crate::control) async fn release(&mut self) {
        self.heart.abort();
        let released = self.store.release(&self.lease.name, &self.lease.owner).await;
        match released {
            Ok(Ok(_row)) => {}
            Ok(Err((refusal, _row))) => {
                tracing::debug!(?refusal, "the lease was not ours any more");
            }
            Err(error) => tracing::warn!(%error, "the lease runs out by itself"),
        }
    }
}

async fn beat(store: Store, lease: StreamLease, ttl: Duration, tell: watch::Sender<bool>) {
    loop {
        tokio::time::sleep(ttl / 3).await;
        let renewal = store.renew(&lease.name, &lease.owner, ttl);
        // An error is tried again at the next beat: two may fail before the lease expires.
        match tokio::time::timeout(ttl / 3, renewal).await {
            Ok(Ok(Ok(_row))) => {}
            Ok(Ok(Err((refusal, _row)))) => {
                tracing::warn!(?refusal, "the lease was not renewed");
                tell.send_replace(true);
                return;
            }
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be renewed"),
            Err(_late) => tracing::warn!("the lease could not be renewed in time"),
        }
    }
}
