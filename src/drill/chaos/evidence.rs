//! The evidence of a campaign: one document whose fields come in one order.

use serde::Serialize;

use super::history::{History, Outcome};
use super::{FaultKind, Plan, Situation, judge, name_of, numbers};
use crate::drill::{Check, Environment, Moment, QueueNumbers, Verdict, Versions};

/// A campaign as long as this must have dealt every kind of fault, and come to every situation.
const LONG_MS: u64 = 300_000;

/// What became of a fault.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Dealt {
    pub kind: FaultKind,
    /// Microseconds since 1970 UTC.
    pub from_us: i64,
    pub to_us: i64,
    /// Whom it met; absent: nobody.
    pub whom: Option<String>,
    /// What was done in its place.
    pub instead: Option<&'static str>,
    /// Why it could not be dealt.
    pub why: Option<String>,
}

/// How often a kind was dealt.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct KindCount {
    pub kind: FaultKind,
    pub dealt: u64,
    /// By another that looks the same from where the processes are.
    pub instead: u64,
}

/// How often a situation came.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct SituationCount {
    pub situation: Situation,
    pub seen: u64,
}

/// How much there was to do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Done {
    pub processes: u64,
    pub admissions: u64,
    pub replays: u64,
    /// What clients do not know the end of.
    pub unknown: u64,
    pub runs: u64,
    /// Given up after three owners had died with them.
    pub poisoned: u64,
    pub records: u64,
    pub commits: u64,
    pub refusals: u64,
}

/// Everything that a campaign leaves behind.
#[derive(Clone, Debug, Serialize)]
pub struct Campaign {
    pub kind: &'static str,
    pub version: u32,
    /// `chaos`.
    pub drill: &'static str,
    pub verdict: Verdict,
    pub passed: usize,
    pub failed: usize,
    pub not_run: usize,
    pub seed: u64,
    /// Of this run alone; in the names of its database and its topics.
    pub nonce: String,
    /// RFC 3339, UTC, by the database.
    pub started_at: String,
    pub ended_at: String,
    pub seconds: f64,
    pub ttl_sec: f64,
    /// Of the phase with faults.
    pub duration_sec: f64,
    /// From the end of the faults until all had come to its end; absent: it did not.
    pub recovery_sec: Option<f64>,
    pub versions: Versions,
    pub environment: Environment,
    /// What was not as it should be, and why.
    pub lacks: Vec<String>,
    pub ledger: QueueNumbers,
    pub done: Done,
    pub checks: Vec<Check>,
    pub kinds: Vec<KindCount>,
    pub situations: Vec<SituationCount>,
    /// Kinds and situations that did not come.
    pub missing: Vec<String>,
    pub plan: Plan,
    pub faults: Vec<Dealt>,
    /// The leases of the streams.
    pub timeline: Vec<Moment>,
    /// The whole history, a JSON line each; its SHA-256 and how many there are.
    pub history: String,
    pub history_hash: String,
    pub history_lines: usize,
}

/// What a campaign shows: checks, counts, and what is missing.
#[derive(Clone, Debug)]
pub struct Shown {
    pub verdict: Verdict,
    pub checks: Vec<Check>,
    pub ledger: QueueNumbers,
    pub done: Done,
    pub kinds: Vec<KindCount>,
    pub situations: Vec<SituationCount>,
    pub missing: Vec<String>,
}

/// Judges a campaign. One that is long enough and lacks a kind or a situation is incomplete.
#[must_use]
pub fn show(plan: &Plan, history: &History, faults: &[Dealt]) -> Shown {
    let mut checks = judge(history);
    let least = checks.len();
    let kinds = FaultKind::ALL.map(|kind| count(kind, faults)).to_vec();
    let situations = Situation::ALL
        .map(|situation| SituationCount { situation, seen: seen(situation, history) })
        .to_vec();
    let no_kind = kinds.iter().filter(|count| count.dealt == 0).map(|count| name_of(&count.kind));
    let no_kind: Vec<String> = no_kind.collect();
    let no_situation = situations.iter().filter(|count| count.seen == 0);
    let no_situation: Vec<String> = no_situation.map(|count| name_of(&count.situation)).collect();
    if plan.duration_ms >= LONG_MS {
        checks.push(came("C1", "every kind of fault was dealt", FaultKind::ALL.len(), &no_kind));
        let what = "every situation that a campaign is for came to pass";
        checks.push(came("C2", what, Situation::ALL.len(), &no_situation));
    }
    Shown {
        verdict: Verdict::of(&checks, least),
        checks,
        ledger: numbers(history),
        done: done(history),
        kinds,
        situations,
        missing: [no_kind, no_situation].concat(),
    }
}

