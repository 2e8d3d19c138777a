//! Deals the faults of a plan, each at its time.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rustix::process::geteuid;

use super::ground::{Group, Road};
use super::retention;
use super::team::{Guest, Role, Team, locked};
use crate::control::drill::outages::FULL_DISK;
use crate::control::drill::proxy::{Loss, Mode};
use crate::control::drill::wait::until;
use crate::drill::Broke;
use crate::drill::chaos::{Dealt, Fault, FaultKind, name_of};
use crate::store::{ADMISSION_COMMIT, JOURNAL_COMMIT, PUBLICATION_COMMIT};

/// How long a fault waits for somebody whom it can meet.
const MET: Duration = Duration::from_secs(8);
/// How often it looks for somebody.
const TRIES: u32 = 3;
/// Of a process whose disk is full, to end once it was told to.
const END: Duration = Duration::from_secs(20);

/// What became of a fault: whom it met, and what was done in its place if that was something else.
struct Met {
    whom: String,
    instead: Option<&'static str>,
}

impl Met {
    fn whom(whom: impl Into<String>) -> Self {
        Self { whom: whom.into(), instead: None }
    }
}

/// All of them; those that were dealt and those that could not be.
pub(super) async fn all(team: &Team<'_>, told: impl Fn(u64)) -> Result<Vec<Dealt>, Broke> {
    let began = Instant::now();
    let mut flying = FuturesUnordered::new();
    let mut dealt = Vec::new();
    let mut faults = team.plan.faults.iter();
    let mut next = faults.next();
    let duration = team.plan.duration();
    loop {
        let now = began.elapsed();
        told(now.as_secs());
        if let Some(fault) = next
            && now >= Duration::from_millis(fault.at_ms)
        {
            flying.push(one(team, *fault));
            next = faults.next();
            continue;
        }
        if now >= duration && next.is_none() && flying.is_empty() {
            return Ok(dealt);
        }
        tokio::select! {
            Some(ended) = flying.next() => dealt.push(ended?),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
}

/// A service that is away while it is asked to hurt another is no end of the campaign.
async fn one(team: &Team<'_>, fault: Fault) -> Result<Dealt, Broke> {
    let from_us = team.log.now_us();
    let name = name_of(&fault.kind);
    tracing::info!(fault = name, "dealt");
    let mut met = meet(team, fault).await;
    for _ in 1..TRIES {
        // Nobody was there: other faults have seen to that.
        if matches!(met, Err(Broke::Failed(_))) {
            met = meet(team, fault).await;
        }
    }
    let to_us = team.log.now_us();
    let mut dealt =
        Dealt { kind: fault.kind, from_us, to_us, whom: None, instead: None, why: None };
    match met {
        Ok(met) => {
            team.log.deed("fault", None, &met.whom, Some(name));
            dealt.whom = Some(met.whom);
            dealt.instead = met.instead;
        }
        Err(Broke::Unable(why) | Broke::Failed(why)) => dealt.why = Some(why),
    }
    Ok(dealt)
}

async fn meet(team: &Team<'_>, fault: Fault) -> Result<Met, Broke> {
    let lasts = Duration::from_millis(fault.lasts_ms);
    match fault.kind {
        FaultKind::WorkerKilled => seat(team, fault, false, kill).await,
        FaultKind::StreamKilled => seat(team, fault, true, kill).await,
        FaultKind::WorkerDrained => seat(team, fault, false, drain).await,
        FaultKind::StreamDrained => seat(team, fault, true, drain).await,
        FaultKind::WorkerStopped | FaultKind::StreamStopped => stop(team, fault, lasts).await,
        FaultKind::ClientKilled => client(team, fault).await,
        FaultKind::PostgresUnheard => unheard_commit(team, fault).await,
        FaultKind::PostgresSessionsEnded => sessions(team).await,
        FaultKind::PostgresRestarted => restart(team, fault, lasts).await,
        FaultKind::WorkerDiskFull => full(team, Role::Worker, lasts).await,
        FaultKind::StreamDiskFull => {
            let run = super::STREAMS[fault.pick(super::STREAMS.len(), 1)];
            full(team, Role::Stream(run), lasts).await
        }
        FaultKind::Retention => retention::deal(team, fault).await.map(Met::whom),
        FaultKind::PostgresCut
        | FaultKind::PostgresReset
        | FaultKind::PostgresHeld
        | FaultKind::PostgresDelayed => {
            let roads: Vec<&Road> = team.ground.postgres.iter().collect();
            network(fault, &roads, "PostgreSQL", lasts).await
        }
        FaultKind::BrokerCut
        | FaultKind::BrokerReset
        | FaultKind::BrokerHeld
        | FaultKind::BrokerDelayed
        | FaultKind::BrokerUnheard
        | FaultKind::BrokerRestarted => {
            let roads: Vec<&Road> = team.ground.broker.iter().collect();
            if roads.iter().any(|road| road.proxy.readdressed() == 0) {
                let why = "the broker's clients go around the proxy, or none has come yet";
                return Err(Broke::Unable(why.to_owned()));
            }
            network(fault, &roads, "the broker", lasts).await
        }
        FaultKind::WarehouseReset
        | FaultKind::WarehouseHeld
        | FaultKind::WarehouseDelayed
        | FaultKind::WarehouseUnheard
        | FaultKind::WarehouseStopped => {
            let roads: Vec<&Road> = team.ground.warehouse.iter().collect();
            network(fault, &roads, "ClickHouse", lasts).await
        }
    }
}

/// Meets somebody in a seat, as soon as there is one.
async fn seat(
    team: &Team<'_>,
    fault: Fault,
    is_stream: bool,
    deed: impl Fn(&Team<'_>, usize) -> Option<String>,
) -> Result<Met, Broke> {
    let at = pick(team, fault, is_stream);
    // Half of them in the middle of something.
    let is_busy = fault.pick(2, 3) == 1;
    let whom = until("somebody is there", MET, async || {
        let ready = !is_busy || is_at_work(team, at).await;
        Ok(if ready { deed(team, at) } else { None })
    })
    .await?;
    Ok(Met::whom(whom))
}

/// Whether the one in this seat has a lease.
async fn is_at_work(team: &Team<'_>, at: usize) -> bool {
    let (role, there) = {
        let seats = locked(&team.seats);
        (seats[at].role, seats[at].member.as_ref().map(|member| format!("{}/", member.actor.who)))
    };
    let Some(there) = there else { return false };
    let prefix = role.lease().unwrap_or_else(|| "batch/".to_owned());
    let live = team.ground.store.leases(&prefix, true, 20).await.unwrap_or_default();
    live.iter().any(|lease| lease.owner.token().starts_with(&there))
}

/// The place of a seat of this kind.
fn pick(team: &Team<'_>, fault: Fault, is_stream: bool) -> usize {
    let seats = locked(&team.seats);
    let is_such = |role| matches!(role, Role::Stream(_)) == is_stream;
    let places = seats.iter().enumerate().filter(|(_, seat)| is_such(seat.role));
    let places: Vec<usize> = places.map(|(at, _)| at).collect();
    places[fault.pick(places.len(), 1)]
}

fn kill(team: &Team<'_>, at: usize) -> Option<String> {
    let mut seats = locked(&team.seats);
    let member = seats[at].member.as_mut()?;
    member.actor.is_running().then(|| {
        member.kill(team.log);
        member.actor.who.clone()
    })
}

fn drain(team: &Team<'_>, at: usize) -> Option<String> {
    let mut seats = locked(&team.seats);
    let member = seats[at].member.as_mut()?;
    member.actor.is_running().then(|| {
        member.tell(team.log);
        member.actor.who.clone()
    })
}

/// Stops whoever is at work, for longer than its lease: of a stream its owner.
async fn stop(team: &Team<'_>, fault: Fault, lasts: Duration) -> Result<Met, Broke> {
    let at = pick(team, fault, fault.kind == FaultKind::StreamStopped);
    let whom = until("somebody is at work there", MET, async || {
        let ready = is_at_work(team, at).await;
        Ok(if ready { team.stop(at, Instant::now() + super::TTL + lasts) } else { None })
    })
    .await?;
    tokio::time::sleep(super::TTL + lasts).await;
    Ok(Met::whom(whom))
}

async fn client(team: &Team<'_>, fault: Fault) -> Result<Met, Broke> {
    let whom = until("a client is there", MET, async || {
        let mut clients = locked(&team.clients);
        let at = fault.pick(clients.len(), 1);
        let Some(member) = clients.values_mut().nth(at) else { return Ok(None) };
        Ok(member.actor.is_running().then(|| {
            member.kill(team.log);
            member.actor.who.clone()
        }))
    })
    .await?;
    Ok(Met::whom(whom))
}

/// The reply to the next commit of a group is lost.
async fn unheard_commit(team: &Team<'_>, fault: Fault) -> Result<Met, Broke> {
    let roads = &team.ground.postgres;
    if roads.is_empty() {
        return Err(Broke::Unable("there is no proxy before PostgreSQL".to_owned()));
    }
    let road = &roads[fault.pick(roads.len(), 1)];
    let statement = match road.group {
        Group::Workers => PUBLICATION_COMMIT,
        Group::Streams => JOURNAL_COMMIT,
        Group::Clients => ADMISSION_COMMIT,
    };
    let before = road.proxy.lost();
    road.proxy.trap(statement, Loss::Reply);
    let lost = until("a commit whose answer can be lost", MET, async || {
        Ok((road.proxy.lost() > before).then_some(()))
    })
    .await;
    road.proxy.disarm();
    lost?;
    team.log.deed("answer lost", None, road.group.word(), None);
    Ok(Met::whom(road.group.word()))
}

async fn sessions(team: &Team<'_>) -> Result<Met, Broke> {
    let keep = team.ground.kept_session();
    let ended = until("PostgreSQL ends sessions", MET, async || {
        Ok(team.ground.store.end_sessions(keep).await.ok().filter(|ended| *ended > 0))
    })
    .await?;
    Ok(Met::whom(format!("{ended} sessions")))
}

async fn restart(team: &Team<'_>, fault: Fault, lasts: Duration) -> Result<Met, Broke> {
    let at_once = fault.pick(2, 1) == 1;
    if let Some(server) = &team.ground.server {
        server.lock().await.restart(at_once, lasts).await?;
        return Ok(Met::whom(if at_once { "as by a crash" } else { "in order" }));
    }
    let roads: Vec<&Road> = team.ground.postgres.iter().collect();
    network(fault, &roads, "PostgreSQL", lasts + Duration::from_secs(1)).await
}

/// What a network does, for a time: to one group, or to all where a server goes.
async fn network(
    fault: Fault,
    roads: &[&Road],
    server: &'static str,
    lasts: Duration,
) -> Result<Met, Broke> {
    if roads.is_empty() {
        return Err(Broke::Unable(format!("there is no proxy before {server}")));
    }
    let late = 20 + u64::try_from(fault.pick(180, 2)).unwrap_or(0);
    let (mode, instead) = match fault.kind {
        FaultKind::PostgresReset | FaultKind::BrokerReset | FaultKind::WarehouseReset => {
            (Mode::Reset, None)
        }
        FaultKind::PostgresHeld | FaultKind::BrokerHeld | FaultKind::WarehouseHeld => {
            (Mode::Hold, None)
        }
        FaultKind::PostgresDelayed | FaultKind::BrokerDelayed | FaultKind::WarehouseDelayed => {
            (Mode::Late(late), None)
        }
        FaultKind::BrokerUnheard | FaultKind::WarehouseUnheard => (Mode::Unheard, None),
        FaultKind::PostgresRestarted | FaultKind::BrokerRestarted | FaultKind::WarehouseStopped => {
            (Mode::Cut, Some("cut off by the proxy"))
        }
        FaultKind::PostgresCut | FaultKind::BrokerCut => (Mode::Cut, None),
        FaultKind::WorkerKilled
        | FaultKind::WorkerStopped
        | FaultKind::WorkerDrained
        | FaultKind::WorkerDiskFull
        | FaultKind::StreamKilled
        | FaultKind::StreamStopped
        | FaultKind::StreamDrained
        | FaultKind::StreamDiskFull
        | FaultKind::ClientKilled
        | FaultKind::PostgresUnheard
        | FaultKind::PostgresSessionsEnded
        | FaultKind::Retention => return Err(Broke::Unable("no matter of a network".to_owned())),
    };
    let met: Vec<&Road> = match instead {
        Some(_) => roads.to_vec(),
        None => vec![roads[fault.pick(roads.len(), 1)]],
    };
    let marks: Vec<u64> = met.iter().map(|road| road.proxy.set(mode)).collect();
    tokio::time::sleep(lasts).await;
    for (road, mark) in met.iter().zip(marks) {
        // Unless another fault has begun meanwhile, which ends in its own time.
        road.proxy.set_if(mark, Mode::Pass);
    }
    let groups: Vec<&str> = met.iter().map(|road| road.group.word()).collect();
    Ok(Met { whom: format!("{server}, {}", groups.join(" and ")), instead })
}

/// Starts one whose disk is full, in the place of whoever owns the stream; it is told to end after a time.
async fn full(team: &Team<'_>, role: Role, lasts: Duration) -> Result<Met, Broke> {
    let place =
        locked(&team.seats).iter().position(|seat| seat.role == role && role != Role::Worker);
    if let Some(at) = place {
        locked(&team.seats)[at].reserved = true;
    }
    let done = full_in(team, role, place, lasts).await;
    if let Some(at) = place {
        locked(&team.seats)[at].reserved = false;
    }
    done
}

async fn full_in(
    team: &Team<'_>,
    role: Role,
    place: Option<usize>,
    lasts: Duration,
) -> Result<Met, Broke> {
    if let Some(at) = place {
        let _told = drain(team, at);
        until("the owner gives the stream away", END, async || {
            Ok(locked(&team.seats)[at].member.is_none().then_some(()))
        })
        .await?;
    }
    let artifacts = team.ground.stage.text("artifacts");
    let mut way = vec!["unshare", "--mount"];
    if !geteuid().is_root() {
        way.push("--map-root-user");
    }
    way.extend(["--", "sh", "-c", FULL_DISK, &artifacts]);
    let number = team.log.now_us();
    let name = format!("full{number}");
    let mut member = team.start(&way, &name, role)?;
    let until_then = Instant::now() + lasts;
    while member.actor.is_running() && Instant::now() < until_then {
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    if member.actor.is_running() {
        member.tell(team.log);
        locked(&team.guests).push(Guest { member, wakes: None, told: None });
        return Ok(Met::whom(name));
    }
    let run = member.actor.end(Duration::ZERO).await?;
    if run.exit == Some(97) || run.err.starts_with("unshare:") {
        let said = run.err.lines().next().unwrap_or_default();
        return Err(Broke::Unable(format!("no file system may be mounted here: {said}")));
    }
    team.log.ended(&member, &run);
    Ok(Met::whom(name))
}
