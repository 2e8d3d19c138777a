//! When a stream holds back, and why. Pure: figures in, a decision out. Each threshold has a second one at which it
//! lets go again, so that a figure that trembles at it does not turn a state on and off.

/// Where it begins to hold back; 0 is never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Records that the broker has and the stream has not read.
    pub lag: u64,
    /// Bytes that were fetched, or are kept of records that were not taken, and are in no commit yet.
    pub in_flight: u64,
    /// Bytes free where the artifact store is: fewer is too few.
    pub free_disk: u64,
    /// Accepted events that wait for the watermark.
    pub waiting: u64,
}

/// How it stands; `None` is not known, and changes nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Load {
    pub lag: Option<u64>,
    pub in_flight: u64,
    pub free_disk: Option<u64>,
    pub waiting: u64,
}

/// Which thresholds are passed and not yet let go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pressure {
    /// Nothing is taken from the log until there is space again.
    pub disk: bool,
    /// Partitions that run ahead wait for the others.
    pub process: bool,
    /// Nothing more is fetched until what came is decided and committed.
    pub in_flight: bool,
    /// It reads on: whoever writes is the one to wait.
    pub lag: bool,
}

/// Beyond a threshold of free space at which it is let go: a quarter of it, and this at most.
const SPACE_MORE_MAX: u64 = 256 << 20;

impl Pressure {
    /// What holds after this look.
    #[must_use]
    pub fn after(self, load: &Load, limits: &Limits) -> Self {
        let (low, enough) = (limits.free_disk, enough(limits.free_disk));
        Self {
            disk: match load.free_disk {
                _ if low == 0 => false,
                None => self.disk,
                Some(free) if self.disk => free < enough,
                Some(free) => free < low,
            },
            process: beyond(self.process, load.waiting, limits.waiting),
            in_flight: beyond(self.in_flight, load.in_flight, limits.in_flight),
            lag: load
                .lag
                .map_or(self.lag && limits.lag > 0, |lag| beyond(self.lag, lag, limits.lag)),
        }
    }
}

/// Free space at which a stream that waits for it goes on.
#[must_use]
pub fn enough(free_disk: u64) -> u64 {
    free_disk.saturating_add((free_disk / 4).min(SPACE_MORE_MAX))
}

/// From the limit on, until half of it is left.
fn beyond(was: bool, seen: u64, limit: u64) -> bool {
    limit > 0 && (seen >= limit || was && seen > limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { lag: 100, in_flight: 100, free_disk: 100, waiting: 100 };
    const NEVER: Limits = Limits { lag: 0, in_flight: 0, free_disk: 0, waiting: 0 };

    fn each(of: u64) -> Load {
        Load { lag: Some(of), in_flight: of, free_disk: Some(of), waiting: of }
    }

    #[test]
    fn what_is_beyond_its_limit_holds_until_half_of_it_is_left() {
        let mut pressure = Pressure::default();
        let seen = [(99, false), (100, true), (99, true), (51, true), (50, false), (99, false)];
        for (figure, holds) in seen {
            pressure = pressure.after(&each(figure), &LIMITS);
            let found = [pressure.process, pressure.in_flight, pressure.lag];
            assert_eq!(found, [holds; 3], "at {figure}");
        }
    }

    #[test]
    fn a_disk_is_full_below_its_limit_and_free_a_quarter_above() {
        let mut pressure = Pressure::default();
        for (free, holds) in [(100, false), (99, true), (100, true), (124, true), (125, false)] {
            pressure = pressure.after(&each(free), &LIMITS);
            assert_eq!(pressure.disk, holds, "at {free}");
        }
        assert_eq!(enough(10 << 30), (10 << 30) + SPACE_MORE_MAX);
        assert_eq!(enough(u64::MAX), u64::MAX);
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let known = Pressure::default().after(&each(1_000), &LIMITS);
        assert!(known.lag && known.process && known.in_flight && !known.disk);
        let low = known.after(&Load { free_disk: Some(1), ..each(1_000) }, &LIMITS);
        let unknown = Load { lag: None, free_disk: None, ..each(1_000) };
        assert_eq!(low.after(&unknown, &LIMITS), low);
    }

    proptest! {
        #[test]
        fn a_limit_of_zero_never_holds_and_a_figure_between_both_changes_nothing(
            figures in prop::collection::vec(0_u64..300, 1..50),
        ) {
            let (mut pressure, mut never) = (Pressure::default(), Pressure::default());
            for figure in figures {
                let before = pressure;
                pressure = pressure.after(&each(figure), &LIMITS);
                never = never.after(&each(figure), &NEVER);
                prop_assert_eq!(never, Pressure::default());
                if (51..100).contains(&figure) {
                    prop_assert_eq!(pressure.process, before.process);
                }
                if (100..125).contains(&figure) {
                    prop_assert_eq!(pressure.disk, before.disk);
                }
            }
        }
    }
}
