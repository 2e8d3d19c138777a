//! What was asked for, what came of it, and what was found at the end: all that a campaign is judged by.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::drill::Moment;

/// What a client knows of what it asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It asks now.
    Invoke,
    /// It was done.
    Ok,
    /// It was certainly not done.
    Fail,
    /// It was done, or not, or will be.
    Unknown,
}

/// One line of a client.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Op {
    /// Microseconds since 1970 UTC, by the clock of the drill.
    pub at_us: i64,
    /// Which of its questions.
    pub op: u64,
    pub outcome: Outcome,
    pub process: String,
    /// `admit`, `admit again`, `replay`.
    pub call: &'static str,
    /// Of what was admitted.
    pub keys: Vec<String>,
    pub detail: Option<String>,
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub ops: Vec<Op>,
    /// By the database, in the order of its locks; and by the drill.
    pub moments: Vec<Moment>,
    pub end: End,
}

/// What was found when all had come to rest.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// The hash that every result must have.
    pub golden: String,
    pub runs: Vec<RunEnd>,
    pub streams: Vec<StreamEnd>,
    pub endings: Vec<Ending>,
    pub files: FilesEnd,
    pub secrets: SecretsEnd,
    pub rest: Rest,
}

/// A run, as readers find it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct RunEnd {
    pub run_id: String,
    pub key: String,
    pub state: String,
    /// Owners that died with it.
    pub attempts: i32,
    pub error: Option<String>,
    /// The values of each publication of it.
    pub published: Vec<String>,
}

/// A stream and its topic.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct StreamEnd {
    pub lease: String,
    /// Where the log of each partition ends.
    pub ends: Vec<(i32, i64)>,
    /// From the first commit to the last.
    pub commits: Vec<CommitEnd>,
    /// How often each place was decided, and under which fence first.
    #[serde(skip)]
    pub fates: BTreeMap<(i32, i64), u64>,
    pub decided: u64,
    /// Of those, by whoever took over from an owner that gave nothing away.
    pub recovered: u64,
    pub values_hash: String,
    pub verdict: String,
    pub ledger_ok: bool,
}

/// A commit of a journal, from its blob.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct CommitEnd {
    pub epoch: i64,
    pub fence: i64,
    pub seq: i64,
    pub next_offsets: BTreeMap<i32, i64>,
}

/// How a process ended.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Ending {
    pub at_us: i64,
    pub process: String,
    /// `exit 0`, `exit 1 STREAM_FENCE_OBSOLETO`, `signal 9`.
    pub ending: String,
    /// The drill killed it.
    pub killed: bool,
    /// When the drill told it to end.
    pub told_us: Option<i64>,
    /// The first line of a panic, or what an internal error said.
    pub panic: Option<String>,
}

/// The artifact store, file by file.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct FilesEnd {
    pub looked: u64,
    /// What does not have the hash of its name, or cannot be read.
    pub damaged: Vec<String>,
}

/// Where secrets were looked for, and found.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct SecretsEnd {
    pub looked: u64,
    pub found: Vec<String>,
}

/// The phase without faults.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Rest {
    pub bound_ms: u64,
    /// `None`: it did not come.
    pub took_ms: Option<u64>,
    /// What was still open when time was up.
    pub open: Vec<String>,
}

/// What clients know of the keys that they admitted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Keys<'a> {
    pub attempted: BTreeSet<&'a str>,
    pub acked: BTreeSet<&'a str>,
    /// Attempted, and never certainly done.
    pub unknown: BTreeSet<&'a str>,
}

impl History {
    /// Sorts the keys by what is known of them.
    #[must_use]
    pub fn keys(&self) -> Keys<'_> {
        let mut keys = Keys::default();
        for op in self.ops.iter().filter(|op| op.call.starts_with("admit")) {
            let named = op.keys.iter().map(String::as_str);
            match op.outcome {
                Outcome::Invoke => keys.attempted.extend(named),
                Outcome::Ok => keys.acked.extend(named),
                Outcome::Unknown => keys.unknown.extend(named),
                Outcome::Fail => {}
            }
        }
        let acked = keys.acked.clone();
        keys.unknown.retain(|key| !acked.contains(key));
        keys
    }

    /// The history as it is kept: a JSON line for each, those of clients and of the database by their time, then the end.
    #[must_use]
    pub fn lines(&self) -> Vec<u8> {
        let mut timed: Vec<(i64, i64, Line<'_>)> = Vec::new();
        for (no, op) in (0..).zip(&self.ops) {
            timed.push((op.at_us, no, Line::Op(op)));
        }
        for moment in &self.moments {
            timed.push((moment.at_us, moment.no, Line::Moment(moment)));
        }
        timed.sort_by_key(|(at, no, _)| (*at, *no));
        let end = &self.end;
        let mut lines: Vec<Line<'_>> = timed.into_iter().map(|(.., line)| line).collect();
        lines.extend(end.endings.iter().map(Line::Ending));
        lines.extend(end.runs.iter().map(Line::Run));
        lines.extend(end.streams.iter().map(Line::Stream));
        lines.push(Line::Files(&end.files));
        lines.push(Line::Secrets(&end.secrets));
        lines.push(Line::Rest(&end.rest));
        let mut out = Vec::new();
        for line in lines {
            out.extend(serde_json::to_vec(&line).expect("a line is JSON"));
            out.push(b'\n');
        }
        out
    }
}

/// A line of the file.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line<'a> {
    Op(&'a Op),
    Moment(&'a Moment),
    Ending(&'a Ending),
    Run(&'a RunEnd),
    Stream(&'a StreamEnd),
    Files(&'a FilesEnd),
    Secrets(&'a SecretsEnd),
    Rest(&'a Rest),
}
