//! The environment: `FINAZ_*` and the few variables that every terminal program heeds.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::invalid::nearest;

const PREFIX: &str = "FINAZ_";
/// `POINT:NTH:NONCE`, set by a drill for a process of its own.
pub(crate) const DRILL_POINT: &str = "FINAZ_DRILL_POINT";

/// Known names that belong to no flag of this binary.
const RESERVED: &[&str] = &[
    DRILL_POINT,           // a drill: where to hold this process
    "FINAZ_LIVE",          // the tests: fail, not skip, without servers
    "FINAZ_STREAM_RUN_ID", // the stream
];

/// The variable of a flag or key: `FINAZ_LEASE_TTL_SEC`.
#[must_use]
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('-', "_").to_uppercase())
}

/// A variable that is set to something: an empty one counts as not set.
pub(crate) fn value(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether a variable is set to nothing, which is the same as not set.
#[must_use]
pub fn is_empty(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value.is_empty())
}

/// A warning for each `FINAZ_*` variable that means nothing to the flags of `known`.
#[must_use]
pub fn unknown_variables(known: &[String]) -> Vec<String> {
    let mut names: Vec<String> = env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with(PREFIX))
        .filter(|name| !known.contains(name) && !RESERVED.contains(&name.as_str()))
        .collect();
    names.sort();
    names.iter().map(|name| unknown_variable(name, known)).collect()
}

fn unknown_variable(name: &str, known: &[String]) -> String {
    // Compared without what all of them share, which would make everything look alike.
    let own = name.trim_start_matches(PREFIX);
    match nearest(own, known.iter().map(|name| name.trim_start_matches(PREFIX))) {
        Some(meant) => {
            format!("the variable {name} means nothing to finaz; did you mean {PREFIX}{meant}?")
        }
        None => format!("the variable {name} means nothing to finaz"),
    }
}

/// Whether the environment leaves colour on, see <https://no-color.org>.
#[must_use]
pub fn colour_wanted() -> bool {
    value("NO_COLOR").is_none() && value("TERM").is_none_or(|term| term != "dumb")
}

/// The width that `COLUMNS` asks for.
#[must_use]
pub fn columns() -> Option<u16> {
    value("COLUMNS")?.to_str()?.parse().ok().filter(|columns| *columns > 0)
}

/// Whether `FINAZ_JSON` asks for JSON: needed for an error that comes before the settings.
#[must_use]
pub fn wants_json() -> bool {
    value("FINAZ_JSON")
        .and_then(|value| value.into_string().ok())
        .is_some_and(|value| super::resolve::truth(&value) == Some(true))
}

/// `$XDG_DATA_HOME/finaz`, else `~/.local/share/finaz`; without a home `./.finaz`.
pub(crate) fn default_artifacts() -> PathBuf {
    // XDG: a relative path is to be ignored.
    if let Some(data) = value("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute())
    {
        return data.join("finaz");
    }
    match value("HOME") {
        Some(home) => PathBuf::from(home).join(".local/share/finaz"),
        None => PathBuf::from(".finaz"),
    }
}

/// The name of this machine, for an owner that nobody named.
pub(crate) fn machine_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty() && !name.contains(char::is_whitespace))
        .unwrap_or_else(|| "local".to_owned())
}
