//! The world of one seed: a store, a warehouse, a disk, and the processes that work with them over calls that may be
//! lost on either way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use super::Mistake;
use super::broker::Broker;
use super::disk::Disk;
use super::judge::{Judge, Surroundings};
use super::kernel::{self, Kernel, Slot};
use super::options::Options;
use super::seen::{Seen, Sights};
use super::store::SimStore;
use super::trace::Trace;
use crate::drill::Draw;
use crate::ids::Hash;
use crate::store::Error;

/// How long an operation of the store is waited for.
const PATIENCE: u64 = 30_000_000;

/// What can go wrong for a process.
#[derive(Debug)]
pub(super) enum Fault {
    Store(Error),
    WarehouseAway,
    Full,
    /// Nothing that this process wrote can be trusted.
    Fsync,
    Missing(Hash),
    Corrupt(Hash),
    Panicked,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<crate::journal::Error> for Fault {
    fn from(error: crate::journal::Error) -> Self {
        Self::Corrupt(Hash::of(error.to_string().as_bytes()))
    }
}

impl Fault {
    /// Whether the same may succeed later.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Self::Store(error) => error.is_away(),
            Self::WarehouseAway | Self::Full => true,
            Self::Fsync | Self::Missing(_) | Self::Corrupt(_) | Self::Panicked => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => fmt::Display::fmt(error, f),
            Self::WarehouseAway => f.write_str("ClickHouse is away"),
            Self::Full => f.write_str("the disk is full"),
            Self::Fsync => f.write_str("an fsync failed"),
            Self::Missing(hash) => write!(f, "ARTIFACT_MISSING: {hash}"),
            Self::Corrupt(hash) => write!(f, "ARTIFACT_CORRUPT: {hash}"),
            Self::Panicked => f.write_str("a batch panicked"),
        }
    }
}

/// Rows of results that nobody sees before they are published: by run, epoch and fence.
pub(super) type Warehouse = BTreeMap<(i64, i64, i64), Hash>;

/// Everything there is.
pub(super) struct Sim {
    pub(super) kernel: Kernel,
    pub(super) options: Options,
    draw: RefCell<Draw>,
    pub(super) trace: RefCell<Trace>,
    sights: RefCell<Sights>,
    pub(super) store: RefCell<SimStore>,
    pub(super) disk: RefCell<Disk>,
    pub(super) warehouse: RefCell<Warehouse>,
    pub(super) judge: RefCell<Judge>,
    pub(super) store_up: Cell<bool>,
    /// Counts the crashes of the store.
    pub(super) store_life: Cell<u64>,
    pub(super) warehouse_up: Cell<bool>,
    pub(super) broker: RefCell<Broker>,
    pub(super) broker_up: Cell<bool>,
    /// A flow that kills whoever computes it.
    pub(super) killer: Cell<Option<Hash>>,
    /// Until the faults stop.
    pub(super) stormy: Cell<bool>,
    mistake: Option<Mistake>,
}

impl Sim {
    pub(super) fn new(seed: u64, mistake: Option<Mistake>, keeps_trace: bool) -> Rc<Self> {
        let mut draw = Draw::new(seed);
        let options = Options::draw(&mut draw);
        let mut store = SimStore::new();
        store.mistake = mistake;
        Rc::new(Self {
            kernel: Kernel::default(),
            options,
            draw: RefCell::new(draw),
            trace: RefCell::new(Trace::new(keeps_trace)),
            sights: RefCell::default(),
            store: RefCell::new(store),
            disk: RefCell::default(),
            warehouse: RefCell::default(),
            judge: RefCell::default(),
            store_up: Cell::new(true),
            store_life: Cell::new(0),
            warehouse_up: Cell::new(true),
            broker: RefCell::default(),
            broker_up: Cell::new(true),
            killer: Cell::new(None),
            stormy: Cell::new(true),
            mistake,
        })
    }

    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Both included.
    pub(super) fn between(&self, least: u64, most: u64) -> u64 {
        self.draw.borrow_mut().between(least, most)
    }

    /// Whether a fault of this rate in a thousand happens now.
    pub(super) fn hits(&self, rate: u64) -> bool {
        self.stormy.get() && rate > 0 && self.between(1, 1_000) <= rate
    }

    pub(super) fn note(&self, text: &str) {
        self.trace.borrow_mut().note(self.kernel.now(), text);
    }

    pub(super) fn saw(&self, seen: Seen) {
        self.sights.borrow_mut().saw(seen);
    }

