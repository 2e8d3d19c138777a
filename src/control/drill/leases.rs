//! Leases taken by hand, by many at once, under one name, with the row held by a person, and with a clock that is wrong.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::crew::Run;
use super::fixture::ARRIVALS;
use super::owners::{Owner, check};
use super::stage::{SOON, Stage};
use super::wait::until;
use crate::drill::{Broke, Planned, Sheet};

pub(super) const CHECKS: &[Planned] = &[
    check("L1", "a renewal after the end of a lease is refused, though nobody has claimed it"),
    check("L2", "so is a release"),
    check("L3", "whoever had it must claim it anew, and gets the next fence"),
    check("L4", "of eight that claim an expired lease at once, one gets it"),
    check("L5", "the seven others are told who has it"),
    check("L6", "and the fence has risen by one"),
    check(
        "L7",
        "a person's session that holds the row is a bounded refusal that names the session",
    ),
    check("L8", "once the row is free the lease is renewed as if nothing had been"),
    check("L9", "a second process of the same name is another owner, and is turned away"),
    check("L10", "and the first one is not disturbed by it"),
];

pub(super) const CLOCK: &[Planned] = &[
    check(
        "C1",
        "with the process's clock an hour behind the database's, leases are given, kept and ended the same",
    ),
    check("C2", "with it an hour ahead as well"),
    check("C3", "the end of a lease is a time of the database, not of the process"),
    check("C4", "a stream under such a clock comes to the golden"),
];

/// Long enough for eight processes to start on a busy machine.
const LONG: &str = "20";

/// The lease in a report: owner and fence.
fn lease(document: &Value) -> (String, i64) {
    let lease = &document["leases"][0];
    let owner = lease["owner"].as_str().unwrap_or_default().to_owned();
    (owner, lease["fence"].as_i64().unwrap_or(-1))
}

async fn acquire(stage: &Stage, name: &str, more: &[&str]) -> Result<(String, i64), Broke> {
    let args = [&["lease", "acquire", name][..], more].concat();
    Ok(lease(&stage.run("acquire", &args).await?.done("a claim of a lease")?))
}

pub(super) async fn play(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    late(stage, sheet).await?;
    at_once(stage, sheet).await?;
    held_by_hand(stage, sheet).await?;
    twins(stage, sheet).await
}

/// L1 to L3.
async fn late(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let name = "drill/late";
    let (owner, _) = acquire(stage, name, &["--ttl", "0.2"]).await?;
    stage.run_out(name).await?;
    for (id, verb) in [("L1", "renew"), ("L2", "release")] {
        let run = stage.run(verb, &["lease", verb, name, "--owner", &owner]).await?;
        sheet.equal(id, "exit 1 LEASE_EXPIRED", run.ending());
    }
    let (again, fence) = acquire(stage, name, &["--owner", &owner]).await?;
    sheet.equal(
        "L3",
        "same owner true, fence 2",
        format!("same owner {}, fence {fence}", again == owner),
    );
    Ok(())
}

/// L4 to L6.
async fn at_once(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let name = "drill/stampede";
    let (_, before) = acquire(stage, name, &["--ttl", "0.2"]).await?;
    stage.run_out(name).await?;
    // All of them wait behind one row.
    let gate = stage.store.drill_session().await?;
    gate.lock_lease(name).await?;
    let ttl = [("FINAZ_LEASE_TTL_SEC", LONG)];
    let mut claims = Vec::new();
    for _ in 0..8 {
        claims.push(stage.crew.start("claimant", &["lease", "acquire", name], &ttl)?);
    }
    until("eight claimants wait", SOON, async || {
        Ok((stage.store.waiting_behind(gate.pid).await? == 8).then_some(()))
    })
    .await?;
    drop(gate);
    let mut ended: Vec<Run> = Vec::new();
    for claim in &mut claims {
        ended.push(claim.end(SOON).await?);
    }
    let won: Vec<&Run> = ended.iter().filter(|run| run.exit == Some(0)).collect();
    sheet.equal("L4", "1 of 8", format!("{} of {}", won.len(), ended.len()));
    let (owner, fence) = won.first().map(|run| lease(&run.json)).unwrap_or_default();
    let told = ended.iter().filter(|run| {
        run.ending() == "exit 1 LEASE_HELD" && run.json["error"]["owner"] == owner.as_str()
    });
    sheet.equal(
        "L5",
        "7 are told LEASE_HELD and by whom",
        format!("{} are told LEASE_HELD and by whom", told.count()),
    );
    sheet.equal("L6", format!("fence {}", before + 1), format!("fence {fence}"));
    Ok(())
}

