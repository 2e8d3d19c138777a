//! Logs, on stderr: set up once, for the commands that work.

use std::io;

use finaz::config::Settings;
use tracing_subscriber::filter::LevelFilter;

/// Starts logging. Where nobody chose a level, a daemon tells what it does and a command only what is wrong.
pub(crate) fn start(settings: &Settings, daemon: bool) {
    let usual = if daemon { LevelFilter::INFO } else { LevelFilter::WARN };
    let chosen = settings.log_level.as_ref().and_then(|level| level.parse().ok());
    let level = if settings.quiet { LevelFilter::ERROR } else { chosen.unwrap_or(usual) };
    let logs =
        tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_ansi(false);
    // A second start would be refused; there is none.
    if settings.log_json {
        drop(logs.json().try_init());
    } else {
        drop(logs.try_init());
    }
}