    pub(super) fn sights(&self) -> Sights {
        self.sights.borrow().clone()
    }

    /// The time of the store, microseconds.
    pub(super) fn now(&self) -> i64 {
        i64::try_from(self.kernel.now()).unwrap_or(i64::MAX)
    }

    /// One transaction, judged as soon as it is made.
    pub(super) fn transact<T>(&self, work: impl FnOnce(&mut SimStore, i64) -> T) -> T {
        let mut store = self.store.borrow_mut();
        let done = work(&mut store, self.now());
        let facts = std::mem::take(&mut store.facts);
        let (disk, warehouse) = (self.disk.borrow(), self.warehouse.borrow());
        let around = Surroundings { disk: &disk, warehouse: &warehouse };
        for fact in facts {
            let seen = self.judge.borrow_mut().see(self.now(), &fact, &around);
            seen.into_iter().for_each(|seen| self.saw(seen));
        }
        done
    }
}

/// A process, as its own tasks know it.
#[derive(Clone)]
pub(super) struct Proc {
    pub(super) sim: Rc<Sim>,
    pub(super) id: u32,
    pub(super) name: Rc<str>,
}

impl Proc {
    pub(super) fn note(&self, text: &str) {
        self.sim.note(&format!("{} {text}", self.name));
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.sim.kernel.spawn(self.id, work);
    }

    pub(super) async fn sleep(&self, micros: u64) {
        kernel::sleep(&self.sim.kernel, micros).await;
    }

    /// One round trip to the store. What was sent is carried out, whatever becomes of this process.
    pub(super) async fn store<T: 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&mut SimStore, i64) -> T + 'static,
    ) -> Result<T, Error> {
        self.store_within(what, PATIENCE, work).await
    }

    /// The same, waited for no longer than so many microseconds.
    pub(super) async fn store_within<T: 'static>(
        &self,
        what: &'static str,
        patience: u64,
        work: impl FnOnce(&mut SimStore, i64) -> T + 'static,
    ) -> Result<T, Error> {
        let sim = &self.sim;
        let slow = sim.hits(sim.options.slow);
        let most = if slow { sim.options.ttl_ms * 1_500 } else { 3_000 };
        let (there, back) = (sim.between(100, most), sim.between(100, 3_000));
        let slot: Slot<Result<T, Error>> = Slot::default();
        if sim.hits(sim.options.request_lost) {
            sim.saw(Seen::RequestLost);
            self.note(&format!("{what}: the request is lost"));
            if sim.between(0, 2) == 0 {
                // The connection is lost, and the request on its way all the same.
                let (world, name, nobody) = (Rc::clone(sim), Rc::clone(&self.name), slot);
                sim.kernel.after(there, move || {
                    carry_out(&world, (&name, what), 0, work, nobody);
                });
            }
            // A connection that is reset is noticed at once, one that is silent is not.
            let wait = if sim.between(0, 3) == 0 { patience } else { back };
            self.sleep(wait).await;
            return Err(away(false));
        }
        let (world, name, answer) = (Rc::clone(sim), Rc::clone(&self.name), slot.clone());
        sim.kernel.after(there, move || {
            carry_out(&world, (&name, what), back, work, answer);
        });
        match slot.within(&sim.kernel, patience).await {
            Some(answer) => answer,
            None => Err(away(true)),
        }
    }
}

fn carry_out<T: 'static>(
    sim: &Rc<Sim>,
    (name, what): (&str, &'static str),
    back: u64,
    work: impl FnOnce(&mut SimStore, i64) -> T,
    answer: Slot<Result<T, Error>>,
) {
    if !sim.store_up.get() {
        sim.note(&format!("{name} {what}: the store is away"));
        answer.put(&sim.kernel, Err(away(false)));
        return;
    }
    let done = sim.transact(work);
    sim.note(&format!("{name} {what}"));
    let life = sim.store_life.get();
    let silent = sim.hits(sim.options.reply_lost);
    let world = Rc::clone(sim);
    sim.kernel.after(back, move || {
        if silent || world.store_life.get() != life {
            world.saw(Seen::ReplyLost);
            world.note(&format!("the answer to {what} is lost"));
            answer.put(&world.kernel, Err(away(true)));
        } else {
            answer.put(&world.kernel, Ok(done));
        }
    });
}

fn away(unknown: bool) -> Error {
    let (place, why) = ("sim".to_owned(), "simulated".to_owned());
    if unknown { Error::CommitUnknown { place, why } } else { Error::Away { place, why } }
}
