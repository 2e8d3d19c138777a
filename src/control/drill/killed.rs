//! Phase K: an owner that is killed.

use std::time::Duration;

use rustix::process::Signal;

use super::fixture::{ARRIVALS, REPLAYS, TOTAL};
use super::look::{Journal, ends};
use super::owners::{Owner, check, continued, finished, overlaps};
use super::stage::{SOON, Stage};
use crate::drill::{Broke, Planned, QueueNumbers, Sheet};

/// The lease of one that is killed, at least.
const LONG: Duration = Duration::from_secs(4);

pub(super) const CHECKS: &[Planned] = &[
    check("K1", "an owner gets the lease and advances"),
    check("K2", "it is killed (SIGKILL) in the middle of its work"),
    check("K3", "its lease outlives it"),
    check(
        "K4",
        "the next owner respects the fresh lease of the dead one, and takes and emits nothing",
    ),
    check("K5", "it gets the lease once that has run out, under a higher fence"),
    check("K6", "it goes on from the dead one's last commit, to the byte"),
    check("K7", "each record of the topic was decided, and none twice, across the kill"),
    check(
        "K8",
        "all records are read, the values are the golden, the ids are unique, the journal ends at the high-waters",
    ),
];

/// Phase K.
pub(super) async fn play(stage: &Stage, sheet: &mut Sheet) -> Result<QueueNumbers, Broke> {
    let topic = stage.topic("killed");
    let before = stage.draw(2).between(4, 9);
    stage.replay(&topic, before).await?;
    let flow = stage.files.flow.clone();
    let emit = stage.text("c.jsonl");
    let owner = |name, once_n| Owner {
        name,
        topic: &topic,
        run: "killed",
        flow: &flow,
        emit: Some(&emit),
        once_n,
    };
    let b2 = owner("owner-B2", None);
    let lease = b2.lease();
    // Long enough for the next one to come before it ends, on a busy machine too.
    let long = stage.ttl.max(LONG).as_secs_f64().to_string();
    let mut first = b2.start_with(stage, &[("FINAZ_LEASE_TTL_SEC", &long)]).await?;
    let standing = stage.committed(&lease, 1, before * ARRIVALS).await?;
    let seen = format!("{} records, {}", standing.read, standing.pointer());
    let advanced = standing.seq > 0 && standing.fence == 1 && standing.read < TOTAL;
    sheet.holds("K1", format!("{} records under fence 1", before * ARRIVALS), seen, advanced);
    first.signal(Signal::KILL);
    let dead = first.end(SOON).await?;
    stage.note("killed", &lease, b2.name).await?;
    sheet.equal("K2", "signal 9", dead.ending());
    let held = stage.lease(&lease).await?;
    let is_his = held.owner.token().starts_with("owner-B2/");
    sheet.equal(
        "K3",
        "of owner-B2 true, fence 1, live true",
        format!("of owner-B2 {is_his}, fence {}, live {}", held.fence, held.live),
    );

    let c = owner("owner-C", Some(TOTAL));
    let turned = c.run(stage).await?;
    let after = stage.standing(&lease).await?;
    let emitted = stage.emitted("c.jsonl").is_some();
    sheet.equal(
        "K4",
        format!("exit 1 STREAM_LEASE_OCUPADO, emit false, {}", standing.pointer()),
        format!("{}, emit {emitted}, {}", turned.ending(), after.pointer()),
    );
    let run_out = stage.run_out(&lease).await?;
    stage.replay(&topic, REPLAYS - before).await?;
    let ended = c.run(stage).await?;
    stage.note("ended", &lease, c.name).await?;
    let moments = stage.moments(&lease).await?;
    let (grants, overlapping) = overlaps(&moments);
    let taken = stage.lease(&lease).await?;
    let is_so = taken.fence > run_out.fence
        && taken.owner.token().starts_with("owner-C/")
        && (grants, overlapping) == (2, 0);
    let seen = format!(
        "{} under fence {}, before it {}; {grants} grants, {overlapping} overlaps",
        c.name, taken.fence, run_out.fence
    );
    sheet.holds("K5", "owner-C under fence 2, before it 1; 2 grants, 0 overlaps", seen, is_so);
    let last = stage.standing(&lease).await?;
    let journal = Journal::read(&stage.artifacts()?, last.head)?;
    continued(sheet, "K6", journal.handover(1), &standing);
    let seen = format!(
        "{} decided, {} twice, unbroken {}",
        journal.fates.len(),
        journal.twice(),
        journal.is_unbroken()
    );
    sheet.equal("K7", format!("{TOTAL} decided, 0 twice, unbroken true"), seen);
    finished(sheet, "K8", &ended);
    Ok(journal.numbers(&ends(stage, &topic).await?, standing.read))
}
