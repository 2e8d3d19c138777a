//! Phase Z: an owner that is stopped and overtaken, with what comes before and after it.

use serde_json::Value;

use super::crew::{Actor, Run};
use super::fixture::{self, ARRIVALS, COUNTS, HOMES, REPLAYS, TOTAL};
use super::look::{Journal, Standing, counts, ends};
use super::owners::{Owner, check, continued, finished, overlaps};
use super::stage::{SOON, Stage};
use crate::drill::{Broke, Moment, Planned, QueueNumbers, Sheet};
use crate::store::DrillState;

pub(super) const CHECKS: &[Planned] = &[
    check("P1", "database, topics and folder carry the mark of this drill, and the same nonce"),
    check("P2", "the database has the schema that this binary needs"),
    check("P3", "the log that is replayed is the fixture's, byte for byte"),
    check("P4", "the batch run, without any server, gives the golden"),
    check("P5", "the topic holds what was replayed, in the partitions where it belongs"),
    check("Z1", "the first owner gets the lease under the first fence"),
    check("Z2", "it consumes, and its journal advances under that fence"),
    check("Z3", "an intruder is turned away while the owner is well, and emits nothing"),
    check("Z4", "the intruder has changed neither lease nor journal, and the owner goes on"),
    check("Z5", "the owner is stopped (SIGSTOP) in the middle of its work"),
    check(
        "Z6",
        "stopped, it renews nothing: its lease runs out unreleased, by the clock of the database",
    ),
    check("Z7", "the lease passes to the second owner under the next fence"),
    check("Z8", "no sooner than the first owner's has run out"),
    check("Z9", "the second owner commits under its fence while the first is stopped"),
    check("Z10", "the first owner, woken, is refused and ends"),
    check(
        "Z11",
        "what was refused is its first attempt at the journal, and it is on record: who, which fence, against which",
    ),
    check(
        "Z12",
        "it publishes nothing: no emit, and the journal stands where the second owner left it",
    ),
    check("Z13", "from the takeover on every commit is the second owner's"),
    check("Z14", "the second owner goes on from the first one's last commit, to the byte"),
    check(
        "Z15",
        "all records are read, the values are the golden, the journal ends at the high-waters",
    ),
    check("V1", "what was emitted is what the fixture gives, byte for byte"),
    check("V2", "no event was taken twice: the ids of what was consumed are unique"),
    check("V3", "each record of the topic was decided, and none twice"),
    check("V4", "the conservation ledger holds, per partition and in total"),
    check("V5", "a run that nothing happened to ends the same"),
    check("V6", "the fence never goes down, and each commit follows the one before it"),
    check("V7", "at no time do two owners have the lease"),
    check("V8", "the second owner gives the lease back at its end, and the fence stays"),
];

/// What is given to all owners of the phase.
struct Phase {
    topic: String,
    flow: String,
    /// Where the first owner, the intruder and the second owner emit.
    emits: [String; 3],
}

impl Phase {
    fn owner<'a>(&'a self, name: &'a str, emit: usize, once_n: Option<u64>) -> Owner<'a> {
        let emit = Some(self.emits[emit].as_str());
        Owner { name, topic: &self.topic, run: "stopped", flow: &self.flow, emit, once_n }
    }
}

/// The name in an owner's token.
fn who(token: &str) -> &str {
    token.split('/').next().unwrap_or_default()
}

