//! Where a log goes on behind an offset that gives nothing. A broker answers a fetch with the first batch that
//! ends at or behind the offset, so whether there is one is found by doubling and halving the distance.

/// A search between an offset that gives nothing and the end.
#[derive(Debug)]
pub(super) struct Search {
    /// Gives nothing, and so does all that was tried below.
    low: i64,
    /// Gives something, or is the end.
    high: i64,
    /// Where what it gives begins.
    begins: i64,
    found: bool,
    step: i64,
}

impl Search {
    /// `from` gives nothing, and at `end` the log ends.
    pub(super) fn new(from: i64, end: i64) -> Self {
        let high = end.max(from + 1);
        Self { low: from, high, begins: high, found: false, step: 1 }
    }

    /// The offset to try next; `None` when it is over.
    pub(super) fn next(&self) -> Option<i64> {
        if self.low + 1 >= self.high {
            None
        } else if self.found {
            Some(self.low + (self.high - self.low) / 2)
        } else {
            Some(self.low.saturating_add(self.step).min(self.high - 1))
        }
    }

    /// What an offset gave: the first offset of the batch, if there was one.
    pub(super) fn tried(&mut self, at: i64, base: Option<i64>) {
        match base {
            Some(base) => (self.high, self.begins, self.found) = (at, base, true),
            None => {
                self.low = at;
                self.step = self.step.saturating_mul(2);
            }
        }
    }

    /// Where the log goes on.
    pub(super) fn result(&self) -> i64 {
        self.begins.max(self.high)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_that_could_be_read_is_stepped_over(
            from in 0..1_000_000_i64,
            mute in 1..100_000_i64,
            hole in 0..1_000_i64,
            left in 0..1_000_000_i64,
            batch in 1..5_000_i64,
        ) {
            // Up to `deaf` a fetch gives nothing; the first record behind lies `hole` further.
            let deaf = from + mute;
            let goes_on = deaf + hole;
            let end = goes_on + left;
            let give = |at: i64| {
                let batch_of = |at: i64| goes_on + (at.max(goes_on) - goes_on) / batch * batch;
                (at >= deaf && batch_of(at) < end).then(|| batch_of(at))
            };
            let mut search = Search::new(from, end);
            let mut tries = 0;
            while let Some(at) = search.next() {
                search.tried(at, give(at));
                tries += 1;
                prop_assert!(tries < 64, "endless");
            }
            prop_assert_eq!(search.result(), goes_on);
        }
    }
}
