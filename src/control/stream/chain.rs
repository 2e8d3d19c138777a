//! The owners of a stream one after the other, as each has said it under its own fence, held against each other.

use std::collections::BTreeMap;

use serde::Serialize;

use super::look;
use crate::artifacts::Artifacts;
use crate::control::{Control, Error, journal};
use crate::ids::Hash;
use crate::journal::{Handoff, HandoffPart};
use crate::store::HandoffRow;

/// The handoffs of a run.
#[derive(Clone, Debug, Serialize)]
pub struct HandoffsReport {
    pub run_id: String,
    /// No part contradicts another, or what its row says of it.
    pub chain_ok: bool,
    /// In the order in which they were taken, stream by stream; at the end of each what nobody has taken yet.
    pub handoffs: Vec<HandoffView>,
}

/// One handoff.
#[derive(Clone, Debug, Serialize)]
pub struct HandoffView {
    /// Of the stream and its lease.
    pub name: String,
    /// `BEGUN`: there was nobody before. `HISTORY`: from a snapshot. `DRAINED`: the giver left in order. `UNDRAINED`: it
    /// died or was fenced, and the taker went on from its last commit, or from where that one had begun.
    pub how: &'static str,
    /// What was captured before a snapshot was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captured: Option<PartView>,
    /// Absent where nobody gave.
    pub giver: Option<PartView>,
    /// Absent where nobody has taken it yet.
    pub taker: Option<PartView>,
    /// Giver and taker have each said the same commit and the same next offsets.
    pub signed_by_both: bool,
    /// What contradicts what.
    pub faults: Vec<String>,
}

/// What one of them said.
#[derive(Clone, Debug, Serialize)]
pub struct PartView {
    /// The blob that holds it.
    pub manifest: Hash,
    /// RFC 3339, UTC, by the database.
    pub signed_at: String,
    #[serde(flatten)]
    pub said: Handoff,
}

/// A part as its row and its blob have it.
struct Part<'a> {
    row: &'a HandoffRow,
    said: Handoff,
}

/// Reads the handoffs of a run, and holds them against each other.
///
/// # Errors
/// A part that is missing or damaged in the artifact store.
pub async fn handoffs(control: &Control, run_id: Option<&str>) -> Result<HandoffsReport, Error> {
    let views = look::find(control, run_id).await?;
    let run_id = views[0].row.identity.run_id.clone();
    let rows = control.ready_store().await?.handoffs_of(&run_id).await?;
    let mut streams: BTreeMap<&str, Vec<Part<'_>>> = BTreeMap::new();
    let artifacts = control.artifacts()?;
    for row in &rows {
        streams.entry(&row.name).or_default().push(Part::read(artifacts, row)?);
    }
    let handoffs: Vec<HandoffView> = streams.into_values().flat_map(|of| chain(&of)).collect();
    let chain_ok = handoffs.iter().all(|handoff| handoff.faults.is_empty());
    Ok(HandoffsReport { run_id, chain_ok, handoffs })
}

impl<'a> Part<'a> {
    fn read(artifacts: &Artifacts, row: &'a HandoffRow) -> Result<Self, Error> {
        Ok(Self { row, said: journal::handoff(artifacts, &row.manifest)? })
    }

    fn fence(&self) -> (i64, i64) {
        (self.said.epoch, self.said.fence)
    }

    fn view(&self) -> PartView {
        PartView {
            manifest: self.row.manifest,
            signed_at: self.row.signed_at.clone(),
            said: self.said.clone(),
        }
    }

    /// What the row says otherwise than the blob.
    fn faults(&self) -> Vec<String> {
        let (row, said) = (self.row, &self.said);
        let seq = said.commit.as_ref().map_or(0, |commit| commit.seq);
        let mut faults = Vec::new();
        for (what, is_so) in [
            ("part", row.part == said.part.word()),
            ("stream", row.name == said.identity.lease_name()),
            ("owner", row.owner.token() == said.owner),
            ("fence", (row.epoch, row.fence) == self.fence()),
            ("commit", row.seq == seq),
        ] {
            if !is_so {
                faults.push(format!("{} is of another {what} than its row says", row.manifest));
            }
        }
        faults
    }
}

