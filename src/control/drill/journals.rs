//! Journals that are another's, damaged, or older than what was handed out.

use std::fs;
use std::path::PathBuf;

use super::crew::Run;
use super::fixture::ARRIVALS;
use super::look::{Journal, Standing};
use super::owners::{Owner, check};
use super::stage::{SOON, Stage};
use super::wait::{unable, until};
use crate::drill::{Broke, Planned, Sheet};
use crate::ids::Hash;

pub(super) const CHECKS: &[Planned] = &[
    check("J1", "a journal is not gone on with by another group"),
    check("J2", "nor by another flow"),
    check("J3", "nor over another topic"),
    check("J4", "a journal with one bit turned is refused and never loaded"),
    check("J5", "so is one that is cut short"),
    check("J6", "the store says which file is damaged"),
    check("J7", "none of that has moved the journal; put right, it goes on to the golden"),
    check("J8", "a topic that was deleted and made anew under the same name is another one"),
];

pub(super) const RESTORED: &[Planned] = &[
    check(
        "R1",
        "after an older backup of PostgreSQL was put back no owner is let in: the fence would go back",
    ),
    check("R2", "and nothing is written"),
    check(
        "R3",
        "a new epoch, begun by a person with a reason, lets the stream go on to the golden",
    ),
    check(
        "R4",
        "an owner whose lease is deleted under it is refused, and its journal does not move",
    ),
    check("R5", "the next owner is not given a fence that was handed out before"),
];

/// The artifact store of what is damaged.
const APART: &str = "artifacts.apart";

/// Runs an owner up to so many records of the run.
async fn up_to(stage: &Stage, owner: Owner<'_>, n: u64) -> Result<Run, Broke> {
    Owner { once_n: Some(n), ..owner }.start(stage).await?.end(SOON).await
}

/// The same in an artifact store of its own, where damage is nobody else's.
async fn apart(stage: &Stage, owner: Owner<'_>, n: u64) -> Result<Run, Broke> {
    let artifacts = stage.text(APART);
    let more = [("FINAZ_ARTIFACTS", artifacts.as_str())];
    Owner { once_n: Some(n), ..owner }.start_with(stage, &more).await?.end(SOON).await
}

/// J1 to J8.
pub(super) async fn damaged(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let (topic, other) = (stage.topic("journal"), stage.topic("other"));
    stage.replay(&topic, 1).await?;
    stage.replay(&other, 1).await?;
    let flow = stage.files.flow.clone();
    let owner = Owner {
        name: "keeper",
        topic: &topic,
        run: "journal",
        flow: &flow,
        emit: None,
        once_n: None,
    };
    apart(stage, owner, 10).await?.done("the first part")?;
    let before = stage.standing(&owner.lease()).await?;
    foreign(stage, sheet, owner, &other).await?;
    let head = before.head.ok_or_else(|| Broke::Failed("the journal has no head".to_owned()))?;
    bits(stage, sheet, owner, &head).await?;
    let after = stage.standing(&owner.lease()).await?;
    let ended = apart(stage, owner, ARRIVALS).await?;
    let verdict = ended.json["verdict"].as_str().unwrap_or_default();
    sheet.equal(
        "J7",
        format!("{}; exit 0, {ARRIVALS} records, EQUAL_TO_BATCH_GOLDEN", before.pointer()),
        format!(
            "{}; {}, {} records, {verdict}",
            after.pointer(),
            ended.ending(),
            ended.json["read"]
        ),
    );
    anew(stage, sheet).await
}

