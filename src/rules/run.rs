//! The life of a run: one `match` of state and event; everything else is refused.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Owners that may die with a run before it is called poison (SPEC part 5).
pub const DEAD_OWNERS_MAX: i32 = 3;

/// Where a run stands. Written as in the database, in CAPS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl State {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Whether nothing can happen to it any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for State {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled]
            .into_iter()
            .find(|state| state.name() == text)
            .ok_or(())
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a request to cancel does to a run in this state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cancel {
    /// Not started: it is cancelled at once.
    Now,
    /// Started: it stops at the next safe boundary, or is published first.
    AtBoundary,
    /// Over already.
    TooLate,
}

/// Decides a request to cancel.
#[must_use]
pub fn cancel(state: State) -> Cancel {
    match state {
        State::Queued => Cancel::Now,
        State::Running => Cancel::AtBoundary,
        State::Succeeded | State::Failed | State::Cancelled => Cancel::TooLate,
    }
}

/// What becomes of a run whose owner died with it in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Orphan {
    /// Back to the queue, to be claimed alone from now on.
    Requeue { attempts: i32 },
    /// It has killed its owner too often.
    Poison { attempts: i32 },
}

/// Decides about a RUNNING run without a live lease that `attempts` owners died with before. `excused`: this owner
/// may be alive, it could not have renewed its lease.
#[must_use]
pub fn orphan(attempts: i32, excused: bool) -> Orphan {
    if excused {
        return Orphan::Requeue { attempts };
    }
    let attempts = attempts.saturating_add(1);
    if attempts >= DEAD_OWNERS_MAX {
        Orphan::Poison { attempts }
    } else {
        Orphan::Requeue { attempts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_poison_at_its_third_dead_owner() {
        assert_eq!(orphan(0, false), Orphan::Requeue { attempts: 1 });
        assert_eq!(orphan(1, false), Orphan::Requeue { attempts: 2 });
        assert_eq!(orphan(2, true), Orphan::Requeue { attempts: 2 });
        assert_eq!(orphan(2, false), Orphan::Poison { attempts: 3 });
    }

    #[test]
    fn a_finished_run_cannot_be_cancelled() {
        for state in ["SUCCEEDED", "FAILED", "CANCELLED"] {
            let state: State = state.parse().expect("a state");
            assert!(state.is_final());
            assert_eq!(cancel(state), Cancel::TooLate);
        }
        assert_eq!(cancel(State::Queued), Cancel::Now);
        assert_eq!(cancel(State::Running), Cancel::AtBoundary);
    }
}
