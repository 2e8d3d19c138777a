//! The processes of a campaign: seats that are filled again and again, those that were overtaken, and clients.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::ground::{Ground, Group};
use crate::control::drill::crew::{Actor, Run};
use crate::drill::chaos::{Ending, Op, Plan};
use crate::drill::{Broke, Moment};

/// How often the seats are looked after.
const LOOK: Duration = Duration::from_millis(40);
/// Before a seat is filled again: at once, after a refusal, and after a service was away.
const SOON: Duration = Duration::from_millis(60);
const LATER: Duration = Duration::from_millis(350);
/// One that goes on after a stop is told to end after this time.
const GUEST: Duration = Duration::from_secs(3);

/// What a seat is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Worker,
    /// The run of the stream.
    Stream(&'static str),
}

impl Role {
    pub(super) fn lease(self) -> Option<String> {
        match self {
            Self::Worker => None,
            Self::Stream(run) => Some(format!("stream/{run}")),
        }
    }

    fn group(self) -> Group {
        match self {
            Self::Worker => Group::Workers,
            Self::Stream(_) => Group::Streams,
        }
    }
}

/// A process, and what the drill did to it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) actor: Actor,
    pub(super) role: Role,
    killed: bool,
    told_us: Option<i64>,
}

impl Member {
    pub(super) fn kill(&mut self, log: &Log) {
        self.killed = true;
        self.actor.signal(Signal::KILL);
        log.deed("killed", self.role.lease(), &self.actor.who, None);
    }

    pub(super) fn tell(&mut self, log: &Log) {
        self.told_us = Some(log.now_us());
        self.actor.signal(Signal::TERM);
        log.deed("told to end", self.role.lease(), &self.actor.who, None);
    }
}

/// Somebody's place: whoever has it is replaced when it ends.
#[derive(Debug)]
pub(super) struct Seat {
    name: String,
    pub(super) role: Role,
    pub(super) member: Option<Member>,
    starts: u64,
    not_before: Instant,
    /// Nobody is to be put there now.
    pub(super) reserved: bool,
}

/// One that was stopped and overtaken.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) member: Member,
    /// When it is woken; `None`: it is awake.
    pub(super) wakes: Option<Instant>,
    pub(super) told: Option<Instant>,
}

/// What happened, by the drill's own account.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) ops: Vec<Op>,
    pub(super) deeds: Vec<Moment>,
    pub(super) endings: Vec<Ending>,
}

/// The account, and the clock that it is kept by: the database's.
#[derive(Debug)]
pub(super) struct Log {
    began_us: i64,
    began: Instant,
    told: Mutex<Told>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// `at_us` is now, by the database.
    pub(super) fn by(at_us: i64) -> Self {
        Self { began_us: at_us, began: Instant::now(), told: Mutex::default() }
    }

    pub(super) fn now_us(&self) -> i64 {
        let since = self.began.elapsed().as_micros();
        self.began_us + i64::try_from(since).unwrap_or(i64::MAX)
    }

    pub(super) fn told(&self) -> MutexGuard<'_, Told> {
        locked(&self.told)
    }

    /// Takes note of what the drill did or saw.
    pub(super) fn deed(
        &self,
        what: &str,
        lease: Option<String>,
        who: &str,
        detail: Option<String>,
    ) {
        let moment = Moment {
            at_us: self.now_us(),
            what: what.to_owned(),
            lease,
            owner: Some(who.to_owned()),
            detail,
            ..Moment::default()
        };
        self.told().deeds.push(moment);
    }

    /// Takes note of how a process ended.
    pub(super) fn ended(&self, member: &Member, run: &Run) {
        let internal = run.code() == "INTERNAL";
        let message = || run.json["error"]["message"].as_str().unwrap_or_default().to_owned();
        let panicked = run.err.lines().find(|line| line.contains("panicked at")).map(str::to_owned);
        let at_us = self.now_us();
        let ending = Ending {
            at_us,
            process: member.actor.who.clone(),
            ending: run.ending(),
            killed: member.killed,
            told_us: member.told_us,
            panic: panicked.or_else(|| internal.then(message)),
        };
        self.deed("ended", member.role.lease(), &member.actor.who, Some(run.ending()));
        self.told().endings.push(ending);
    }
}

