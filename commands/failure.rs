//! Errors become words, codes and exit codes here and nowhere else.

use std::fmt::Display;

use finaz::config::scrub;
use finaz::invalid::Invalid;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use crate::interrupt::Cut;

/// A failed command, ready to be said.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
    /// What the code promises besides: both hashes, both fences.
    pub(crate) more: Map<String, Value>,
}

/// `{"error":{"code","message","hint",...}}`
impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut error = self.more.clone();
        error.insert("code".to_owned(), self.code.into());
        error.insert("message".to_owned(), scrub(&self.message).into());
        error.insert("hint".to_owned(), scrub(&self.hint).into());
        let mut document = serializer.serialize_map(Some(1))?;
        document.serialize_entry("error", &error)?;
        document.end()
    }
}

impl Failure {
    pub(crate) fn new(
        exit: u8,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { exit, code, message: message.into(), hint: hint.into(), more: Map::new() }
    }

    /// The command line does not make sense.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(2, "USAGE", message, hint)
    }

    /// A signal ended the command.
    pub(crate) fn cut(cut: Cut) -> Self {
        let (exit, name) = match cut {
            Cut::Interrupt => (130, "SIGINT"),
            Cut::Terminate => (143, "SIGTERM"),
        };
        Self::new(exit, "INTERRUPTED", format!("cut short by {name}"), "")
    }

    /// Not the operator's doing and not a service's.
    pub(crate) fn internal(error: &dyn Display) -> Self {
        Self::new(1, "INTERNAL", error.to_string(), "this is a defect of finaz")
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        let mut failure = Self::new(2, invalid.code, invalid.to_string(), invalid.hint);
        failure.more.insert("place".to_owned(), invalid.place.into());
        failure
    }
}

impl From<clap::Error> for Failure {
    /// clap's text, taken apart: `error: what`, `tip: hint`, usage.
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let mut paragraphs = text.split("\n\n");
        let message = paragraphs.next().unwrap_or_default().trim_start_matches("error: ").trim();
        let tips: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("tip: "))
            .chain(text.lines().filter(|line| line.starts_with("For more information")))
            .map(str::trim)
            .collect();
        Self::usage(message, tips.join("; ").replace("For more information, try", "try"))
    }
}