/// The handoffs of one stream, from its parts in the order written.
fn chain(parts: &[Part<'_>]) -> Vec<HandoffView> {
    let of = |part: HandoffPart| parts.iter().filter(move |is| is.said.part == part);
    let captured = of(HandoffPart::Captured).next();
    let mut handoffs = Vec::new();
    let mut before: Option<&Part<'_>> = None;
    for taker in of(HandoffPart::Taken) {
        let named = taker.said.given;
        let giver = of(HandoffPart::Given).find(|giver| Some(giver.row.manifest) == named);
        // Taken by one who died before it committed anything: that one gave nothing.
        let taken: Option<&HandoffView> = handoffs.last();
        let is_same = |view: &HandoffView| {
            view.taker.as_ref().is_some_and(|took| took.said.commit == taker.said.commit)
        };
        let mut view = if taken.is_some_and(is_same) {
            HandoffView { how: "UNDRAINED", ..pair(None, None, Some(taker)) }
        } else {
            pair(captured, giver, Some(taker))
        };
        if let (Some(named), None) = (named, giver) {
            view.faults.push(format!("the taker names {named}, which no giver has written down"));
        }
        if before.is_some_and(|before| before.fence() >= taker.fence()) {
            view.faults.push("the fence did not rise from one taker to the next".to_owned());
        }
        before = Some(taker);
        handoffs.push(view);
    }
    let is_taken = |giver: &&Part<'_>| {
        of(HandoffPart::Taken).any(|taker| taker.said.given == Some(giver.row.manifest))
    };
    let last = of(HandoffPart::Given).next_back().filter(|giver| !is_taken(giver));
    let is_later = |giver: &&Part<'_>| before.is_none_or(|taker| taker.fence() <= giver.fence());
    if let Some(giver) = last.filter(is_later) {
        handoffs.push(pair(captured, Some(giver), None));
    } else if handoffs.is_empty() && captured.is_some() {
        handoffs.push(pair(captured, None, None));
    }
    handoffs
}

fn pair(
    captured: Option<&Part<'_>>,
    giver: Option<&Part<'_>>,
    taker: Option<&Part<'_>>,
) -> HandoffView {
    let is_history = match giver {
        Some(giver) => giver.said.history.is_some(),
        None => taker.is_none(),
    };
    let captured = captured.filter(|_| is_history);
    let how = match (giver, taker) {
        _ if is_history => "HISTORY",
        (Some(_), _) => "DRAINED",
        (None, Some(taker)) if taker.said.commit.is_none() => "BEGUN",
        (None, _) => "UNDRAINED",
    };
    let mut faults: Vec<String> =
        [captured, giver, taker].into_iter().flatten().flat_map(Part::faults).collect();
    if let (Some(giver), Some(captured)) = (giver, captured) {
        let named = giver.said.history.as_ref().and_then(|history| history.captured);
        if named != Some(captured.row.manifest) {
            faults.push("the giver names other captured ends".to_owned());
        }
    }
    if let (Some(giver), Some(taker)) = (giver, taker) {
        faults.extend(contradictions(giver, taker));
    }
    HandoffView {
        name: giver.or(taker).or(captured).map_or(String::new(), |part| part.row.name.clone()),
        how,
        captured: captured.map(Part::view),
        giver: giver.map(Part::view),
        taker: taker.map(Part::view),
        signed_by_both: giver.is_some() && taker.is_some() && faults.is_empty(),
        faults,
    }
}

/// In what giver and taker of one handoff differ.
fn contradictions(giver: &Part<'_>, taker: &Part<'_>) -> Vec<String> {
    let (gave, took) = (&giver.said, &taker.said);
    let mut faults = Vec::new();
    if gave.identity != took.identity {
        faults.push("giver and taker speak of two streams".to_owned());
    }
    if gave.commit != took.commit {
        faults.push("the taker goes on from another commit than was given".to_owned());
    }
    if giver.fence() >= taker.fence() {
        faults.push("the taker's fence is not above the giver's".to_owned());
    }
    if gave.watermark != took.watermark {
        faults.push("the taker has another watermark than was given".to_owned());
    }
    for given in &gave.partitions {
        let taken = took.partitions.iter().find(|taken| taken.partition == given.partition);
        if taken.and_then(|taken| taken.next_offset) != given.next_offset {
            let partition = given.partition;
            faults.push(format!("partition {partition} was opened at another offset than given"));
        }
    }
    faults
}
