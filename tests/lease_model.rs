//! The lease protocol as a model, every interleaving of it: the one that is shipped is safe, and five that look
//! like it are not. A pause needs no action of its own: a process that takes no step is paused.

use stateright::{Checker as _, Model, Property};

/// How an effect is guarded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Guard {
    /// The lease is checked when it is taken, the effect is not.
    Nothing,
    /// The fence is checked in one transaction, the effect made in another.
    CheckThenAct,
    /// A file is renamed while the lease's row is locked.
    FileUnderLock,
    /// Owners are told apart by name alone, and both processes have it.
    SameName,
    /// Shipped: pointer and check in one transaction, files named by their fence; nothing guards a restored backup.
    Pointer,
    /// Shipped for streams: besides, a fence is above the highest one known outside of the database, or refused.
    PointerAndMark,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Step {
    Idle,
    Holding,
    Checked,
    Locked,
    Acted,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Lease {
    owner: u8,
    fence: u8,
    expires: u8,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Process {
    step: Step,
    fence: u8,
    seq: u8,
    /// Whether its database session lives: without it its row lock is gone.
    session: bool,
}

const IDLE: Process = Process { step: Step::Idle, fence: 0, seq: 0, session: true };

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct World {
    now: u8,
    lease: Lease,
    row_lock: u8,
    processes: Vec<Process>,
    /// (fence, seq) that a reader sees, and the highest of each it ever saw.
    visible: (u8, u8),
    highest: (u8, u8),
    /// The highest fence noted outside of the database.
    mark: u8,
    kills: u8,
    session_kills: u8,
    restores: u8,
    backup: (Lease, (u8, u8)),
    fence_highest: u8,
    refused: bool,
    stale_effect: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Action {
    Tick,
    Acquire(u8),
    Renew(u8),
    Check(u8),
    Lock(u8),
    Act(u8),
    Commit(u8),
    Kill(u8),
    EndSession(u8),
    Backup,
    Restore,
}

#[derive(Clone, Debug)]
struct Protocol {
    guard: Guard,
    processes: u8,
    time: u8,
    kills: u8,
    session_kills: u8,
    restores: u8,
}

const TTL: u8 = 2;
const EFFECTS: u8 = 2;

impl Protocol {
    fn valid(&self, world: &World, index: usize) -> bool {
        let named_alike = self.guard == Guard::SameName;
        let mine = named_alike || usize::from(world.lease.owner) == index + 1;
        mine && world.lease.fence == world.processes[index].fence && world.now < world.lease.expires
    }

    fn in_database(&self) -> bool {
        matches!(self.guard, Guard::SameName | Guard::Pointer | Guard::PointerAndMark)
    }

    fn effect(&self, world: &mut World, index: usize) {
        let process = world.processes[index];
        world.stale_effect |= process.fence < world.highest.0;
        world.visible = (process.fence, process.seq + 1);
        world.highest.0 = world.highest.0.max(world.visible.0);
        world.highest.1 = world.highest.1.max(world.visible.1);
    }

    fn acquire(&self, world: &mut World, n: u8) -> bool {
        let (index, lease) = (usize::from(n), world.lease);
        let live = lease.owner != 0 && world.now < lease.expires;
        if live && self.guard == Guard::SameName {
            world.lease.expires = world.now + TTL;
            world.processes[index] =
                Process { step: Step::Holding, fence: lease.fence, seq: world.visible.1, ..IDLE };
            return true;
        }
        if live {
            return false;
        }
        let fence = lease.fence + 1;
        if self.guard == Guard::PointerAndMark && fence <= world.mark {
            // FENCE_REGRESSION: closed until an operator begins a new epoch.
            world.refused = true;
            return true;
        }
        world.mark = world.mark.max(fence);
        world.lease = Lease { owner: n + 1, fence, expires: world.now + TTL };
        world.fence_highest = world.fence_highest.max(fence);
        world.processes[index] =
            Process { step: Step::Holding, fence, seq: world.visible.1, ..IDLE };
        true
    }

    fn restore(&self, world: &mut World) {
        world.restores -= 1;
        world.lease = world.backup.0;
        if self.in_database() {
            world.visible = world.backup.1;
            world.highest.1 = world.visible.1;
        }
        for process in &mut world.processes {
            process.session = false;
        }
        world.row_lock = 0;
    }

    fn act(&self, world: &mut World, index: usize) {
        match self.guard {
            Guard::Nothing | Guard::CheckThenAct => {
                self.effect(world, index);
                world.processes[index].seq += 1;
                world.processes[index].step = Step::Holding;
            }
            Guard::FileUnderLock => {
                self.effect(world, index);
                world.processes[index].step = Step::Acted;
            }
            Guard::SameName | Guard::Pointer | Guard::PointerAndMark => {
                world.processes[index].step = Step::Acted;
            }
        }
    }

    fn commit(&self, world: &mut World, index: usize) {
        let process = world.processes[index];
        if !process.session {
            world.processes[index] = IDLE;
            world.refused = true;
            return;
        }
        if self.in_database() {
            self.effect(world, index);
        }
        world.processes[index].seq += 1;
        world.processes[index].step = Step::Holding;
        world.row_lock = 0;
    }
}

fn refuse(world: &mut World, index: usize) {
    world.processes[index] = IDLE;
    world.refused = true;
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let lease = Lease { owner: 0, fence: 0, expires: 0 };
        vec![World {
            now: 0,
            lease,
            row_lock: 0,
            processes: vec![IDLE; usize::from(self.processes)],
            visible: (0, 0),
            highest: (0, 0),
            mark: 0,
            kills: self.kills,
            session_kills: self.session_kills,
            restores: self.restores,
            backup: (lease, (0, 0)),
            fence_highest: 0,
            refused: false,
            stale_effect: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < self.time {
            actions.push(Action::Tick);
        }
        if world.restores > 0 {
            actions.extend([Action::Backup, Action::Restore]);
        }
        for n in 0..self.processes {
            let process = world.processes[usize::from(n)];
            match process.step {
                Step::Idle => actions.push(Action::Acquire(n)),
                Step::Holding => {
                    actions.push(Action::Renew(n));
                    if process.seq < EFFECTS {
                        actions.push(match self.guard {
                            Guard::Nothing => Action::Act(n),
                            Guard::CheckThenAct => Action::Check(n),
                            Guard::FileUnderLock
                            | Guard::SameName
                            | Guard::Pointer
                            | Guard::PointerAndMark => Action::Lock(n),
                        });
                    }
                }
                Step::Checked | Step::Locked => actions.push(Action::Act(n)),
                Step::Acted => actions.push(Action::Commit(n)),
            }
            if process.step != Step::Idle && world.kills > 0 {
                actions.push(Action::Kill(n));
            }
            let in_transaction = matches!(process.step, Step::Locked | Step::Acted);
            if in_transaction && process.session && world.session_kills > 0 {
                actions.push(Action::EndSession(n));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        let blocked = world.row_lock != 0;
        match action {
            Action::Tick => next.now += 1,
            Action::Backup if next.backup == (next.lease, next.visible) => return None,
            Action::Backup => next.backup = (next.lease, next.visible),
            Action::Restore => self.restore(&mut next),
            Action::Acquire(_) | Action::Renew(_) | Action::Check(_) | Action::Lock(_)
                if blocked =>
            {
                return None;
            }
            Action::Acquire(n) => {
                if !self.acquire(&mut next, n) {
                    return None;
                }
            }
            Action::Renew(n) if self.valid(world, usize::from(n)) => {
                if world.lease.expires == world.now + TTL {
                    return None;
                }
                next.lease.expires = world.now + TTL;
            }
            Action::Check(n) if self.valid(world, usize::from(n)) => {
                next.processes[usize::from(n)].step = Step::Checked;
            }
            Action::Lock(n) if self.valid(world, usize::from(n)) => {
                next.row_lock = n + 1;
                next.processes[usize::from(n)].step = Step::Locked;
                next.processes[usize::from(n)].session = true;
            }
            Action::Renew(n) | Action::Check(n) | Action::Lock(n) => {
                refuse(&mut next, usize::from(n));
            }
            Action::Act(n) => self.act(&mut next, usize::from(n)),
            Action::Commit(n) => self.commit(&mut next, usize::from(n)),
            Action::Kill(n) => {
                next.kills -= 1;
                next.row_lock = if next.row_lock == n + 1 { 0 } else { next.row_lock };
                next.processes[usize::from(n)] = IDLE;
            }
            Action::EndSession(n) => {
                next.session_kills -= 1;
                next.processes[usize::from(n)].session = false;
                next.row_lock = if next.row_lock == n + 1 { 0 } else { next.row_lock };
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("visible fence never goes back", |_, world: &World| {
                world.visible.0 >= world.highest.0
            }),
            Property::always("visible progress never goes back", |_, world: &World| {
                world.visible.1 >= world.highest.1
            }),
            Property::always("no effect under a fence lower than one seen", |_, world: &World| {
                !world.stale_effect
            }),
            Property::sometimes("a new owner's effect after a handoff", |_, world: &World| {
                world.visible.0 >= 2
            }),
            Property::sometimes("a stale owner is refused", |_, world: &World| world.refused),
        ]
    }
}

const SAFETY: [&str; 3] = [
    "visible fence never goes back",
    "visible progress never goes back",
    "no effect under a fence lower than one seen",
];

/// The safety properties that some interleaving breaks.
fn broken(protocol: Protocol) -> Vec<&'static str> {
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done(), "not every interleaving was looked at");
    let found = checker.discoveries();
    let broken = SAFETY.into_iter().filter(|name| found.contains_key(name)).collect::<Vec<_>>();
    if broken.is_empty() {
        for reached in ["a new owner's effect after a handoff", "a stale owner is refused"] {
            assert!(found.contains_key(reached), "the model never shows: {reached}");
        }
    }
    broken
}

fn protocol(guard: Guard, processes: u8) -> Protocol {
    Protocol { guard, processes, time: 6, kills: 1, session_kills: 1, restores: 0 }
}

#[test]
fn the_shipped_protocol_lets_no_stale_owner_publish() {
    assert_eq!(broken(protocol(Guard::Pointer, 3)), Vec::<&str>::new());
}

#[test]
fn the_marks_of_streams_hold_when_the_database_is_restored() {
    let restored =
        Protocol { kills: 0, session_kills: 0, restores: 1, ..protocol(Guard::PointerAndMark, 2) };
    let broken = broken(restored);
    // The restored database itself shows older progress; no stale owner may add to that.
    assert!(!broken.contains(&"no effect under a fence lower than one seen"), "{broken:?}");
}

#[test]
fn a_lease_without_a_fence_check_is_caught() {
    assert!(!broken(protocol(Guard::Nothing, 3)).is_empty());
}

#[test]
fn a_check_in_another_transaction_is_caught() {
    assert!(!broken(protocol(Guard::CheckThenAct, 3)).is_empty());
}

#[test]
fn a_file_renamed_under_a_row_lock_is_caught() {
    assert!(!broken(protocol(Guard::FileUnderLock, 3)).is_empty());
}

#[test]
fn two_processes_under_one_owner_name_are_caught() {
    assert!(!broken(protocol(Guard::SameName, 2)).is_empty());
}

#[test]
fn a_restored_backup_without_marks_is_caught() {
    let restored =
        Protocol { kills: 0, session_kills: 0, restores: 1, ..protocol(Guard::Pointer, 2) };
    assert!(broken(restored).contains(&"no effect under a fence lower than one seen"));
}
