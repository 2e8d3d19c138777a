//! Settings: every default, every bound, and the only place that reads the environment.
//!
//! [`SETTINGS`] is the one table: each row is a flag `--lease-ttl-sec`, a variable
//! `FINAZ_LEASE_TTL_SEC` and a key `lease_ttl_sec` of the config file. Flag beats environment beats
//! file beats default. [`Settings`] is what it all means, checked.

mod environment;
mod file;
mod hold;
mod resolve;
mod secret;

use std::path::PathBuf;
use std::time::Duration;

pub use environment::{colour_wanted, columns, is_empty, unknown_variables, variable, wants_json};
pub use hold::HoldAt;
pub use resolve::{Given, Origin, lease_ttl, seconds};
pub use secret::{Secret, scrub};

/// One global setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// As in the config file; `_` becomes `-` in the flag.
    pub key: &'static str,
    /// What stands for the value in the help; `None` is a switch.
    pub value: Option<&'static str>,
    pub help: &'static str,
    pub heading: &'static str,
    /// As a user would write it; `None` is unset.
    pub default: Option<&'static str>,
    /// The one subcommand that has the flag; `None` is all of them.
    pub command: Option<&'static str>,
}

const fn row(
    key: &'static str,
    value: Option<&'static str>,
    heading: &'static str,
    default: Option<&'static str>,
    help: &'static str,
) -> Setting {
    Setting { key, value, help, heading, default, command: None }
}

/// Longest lease: one that outlives a day would only hide a dead owner.
const LEASE_TTL_SEC_MAX: f64 = 86_400.0;
/// Shortest lease: below it the renewal at a third of it is lost in the noise of a busy machine.
const LEASE_TTL_SEC_MIN: f64 = 0.1;
const WORKER_POLL_SEC_MIN: f64 = 0.01;
const WORKER_POLL_SEC_MAX: f64 = 3_600.0;
/// One statement over more rows holds its locks longer than a lease should be exposed to.
const BATCH_MAX: u64 = 5_000;
/// A one-shot command promises to give up on an absent service within 30 s.
const SERVICE_TIMEOUT_SEC_MAX: f64 = 30.0;
const OWNER_BYTES_MAX: usize = 200;

const LOG_FORMATS: &[&str] = &["text", "json"];
const LOG_LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
const WAREHOUSES: &[&str] = &["auto", "none"];
const BROKER_TLS: &[&str] = &["auto", "on", "off"];
const BROKER_SASL: &[&str] = &["plain", "scram-sha-256", "scram-sha-512"];

pub const SETTINGS: &[Setting] = &[
    row("json", None, "Output", None, "Print one JSON document instead of text"),
    row("quiet", None, "Output", None, "Print no progress and no warnings"),
    row("log_format", Some("FORMAT"), "Output", Some("text"), "Write logs as text or json"),
    row(
        "log_level",
        Some("LEVEL"),
        "Output",
        None,
        "Log error, warn, info, debug or trace and what is graver [default: warn; worker: info]",
    ),
    row(
        "pg_url",
        Some("URL"),
        "Connection",
        None,
        "PostgreSQL that keeps the state; here without a password, in the variable or the file with one",
    ),
    row(
        "pg_password_file",
        Some("FILE"),
        "Connection",
        None,
        "Read the password of PostgreSQL from this file",
    ),
    row("brokers", Some("HOST:PORT,.."), "Connection", None, "Kafka or Redpanda brokers"),
    row(
        "broker_tls",
        Some("auto|on|off"),
        "Connection",
        Some("auto"),
        "Speak TLS to the brokers; auto: unless all are on this machine and no user is given",
    ),
    row("broker_user", Some("NAME"), "Connection", None, "User to log in to the brokers as"),
    row(
        "broker_password_file",
        Some("FILE"),
        "Connection",
        None,
        "Read the password of that user from this file",
    ),
    row(
        "broker_sasl",
        Some("MECHANISM"),
        "Connection",
        Some("scram-sha-512"),
        "Log in by plain, scram-sha-256 or scram-sha-512",
    ),
    row(
        "clickhouse_url",
        Some("URL"),
        "Connection",
        None,
        "ClickHouse over HTTP; here without a password, in the variable or the file with one",
    ),
    row(
        "clickhouse_password_file",
        Some("FILE"),
        "Connection",
        None,
        "Read the password of ClickHouse from this file",
    ),
    row(
        "warehouse",
        Some("auto|none"),
        "Connection",
        Some("auto"),
        "Stage results in ClickHouse when its URL is set, or never",
    ),
    row(
        "tls_ca",
        Some("FILE"),
        "Connection",
        None,
        "Trust the certificate authorities of this PEM file too",
    ),
    row(
        "allow_plaintext",
        None,
        "Connection",
        None,
        "Allow connections without TLS to other machines than this one",
    ),
    row(
        "service_timeout_sec",
        Some("SEC"),
        "Connection",
        Some("15"),
        "Give up on an absent service after this long (0.1 to 30)",
    ),
    row(
        "artifacts",
        Some("DIR"),
        "Storage",
        None,
        "Artifact store [default: $XDG_DATA_HOME/finaz, else ~/.local/share/finaz, else ./.finaz]",
    ),
    row(
        "owner",
        Some("NAME"),
        "Work",
        None,
        "Name to hold leases under [default: this machine's name]",
    ),
    row(
        "lease_ttl_sec",
        Some("SEC"),
        "Work",
        Some("30"),
        "Let a lease live this long unless renewed (0.1 to 86400)",
    ),
    row(
        "worker_poll_sec",
        Some("SEC"),
        "Work",
        Some("1"),
        "Look for work this often when no notice comes (0.01 to 3600)",
    ),
    Setting {
        key: "batch",
        value: Some("N"),
        help: "Claim at most this many runs at once (1 to 5000)",
        heading: "Work",
        default: Some("1000"),
        command: Some("worker"),
    },
];

/// What all of it means, within bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    pub json: bool,
    pub quiet: bool,
    pub log_json: bool,
    /// One of `error`, `warn`, `info`, `debug`, `trace`; `None` when nobody chose.
    pub log_level: Option<String>,
    pub pg_url: Option<Secret>,
    pub brokers: Option<String>,
    /// One of `auto`, `on`, `off`.
    pub broker_tls: &'static str,
    pub broker_user: Option<String>,
    pub broker_password: Option<Secret>,
    /// One of `plain`, `scram-sha-256`, `scram-sha-512`.
    pub broker_sasl: &'static str,
    pub clickhouse_url: Option<Secret>,
    /// Results stay in the artifact store alone.
    pub warehouse_none: bool,
    pub tls_ca: Option<PathBuf>,
    pub allow_plaintext: bool,
    pub service_timeout: Duration,
    pub artifacts: PathBuf,
    /// A name, or an owner token `name/uuid` as `lease acquire` prints it.
    pub owner: String,
    pub lease_ttl: Duration,
    pub worker_poll: Duration,
    pub batch: u32,
    /// A drill's wish, which counts in that drill's own database alone.
    pub hold: Option<HoldAt>,
}

/// The flag of a key: `--lease-ttl-sec`.
#[must_use]
pub fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}
