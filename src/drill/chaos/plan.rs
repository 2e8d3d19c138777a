//! What a campaign will do: a function of its seed and its length, and of nothing else.

use std::time::Duration;

use serde::Serialize;

use super::FaultKind;
use crate::drill::Draw;

/// Faults begin when the load has, and end before it does.
const FIRST_MS: u64 = 1_500;
const LAST_MS: u64 = 1_000;
/// One seed in so many is calm: under constant faults much is never reached.
const CALM: u64 = 8;

/// A campaign, whole.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Plan {
    pub seed: u64,
    pub duration_ms: u64,
    /// Few faults, long runs in between.
    pub calm: bool,
    pub load: Load,
    /// Milliseconds from one fault to the next, on average.
    pub gap_ms: u64,
    /// How often each kind comes once all have been dealt.
    pub rates: Vec<Rate>,
    /// In the order of their time.
    pub faults: Vec<Fault>,
}

/// What is asked of the processes meanwhile.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Load {
    pub workers: u64,
    /// Runs in a claim.
    pub batch: u64,
    /// Runs in an admission, and how often one begins.
    pub admit_runs: u64,
    pub admit_every_ms: u64,
    /// How often a replay begins.
    pub replay_every_ms: u64,
}

/// The weight of a kind among all.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Rate {
    pub kind: FaultKind,
    pub weight: u64,
}

/// One fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// From the beginning of the campaign.
    pub at_ms: u64,
    pub kind: FaultKind,
    pub lasts_ms: u64,
    /// Whom it meets, of those that are there then.
    pub draw: u64,
}

impl Plan {
    /// Draws a campaign.
    #[must_use]
    pub fn draw(seed: u64, duration: Duration) -> Self {
        let mut draw = Draw::new(seed ^ 0x6368_616f_7321);
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let calm = draw.between(1, CALM) == 1;
        let load = Load {
            workers: draw.between(2, 3),
            batch: draw.between(5, 40),
            admit_runs: draw.between(5, 25),
            admit_every_ms: draw.between(250, 700),
            replay_every_ms: draw.between(900, 2_500),
        };
        let gap_ms = if calm { draw.between(3_000, 6_000) } else { draw.between(800, 1_600) };
        let rates = FaultKind::ALL.map(|kind| Rate { kind, weight: draw.between(0, 10) }).to_vec();
        let mut deck = FaultKind::ALL.to_vec();
        shuffle(&mut deck, &mut draw);
        let mut faults = Vec::new();
        let mut at_ms = FIRST_MS;
        while at_ms + LAST_MS < duration_ms {
            let kind = deck.pop().unwrap_or_else(|| dealt(&rates, &mut draw));
            let (least, most) = kind.lasts();
            let lasts_ms = draw.between(least, most);
            faults.push(Fault { at_ms, kind, lasts_ms, draw: draw.between(0, u64::MAX - 1) });
            at_ms += draw.between(gap_ms / 2, gap_ms * 3 / 2);
        }
        Self { seed, duration_ms, calm, load, gap_ms, rates, faults }
    }

    /// The length of the phase with faults.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.duration_ms)
    }
}

impl Fault {
    /// A number below `n`, the same each time; `salt` gives another one.
    #[must_use]
    pub fn pick(&self, n: usize, salt: u64) -> usize {
        let most = u64::try_from(n).unwrap_or(0).saturating_sub(1);
        let drawn = Draw::new(self.draw ^ salt).between(0, most);
        usize::try_from(drawn).unwrap_or(0)
    }
}

/// Fisher and Yates.
fn shuffle(deck: &mut [FaultKind], draw: &mut Draw) {
    for last in (1..deck.len()).rev() {
        let other = draw.between(0, last as u64);
        deck.swap(last, usize::try_from(other).unwrap_or(0));
    }
}

/// A kind by its weight.
fn dealt(rates: &[Rate], draw: &mut Draw) -> FaultKind {
    let all: u64 = rates.iter().map(|rate| rate.weight).sum();
    let mut left = draw.between(1, all.max(1));
    for rate in rates {
        if left <= rate.weight {
            return rate.kind;
        }
        left -= rate.weight;
    }
    FaultKind::WorkerKilled
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn plan(seed: u64, seconds: u64) -> Plan {
        Plan::draw(seed, Duration::from_secs(seconds))
    }

    #[test]
    fn every_kind_is_dealt_once_before_any_comes_again_when_there_is_time() {
        for seed in 0..200 {
            let plan = plan(seed, 300);
            let first: BTreeSet<FaultKind> =
                plan.faults.iter().take(FaultKind::ALL.len()).map(|fault| fault.kind).collect();
            assert_eq!(first.len(), FaultKind::ALL.len(), "seed {seed}");
        }
    }

    #[test]
    fn another_seed_is_another_plan_and_some_are_calm() {
        assert_ne!(plan(1, 60), plan(2, 60));
        let calm = (0..200).filter(|seed| plan(*seed, 60).calm).count();
        assert!((5..60).contains(&calm), "{calm} of 200");
    }

    #[test]
    fn what_has_no_weight_is_not_dealt_by_it() {
        let rates = FaultKind::ALL.map(|kind| Rate { kind, weight: 0 });
        let mut rates = rates.to_vec();
        rates[5].weight = 3;
        let mut draw = Draw::new(9);
        assert!((0..50).all(|_| dealt(&rates, &mut draw) == rates[5].kind));
    }

    proptest! {
        #[test]
        fn a_plan_is_a_function_of_seed_and_length(seed: u64, seconds in 5_u64..4_000) {
            let first = plan(seed, seconds);
            prop_assert_eq!(&first, &plan(seed, seconds));
            prop_assert!(first.faults.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms));
            let inside = |fault: &Fault| (FIRST_MS..first.duration_ms).contains(&fault.at_ms);
            prop_assert!(first.faults.iter().all(inside));
            // A longer one begins as the shorter one does.
            let longer = plan(seed, seconds + 60);
            prop_assert_eq!(&longer.faults[..first.faults.len()], &first.faults[..]);
        }

        #[test]
        fn whom_a_fault_meets_is_one_of_those_that_are_there(draw: u64, n in 1_usize..9, salt: u64) {
            let fault = Fault { at_ms: 0, kind: FaultKind::Retention, lasts_ms: 0, draw };
            prop_assert!(fault.pick(n, salt) < n);
            prop_assert_eq!(fault.pick(n, salt), fault.pick(n, salt));
        }
    }
}
