//! Commits that meet the worst instant: their owner stopped while it holds the row, their answer lost.

use std::time::Instant;

use super::crew::Actor;
use super::fixture::ARRIVALS;
use super::look::{Journal, Standing};
use super::owners::{Owner, check, overlaps};
use super::proxy::{Loss, Mode, Protocol, Proxy};
use super::stage::{SOON, Stage};
use super::wait::until;
use crate::drill::{Broke, Planned, Sheet};
use crate::store::{JOURNAL_COMMIT, by_way_of};

pub(super) const UNDER_LOCK: &[Planned] = &[
    check(
        "F1",
        "an owner is stopped between the check of its fence and its commit, with the lease's row locked",
    ),
    check(
        "F2",
        "the server ends its session, and with it the lock, before the lease is over twice",
    ),
    check("F3", "the next owner takes the lease and commits"),
    check("F4", "the stopped one, woken, is refused and ends"),
    check("F5", "what the next owner has committed stands untouched"),
    check(
        "F6",
        "while the session lives, a claimant is refused in bounded time and told which session it is",
    ),
    check("F7", "woken in time, the owner makes its commit under the same fence and goes on"),
];

pub(super) const AMBIGUOUS: &[Planned] = &[
    check("A1", "a commit whose answer is lost is found to be made, and is not made twice"),
    check("A2", "and the run ends with the golden, each record decided once"),
    check("A3", "a commit that never arrived is made again, under the same fence"),
    check("A4", "and that run ends the same"),
];

/// A stream whose PostgreSQL is behind a proxy.
struct Behind {
    proxy: Proxy,
    url: String,
}

async fn behind(stage: &Stage) -> Result<Behind, Broke> {
    let direct = stage.url();
    if direct.contains("sslmode=") && !direct.contains("sslmode=disable") {
        return Err(Broke::Unable("PostgreSQL speaks TLS: what passes cannot be read".to_owned()));
    }
    let (_, target) = by_way_of(direct, 0);
    let proxy = Proxy::to(&target, Protocol::Postgres).await?;
    let (url, _) = by_way_of(direct, proxy.port);
    Ok(Behind { proxy, url })
}

/// F1 to F7.
pub(super) async fn under_lock(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    session_ended(stage, sheet).await?;
    session_alive(stage, sheet).await
}

/// Stops an owner while it holds the row of its lease; the session of it that does.
async fn stop_under_lock(
    stage: &Stage,
    owner: &Owner<'_>,
    behind: &Behind,
    ttl: &str,
) -> Result<(Actor, Standing, i32), Broke> {
    stage.replay(owner.topic, 1).await?;
    let more = [("FINAZ_PG_URL", behind.url.as_str()), ("FINAZ_LEASE_TTL_SEC", ttl)];
    let mut actor = owner.start_with(stage, &more).await?;
    let standing = stage.committed(&owner.lease(), 1, ARRIVALS).await?;
    behind.proxy.trap(JOURNAL_COMMIT, Loss::Time);
    stage.replay(owner.topic, 1).await?;
    behind.proxy.sprung(SOON).await?;
    stage.note("paused", &owner.lease(), owner.name).await?;
    actor.pause().await?;
    let pid = until("a session holds the row", SOON, async || {
        Ok(stage.store.idle_in_transaction(&behind.proxy.ports()).await?.first().copied())
    })
    .await?;
    Ok((actor, standing, pid))
}

/// F1 to F5.
async fn session_ended(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let topic = stage.topic("locked");
    let flow = stage.files.flow.clone();
    let owner = |name, once_n| Owner {
        name,
        topic: &topic,
        run: "locked",
        flow: &flow,
        emit: None,
        once_n,
    };
    let a = owner("locker", None);
    let lease = a.lease();
    let behind = behind(stage).await?;
    let ttl = stage.ttl.as_secs_f64();
    let (mut first, before, pid) = stop_under_lock(stage, &a, &behind, &ttl.to_string()).await?;
    let since = Instant::now();
    let state = first.state().map_or("-".to_owned(), String::from);
    sheet.holds(
        "F1",
        "state T, a session idle in its transaction",
        format!("state {state}, pid {pid}"),
        state == "T",
    );
    until("the server ends the session", SOON, async || {
        let idle = stage.store.idle_in_transaction(&behind.proxy.ports()).await?;
        Ok((!idle.contains(&pid)).then_some(()))
    })
    .await?;
    let took = since.elapsed().as_secs_f64();
    sheet.holds(
        "F2",
        format!("within {} s", ttl * 2.0),
        format!("after {took:.1} s"),
        took <= ttl * 2.0,
    );
    stage.run_out(&lease).await?;
    let b = owner("heir", Some(ARRIVALS * 3));
    let mut second = b.start(stage).await?;
    let taken = stage.committed(&lease, 2, ARRIVALS * 2).await?;
    let seen = format!("fence {}, {} records", taken.fence, taken.read);
    sheet.equal("F3", format!("fence 2, {} records", ARRIVALS * 2), seen);
    stage.note("resumed", &lease, a.name).await?;
    behind.proxy.set(Mode::Pass);
    first.resume();
    let refused = first.end(SOON).await?;
    sheet.equal("F4", "exit 1 STREAM_FENCE_OBSOLETO", refused.ending());
    let after = stage.standing(&lease).await?;
    stage.replay(&topic, 1).await?;
    let ended = second.end(SOON).await?;
    let last = stage.standing(&lease).await?;
    let journal = Journal::read(&stage.artifacts()?, last.head)?;
    let handover = journal.handover(1).is_some_and(|handover| Some(handover.last.1) == before.head);
    let verdict = ended.json["verdict"].as_str().unwrap_or_default();
    sheet.equal(
        "F5",
        format!(
            "{}, from the last commit before true, twice 0, EQUAL_TO_BATCH_GOLDEN",
            taken.pointer()
        ),
        format!(
            "{}, from the last commit before {handover}, twice {}, {verdict}",
            after.pointer(),
            journal.twice()
        ),
    );
    Ok(())
}

