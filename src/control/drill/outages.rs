//! What goes on around an owner: told to end, its heart cut off, its broker frozen, its disk full.

use rustix::process::{Signal, geteuid};

use super::fixture::{ARRIVALS, REPLAYS, TOTAL};
use super::owners::{Owner, check, finished};
use super::proxy::{Mode, Protocol, Proxy};
use super::stage::{SOON, Stage};
use super::wait::until;
use crate::drill::{Broke, Planned, Sheet};
use crate::store::{LEASE_RENEWAL, by_way_of};

pub(super) const DRAINED: &[Planned] = &[
    check("D1", "an owner that is told to end (SIGTERM) commits what it read and ends in order"),
    check("D2", "it gives its lease back, and the fence stays"),
    check(
        "D3",
        "its successor starts at once, under the next fence, long before the lease would have run out",
    ),
    check("D4", "the handoff is signed by both, of the same commit"),
    check("D5", "the successor comes to the golden and the high-waters"),
];

pub(super) const CUT_OFF: &[Planned] = &[
    check(
        "N1",
        "an owner whose heart is cut off while its other sessions live loses its lease to time",
    ),
    check("N2", "its next commit is refused and on record, though nobody has claimed the lease"),
    check("N3", "an owner whose broker freezes keeps its lease and ends not"),
    check("N4", "once the broker answers it goes on where it was, under the same fence"),
];

pub(super) const FULL: &[Planned] = &[
    check("S1", "an owner whose disk is full ends, and may be started again later"),
    check(
        "S2",
        "it has left no half file, its journal stands where it stood, its lease is given back",
    ),
    check("S3", "with room on the disk the stream goes on to the golden"),
];

/// D1 to D5.
pub(super) async fn drained(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let topic = stage.topic("drained");
    let before = stage.draw(4).between(4, 9);
    stage.replay(&topic, before).await?;
    let flow = stage.files.flow.clone();
    let owner = |name, once_n| Owner {
        name,
        topic: &topic,
        run: "drained",
        flow: &flow,
        emit: None,
        once_n,
    };
    let a = owner("giver", None);
    let lease = a.lease();
    // Nobody would wait for the end of this one.
    let mut first = a.start_with(stage, &[("FINAZ_LEASE_TTL_SEC", "300")]).await?;
    let standing = stage.committed(&lease, 1, before * ARRIVALS).await?;
    stage.note("told to end", &lease, a.name).await?;
    first.signal(Signal::TERM);
    let ended = first.end(SOON).await?;
    let state = ended.json["state"].as_str().unwrap_or_default();
    let seen = format!("{}, {state}, {} records", ended.ending(), ended.json["read"]);
    sheet.equal("D1", format!("exit 0, DRAINED, {} records", standing.read), seen);
    let row = stage.lease(&lease).await?;
    sheet.equal("D2", "live false, fence 1", format!("live {}, fence {}", row.live, row.fence));
    stage.replay(&topic, REPLAYS - before).await?;
    let taken = owner("taker", Some(TOTAL)).run(stage).await?;
    let moments = stage.moments(&lease).await?;
    let at = |what: &str, fence| {
        moments.iter().find(|m| m.what == what && m.fence == Some(fence)).map(|m| m.at_us)
    };
    let waited = at("released", 1).zip(at("granted", 2)).map(|(from, to)| to - from);
    let seen = waited.map_or("no second grant".to_owned(), |us| {
        format!("fence 2 after {:.1} s", us as f64 / 1e6)
    });
    sheet.holds(
        "D3",
        "fence 2 before 100 s of 300",
        seen,
        waited.is_some_and(|us| (0..100_000_000).contains(&us)),
    );
    let shown =
        stage.run("handoffs", &["stream", "handoff", "--show", "--run-id", "drained"]).await?;
    let shown = shown.json;
    let both = |view: &&serde_json::Value| {
        view["how"] == "DRAINED" && view["giver"]["fence"] == 1 && view["taker"]["fence"] == 2
    };
    let view = shown["handoffs"]
        .as_array()
        .and_then(|views| views.iter().find(both).cloned())
        .unwrap_or_default();
    let same = view["giver"]["commit"]["seq"].is_i64()
        && view["giver"]["commit"] == view["taker"]["commit"];
    let seen = format!(
        "chain {}, signed by both {}, same commit {same}",
        shown["chain_ok"], view["signed_by_both"]
    );
    sheet.equal("D4", "chain true, signed by both true, same commit true", seen);
    finished(sheet, "D5", &taken);
    Ok(())
}

/// N1 to N4.
pub(super) async fn cut_off(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    heart(stage, sheet).await?;
    frozen(stage, sheet).await
}