/// L7, L8.
async fn held_by_hand(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let name = "drill/held";
    let (owner, _) = acquire(stage, name, &["--ttl", "120"]).await?;
    let person = stage.store.drill_session().await?;
    person.lock_lease(name).await?;
    let renew = ["lease", "renew", name, "--owner", &owner, "--ttl", "120"];
    let asked = Instant::now();
    let run = stage.crew.start("renew", &renew, &[("FINAZ_LEASE_TTL_SEC", "2")])?.end(SOON).await?;
    let took = asked.elapsed();
    let named = run.json["error"]["message"]
        .as_str()
        .is_some_and(|text| text.contains(&format!("pid {}", person.pid)));
    let seen =
        format!("{}, names the session {named}, after {:.1} s", run.ending(), took.as_secs_f64());
    let is_so = run.ending() == "exit 75 LEASE_BUSY" && named && took < Duration::from_secs(15);
    sheet.holds("L7", "exit 75 LEASE_BUSY, names the session true, within 15 s", seen, is_so);
    drop(person);
    let run = stage.run("renew", &renew).await?;
    let (after, fence) = lease(&run.json);
    sheet.equal(
        "L8",
        "exit 0, same owner true, fence 1",
        format!("{}, same owner {}, fence {fence}", run.ending(), after == owner),
    );
    Ok(())
}

/// L9, L10.
async fn twins(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let topic = stage.topic("twins");
    stage.replay(&topic, 1).await?;
    let flow = stage.files.flow.clone();
    let twin = |once_n| Owner {
        name: "twin",
        topic: &topic,
        run: "twins",
        flow: &flow,
        emit: None,
        once_n,
    };
    let mut first = twin(None).start(stage).await?;
    let lease = twin(None).lease();
    let before = stage.committed(&lease, 1, ARRIVALS).await?;
    let held = stage.lease(&lease).await?;
    let run = twin(Some(ARRIVALS + 1)).run(stage).await?;
    let named = run.json["error"]["owner"] == held.owner.token();
    let is_twin = held.owner.token().starts_with("twin/");
    sheet.equal(
        "L9",
        "exit 1 STREAM_LEASE_OCUPADO, told of the first one's token true, of its own name true",
        format!(
            "{}, told of the first one's token {named}, of its own name {is_twin}",
            run.ending()
        ),
    );
    let after = stage.standing(&lease).await?;
    sheet.equal(
        "L10",
        format!("running true, {}", before.pointer()),
        format!("running {}, {}", first.is_running(), after.pointer()),
    );
    Ok(())
}

/// C1 to C4. What counts is how far the two clocks are apart: the database's is moved, for these processes alone.
pub(super) async fn clock(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let url = stage.url_with("options=-c%20search_path%3Dfinaz_drill%2Cpg_catalog");
    let wrong = [("FINAZ_PG_URL", url.as_str())];
    let run = async |args: &[&str]| stage.crew.start("clock", args, &wrong)?.end(SOON).await;
    let mut ends = Vec::new();
    for (id, seconds, name) in [("C1", 3_600, "drill/ahead"), ("C2", -3_600, "drill/behind")] {
        stage.store.shift_clock(seconds).await?;
        let long = format!("{name}/long");
        run(&["lease", "acquire", &long, "--ttl", "60"]).await?.done("a claim of a lease")?;
        ends.push(stage.store.lease_seconds(&long).await? - f64::from(seconds));
        let held = run(&["lease", "acquire", &long]).await?;
        let got = run(&["lease", "acquire", name, "--ttl", "0.2"]).await?.done("a claim")?;
        let (owner, _) = lease(&got);
        until("the lease runs out", SOON, async || {
            let shown = run(&["lease", "show", name]).await?.done("a look at a lease")?;
            Ok((shown["leases"][0]["live"] == false).then_some(()))
        })
        .await?;
        let renewed = run(&["lease", "renew", name, "--owner", &owner]).await?;
        let next = run(&["lease", "acquire", name]).await?;
        let seen = format!(
            "live: {}; renewed after its end: {}; claimed: {}, fence {}",
            held.ending(),
            renewed.ending(),
            next.ending(),
            lease(&next.json).1
        );
        let expected = "live: exit 1 LEASE_HELD; renewed after its end: exit 1 LEASE_EXPIRED; claimed: exit 0, fence 2";
        sheet.equal(id, expected, seen);
    }
    let is_so = ends.iter().all(|left| (1.0..=60.0).contains(left));
    let seen = ends.iter().map(|left| format!("{left:.1}")).collect::<Vec<_>>().join(" and ");
    sheet.holds(
        "C3",
        "1 to 60 s are left of 60, by the database's clock",
        format!("{seen} s"),
        is_so,
    );
    let topic = stage.topic("clock");
    stage.replay(&topic, 1).await?;
    let flow = stage.files.flow.clone();
    let owner = Owner {
        name: "clock",
        topic: &topic,
        run: "clock",
        flow: &flow,
        emit: None,
        once_n: Some(ARRIVALS),
    };
    let ended = owner.start_with(stage, &wrong).await?.end(SOON).await?;
    let verdict = ended.json["verdict"].as_str().unwrap_or_default();
    let seen = format!("{}, {} records, {verdict}", ended.ending(), ended.json["read"]);
    sheet.equal("C4", format!("exit 0, {ARRIVALS} records, EQUAL_TO_BATCH_GOLDEN"), seen);
    Ok(())
}