pub(super) async fn play(stage: &Stage, sheet: &mut Sheet) -> Result<QueueNumbers, Broke> {
    let phase = Phase {
        topic: stage.topic("stopped"),
        flow: stage.files.flow.clone(),
        emits: ["a.jsonl", "b0.jsonl", "b.jsonl"].map(|name| stage.text(name)),
    };
    let topic = &phase.topic;
    let before = stage.draw(1).between(6, 10);
    preliminaries(stage, sheet, topic, before).await?;
    let a = phase.owner("owner-A", 0, None);
    let lease = a.lease();
    let (mut first, stopped) = stop_first(stage, sheet, &phase, before).await?;
    stage.replay(topic, 1).await?;
    let b = phase.owner("owner-B", 2, Some(TOTAL));
    let mut second = b.start(stage).await?;
    let overtaken = stage.committed(&lease, 2, (before + 1) * ARRIVALS).await?;
    let held = stage.lease(&lease).await?;
    let (taker, before_it) = (who(held.owner.token()), stopped.fence);
    let seen = format!("{taker} under fence {}, before it {before_it}", held.fence);
    sheet.equal("Z7", "owner-B under fence 2, before it 1", seen);
    not_sooner(sheet, &stage.moments(&lease).await?);
    let still = first.state().map_or("-".to_owned(), String::from);
    let seen = format!("fence {}, the first owner in state {still}", overtaken.fence);
    sheet.equal("Z9", "fence 2, the first owner in state T", seen);

    stage.note("resumed", &lease, a.name).await?;
    first.resume();
    let refused = first.end(SOON).await?;
    stage.note("ended", &lease, a.name).await?;
    woken(stage, sheet, &refused, (&lease, &overtaken)).await?;
    stage.replay(topic, REPLAYS - before - 1).await?;
    let ended = second.end(SOON).await?;
    stage.note("ended", &lease, b.name).await?;
    let last = stage.standing(&lease).await?;
    let journal = Journal::read(&stage.artifacts()?, last.head)?;
    continued(sheet, "Z14", journal.handover(1), &stopped);
    finished(sheet, "Z15", &ended);
    decided(stage, sheet, &journal, &ended.json);
    undisturbed(stage, sheet, &ended.json, &a).await?;
    fences(stage, sheet, &journal, &lease).await?;
    Ok(journal.numbers(&ends(stage, topic).await?, stopped.read))
}

/// Z1 to Z6: the first owner, and where it stood when it was stopped.
async fn stop_first(
    stage: &Stage,
    sheet: &mut Sheet,
    phase: &Phase,
    before: u64,
) -> Result<(Actor, Standing), Broke> {
    let a = phase.owner("owner-A", 0, None);
    let lease = a.lease();
    let mut first = a.start(stage).await?;
    let standing = stage.committed(&lease, 1, before * ARRIVALS).await?;
    let held = stage.lease(&lease).await?;
    let seen = format!("{} under fence {}", who(held.owner.token()), held.fence);
    sheet.equal("Z1", "owner-A under fence 1", seen);
    let seen = format!("{} records, {}", standing.read, standing.pointer());
    let advanced = standing.fence == 1 && standing.seq > 0 && standing.read == before * ARRIVALS;
    sheet.holds("Z2", format!("{} records under fence 1", before * ARRIVALS), seen, advanced);
    let b0 = phase.owner("intruder-B0", 1, Some(TOTAL));
    intruder(stage, sheet, &b0, (&mut first, &standing)).await?;

    stage.note("paused", &lease, a.name).await?;
    first.pause().await?;
    let state = first.state().map_or("-".to_owned(), String::from);
    let stopped = stage.standing(&lease).await?;
    let seen = format!("state {state}, {} of {TOTAL} records", stopped.read);
    let is_so = state == "T" && stopped.read < TOTAL;
    sheet.holds("Z5", format!("state T, fewer than {TOTAL} records"), seen, is_so);
    let out = stage.run_out(&lease).await?;
    let released = stage.moments(&lease).await?.iter().any(|moment| moment.what == "released");
    let (owner, fence, live) = (who(out.owner.token()), out.fence, out.live);
    let seen = format!("{owner}, fence {fence}, live {live}, released {released}");
    sheet.equal("Z6", "owner-A, fence 1, live false, released false", seen);
    Ok((first, stopped))
}