impl Shown {
    /// Of a campaign that did not come to its end nothing can be said.
    pub fn broke_off(&mut self, why: &str) {
        for check in &mut self.checks {
            (check.pass, check.ran) = (false, false);
            why.clone_into(&mut check.seen);
        }
        self.verdict = Verdict::Incomplete;
    }
}

/// Whether all came to pass; what did not come leaves the campaign without it.
fn came(id: &'static str, what: &'static str, all: usize, missing: &[String]) -> Check {
    Check {
        id,
        pass: missing.is_empty(),
        ran: missing.is_empty(),
        scenario: "chaos",
        what,
        expected: format!("{all} of {all}"),
        seen: if missing.is_empty() {
            format!("{all} of {all}")
        } else {
            format!("not {}", missing.join(", "))
        },
    }
}

fn count(kind: FaultKind, faults: &[Dealt]) -> KindCount {
    let met = || faults.iter().filter(|dealt| dealt.kind == kind && dealt.whom.is_some());
    let instead = met().filter(|dealt| dealt.instead.is_some()).count() as u64;
    KindCount { kind, dealt: met().count() as u64, instead }
}

fn seen(situation: Situation, history: &History) -> u64 {
    let moments = |what: &'static str| history.moments.iter().filter(move |m| m.what == what);
    let count = match situation {
        Situation::Handoff => {
            let is_taken = |m: &&Moment| {
                m.lease.as_deref().is_some_and(|lease| lease.starts_with("stream/"))
                    && m.fence > Some(1)
            };
            moments("granted").filter(is_taken).count()
        }
        Situation::StaleRefusal => moments("refused").count(),
        Situation::UnknownCommit => moments("answer lost").count(),
        Situation::OrphanSwept => moments("orphan").count(),
        Situation::BlockedRecovery => moments("blocked").count(),
    };
    count as u64
}

fn done(history: &History) -> Done {
    let of = |call: &'static str| {
        history
            .ops
            .iter()
            .filter(move |op| op.outcome == Outcome::Invoke && op.call.starts_with(call))
    };
    let unknown = history.ops.iter().filter(|op| op.outcome == Outcome::Unknown).count();
    let failed = history.end.runs.iter().filter(|run| run.state == "FAILED").count();
    let refused = history.moments.iter().filter(|moment| moment.what == "refused").count();
    let streams = &history.end.streams;
    Done {
        processes: history.end.endings.len() as u64,
        admissions: of("admit").count() as u64,
        replays: of("replay").count() as u64,
        unknown: unknown as u64,
        runs: history.end.runs.len() as u64,
        poisoned: failed as u64,
        records: streams.iter().map(|stream| stream.decided).sum(),
        commits: streams.iter().map(|stream| stream.commits.len() as u64).sum(),
        refusals: refused as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn dealt(kind: FaultKind) -> Dealt {
        Dealt { kind, from_us: 0, to_us: 1, whom: Some("a".into()), instead: None, why: None }
    }

    fn came() -> History {
        let moment = |what: &str| Moment {
            what: what.to_owned(),
            lease: Some("stream/a".to_owned()),
            fence: Some(2),
            ..Moment::default()
        };
        let moments = ["granted", "refused", "answer lost", "orphan", "blocked"].map(moment);
        History { moments: moments.to_vec(), ..History::default() }
    }

    #[test]
    fn a_long_campaign_that_lacks_a_kind_or_a_situation_is_incomplete_and_a_short_one_says_so() {
        let all: Vec<Dealt> = FaultKind::ALL.map(dealt).to_vec();
        let ran = |seconds, history: &History, faults: &[Dealt]| {
            let shown = show(&Plan::draw(1, Duration::from_secs(seconds)), history, faults);
            let checks = shown.checks.into_iter().filter(|check| check.id.starts_with('C'));
            (checks.map(|check| check.ran).collect::<Vec<_>>(), shown.missing)
        };
        assert_eq!(ran(300, &came(), &all), (vec![true, true], Vec::new()));
        let (checks, missing) = ran(300, &came(), &all[1..]);
        assert_eq!((checks, missing), (vec![false, true], vec!["worker-killed".to_owned()]));
        let mut none_blocked = came();
        none_blocked.moments.pop();
        let (checks, missing) = ran(300, &none_blocked, &all);
        assert_eq!((checks, missing), (vec![true, false], vec!["blocked-recovery".to_owned()]));
        let (checks, missing) = ran(299, &none_blocked, &all[1..]);
        assert_eq!((checks.len(), missing.len()), (0, 2));
    }

    #[test]
    fn a_fault_that_met_nobody_was_not_dealt() {
        let mut met = dealt(FaultKind::Retention);
        met.whom = None;
        assert_eq!(count(FaultKind::Retention, &[met]).dealt, 0);
    }
}
