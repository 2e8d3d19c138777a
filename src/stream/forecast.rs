//! When retention will have deleted what a stream has not read yet. Pure: times and offsets in, a rate and a time out.

use std::collections::VecDeque;

/// Moves of the beginning of a log that are remembered.
const MOVES_MAX: usize = 64;
/// Seconds after which a move says nothing about what is to come.
const MEMORY_SEC: f64 = 3_600.0;
/// Moves without which it is not known how fast the beginning moves: the time before a first one is not known.
const MOVES_MIN: usize = 2;

/// A partition at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    /// Seconds, by any clock that only goes forward.
    pub at_sec: f64,
    /// The first offset that the log still has.
    pub earliest: i64,
    /// The first offset that was not read.
    pub next: i64,
    pub high_water: i64,
}

/// How a partition moves, from its looks.
#[derive(Clone, Debug, Default)]
pub struct Movement {
    /// The first look, then each at which the beginning was another.
    moves: VecDeque<Reach>,
    last: Option<Reach>,
}

impl Movement {
    /// Takes in a look.
    pub fn see(&mut self, reach: Reach) {
        self.last = Some(reach);
        let moved = self.moves.back().is_none_or(|last| last.earliest < reach.earliest);
        if moved {
            self.moves.push_back(reach);
        }
        // One that is too old is the beginning of what is known until a younger one can be it.
        while self.moves.len() > MOVES_MAX
            || self.moves.get(1).is_some_and(|next| next.at_sec < reach.at_sec - MEMORY_SEC)
        {
            self.moves.pop_front();
        }
    }

    /// Offsets a second by which the log loses its beginning; `None` until it has moved twice.
    #[must_use]
    pub fn retention_per_sec(&self) -> Option<f64> {
        let (first, last) = (self.moves.front()?, self.last?);
        if self.moves.len() <= MOVES_MIN {
            return None;
        }
        Some(per_sec(first.earliest, last.earliest, last.at_sec - first.at_sec))
            .filter(|r| *r > 0.0)
    }

    /// Seconds until the log begins behind what was read, if all goes on as it did; `None` when it will not.
    #[must_use]
    pub fn blocked_in_sec(&self) -> Option<f64> {
        let (first, last) = (self.moves.front()?, self.last?);
        let retention = self.retention_per_sec()?;
        let seconds = last.at_sec - first.at_sec;
        let read = per_sec(first.next, last.next, seconds);
        let written = per_sec(first.high_water, last.high_water, seconds);
        let blocked = blocked_in_sec(last.earliest, last.next, retention - read)?;
        if last.next >= last.high_water {
            return None;
        }
        // It has read all there is before that: nothing is deleted that was not written yet.
        let caught_up = offsets(last.high_water - last.next) / (read - written);
        (read <= written || caught_up > blocked).then_some(blocked)
    }
}

/// Seconds until a log that begins at `earliest` and loses so much a second begins behind `next`; `None` for never.
#[must_use]
pub fn blocked_in_sec(earliest: i64, next: i64, per_sec: f64) -> Option<f64> {
    let left = next.saturating_sub(earliest).max(0);
    (per_sec > 0.0).then(|| offsets(left + 1) / per_sec)
}

fn per_sec(from: i64, to: i64, seconds: f64) -> f64 {
    if seconds > 0.0 { offsets(to.saturating_sub(from).max(0)) / seconds } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn offsets(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(looks: &[(f64, i64, i64, i64)]) -> Movement {
        let mut movement = Movement::default();
        for (at_sec, earliest, next, high_water) in looks {
            let (at_sec, earliest) = (*at_sec, *earliest);
            movement.see(Reach { at_sec, earliest, next: *next, high_water: *high_water });
        }
        movement
    }

    #[test]
    fn a_log_that_loses_ten_a_second_reaches_a_stream_that_stands_in_time() {
        let one = [(0.0, 0, 100, 900), (2.0, 20, 100, 900)];
        assert_eq!(seen(&one).blocked_in_sec(), None, "one move says nothing of its speed");
        let two = [&one[..], &[(4.0, 40, 100, 900)]].concat();
        assert_eq!(seen(&two).retention_per_sec(), Some(10.0));
        assert_eq!(seen(&two).blocked_in_sec(), Some(6.1));
        // It does not move any more: what was expected comes later and later.
        let rest = [&two[..], &[(8.0, 40, 100, 900)]].concat();
        assert_eq!(seen(&rest).blocked_in_sec(), Some(12.2));
    }

    #[test]
    fn who_reads_as_fast_or_has_read_all_or_will_have_is_not_blocked() {
        let as_fast = [(0.0, 0, 100, 900), (1.0, 10, 110, 900), (2.0, 20, 120, 900)];
        assert_eq!(seen(&as_fast).blocked_in_sec(), None);
        let all_read = [(0.0, 0, 100, 100), (1.0, 10, 100, 100), (2.0, 20, 100, 100)];
        assert_eq!(seen(&all_read).blocked_in_sec(), None);
        // 8 a second, 80 to go: at the end of the log after 10 s, and blocked after 50 s only.
        let in_time = [(0.0, 0, 100, 196), (1.0, 10, 108, 196), (2.0, 20, 116, 196)];
        assert_eq!(seen(&in_time).blocked_in_sec(), None);
        let too_late = [(0.0, 0, 100, 9_000), (1.0, 10, 108, 9_000), (2.0, 20, 116, 9_000)];
        assert!(seen(&too_late).blocked_in_sec().is_some_and(|sec| (48.0..49.0).contains(&sec)));
    }

    #[test]
    fn what_was_an_hour_ago_is_forgotten_and_the_memory_is_bounded() {
        let old = [(0.0, 0, 9_000, 9_999), (1.0, 5_000, 9_000, 9_999), (2.0, 6_000, 9_000, 9_999)];
        let later = [&old[..], &[(9_000.0, 6_000, 9_000, 9_999)]].concat();
        assert_eq!(seen(&later).blocked_in_sec(), None);
        let many: Vec<_> =
            (0..10_000_i32).map(|at| (f64::from(at), at.into(), 90_000, 90_001)).collect();
        let movement = seen(&many);
        assert!(movement.moves.len() <= MOVES_MAX);
        assert_eq!(movement.retention_per_sec(), Some(1.0));
    }

    proptest! {
        #[test]
        fn it_is_never_negative_nor_not_a_number(
            steps in prop::collection::vec((0_u32..100, 0_i64..50, 0_i64..50, 0_i64..50), 0..200),
        ) {
            let (mut at_sec, mut earliest, mut next, mut high_water) = (0.0, 0, 0, 0);
            let mut movement = Movement::default();
            for (seconds, lost, read, written) in steps {
                at_sec += f64::from(seconds) / 10.0;
                (earliest, next, high_water) = (earliest + lost, next + read, high_water + written);
                movement.see(Reach { at_sec, earliest, next, high_water });
                let blocked = movement.blocked_in_sec();
                prop_assert!(blocked.is_none_or(|sec| sec.is_finite() && sec > 0.0), "{:?}", blocked);
                prop_assert!(blocked.is_none() || next < high_water);
            }
        }
    }
}