async fn preliminaries(
    stage: &Stage,
    sheet: &mut Sheet,
    topic: &str,
    before: u64,
) -> Result<(), Broke> {
    let status = stage.run("status", &["db", "status"]).await?.done("the schema")?;
    let state = stage.store.drill_state().await?;
    let nonce = &stage.mark.nonce;
    let in_database = matches!(&state, DrillState::Of(mark) if mark == &stage.mark);
    let in_folder =
        stage.emitted("finaz-drill.json").is_some_and(|text| text.contains(nonce.as_str()));
    let seen = format!(
        "database {in_database}, folder {in_folder}, topics {}",
        topic.contains(nonce.as_str())
    );
    sheet.equal("P1", "database true, folder true, topics true", &seen);
    sheet.equal(
        "P2",
        format!("version {}", status["binary"]),
        format!("version {}", status["schema"]),
    );
    let dry = stage.run("batch", &["run-once", "--dry-run", "--flow", &stage.files.flow]).await?;
    let dry = dry.done("the batch run")?;
    let replayed = stage.replay(topic, before).await?;
    sheet.equal("P3", fixture::log_hash(), replayed["log_hash"].as_str().unwrap_or_default());
    sheet.equal("P4", fixture::golden(), dry["result"]["values_hash"].as_str().unwrap_or_default());
    let times = i64::try_from(before).unwrap_or(0);
    let [first, second] = HOMES.map(|(partition, each)| (partition, each * times));
    let expected = vec![first, (1, 0), (2, 0), second];
    sheet.equal("P5", format!("{expected:?}"), format!("{:?}", ends(stage, topic).await?));
    Ok(())
}

/// Z3, Z4.
async fn intruder(
    stage: &Stage,
    sheet: &mut Sheet,
    intruder: &Owner<'_>,
    (first, before): (&mut Actor, &Standing),
) -> Result<(), Broke> {
    let run = intruder.run(stage).await?;
    let emit = stage.emitted("b0.jsonl").is_some();
    sheet.equal(
        "Z3",
        "exit 1 STREAM_LEASE_OCUPADO, emit false",
        format!("{}, emit {emit}", run.ending()),
    );
    let lease = stage.lease(&intruder.lease()).await?;
    let standing = stage.standing(&intruder.lease()).await?;
    let is_owner = lease.owner.token().starts_with("owner-A/");
    sheet.equal(
        "Z4",
        format!("lease of owner-A true, {}, owner running true", before.pointer()),
        format!(
            "lease of owner-A {is_owner}, {}, owner running {}",
            standing.pointer(),
            first.is_running()
        ),
    );
    Ok(())
}

/// Z8: by what the database wrote down of both.
fn not_sooner(sheet: &mut Sheet, moments: &[Moment]) {
    let taken =
        moments.iter().position(|moment| moment.what == "granted" && moment.fence == Some(2));
    let claimed = taken.map_or(0, |at| moments[at].at_us);
    let until = moments[..taken.unwrap_or(0)]
        .iter()
        .rev()
        .find_map(|moment| moment.until_us)
        .unwrap_or(i64::MAX);
    let seen = format!("{} us after it", claimed.saturating_sub(until));
    sheet.holds("Z8", "at or after it", seen, claimed >= until);
}

/// Z10 to Z13.
async fn woken(
    stage: &Stage,
    sheet: &mut Sheet,
    refused: &Run,
    (lease, overtaken): (&str, &Standing),
) -> Result<(), Broke> {
    let fence = &refused.json["error"]["fence"];
    sheet.equal(
        "Z10",
        "exit 1 STREAM_FENCE_OBSOLETO, fence 1",
        format!("{}, fence {fence}", refused.ending()),
    );
    let mut effects = stage.store.refused(100).await?;
    effects.retain(|effect| effect.lease == lease);
    let first = effects.last();
    let seen = first.map_or("nothing is on record".to_owned(), |effect| {
        let current = effect.current_owner.as_deref().unwrap_or_default();
        format!(
            "{} of {} under fence {} against {current} under fence {}, at {}",
            effect.effect,
            effect.owner,
            effect.fence,
            effect.current_fence.unwrap_or_default(),
            effect.at
        )
    });
    let is_so = first.is_some_and(|effect| {
        effect.effect == "journal"
            && effect.owner.starts_with("owner-A/")
            && effect.fence == 1
            && effect.current_fence == Some(2)
            && effect.current_owner.as_deref().is_some_and(|owner| owner.starts_with("owner-B/"))
    });
    sheet.holds(
        "Z11",
        "journal of owner-A under fence 1 against owner-B under fence 2",
        seen,
        is_so,
    );
    let emit = stage.emitted("a.jsonl").is_some();
    let standing = stage.standing(lease).await?;
    sheet.equal(
        "Z12",
        format!("emit false, {}", overtaken.pointer()),
        format!("emit {emit}, {}", standing.pointer()),
    );
    let moments = stage.moments(lease).await?;
    let taken =
        moments.iter().position(|moment| moment.what == "granted" && moment.fence == Some(2));
    let after = &moments[taken.unwrap_or(moments.len())..];
    let commits: Vec<&Moment> = after.iter().filter(|moment| moment.what == "committed").collect();
    let theirs = commits
        .iter()
        .filter(|moment| moment.fence == Some(2) && moment.who() == "owner-B")
        .count();
    let is_so = !commits.is_empty() && theirs == commits.len();
    sheet.holds("Z13", "all of at least one", format!("{theirs} of {}", commits.len()), is_so);
    Ok(())
}