/// J1 to J3.
async fn foreign(
    stage: &Stage,
    sheet: &mut Sheet,
    owner: Owner<'_>,
    other: &str,
) -> Result<(), Broke> {
    let edited = stage.text("edited.yaml");
    let text =
        fs::read_to_string(&stage.files.flow).unwrap_or_default().replace("period: 3", "period: 4");
    fs::write(&edited, text).map_err(|error| unable(&edited, &error))?;
    let artifacts = stage.text(APART);
    let more = [("FINAZ_ARTIFACTS", artifacts.as_str())];
    let mut words = owner.args();
    words.extend(["--once-n".to_owned(), ARRIVALS.to_string()]);
    for (id, flag, value) in
        [("J1", "--group", "another"), ("J2", "--flow", &edited), ("J3", "--topic", other)]
    {
        let mut words = words.clone();
        let at = words.iter().position(|word| word == flag).unwrap_or(0);
        words[at + 1] = value.to_owned();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let run = stage.crew.start("foreign", &words, &more)?.end(SOON).await?;
        let field = run.json["error"]["field"].as_str().unwrap_or_default();
        // Of two topics name and id differ, and either may be named.
        let is_so = flag.trim_start_matches("--") == field.trim_end_matches("_id");
        sheet.holds(
            id,
            format!("exit 1 JOURNAL_FOREIGN, by its {}", flag.trim_start_matches("--")),
            format!("{}, by its {field}", run.ending()),
            is_so && run.ending() == "exit 1 JOURNAL_FOREIGN",
        );
    }
    Ok(())
}

/// The file of a blob.
fn file(stage: &Stage, hash: &Hash) -> PathBuf {
    let hex = hash.hex();
    stage.path(APART).join("cas/sha256").join(&hex[..2]).join(&hex[2..])
}

/// J4 to J6.
async fn bits(
    stage: &Stage,
    sheet: &mut Sheet,
    owner: Owner<'_>,
    head: &Hash,
) -> Result<(), Broke> {
    let blob = file(stage, head);
    let whole = fs::read(&blob).map_err(|error| unable(&blob.display(), &error))?;
    let write = |bytes: &[u8]| {
        // Not into the file that is there: what is read-only is replaced all the same.
        fs::remove_file(&blob)
            .and_then(|()| fs::write(&blob, bytes))
            .map_err(|error| unable(&blob.display(), &error))
    };
    let mut draw = stage.draw(3);
    let last = whole.len() as u64 - 1;
    let at = |n: u64| usize::try_from(n).unwrap_or(0);
    let (place, bit) = (at(draw.between(0, last)), draw.between(0, 7));
    let mut turned = whole.clone();
    turned[place] ^= 1 << bit;
    let cut = &whole[..at(draw.between(0, last))];
    let mut verified = String::new();
    let artifacts = stage.text(APART);
    let more = [("FINAZ_ARTIFACTS", artifacts.as_str())];
    for (id, bytes, how) in [
        ("J4", &turned[..], format!("bit {bit} of byte {place} of {}", whole.len())),
        ("J5", cut, format!("{} of {} bytes", cut.len(), whole.len())),
    ] {
        write(bytes)?;
        let run = apart(stage, owner, ARRIVALS).await?;
        let found = stage.crew.start("verify", &["cas", "verify"], &more)?.end(SOON).await?;
        verified = format!("{}, {} damaged", found.exit.unwrap_or(-1), found.json["damages"]);
        let is_so = run.exit == Some(1) && !run.code().is_empty() && run.code() != "INTERNAL";
        sheet.holds(id, "exit 1 and what is damaged", format!("{} for {how}", run.ending()), is_so);
    }
    write(&whole)?;
    sheet.equal("J6", "1, 1 damaged", verified);
    Ok(())
}

/// J8.
async fn anew(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let topic = stage.topic("anew");
    stage.replay(&topic, 1).await?;
    let flow = stage.files.flow.clone();
    let owner =
        Owner { name: "keeper", topic: &topic, run: "anew", flow: &flow, emit: None, once_n: None };
    up_to(stage, owner, 10).await?.done("the first part")?;
    let before = stage.standing(&owner.lease()).await?;
    stage.broker.delete_topic(&topic).await?;
    until("the topic is gone", SOON, async || {
        Ok(stage.broker.find_topic(&topic).await?.is_none().then_some(()))
    })
    .await?;
    until("the topic is made anew", SOON, async || {
        // The broker may still be busy with deleting it.
        Ok(stage.replay(&topic, 1).await.ok())
    })
    .await?;
    let run = up_to(stage, owner, ARRIVALS).await?;
    let field = run.json["error"]["field"].as_str().unwrap_or_default();
    let after = stage.standing(&owner.lease()).await?;
    sheet.equal(
        "J8",
        format!("exit 1 JOURNAL_FOREIGN, by its topic_id; {}", before.pointer()),
        format!("{}, by its {field}; {}", run.ending(), after.pointer()),
    );
    Ok(())
}