impl Log {
    /// Takes note of a process that does what it must not.
    pub(super) fn stays(&self, member: &Member, why: &str) {
        let ending = Ending {
            at_us: self.now_us(),
            process: member.actor.who.clone(),
            ending: "no end".to_owned(),
            panic: Some(why.to_owned()),
            ..Ending::default()
        };
        self.told().endings.push(ending);
    }
}

/// All processes.
#[derive(Debug)]
pub(super) struct Team<'a> {
    pub(super) ground: &'a Ground<'a>,
    pub(super) log: &'a Log,
    pub(super) plan: &'a Plan,
    pub(super) topic: String,
    pub(super) seats: Mutex<Vec<Seat>>,
    pub(super) guests: Mutex<Vec<Guest>>,
    pub(super) clients: Mutex<BTreeMap<u64, Member>>,
    /// No load any more.
    pub(super) quiet: Mutex<bool>,
    /// Nobody is replaced any more.
    pub(super) closed: Mutex<bool>,
}

impl<'a> Team<'a> {
    pub(super) fn new(ground: &'a Ground<'a>, log: &'a Log, plan: &'a Plan) -> Self {
        let seat = |name: String, role| Seat {
            name,
            role,
            member: None,
            starts: 0,
            not_before: Instant::now(),
            reserved: false,
        };
        let workers = (1..=plan.load.workers).map(|n| seat(format!("worker{n}"), Role::Worker));
        let streams = super::STREAMS.map(|run| seat(run.to_owned(), Role::Stream(run)));
        Self {
            ground,
            log,
            plan,
            topic: ground.stage.topic("arrivals"),
            seats: Mutex::new(workers.chain(streams).collect()),
            guests: Mutex::default(),
            clients: Mutex::default(),
            quiet: Mutex::default(),
            closed: Mutex::default(),
        }
    }

    /// Starts a process of this role under this name, `way` as in `Crew::start_by`.
    pub(super) fn start(&self, way: &[&str], name: &str, role: Role) -> Result<Member, Broke> {
        let batch = self.plan.load.batch.to_string();
        let args: Vec<&str> = match role {
            Role::Worker => vec!["worker", "--batch", &batch],
            Role::Stream(run) => vec![
                "stream",
                "--topic",
                &self.topic,
                "--group",
                run,
                "--run-id",
                run,
                "--flow",
                &self.ground.stage.files.flow,
                "--commit-every",
                "0.1",
            ],
        };
        let mut more = self.ground.by_way(role.group());
        more.push(("FINAZ_OWNER", name.to_owned()));
        let more: Vec<(&str, &str)> =
            more.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let actor = self.ground.stage.crew.start_by(way, name, &args, &more)?;
        self.log.deed("started", role.lease(), name, None);
        Ok(Member { actor, role, killed: false, told_us: None })
    }

    /// Somebody who has no seat.
    pub(super) fn adopt(&self, actor: Actor, role: Role) -> Member {
        Member { actor, role, killed: false, told_us: None }
    }

    /// A client, whose words are its own.
    pub(super) fn client(&self, op: u64, args: &[&str]) -> Result<(), Broke> {
        let more = self.ground.by_way(Group::Clients);
        let more: Vec<(&str, &str)> =
            more.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let name = format!("client{op}");
        let actor = self.ground.stage.crew.start(&name, args, &more)?;
        let member = Member { actor, role: Role::Worker, killed: false, told_us: None };
        locked(&self.clients).insert(op, member);
        Ok(())
    }