/// N1, N2.
async fn heart(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let direct = stage.url();
    if direct.contains("sslmode=") && !direct.contains("sslmode=disable") {
        return Err(Broke::Unable("PostgreSQL speaks TLS: what passes cannot be read".to_owned()));
    }
    let (_, target) = by_way_of(direct, 0);
    let proxy = Proxy::to(&target, Protocol::Postgres).await?;
    let (url, _) = by_way_of(direct, proxy.port);
    let topic = stage.topic("heart");
    stage.replay(&topic, 1).await?;
    let flow = stage.files.flow.clone();
    let owner = Owner {
        name: "heartless",
        topic: &topic,
        run: "heart",
        flow: &flow,
        emit: None,
        once_n: None,
    };
    let lease = owner.lease();
    let mut actor = owner.start_with(stage, &[("FINAZ_PG_URL", &url)]).await?;
    let before = stage.committed(&lease, 1, ARRIVALS).await?;
    proxy.mute(Some(LEASE_RENEWAL));
    let out = stage.run_out(&lease).await?;
    let is_its = out.owner.token().starts_with("heartless/");
    let seen = format!("live {}, its own {is_its}, running {}", out.live, actor.is_running());
    sheet.equal("N1", "live false, its own true, running true", seen);
    stage.replay(&topic, 1).await?;
    let effect = until("the refusal is on record", SOON, async || {
        let refused = stage.store.refused(1_000).await?;
        Ok(refused.into_iter().rfind(|effect| effect.lease == lease))
    })
    .await?;
    // It would wait for the answer to its farewell.
    proxy.mute(None);
    proxy.set(Mode::Cut);
    let run = actor.end(SOON).await?;
    let after = stage.standing(&lease).await?;
    sheet.equal(
        "N2",
        format!(
            "exit 1 STREAM_FENCE_OBSOLETO, journal refused under fence 1, {}",
            before.pointer()
        ),
        format!(
            "{}, {} refused under fence {}, {}",
            run.ending(),
            effect.effect,
            effect.fence,
            after.pointer()
        ),
    );
    Ok(())
}

/// N3, N4.
async fn frozen(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let first = stage.brokers.split(',').next().unwrap_or_default().trim().to_owned();
    let proxy = Proxy::to(&first, Protocol::Kafka).await?;
    let topic = stage.topic("frozen");
    stage.replay(&topic, 1).await?;
    let flow = stage.files.flow.clone();
    let owner = Owner {
        name: "patient",
        topic: &topic,
        run: "frozen",
        flow: &flow,
        emit: None,
        once_n: None,
    };
    let lease = owner.lease();
    let brokers = format!("127.0.0.1:{}", proxy.port);
    let mut actor = owner.start_with(stage, &[("FINAZ_BROKERS", &brokers)]).await?;
    let before = stage.committed(&lease, 1, ARRIVALS).await?;
    if proxy.readdressed() == 0 {
        let why = "the broker is on another machine, or speaks TLS: its clients go around a proxy";
        return Err(Broke::Unable(why.to_owned()));
    }
    proxy.set(Mode::Hold);
    let renewals = async || {
        let moments = stage.moments(&lease).await?;
        Ok::<_, Broke>(moments.iter().filter(|moment| moment.what == "renewed").count())
    };
    let until_now = renewals().await?;
    stage.replay(&topic, 1).await?;
    // A third of the lease each.
    until("the lease is renewed for longer than it lives", SOON, async || {
        let lives = renewals().await? >= until_now + 7 || !actor.is_running();
        Ok(lives.then_some(()))
    })
    .await?;
    let row = stage.lease(&lease).await?;
    let during = stage.standing(&lease).await?;
    sheet.equal(
        "N3",
        format!("running true, live true, fence 1, {} records", before.read),
        format!(
            "running {}, live {}, fence {}, {} records",
            actor.is_running(),
            row.live,
            row.fence,
            during.read
        ),
    );
    proxy.set(Mode::Pass);
    let after = stage.committed(&lease, 1, ARRIVALS * 2).await?;
    sheet.equal(
        "N4",
        format!("running true, fence 1, {} records", ARRIVALS * 2),
        format!("running {}, fence {}, {} records", actor.is_running(), after.fence, after.read),
    );
    Ok(())
}

/// Puts a file system with no room at all where files are begun, in the child's own view of the machine, and becomes it.
pub(super) const FULL_DISK: &str =
    r#"mount -t tmpfs -o size=4k,nr_inodes=1,mode=700 tmpfs "$0/tmp" || exit 97; exec "$@""#;

/// S1 to S3.
pub(super) async fn full(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let topic = stage.topic("full");
    stage.replay(&topic, 1).await?;
    let flow = stage.files.flow.clone();
    let owner = |n| Owner {
        name: "keeper",
        topic: &topic,
        run: "full",
        flow: &flow,
        emit: None,
        once_n: Some(n),
    };
    owner(10).run(stage).await?.done("the first part")?;
    let lease = owner(10).lease();
    let before = stage.standing(&lease).await?;
    let artifacts = stage.text("artifacts");
    let mut way = vec!["unshare", "--mount"];
    if !geteuid().is_root() {
        way.push("--map-root-user");
    }
    way.extend(["--", "sh", "-c", FULL_DISK, &artifacts]);
    let args = owner(ARRIVALS).args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let more = [("FINAZ_SERVICE_TIMEOUT_SEC", "1")];
    let run = stage.crew.start_by(&way, "full", &args, &more)?.end(SOON).await?;
    if run.exit == Some(97) || run.err.starts_with("unshare:") {
        let said = run.err.lines().next().unwrap_or_default();
        return Err(Broke::Unable(format!("no file system may be mounted here: {said}")));
    }
    sheet.equal("S1", "exit 75 DISK_FULL", run.ending());
    let after = stage.standing(&lease).await?;
    let verified = stage.run("verify", &["cas", "verify"]).await?;
    let row = stage.lease(&lease).await?;
    sheet.equal(
        "S2",
        format!("0 damaged, {}, live false", before.pointer()),
        format!("{} damaged, {}, live {}", verified.json["damages"], after.pointer(), row.live),
    );
    let ended = owner(ARRIVALS).run(stage).await?;
    let verdict = ended.json["verdict"].as_str().unwrap_or_default();
    let seen = format!("{}, {} records, {verdict}", ended.ending(), ended.json["read"]);
    sheet.equal("S3", format!("exit 0, {ARRIVALS} records, EQUAL_TO_BATCH_GOLDEN"), seen);
    Ok(())
}
