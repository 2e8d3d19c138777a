//! Checks: planned before a scenario begins, so that one that never ran cannot be taken for one that passed.

use serde::Serialize;

/// A check as it is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Planned {
    pub id: &'static str,
    /// What it demonstrates.
    pub what: &'static str,
}

/// A check as it came out.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Check {
    pub id: &'static str,
    pub pass: bool,
    /// It was carried out; one that was not is no pass.
    pub ran: bool,
    pub scenario: &'static str,
    pub what: &'static str,
    pub expected: String,
    pub seen: String,
}

impl Check {
    /// `PASS`, `FAIL` or `NOT RUN`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.ran, self.pass) {
            (false, _) => "NOT RUN",
            (true, true) => "PASS",
            (true, false) => "FAIL",
        }
    }
}

/// Why a scenario went no further.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Broke {
    /// What should have come to pass did not, in time or at all: the check that it was for has failed.
    Failed(String),
    /// The scenario could not be carried out: it says nothing about what is checked.
    Unable(String),
}

/// The checks of one scenario, filled in as it goes.
#[derive(Clone, Debug)]
pub struct Sheet {
    scenario: &'static str,
    planned: &'static [Planned],
    checks: Vec<Check>,
}

impl Sheet {
    #[must_use]
    pub fn new(scenario: &'static str, planned: &'static [Planned]) -> Self {
        Self { scenario, planned, checks: Vec::new() }
    }

    /// Notes a check of which expected and seen are to be the same.
    ///
    /// # Panics
    /// For an id that was not planned, or that was noted before.
    pub fn equal(&mut self, id: &str, expected: impl Into<String>, seen: impl Into<String>) {
        let (expected, seen) = (expected.into(), seen.into());
        let pass = expected == seen;
        self.holds(id, expected, seen, pass);
    }

    /// Notes a check whose verdict the caller has found.
    ///
    /// # Panics
    /// For an id that was not planned, or that was noted before.
    pub fn holds(
        &mut self,
        id: &str,
        expected: impl Into<String>,
        seen: impl Into<String>,
        pass: bool,
    ) {
        assert!(self.checks.iter().all(|check| check.id != id), "{id} was noted before");
        let planned = self.planned.iter().find(|planned| planned.id == id);
        let planned = planned.expect("a check is planned before it is noted");
        self.checks.push(Check {
            id: planned.id,
            pass,
            ran: true,
            scenario: self.scenario,
            what: planned.what,
            expected: expected.into(),
            seen: seen.into(),
        });
    }

    /// All planned checks, in their order. Of a scenario that failed, the first that is missing has failed; of one that
    /// could not be carried out none of the missing ones ran.
    #[must_use]
    pub fn end(self, ended: Result<(), Broke>) -> Vec<Check> {
        let Self { scenario, planned, mut checks } = self;
        let mut failed = matches!(ended, Err(Broke::Failed(_)));
        let why = match ended {
            Ok(()) => "the scenario ended before it".to_owned(),
            Err(Broke::Failed(why) | Broke::Unable(why)) => why,
        };
        let mut all = Vec::with_capacity(planned.len());
        for Planned { id, what } in planned {
            if let Some(at) = checks.iter().position(|check| check.id == *id) {
                all.push(checks.swap_remove(at));
                continue;
            }
            let ran = std::mem::take(&mut failed);
            let expected = if ran { "that it comes to pass" } else { "" }.to_owned();
            all.push(Check { id, pass: false, ran, scenario, what, expected, seen: why.clone() });
        }
        all
    }
}

/// What a drill came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Every check ran and passed, and there were as many as there must be.
    Pass,
    /// A check failed.
    Fail,
    /// None failed, and not all ran.
    Incomplete,
}

impl Verdict {
    /// Of a drill that must have at least `least` checks.
    #[must_use]
    pub fn of(checks: &[Check], least: usize) -> Self {
        if checks.iter().any(|check| check.ran && !check.pass) {
            Self::Fail
        } else if checks.len() < least || checks.iter().any(|check| !check.ran) {
            Self::Incomplete
        } else {
            Self::Pass
        }
    }

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Incomplete => "INCOMPLETE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANNED: &[Planned] = &[
        Planned { id: "A1", what: "one" },
        Planned { id: "A2", what: "two" },
        Planned { id: "A3", what: "three" },
    ];

    fn sheet() -> Sheet {
        Sheet::new("a", PLANNED)
    }

    #[test]
    fn what_is_seen_otherwise_than_expected_is_a_failure() {
        let mut sheet = sheet();
        sheet.equal("A1", "1", "1");
        sheet.equal("A2", "golden", "another");
        sheet.holds("A3", "", "", true);
        let checks = sheet.end(Ok(()));
        assert_eq!(checks.iter().map(Check::word).collect::<Vec<_>>(), ["PASS", "FAIL", "PASS"]);
        assert_eq!(Verdict::of(&checks, 3), Verdict::Fail);
    }

    #[test]
    fn a_check_that_did_not_run_is_no_pass() {
        let mut all = sheet();
        for planned in PLANNED {
            all.equal(planned.id, "1", "1");
        }
        let checks = all.end(Ok(()));
        assert_eq!(Verdict::of(&checks, 3), Verdict::Pass);
        assert_eq!(Verdict::of(&checks, 4), Verdict::Incomplete, "too few");
        for (ended, second, verdict) in [
            (Ok(()), "NOT RUN", Verdict::Incomplete),
            (Err(Broke::Unable("no disk".into())), "NOT RUN", Verdict::Incomplete),
            (Err(Broke::Failed("not in time".into())), "FAIL", Verdict::Fail),
        ] {
            let mut sheet = sheet();
            sheet.equal("A1", "1", "1");
            let checks = sheet.end(ended);
            assert_eq!((checks[1].word(), checks[2].word()), (second, "NOT RUN"));
            assert_eq!(Verdict::of(&checks, 3), verdict);
        }
    }
}
