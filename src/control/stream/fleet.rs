//! The partitions of a split run that this process has: a session, a lease and a journal each. Those it was told to
//! read, or as many as its share is of those there are.
//!
//! With `--auto` each process has a seat, a lease `seat/<run id>/<number>`: the live seats are the processes that share
//! the run. Who has more than its share drains, commits and releases; who has less takes what is free. A partition moves
//! with its lease and its journal, as it would from a dead owner to the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;

use super::lease::Held;
use super::session::End;
use super::{Ended, GIVEN_UP, Setup, member};
use crate::broker::Broker;
use crate::control::worker::Stop;
use crate::control::{Control, Error, journal};
use crate::ids::StreamIdentity;

/// How often a process looks who else is there and what is free.
const PACE: Duration = Duration::from_millis(250);
/// The same while it cannot be known.
const PACE_AWAY: Duration = Duration::from_secs(2);

/// What a fleet waits for.
enum Happened {
    /// The session of a partition, its lease given back or with what it came to.
    Ended(i32, Result<Ended, Error>),
    /// A look around, with the seat that it was made from.
    Looked(Option<Seat>, Result<Around, Error>),
}

/// A place among the processes that share a run.
struct Seat {
    number: usize,
    held: Held,
}

/// What a look around found.
#[derive(Default)]
struct Around {
    taken: Vec<(i32, Held)>,
    /// Partitions above the share of this process.
    surplus: Vec<i32>,
    /// Every partition of the topic has said that it has ended.
    all_ended: bool,
}

struct Fleet<'a> {
    control: &'a Control,
    setup: &'a Setup,
    broker: &'a Broker,
    work: FuturesUnordered<LocalBoxFuture<'a, Happened>>,
    /// Of the sessions under way, how each is told to stop.
    members: BTreeMap<i32, watch::Sender<Stop>>,
    parts: BTreeMap<i32, Ended>,
    failed: Option<Error>,
    /// Everybody was told to stop.
    leaving: watch::Sender<bool>,
}

/// Reads these partitions until each has come to an end; all leases are held before the first record is read.
pub(super) async fn fixed(
    control: &Control,
    setup: &Setup,
    broker: &Broker,
    partitions: &BTreeSet<i32>,
    mut stop: watch::Receiver<Stop>,
) -> Result<Vec<Ended>, Error> {
    let mut all = Vec::with_capacity(partitions.len());
    if let Err(error) = gather(control, setup, partitions, &mut all).await {
        for (_, held) in &mut all {
            held.release().await;
        }
        let names: Vec<String> = partitions.iter().map(|p| lease_of(setup, *p)).collect();
        if let Err(error) = control.store()?.forget_unused(&names).await {
            tracing::warn!(%error, "streams that were opened and never begun stay on record");
        }
        return Err(error);
    }
    let mut fleet = Fleet::new(control, setup, broker);
    for (partition, held) in all {
        fleet.enlist(partition, held);
    }
    while !fleet.work.is_empty() {
        tokio::select! {
            biased;
            changed = stop.changed(), if changes(&stop) => fleet.pass_on(changed.is_ok(), &stop),
            Some(happened) = fleet.work.next() => match happened {
                Happened::Ended(partition, ended) => fleet.ended(partition, ended),
                Happened::Looked(..) => {}
            },
        }
    }
    fleet.result().await
}

/// Takes all the leases, and finds nothing in the way of any: whoever is refused has begun nothing.
async fn gather(
    control: &Control,
    setup: &Setup,
    partitions: &BTreeSet<i32>,
    all: &mut Vec<(i32, Held)>,
) -> Result<(), Error> {
    for partition in partitions {
        let name = lease_of(setup, *partition);
        all.push((*partition, Held::acquire(control, &setup.hearts, &name).await?));
    }
    for (partition, held) in &*all {
        journal::admit(control.store()?, &held.lease, &identity_of(setup, *partition)).await?;
    }
    Ok(())
}

