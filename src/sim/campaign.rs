//! Many seeds: what they came to together, and whether they met what they must.

use std::collections::BTreeMap;

use serde::Serialize;

use super::scene::{Outcome, play};
use super::seen::{Seen, Sights};
use crate::drill::Verdict;
use crate::ids::Hash;

/// Seeds below which nobody asks what a campaign has met.
const MET_FROM: u64 = 2_000;
/// Of a campaign, the first seeds that are played twice.
const TWICE: u64 = 50;
/// Failures of which the trace is kept.
const FAILURES_MAX: usize = 5;

/// What is held against every step, with what it says.
const RULES: &[(&str, &str)] = &[
    ("I1", "an effect happens at most once under a fence and a number"),
    ("I2", "fences rise, and a lease has one owner at a time"),
    ("I3", "a journal goes forward: numbers and offsets"),
    ("I4", "a run has one publication, with one content"),
    ("I5", "what was acknowledged is there"),
    ("I6", "what is there was asked for, and is answered as what it is"),
    ("I7", "nothing is there twice"),
    ("I8", "it all comes to what an undisturbed run comes to, to the bit"),
    ("I9", "who was overtaken, or whose time is over, changes nothing"),
    ("I11", "what has its name has its bytes, and what is referred to stays"),
    ("I12", "when the faults stop, all comes to its end"),
];

/// A rule over all seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    pub id: &'static str,
    pub pass: bool,
    pub what: &'static str,
    pub expected: String,
    pub seen: String,
}

/// An interesting state, and how often it was met.
#[derive(Clone, Debug, Serialize)]
pub struct Coverage {
    pub what: &'static str,
    pub times: u64,
}

/// A seed that broke a rule.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub seed: u64,
    pub step: u64,
    pub rule: &'static str,
    pub what: String,
    /// The last of what happened before.
    pub trace: Vec<String>,
}

/// Seeds that were played, added up.
#[derive(Debug, Default)]
pub struct Campaign {
    seeds: u64,
    failed: u64,
    steps: u64,
    micros: u64,
    judged: u64,
    broken: BTreeMap<&'static str, u64>,
    twice: u64,
    differ: u64,
    hashes: Vec<u8>,
    failures: Vec<Failure>,
    sights: Sights,
}

impl Campaign {
    /// Plays a seed and takes in what it came to; the first ones twice, to see that they come to the same.
    pub fn play(&mut self, seed: u64) {
        let outcome = play(seed, None, false);
        if self.seeds < TWICE {
            self.twice += 1;
            self.differ += u64::from(play(seed, None, false).trace_hash != outcome.trace_hash);
        }
        self.add(outcome);
    }

    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.steps += outcome.steps;
        self.micros += outcome.micros;
        self.judged += outcome.judged;
        self.hashes.extend_from_slice(outcome.trace_hash.as_bytes());
        self.sights.add(&outcome.sights);
        let Some((rule, what)) = outcome.violations.first().cloned() else { return };
        self.failed += 1;
        *self.broken.entry(rule).or_default() += 1;
        if self.failures.len() < FAILURES_MAX {
            let Outcome { seed, steps, trace, .. } = outcome;
            self.failures.push(Failure { seed, step: steps, rule, what, trace });
        }
    }

    /// Takes in another campaign, whose seeds come behind these.
    pub fn join(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.failed += other.failed;
        self.steps += other.steps;
        self.micros += other.micros;
        self.judged += other.judged;
        self.twice += other.twice;
        self.differ += other.differ;
        self.hashes.extend(other.hashes);
        self.sights.add(&other.sights);
        for (rule, count) in other.broken {
            *self.broken.entry(rule).or_default() += count;
        }
        self.failures.extend(other.failures);
        self.failures.truncate(FAILURES_MAX);
    }

    #[must_use]
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Virtual hours.
    #[must_use]
    pub fn hours(&self) -> f64 {
        std::time::Duration::from_micros(self.micros).as_secs_f64() / 3_600.0
    }

    /// Steps, and comparisons that were made.
    #[must_use]
    pub fn work(&self) -> (u64, u64) {
        (self.steps, self.judged)
    }

    /// Over the hashes of all traces, in the order of the seeds; that of its trace for one seed.
    #[must_use]
    pub fn trace_hash(&self) -> Hash {
        Hash::from_digest(&self.hashes).unwrap_or_else(|| Hash::of(&self.hashes))
    }

    #[must_use]
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Every rule, and that seeds come to the same twice.
    #[must_use]
    pub fn checks(&self) -> Vec<Checked> {
        let rule = |(id, what): &(&'static str, &'static str)| {
            let broken = self.broken.get(id).copied().unwrap_or_default();
            let seen = format!("broken by {broken} of {} seeds", self.seeds);
            let expected = "broken by none".to_owned();
            Checked { id, pass: broken == 0, what, expected, seen }
        };
        let mut checks: Vec<Checked> = RULES.iter().map(rule).collect();
        checks.push(Checked {
            id: "D1",
            pass: self.differ == 0,
            what: "a seed played twice gives one trace",
            expected: "0 differ".to_owned(),
            seen: format!("{} of {} differ", self.differ, self.twice),
        });
        checks
    }

    /// What was met how often.
    #[must_use]
    pub fn coverage(&self) -> Vec<Coverage> {
        let met = |seen: &Seen| Coverage { what: seen.word(), times: self.sights.count(*seen) };
        Seen::ALL.iter().map(met).collect()
    }

    /// A campaign that is long enough must have met everything.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let met = || Seen::ALL.iter().all(|seen| self.sights.count(*seen) > 0);
        if self.failed > 0 || self.differ > 0 {
            Verdict::Fail
        } else if self.seeds == 0 || self.seeds >= MET_FROM && !met() {
            Verdict::Incomplete
        } else {
            Verdict::Pass
        }
    }
}