/// F6, F7.
async fn session_alive(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let topic = stage.topic("waiting");
    let flow = stage.files.flow.clone();
    let owner = |name, once_n| Owner {
        name,
        topic: &topic,
        run: "waiting",
        flow: &flow,
        emit: None,
        once_n,
    };
    let a = owner("locker", None);
    let behind = behind(stage).await?;
    // Its session outlives the claimant's patience.
    let (mut first, before, pid) = stop_under_lock(stage, &a, &behind, "40").await?;
    let asked = Instant::now();
    let more = [("FINAZ_LEASE_TTL_SEC", "2")];
    let run = owner("claimant", Some(1)).start_with(stage, &more).await?.end(SOON).await?;
    let took = asked.elapsed().as_secs_f64();
    let named = run.json["error"]["message"]
        .as_str()
        .is_some_and(|text| text.contains(&format!("pid {pid}")));
    let seen = format!("{}, names the session {named}, after {took:.1} s", run.ending());
    let is_so = run.ending() == "exit 75 LEASE_BUSY" && named && took < 15.0;
    sheet.holds("F6", "exit 75 LEASE_BUSY, names the session true, within 15 s", seen, is_so);
    stage.note("resumed", &a.lease(), a.name).await?;
    behind.proxy.set(Mode::Pass);
    first.resume();
    let after = stage.committed(&a.lease(), 1, ARRIVALS * 2).await?;
    let (grants, _) = overlaps(&stage.moments(&a.lease()).await?);
    let moved = after.seq > before.seq;
    sheet.equal(
        "F7",
        format!("running true, fence 1, {} records, moved true, 1 grant", ARRIVALS * 2),
        format!(
            "running {}, fence {}, {} records, moved {moved}, {grants} grant",
            first.is_running(),
            after.fence,
            after.read
        ),
    );
    Ok(())
}

/// A1 to A4.
pub(super) async fn ambiguous(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let topic = stage.topic("ambiguous");
    stage.replay(&topic, 1).await?;
    let flow = stage.files.flow.clone();
    for (ids, loss, run) in
        [(["A1", "A2"], Loss::Reply, "unheard"), (["A3", "A4"], Loss::Request, "unsent")]
    {
        let behind = behind(stage).await?;
        behind.proxy.trap(JOURNAL_COMMIT, loss);
        let owner = Owner {
            name: run,
            topic: &topic,
            run,
            flow: &flow,
            emit: None,
            once_n: Some(ARRIVALS),
        };
        let more = [("FINAZ_PG_URL", behind.url.as_str())];
        let ended = owner.start_with(stage, &more).await?.end(SOON).await?;
        behind.proxy.sprung(SOON).await?;
        let last = stage.standing(&owner.lease()).await?;
        let journal = Journal::read(&stage.artifacts()?, last.head)?;
        let moments = stage.moments(&owner.lease()).await?;
        let mut commits: Vec<i64> = moments
            .iter()
            .filter(|moment| moment.what == "committed")
            .filter_map(|moment| moment.seq)
            .collect();
        let made = commits.len();
        commits.dedup();
        let is_so = made > 0 && commits.len() == made && journal.is_unbroken() && last.fence == 1;
        let seen = format!(
            "{made} commits, {} numbers, unbroken {}, fence {}",
            commits.len(),
            journal.is_unbroken(),
            last.fence
        );
        sheet.holds(ids[0], "as many commits as numbers, unbroken true, fence 1", seen, is_so);
        let verdict = ended.json["verdict"].as_str().unwrap_or_default();
        let seen = format!(
            "{}, {} decided, {} twice, {verdict}",
            ended.ending(),
            journal.fates.len(),
            journal.twice()
        );
        sheet.equal(
            ids[1],
            format!("exit 0, {ARRIVALS} decided, 0 twice, EQUAL_TO_BATCH_GOLDEN"),
            seen,
        );
    }
    Ok(())
}