/// Reads its share of the partitions until told to stop, or until all of them have ended.
pub(super) async fn auto(
    control: &Control,
    setup: &Setup,
    broker: &Broker,
    mut stop: watch::Receiver<Stop>,
) -> Result<Vec<Ended>, Error> {
    let mut fleet = Fleet::new(control, setup, broker);
    let mut seat = None;
    fleet.look(None, Duration::ZERO);
    while !fleet.work.is_empty() {
        tokio::select! {
            biased;
            changed = stop.changed(), if changes(&stop) => fleet.pass_on(changed.is_ok(), &stop),
            Some(happened) = fleet.work.next() => match happened {
                Happened::Ended(partition, ended) => fleet.ended(partition, ended),
                Happened::Looked(mine, around) => {
                    seat = mine;
                    let pace = if around.is_ok() { PACE } else { PACE_AWAY };
                    fleet.looked(around).await;
                    if !fleet.is_leaving() {
                        fleet.look(seat.take(), pace);
                    }
                }
            },
        }
        // Without it the others' shares grow, and what is given back is taken at once.
        if fleet.is_leaving()
            && let Some(mut left) = seat.take()
        {
            left.held.release().await;
        }
    }
    fleet.result().await
}

/// Whether anybody could still say something: a signal is the last word.
fn changes(stop: &watch::Receiver<Stop>) -> bool {
    stop.has_changed().is_ok() && !matches!(*stop.borrow(), Stop::Now(_))
}

fn lease_of(setup: &Setup, partition: i32) -> String {
    identity_of(setup, partition).lease_name()
}

fn identity_of(setup: &Setup, partition: i32) -> StreamIdentity {
    StreamIdentity { partitions: Some(vec![partition]), ..setup.identity.clone() }
}

impl<'a> Fleet<'a> {
    fn new(control: &'a Control, setup: &'a Setup, broker: &'a Broker) -> Self {
        Self {
            control,
            setup,
            broker,
            work: FuturesUnordered::new(),
            members: BTreeMap::new(),
            parts: BTreeMap::new(),
            failed: None,
            leaving: watch::Sender::new(false),
        }
    }

    fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }

    fn enlist(&mut self, partition: i32, held: Held) {
        let (tell, told) = watch::channel(Stop::No);
        let setup = Setup { identity: identity_of(self.setup, partition), ..self.setup.clone() };
        let (control, broker) = (self.control, self.broker);
        self.members.insert(partition, tell);
        self.parts.remove(&partition);
        self.work.push(Box::pin(async move {
            Happened::Ended(partition, member(control, &setup, broker, held, told).await)
        }));
    }

    fn look(&mut self, seat: Option<Seat>, after: Duration) {
        let (control, setup) = (self.control, self.setup);
        let mine: BTreeSet<i32> = self.members.keys().copied().collect();
        let mut leaving = self.leaving.subscribe();
        self.work.push(Box::pin(async move {
            let mut seat = seat;
            tokio::select! {
                () = tokio::time::sleep(after) => {}
                _leaves = leaving.wait_for(|leaving| *leaving) => {
                    return Happened::Looked(seat, Ok(Around::default()));
                }
            }
            seat = seat.filter(|seat| !seat.held.is_lost());
            let around = look_around(control, setup, &mut seat, &mine).await;
            Happened::Looked(seat, around)
        }));
    }

    async fn looked(&mut self, around: Result<Around, Error>) {
        let around = match around {
            Ok(around) => around,
            Err(error) if error.is_away() => {
                tracing::warn!(%error, "who else shares the run is not known now");
                return;
            }
            Err(error) => return self.fail(error),
        };
        for (partition, mut held) in around.taken {
            if self.is_leaving() {
                held.release().await;
            } else {
                tracing::info!(partition, fence = held.lease.fence, "taken");
                self.enlist(partition, held);
            }
        }
        for partition in around.surplus {
            if let Some(tell) = self.members.get(&partition).filter(|_| !self.is_leaving()) {
                tracing::info!(partition, "given up: another process shares the run");
                tell.send_replace(Stop::Drain(GIVEN_UP));
            }
        }
        if around.all_ended && self.members.is_empty() {
            self.leaving.send_replace(true);
        }
    }

    fn ended(&mut self, partition: i32, ended: Result<Ended, Error>) {
        self.members.remove(&partition);
        match ended {
            Ok((part, _)) if part.end == End::GivenUp => {}
            Ok(ended) => drop(self.parts.insert(partition, ended)),
            // It could not commit: whoever takes it goes on from the last commit.
            Err(Error::Interrupted { signal: GIVEN_UP }) => {}
            Err(error) => self.fail(error),
        }
    }

    /// The first failure ends all: the others commit and give back what they have.
    fn fail(&mut self, error: Error) {
        if self.failed.is_some() {
            return;
        }
        tracing::warn!(%error, "the other partitions of this process are given back");
        self.failed = Some(error);
        self.tell(Stop::Drain(GIVEN_UP));
    }

    fn pass_on(&mut self, said: bool, stop: &watch::Receiver<Stop>) {
        if said {
            self.tell(*stop.borrow());
        }
    }

    fn tell(&mut self, stop: Stop) {
        self.leaving.send_replace(true);
        for tell in self.members.values() {
            tell.send_replace(stop);
        }
    }

    async fn result(self) -> Result<Vec<Ended>, Error> {
        let Some(error) = self.failed else { return Ok(self.parts.into_values().collect()) };
        for (_, held) in self.parts.into_values() {
            if let Some(mut held) = held {
                held.release().await;
            }
        }
        Err(error)
    }
}