/// V1 to V4: what the second owner has made of all of it.
fn decided(stage: &Stage, sheet: &mut Sheet, journal: &Journal, report: &Value) {
    let emitted = stage.emitted("b.jsonl").unwrap_or_default();
    sheet.equal("V1", fixture::emitted().trim_end(), emitted.trim_end());
    let mut ids = journal.consumed.clone();
    ids.sort_unstable();
    ids.dedup();
    let seen = format!("{} ids of {} consumed", ids.len(), journal.consumed.len());
    sheet.equal("V2", format!("{0} ids of {0} consumed", COUNTS[0]), seen);
    let seen = format!("{} decided, {} twice", journal.fates.len(), journal.twice());
    sheet.equal("V3", format!("{TOTAL} decided, 0 twice"), seen);
    let sum = counts(report).into_iter().fold(0, u64::saturating_add);
    let empty = Vec::new();
    let lanes = report["per_partition"].as_array().unwrap_or(&empty);
    let holding = lanes.iter().filter(|lane| lane["ledger_ok"] == true).count();
    let seen = format!(
        "{sum} of {}, ledger {}, {holding} of {} partitions",
        report["read"],
        report["ledger_ok"],
        lanes.len()
    );
    sheet.equal("V4", format!("{TOTAL} of {TOTAL}, ledger true, 4 of 4 partitions"), seen);
}

/// V5: the same without a disturbance.
async fn undisturbed(
    stage: &Stage,
    sheet: &mut Sheet,
    report: &Value,
    a: &Owner<'_>,
) -> Result<(), Broke> {
    let emitted = stage.emitted("b.jsonl").unwrap_or_default();
    let calm = Owner {
        name: "calm",
        run: "calm",
        emit: Some(&stage.text("calm.jsonl")),
        once_n: Some(TOTAL),
        ..*a
    };
    let calm = calm.run(stage).await?.done("the run that nothing happens to")?;
    let same = |report: &Value| {
        let names =
            ["read", "values_hash", "next_offsets", "watermark", "waiting", "identities", "final"];
        let told = names.map(|name| report[name].to_string()).join(" ");
        format!("{told} {:?}", counts(report))
    };
    let files = stage.emitted("calm.jsonl").unwrap_or_default() == emitted;
    sheet.equal(
        "V5",
        format!("{}, same file true", same(&calm)),
        format!("{}, same file {files}", same(report)),
    );
    Ok(())
}

/// V6 to V8: the lease from its first grant to its last release.
async fn fences(
    stage: &Stage,
    sheet: &mut Sheet,
    journal: &Journal,
    lease: &str,
) -> Result<(), Broke> {
    let moments = stage.moments(lease).await?;
    let fences: Vec<(i64, i64)> =
        moments.iter().filter_map(|moment| moment.epoch.zip(moment.fence)).collect();
    let rising = fences.windows(2).all(|pair| pair[0] <= pair[1]);
    let seen =
        format!("{} entries, rising {rising}, unbroken {}", fences.len(), journal.is_unbroken());
    sheet.holds(
        "V6",
        "rising true, unbroken true",
        seen,
        rising && journal.is_unbroken() && !fences.is_empty(),
    );
    let (grants, overlaps) = overlaps(&moments);
    sheet.equal("V7", "2 grants, 0 overlaps", format!("{grants} grants, {overlaps} overlaps"));
    let lease = stage.lease(lease).await?;
    let released = moments.iter().filter(|m| m.what == "released" && m.who() == "owner-B").count();
    let seen = format!("live {}, fence {}, releases {released}", lease.live, lease.fence);
    sheet.equal("V8", "live false, fence 2, releases 1", seen);
    Ok(())
}
