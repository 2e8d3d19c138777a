//! Faults that are not a call's: processes that die, stop, drain and come back, servers that restart, a disk that fills, a
//! machine whose power fails.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use super::kernel;
use super::lanes::Stream;
use super::seen::Seen;
use super::world::{Proc, Sim};

/// What a process is told and what it does, once it is started.
type Program = Rc<dyn Fn(Proc, String, Rc<Cell<bool>>) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A process that is started again whenever it ends.
struct Seat {
    name: &'static str,
    number: u64,
    program: Program,
    process: Cell<Option<u32>>,
    lives: Cell<u64>,
    drains: RefCell<Rc<Cell<bool>>>,
}

/// All processes of a machine.
#[derive(Default)]
pub(super) struct Crew {
    seats: RefCell<Vec<Rc<Seat>>>,
}

impl Crew {
    /// Starts a process, and again each time it ends.
    pub(super) fn seat<F>(
        &self,
        sim: &Rc<Sim>,
        (name, number): (&'static str, u64),
        program: impl Fn(Proc, String, Rc<Cell<bool>>) -> F + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let program: Program =
            Rc::new(move |me, token, drains| Box::pin(program(me, token, drains)));
        let seat = Rc::new(Seat {
            name,
            number,
            program,
            process: Cell::new(None),
            lives: Cell::new(0),
            drains: RefCell::default(),
        });
        self.seats.borrow_mut().push(Rc::clone(&seat));
        start(sim, &seat);
    }

    fn any(&self, sim: &Sim) -> Option<Rc<Seat>> {
        let seats = self.seats.borrow();
        let alive: Vec<&Rc<Seat>> = seats.iter().filter(|seat| seat.is_alive(sim)).collect();
        let last = (alive.len() as u64).checked_sub(1)?;
        Some(Rc::clone(alive[usize::try_from(sim.between(0, last)).ok()?]))
    }

    fn kill_all(&self, sim: &Sim, name: &str) {
        for seat in self.seats.borrow().iter().filter(|seat| seat.name == name) {
            seat.process.get().into_iter().for_each(|process| sim.kernel.kill(process));
        }
    }

    /// Stopped processes go on.
    fn wake(&self, sim: &Sim) {
        for seat in self.seats.borrow().iter() {
            seat.process.get().into_iter().for_each(|process| sim.kernel.resume(process));
        }
    }
}

impl Seat {
    fn is_alive(&self, sim: &Sim) -> bool {
        self.process.get().is_some_and(|process| sim.kernel.is_alive(process))
    }
}

fn start(sim: &Rc<Sim>, seat: &Rc<Seat>) {
    let spread = sim.options.clock_percent * 10;
    let rate = sim.between(1_000 - spread, 1_000 + spread);
    let process = sim.kernel.process(rate);
    seat.process.set(Some(process));
    seat.lives.set(seat.lives.get() + 1);
    let drains = Rc::new(Cell::new(false));
    *seat.drains.borrow_mut() = Rc::clone(&drains);
    let name = format!("{}{}", seat.name, seat.number);
    let token = if name.contains('/') {
        format!("{name}.{}", seat.lives.get())
    } else {
        format!("{name}/{}", seat.lives.get())
    };
    sim.note(&format!("{token} starts"));
    let me = Proc { sim: Rc::clone(sim), id: process, name: token.clone().into() };
    let work = (seat.program)(me, token, drains);
    sim.kernel.spawn(process, work);
    // Whoever starts processes looks from time to time.
    watch(sim, seat, process);
}

fn watch(sim: &Rc<Sim>, seat: &Rc<Seat>, process: u32) {
    let (world, own) = (Rc::clone(sim), Rc::clone(seat));
    sim.kernel.after(sim.between(50_000, 1_500_000), move || {
        if world.kernel.is_alive(process) {
            watch(&world, &own, process);
        } else {
            start(&world, &own);
        }
    });
}

impl Proc {
    /// Ends this process.
    pub(super) fn exit(&self) {
        self.sim.kernel.kill(self.id);
    }
}

/// A fault as it is dealt.
type Deal = fn(&Rc<Sim>, &Rc<Crew>);

/// Deals faults until their time is over, then heals everything.
pub(super) async fn rage(sim: Rc<Sim>, crew: Rc<Crew>) {
    let options = &sim.options;
    let deck: [(u64, Deal); 8] = [
        (options.kills, kill),
        (options.pauses, pause),
        (options.drains, drain),
        (options.outages, crash_store),
        (options.warehouse_outages, stop_warehouse),
        (options.broker_outages, stop_broker),
        (options.power_cuts, cut_power),
        (options.full_disks, fill_disk),
    ];
    let total: u64 = deck.iter().map(|(rate, _)| rate).sum();
    let end = options.seconds * 1_000_000;
    while total > 0 && sim.kernel.now() < end {
        // So that each comes at its rate in a minute, on the average.
        let gap = 60_000_000 / total;
        kernel::sleep(&sim.kernel, sim.between(gap / 4, gap * 7 / 4)).await;
        let mut drawn = sim.between(1, total);
        let dealt = deck.iter().find(|(rate, _)| {
            let hit = drawn <= *rate && *rate > 0;
            drawn = drawn.saturating_sub(*rate);
            hit
        });
        if let Some((_, deal)) = dealt.filter(|_| sim.kernel.now() < end) {
            deal(&sim, &crew);
        }
    }
    let left = end.saturating_sub(sim.kernel.now());
    kernel::sleep(&sim.kernel, left).await;
    sim.note("the faults stop");
    sim.stormy.set(false);
    sim.store_up.set(true);
    sim.warehouse_up.set(true);
    sim.broker_up.set(true);
    sim.disk.borrow_mut().full = false;
    crew.wake(&sim);
}

fn kill(sim: &Rc<Sim>, crew: &Rc<Crew>) {
    let Some(seat) = crew.any(sim) else { return };
    sim.saw(Seen::Killed);
    sim.note(&format!("{}{} is killed", seat.name, seat.number));
    seat.process.get().into_iter().for_each(|process| sim.kernel.kill(process));
}

fn pause(sim: &Rc<Sim>, crew: &Rc<Crew>) {
    let Some((seat, process)) =
        crew.any(sim).and_then(|seat| seat.process.get().map(|process| (seat, process)))
    else {
        return;
    };
    let ttl = sim.options.ttl_ms * 1_000;
    let micros = sim.between(ttl / 10, ttl * 3);
    if micros > ttl {
        sim.saw(Seen::PausedOverTtl);
    }
    sim.note(&format!("{}{} is stopped for {micros} µs", seat.name, seat.number));
    sim.kernel.pause(process);
    let world = Rc::clone(sim);
    sim.kernel.after(micros, move || world.kernel.resume(process));
}

fn drain(sim: &Rc<Sim>, crew: &Rc<Crew>) {
    let Some(seat) = crew.any(sim) else { return };
    sim.saw(Seen::Drained);
    sim.note(&format!("{}{} is told to end", seat.name, seat.number));
    seat.drains.borrow().set(true);
}

fn crash_store(sim: &Rc<Sim>, _crew: &Rc<Crew>) {
    sim.saw(Seen::StoreCrashed);
    let micros = sim.between(20_000, 4_000_000);
    sim.note(&format!("the store is restarted, for {micros} µs"));
    sim.store_up.set(false);
    sim.store_life.set(sim.store_life.get() + 1);
    let world = Rc::clone(sim);
    sim.kernel.after(micros, move || {
        world.store_up.set(true);
        world.store.borrow_mut().restart(world.now());
    });
}

fn stop_warehouse(sim: &Rc<Sim>, _crew: &Rc<Crew>) {
    sim.note("the warehouse is away");
    sim.warehouse_up.set(false);
    let world = Rc::clone(sim);
    sim.kernel.after(sim.between(100_000, 5_000_000), move || world.warehouse_up.set(true));
}

fn stop_broker(sim: &Rc<Sim>, _crew: &Rc<Crew>) {
    sim.saw(Seen::BrokerAway);
    sim.note("the broker is away");
    sim.broker_up.set(false);
    let world = Rc::clone(sim);
    sim.kernel.after(sim.between(100_000, 5_000_000), move || world.broker_up.set(true));
}

/// Once in the life of a topic: an unclean election costs the end of a partition, or retention its beginning.
pub(super) async fn shorten(sim: Rc<Sim>, crew: Rc<Crew>, stream: Rc<Stream>) {
    let half = sim.options.seconds * 500_000;
    kernel::sleep(&sim.kernel, sim.between(half / 4, half)).await;
    let lane = &stream.lanes[0];
    let partitions = &lane.plan.active;
    let last = (partitions.len() as u64).saturating_sub(1);
    let partition = partitions[usize::try_from(sim.between(0, last)).unwrap_or(0)];
    if sim.broker.borrow().has_ended(partition) {
        // All of it may have been read and told: there is nothing left to be found out.
        return;
    }
    if sim.options.truncated {
        stream.held.set(true);
        let count = usize::try_from(sim.between(1, 6)).unwrap_or(1);
        let unseen = sim.between(0, 1) == 0;
        if unseen {
            // Nobody reads while the log is shorter: who comes back finds other records in the same places.
            crew.kill_all(&sim, "owner/");
        }
        let cut = sim.broker.borrow_mut().truncate(partition, count);
        stream.cut.set(stream.cut.get() || cut > 0);
        sim.note(&format!("the last {cut} of partition {partition} are gone"));
        if unseen {
            for n in 0..=cut {
                let other = (b"i0".to_vec(), Some(format!("another {n}").into_bytes()));
                sim.broker.borrow_mut().append(partition, other, None);
            }
        } else {
            // Longer than anybody is stopped: who has read them finds out.
            kernel::sleep(&sim.kernel, 25_000_000).await;
        }
        stream.held.set(false);
    } else {
        let end = sim.broker.borrow().reach(partition).end;
        let offset = i64::try_from(sim.between(0, u64::try_from(end).unwrap_or(0))).unwrap_or(0);
        stream.cut.set(true);
        sim.broker.borrow_mut().delete_before(partition, offset);
        sim.note(&format!("retention took partition {partition} before {offset}"));
    }
}

fn fill_disk(sim: &Rc<Sim>, _crew: &Rc<Crew>) {
    sim.note("the disk is full");
    sim.disk.borrow_mut().full = true;
    let world = Rc::clone(sim);
    sim.kernel.after(sim.between(100_000, 5_000_000), move || world.disk.borrow_mut().full = false);
}

/// Every other time at a moment at which it costs something, if one comes soon.
fn cut_power(sim: &Rc<Sim>, crew: &Rc<Crew>) {
    if sim.between(0, 1) == 0 {
        power_goes(sim, crew);
    } else {
        wait_and_cut(sim, crew, 4_000);
    }
}

fn wait_and_cut(sim: &Rc<Sim>, crew: &Rc<Crew>, looks: u32) {
    if looks == 0 || !sim.stormy.get() || sim.disk.borrow().is_unsure() {
        power_goes(sim, crew);
        return;
    }
    let (world, own) = (Rc::clone(sim), Rc::clone(crew));
    sim.kernel.after(500, move || wait_and_cut(&world, &own, looks - 1));
}

fn power_goes(sim: &Rc<Sim>, crew: &Crew) {
    sim.saw(Seen::PowerCut);
    for seat in crew.seats.borrow().iter() {
        seat.process.get().into_iter().for_each(|process| sim.kernel.kill(process));
    }
    sim.cut_power();
    let torn = sim.disk.borrow().torn();
    if let Some(hash) = torn {
        let what = format!("{hash} has its name and not its bytes");
        sim.judge.borrow_mut().breaks("I11", what);
    }
}