async fn look_around(
    control: &Control,
    setup: &Setup,
    seat: &mut Option<Seat>,
    mine: &BTreeSet<i32>,
) -> Result<Around, Error> {
    let run_id = &setup.identity.run_id;
    let count = i32::try_from(setup.topic.partitions).unwrap_or(i32::MAX);
    let mut seats = taken_seats(control, run_id).await?;
    if seat.is_none() {
        for number in (0..setup.topic.partitions as usize).filter(|free| !seats.contains(free)) {
            match Held::acquire(control, &setup.hearts, &format!("seat/{run_id}/{number}")).await {
                Ok(held) => *seat = Some(Seat { number, held }),
                Err(Error::StreamHeld { .. }) => continue,
                Err(error) => return Err(error),
            }
            break;
        }
    }
    let rows = control.store()?.streams(Some(run_id), None).await?;
    let row = |partition: i32| {
        rows.iter().find(|view| view.row.identity.partitions.as_deref() == Some(&[partition]))
    };
    let has_ended = |partition: &i32| {
        row(*partition).is_some_and(|view| view.row.status.state == End::Source.word())
    };
    let all_ended = (0..count).all(|partition| has_ended(&partition));
    // More processes than partitions: this one stands by.
    let Some(number) = seat.as_ref().map(|seat| seat.number) else {
        return Ok(Around {
            taken: Vec::new(),
            surplus: mine.iter().copied().collect(),
            all_ended,
        });
    };
    seats.insert(number);
    let share = share(setup.topic.partitions as usize, &seats, number);
    let surplus = mine.iter().copied().skip(share).collect();
    let mut taken = Vec::new();
    let free = |partition: &i32| {
        let live = row(*partition).is_some_and(|view| view.live);
        !live && !mine.contains(partition) && !has_ended(partition)
    };
    for partition in (0..count).filter(free) {
        if mine.len() + taken.len() >= share {
            break;
        }
        match Held::acquire(control, &setup.hearts, &lease_of(setup, partition)).await {
            Ok(held) => taken.push((partition, held)),
            // Somebody was faster.
            Err(Error::StreamHeld { .. }) => {}
            Err(error) => {
                for (_, mut held) in taken {
                    held.release().await;
                }
                return Err(error);
            }
        }
    }
    Ok(Around { taken, surplus, all_ended })
}

async fn taken_seats(control: &Control, run_id: &str) -> Result<BTreeSet<usize>, Error> {
    let prefix = format!("seat/{run_id}/");
    let leases = control.store()?.leases(&prefix, true, i64::from(i32::MAX)).await?;
    let number = |name: &str| name.strip_prefix(&prefix).and_then(|number| number.parse().ok());
    Ok(leases.iter().filter_map(|lease| number(&lease.name)).collect())
}

/// How many partitions the process on seat `mine` may have: as many as any other, or one more on the first seats. All
/// shares together are all partitions.
fn share(partitions: usize, seats: &BTreeSet<usize>, mine: usize) -> usize {
    let before = seats.range(..mine).count();
    partitions / seats.len() + usize::from(before < partitions % seats.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_seats_are_all_partitions_and_none_is_above_the_fair_one() {
        for partitions in 1..30 {
            for seats in [&[0][..], &[0, 1], &[1, 2], &[0, 3, 7], &[2, 3, 5, 8, 13]] {
                let seats: BTreeSet<usize> = seats.iter().copied().collect();
                let shares: Vec<usize> =
                    seats.iter().map(|seat| share(partitions, &seats, *seat)).collect();
                assert_eq!(shares.iter().sum::<usize>(), partitions, "{seats:?}");
                assert!(shares.iter().all(|share| *share <= partitions.div_ceil(seats.len())));
                let (least, most) = (shares.iter().min(), shares.iter().max());
                assert!(most <= least.map(|least| least + 1).as_ref(), "{shares:?}");
            }
        }
    }
}