/// R1 to R5.
pub(super) async fn restored(stage: &Stage, sheet: &mut Sheet) -> Result<(), Broke> {
    let topic = stage.topic("restored");
    stage.replay(&topic, 1).await?;
    let flow = stage.files.flow.clone();
    let owner = Owner {
        name: "keeper",
        topic: &topic,
        run: "restored",
        flow: &flow,
        emit: None,
        once_n: None,
    };
    let lease = owner.lease();
    up_to(stage, owner, 5).await?.done("the part before the backup")?;
    stage.store.keep_rows().await?;
    for n in [10, 15] {
        up_to(stage, owner, n).await?.done("a part after the backup")?;
    }
    let newest = stage.lease(&lease).await?;
    stage.store.put_rows_back(&lease).await?;
    let before = stage.standing(&lease).await?;
    let run = up_to(stage, owner, ARRIVALS).await?;
    let known = &run.json["error"]["known_fence"];
    sheet.equal(
        "R1",
        format!("exit 1 FENCE_REGRESSION, known fence {}", newest.fence),
        format!("{}, known fence {known}", run.ending()),
    );
    let after = stage.standing(&lease).await?;
    let row = stage.lease(&lease).await?;
    sheet.equal(
        "R2",
        format!("{}, lease fence 1, live false", before.pointer()),
        format!("{}, lease fence {}, live {}", after.pointer(), row.fence, row.live),
    );
    let begin =
        ["lease", "new-epoch", &lease, "--reason", "an older backup was put back by a drill"];
    let begun = stage.run("new-epoch", &begin).await?.done("a new epoch")?;
    let ended = up_to(stage, owner, ARRIVALS).await?;
    let last = stage.standing(&lease).await?;
    let journal = Journal::read(&stage.artifacts()?, last.head)?;
    let verdict = ended.json["verdict"].as_str().unwrap_or_default();
    let seen = format!(
        "epoch {}, {}, {} decided, {} twice, {verdict}, fence above {} {}",
        begun["epoch"],
        ended.ending(),
        journal.fates.len(),
        journal.twice(),
        newest.fence,
        last.fence > newest.fence
    );
    let expected = format!(
        "epoch 2, exit 0, {ARRIVALS} decided, 0 twice, EQUAL_TO_BATCH_GOLDEN, fence above {} true",
        newest.fence
    );
    sheet.equal("R3", expected, seen);
    deleted(stage, sheet, &topic).await
}

/// R4, R5.
async fn deleted(stage: &Stage, sheet: &mut Sheet, topic: &str) -> Result<(), Broke> {
    let flow = stage.files.flow.clone();
    let owner =
        Owner { name: "bereft", topic, run: "deleted", flow: &flow, emit: None, once_n: None };
    let lease = owner.lease();
    // The second fence: a first one would be given again to whoever did not know.
    up_to(stage, owner, 5).await?.done("the first part")?;
    let mut actor = owner.start(stage).await?;
    let before: Standing = stage.committed(&lease, 2, ARRIVALS).await?;
    stage.store.delete_lease(&lease).await?;
    stage.replay(topic, 1).await?;
    let run = actor.end(SOON).await?;
    let after = stage.standing(&lease).await?;
    sheet.equal(
        "R4",
        format!("exit 1 STREAM_FENCE_OBSOLETO, {}", before.pointer()),
        format!("{}, {}", run.ending(), after.pointer()),
    );
    let run = up_to(stage, owner, ARRIVALS * 2).await?;
    let known = &run.json["error"]["known_fence"];
    sheet.equal(
        "R5",
        "exit 1 FENCE_REGRESSION, known fence 2",
        format!("{}, known fence {known}", run.ending()),
    );
    Ok(())
}
