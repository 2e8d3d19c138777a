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
