//! Input that is refused: the code, the place, what is wrong there and what to do instead.

/// Bad input of any kind (flag, manifest, config, snapshot, name). Ends a command with exit 2.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Invalid {
    /// Stable, in CAPS, for programs: `FLOW_UNKNOWN`, `CSV_TIME`.
    pub code: &'static str,
    /// Where: a flag, `file.csv:17`, `flow.yaml:3:5`, a name.
    pub place: String,
    /// What is wrong, without the place.
    pub message: String,
    /// What to do instead.
    pub hint: String,
}

impl Invalid {
    pub fn new(
        code: &'static str,
        place: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { code, place: place.into(), message: message.into(), hint: hint.into() }
    }
}

/// The candidate that was probably meant by `name`, for a did-you-mean; `None` when nothing is near.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below it the suggestion is more often wrong than right (clap uses 0.7 as well).
    const NEAR_MIN: f64 = 0.7;
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score > NEAR_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        assert_eq!(nearest("pg_ulr", ["brokers", "pg_url"]), Some("pg_url"));
        assert_eq!(nearest("zzz", ["brokers", "pg_url"]), None);
    }
}
