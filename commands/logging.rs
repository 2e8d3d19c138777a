//! Logs, on stderr: set up once, for the commands that work.

use std::io;

use finaz::config::Settings;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging. Where nobody chose a level, a daemon tells what it does and a command only what is wrong.
pub(crate) fn start(settings: &Settings, daemon: bool) {
    let usual = if daemon { LevelFilter::INFO } else { LevelFilter::WARN };
    let chosen = settings.log_level.as_ref().and_then(|level| level.parse().ok());
    let level = if settings.quiet { LevelFilter::ERROR } else { chosen.unwrap_or(usual) };
    // Client libraries log statements, headers and addresses: none of it is ours to show.
    // The broker's call an error what we try again; what ends a command we say ourselves.
    let clients = if level < LevelFilter::DEBUG { LevelFilter::OFF } else { LevelFilter::WARN };
    let targets = Targets::new()
        .with_target("finaz", level)
        .with_target("krafka", clients)
        .with_target("rskafka", clients)
        .with_default(level.min(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false);
    let lines = if settings.log_json { lines.json().boxed() } else { lines.boxed() };
    // A second start would be refused; there is none.
    drop(tracing_subscriber::registry().with(lines.with_filter(targets)).try_init());
}
