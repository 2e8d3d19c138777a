//! Owners of streams, and what is said of one that took over from another.

use serde_json::Value;

use super::crew::{Actor, Run};
use super::fixture::{self, COUNTS, HOMES, REPLAYS, TOTAL};
use super::look::{Handover, Standing, counts};
use super::stage::{SOON, Stage};
use crate::drill::{Broke, Moment, Planned, Sheet};
use crate::ids::Hash;

pub(super) const fn check(id: &'static str, what: &'static str) -> Planned {
    Planned { id, what }
}

/// The words that start an owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub(super) name: &'a str,
    pub(super) topic: &'a str,
    pub(super) run: &'a str,
    pub(super) flow: &'a str,
    /// In the drill's folder.
    pub(super) emit: Option<&'a str>,
    pub(super) once_n: Option<u64>,
}

impl Owner<'_> {
    pub(super) fn args(&self) -> Vec<String> {
        let words = ["stream", "--topic", self.topic, "--group", self.run, "--flow", self.flow];
        let more = ["--run-id", self.run, "--owner", self.name, "--commit-every", "0.05"];
        let mut args: Vec<String> =
            words.iter().chain(&more).map(|word| (*word).to_owned()).collect();
        if let Some(emit) = self.emit {
            args.extend(["--emit".to_owned(), emit.to_owned()]);
        }
        if let Some(n) = self.once_n {
            args.extend(["--once-n".to_owned(), n.to_string()]);
        }
        args
    }

    /// Starts it, and takes note of it.
    pub(super) async fn start(&self, stage: &Stage) -> Result<Actor, Broke> {
        self.start_with(stage, &[]).await
    }

    pub(super) async fn start_with(
        &self,
        stage: &Stage,
        more: &[(&str, &str)],
    ) -> Result<Actor, Broke> {
        let args = self.args();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        stage.note("started", &self.lease(), self.name).await?;
        stage.crew.start(self.name, &args, more)
    }

    /// Runs it to its end, and takes note of one that was turned away.
    pub(super) async fn run(&self, stage: &Stage) -> Result<Run, Broke> {
        let run = self.start(stage).await?.end(SOON).await?;
        if run.code() == "STREAM_LEASE_OCUPADO" {
            stage.note("turned away", &self.lease(), self.name).await?;
        }
        Ok(run)
    }

    pub(super) fn lease(&self) -> String {
        format!("stream/{}", self.run)
    }
}

/// A text and what it must be, both of several parts.
fn parts<const N: usize>(parts: [(&str, String); N]) -> String {
    parts.map(|(name, value)| format!("{name} {value}")).join("; ")
}

/// Z14, K6: the first commit of the new owner names the last head of the old one.
pub(super) fn continued(sheet: &mut Sheet, id: &str, handover: Option<Handover>, last: &Standing) {
    let head = |hash: Hash| hash.hex()[..12].to_owned();
    let seen = handover.map_or("no handover".to_owned(), |Handover { last, next }| {
        let previous = next.1.map_or("-".to_owned(), head);
        format!(
            "commit {} of head {}; then commit {} from head {previous}, fence {}",
            last.0,
            head(last.1),
            next.0,
            next.2
        )
    });
    let is_so = handover.is_some_and(|handover| {
        Some(handover.last.1) == last.head
            && handover.last.0 == last.seq
            && handover.next.0 == last.seq + 1
            && handover.next.1 == last.head
            && handover.next.2 > last.fence
    });
    let from = last.head.map_or("-".to_owned(), head);
    let expected =
        format!("commit {} of head {from}; then commit {} from that head", last.seq, last.seq + 1);
    sheet.holds(id, expected, seen, is_so);
}

/// Z15, K8: what an owner that read all of it reports.
pub(super) fn finished(sheet: &mut Sheet, id: &str, run: &Run) {
    let report = &run.json;
    let [first, second] = HOMES.map(|(_, each)| each * i64::try_from(REPLAYS).unwrap_or(0));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let expected = parts([
        ("", "exit 0".to_owned()),
        ("read", format!("{TOTAL}/{TOTAL}")),
        ("treated as", format!("{COUNTS:?}")),
        ("values", fixture::golden().to_owned()),
        ("", "EQUAL_TO_BATCH_GOLDEN".to_owned()),
        ("next", format!(r#"{{"0":{first},"1":0,"2":0,"3":{second}}}"#)),
    ]);
    let seen = parts([
        ("", run.ending()),
        ("read", format!("{}/{TOTAL}", report["read"])),
        ("treated as", format!("{:?}", counts(report))),
        ("values", text(&report["values_hash"])),
        ("", text(&report["verdict"])),
        ("next", report["next_offsets"].to_string()),
    ]);
    sheet.equal(id, expected, seen);
}

/// Grants of a lease, and those that came before the one before had ended.
pub(super) fn overlaps(moments: &[Moment]) -> (usize, usize) {
    let (mut grants, mut overlaps) = (0, 0);
    let mut until = i64::MIN;
    for moment in moments {
        match (moment.what.as_str(), moment.until_us) {
            ("granted", Some(ends)) => {
                grants += 1;
                overlaps += usize::from(moment.at_us < until);
                until = ends;
            }
            ("renewed" | "released", Some(ends)) => until = ends,
            _ => {}
        }
    }
    (grants, overlaps)
}
