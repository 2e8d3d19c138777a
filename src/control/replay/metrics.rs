//! What a monitor wants to know of a replay, as a file for Prometheus' textfile collector.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Replayed;
use crate::control::Error;
use crate::control::new_file::NewFile;

/// A file to be written at the end, whatever the end is: one that unwinds is a failure as well.
#[derive(Debug)]
pub(super) struct Note<'a>(Option<&'a Path>);

impl<'a> Note<'a> {
    pub(super) fn at(path: Option<&'a Path>) -> Self {
        Self(path)
    }

    /// Writes how it ended; `None` is a failure.
    pub(super) fn end(mut self, replayed: Option<&Replayed>) -> Result<(), Error> {
        self.0.take().map_or(Ok(()), |path| write(path, replayed))
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // Best effort: what unwinds counts more.
            drop(write(path, None));
        }
    }
}

/// Writes the file whole, in place of the last one. The collector is another user.
fn write(path: &Path, replayed: Option<&Replayed>) -> Result<(), Error> {
    let mut file = NewFile::readable_at(path)?;
    file.write_all(text(replayed, now()).as_bytes()).map_err(|source| file.failed(source))?;
    file.finish()
}

#[expect(clippy::disallowed_methods, reason = "when it was, for people and alerts")]
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn text(replayed: Option<&Replayed>, now: f64) -> String {
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, value: f64| {
        writeln!(out, "# HELP finaz_replay_{name} {help}\n# TYPE finaz_replay_{name} gauge")
            .and_then(|()| writeln!(out, "finaz_replay_{name} {value}"))
            .expect("a String takes all");
    };
    gauge("last_end_timestamp_seconds", "When the last replay ended.", now);
    gauge("success", "Whether the last replay came to its end.", f64::from(replayed.is_some()));
    // After a failure there are no counts, rather than those of another replay.
    let Some(replayed) = replayed else { return out };
    #[expect(clippy::cast_precision_loss, reason = "Prometheus counts in floats")]
    for (name, help, count) in [
        ("arrivals", "Arrivals in the log.", replayed.arrivals),
        ("faults_applied", "Faults applied.", replayed.faults_applied),
        ("published", "Records published.", replayed.published),
        ("republished", "Records published again after an early end.", replayed.republished),
        ("doubled", "Records doubled by a lost acknowledgement.", replayed.doubled),
    ] {
        gauge(name, help, count as f64);
    }
    gauge("publish_seconds", "How long publishing took.", replayed.publish_seconds);
    out
}
