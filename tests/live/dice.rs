//! Randomness that can be had again: the seed is printed, and `SEED=…` repeats it.

use std::ops::Range;
use std::time::Duration;

use uuid::Uuid;

/// A seeded source of numbers (splitmix64).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    #[expect(clippy::disallowed_methods, reason = "a test has no config.rs")]
    #[expect(clippy::print_stdout, reason = "the line to repeat a failure with")]
    pub(crate) fn new(test: &str) -> Self {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
        println!("{test}: SEED={seed} repeats this");
        Self(seed)
    }

    /// Another source, drawn from this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn pick(&mut self, range: Range<usize>) -> usize {
        let width = u64::try_from(range.len()).expect("a range that fits");
        range.start + usize::try_from(self.next() % width).expect("below the width")
    }

    /// An instant within this time, to the microsecond.
    pub(crate) fn instant(&mut self, within: Duration) -> Duration {
        let micros = u64::try_from(within.as_micros()).expect("a test does not wait so long");
        Duration::from_micros(self.next() % micros.max(1))
    }
}
