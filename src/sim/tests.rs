//! The simulation itself: it is the same twice, it finds nothing wrong, and it does find what is made wrong.

use super::*;

/// The first seed that breaks a rule with this mistake planted.
fn caught(mistake: Mistake) -> Option<(u64, &'static str, String)> {
    (1..=400).find_map(|seed| {
        let outcome = play(seed, Some(mistake), false);
        outcome.violations.into_iter().next().map(|(rule, what)| (seed, rule, what))
    })
}

#[test]
fn a_seed_is_the_same_twice_and_another_seed_is_another() {
    for seed in 1..=20 {
        let (a, b) = (play(seed, None, true), play(seed, None, true));
        assert_eq!(a.trace, b.trace, "seed {seed}");
        assert_eq!(a.trace_hash, b.trace_hash, "seed {seed}");
        assert_ne!(a.trace_hash, play(seed + 1_000, None, false).trace_hash);
    }
}

#[test]
fn every_planted_mistake_breaks_a_rule() {
    for mistake in [
        Mistake::FenceUnchecked,
        Mistake::ExpiryUnchecked,
        Mistake::SweepOfTheLiving,
        Mistake::NoSweep,
        Mistake::ByLastNumber,
        Mistake::NoFsync,
        Mistake::NoFolderSync,
        Mistake::OwnerByName,
        Mistake::PointerUnchecked,
        Mistake::HighWaterBeforeDrain,
        Mistake::IdentitiesForgotten,
    ] {
        let found = caught(mistake);
        assert!(found.is_some(), "{mistake:?} was caught by no seed");
    }
}

/// What `make test` plays. More, on every processor: `finaz drill sim --seeds`.
const SEEDS: u64 = 2_000;

#[test]
fn two_thousand_seeds_break_no_rule_and_meet_every_state() {
    let campaign = std::thread::scope(|scope| {
        let half = |first: u64| {
            let mut campaign = Campaign::default();
            (first..first + SEEDS / 2).for_each(|seed| campaign.play(seed));
            campaign
        };
        let second = scope.spawn(move || half(SEEDS / 2 + 1));
        let mut first = half(1);
        first.join(second.join().expect("no panic"));
        first
    });
    let failures: Vec<String> = campaign
        .failures()
        .iter()
        .map(|f| format!("seed {}: {} {}\n{}", f.seed, f.rule, f.what, f.trace.join("\n")))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let never = campaign.coverage().into_iter().filter(|met| met.times == 0);
    let never: Vec<&str> = never.map(|met| met.what).collect();
    assert!(never.is_empty(), "never met: {never:?}");
    assert!(campaign.checks().iter().all(|check| check.pass), "{:?}", campaign.checks());
    assert_eq!(campaign.verdict(), crate::drill::Verdict::Pass);
}