    /// Looks after seats and guests for as long as it is polled; comes back with what keeps it from that.
    pub(super) async fn keep(&self) -> Broke {
        loop {
            let seen = async {
                self.see_to_seats().await?;
                self.see_to_guests().await
            };
            if let Err(broke) = seen.await {
                return broke;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        locked(&self.seats).iter().all(|seat| seat.member.is_none())
            && locked(&self.guests).is_empty()
    }

    async fn see_to_seats(&self) -> Result<(), Broke> {
        let count = locked(&self.seats).len();
        for at in 0..count {
            let ended = {
                let mut seats = locked(&self.seats);
                let member = &mut seats[at].member;
                if member.as_mut().is_some_and(|member| !member.actor.is_running()) {
                    member.take()
                } else {
                    None
                }
            };
            if let Some(mut member) = ended {
                let run = member.actor.end(Duration::ZERO).await?;
                let wait = if run.exit == Some(0) || run.signal.is_some() { SOON } else { LATER };
                self.log.ended(&member, &run);
                locked(&self.seats)[at].not_before = Instant::now() + wait;
            }
            self.fill(at)?;
        }
        Ok(())
    }

    /// Puts somebody into an empty seat.
    fn fill(&self, at: usize) -> Result<(), Broke> {
        let mut seats = locked(&self.seats);
        let seat = &mut seats[at];
        let is_wanted = seat.member.is_none()
            && !seat.reserved
            && Instant::now() >= seat.not_before
            && !*locked(&self.closed);
        if is_wanted {
            seat.starts += 1;
            let name = format!("{}-{}", seat.name, seat.starts);
            seat.member = Some(self.start(&[], &name, seat.role)?);
        }
        Ok(())
    }

    async fn see_to_guests(&self) -> Result<(), Broke> {
        let mut guests = std::mem::take(&mut *locked(&self.guests));
        let mut stay = Vec::new();
        for mut guest in guests.drain(..) {
            let now = Instant::now();
            if guest.wakes.is_some_and(|at| now >= at) {
                guest.wakes = None;
                guest.member.actor.resume();
                guest.told = Some(now + GUEST);
                self.log.deed("resumed", guest.member.role.lease(), &guest.member.actor.who, None);
            }
            if guest.wakes.is_none() && guest.told.is_some_and(|at| now >= at) {
                guest.told = None;
                guest.member.tell(self.log);
            }
            if guest.member.actor.is_running() {
                stay.push(guest);
            } else {
                let run = guest.member.actor.end(Duration::ZERO).await?;
                self.log.ended(&guest.member, &run);
            }
        }
        // Others may have come meanwhile.
        locked(&self.guests).extend(stay);
        Ok(())
    }

    /// Stops whoever is in a seat until a later time; the seat is free at once.
    pub(super) fn stop(&self, at: usize, wakes: Instant) -> Option<String> {
        let member = locked(&self.seats)[at].member.take();
        let mut member = member?;
        let name = member.actor.who.clone();
        member.actor.signal(Signal::STOP);
        self.log.deed("paused", member.role.lease(), &name, None);
        locked(&self.guests).push(Guest { member, wakes: Some(wakes), told: None });
        Some(name)
    }

    /// Nobody stays stopped.
    pub(super) fn wake_all(&self) {
        for guest in locked(&self.guests).iter_mut() {
            guest.wakes = guest.wakes.map(|_| Instant::now());
        }
    }

    /// Tells all to end, and replaces nobody.
    pub(super) fn close(&self) {
        *locked(&self.closed) = true;
        for seat in locked(&self.seats).iter_mut() {
            if let Some(member) = &mut seat.member {
                member.tell(self.log);
            }
        }
    }

    /// Kills whoever is left.
    pub(super) fn clear(&self) {
        for seat in locked(&self.seats).iter_mut() {
            if let Some(member) = &mut seat.member {
                member.kill(self.log);
            }
        }
        for guest in locked(&self.guests).iter_mut() {
            guest.member.kill(self.log);
        }
    }
}
