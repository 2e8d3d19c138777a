//! When retention will block a stream: how each partition's log moves, against how far it was read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::report::Counts;
use crate::stream::{Movement, Reach, blocked_in_sec};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// How often the broker is asked while nothing is fetched.
const ASK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Outlook {
    since: Instant,
    looked: Option<Instant>,
    asked: Option<Instant>,
    lanes: BTreeMap<i32, Movement>,
    warned: bool,
}

impl Outlook {
    pub(super) fn new() -> Self {
        let since = Instant::now();
        Self { since, looked: None, asked: None, lanes: BTreeMap::new(), warned: false }
    }

    pub(super) fn is_due(&self) -> bool {
        self.looked.is_none_or(|at| at.elapsed() >= LOOK)
    }

    /// Whether it is time to ask the broker; says so once.
    pub(super) fn asks(&mut self) -> bool {
        let due = self.asked.is_none_or(|at| at.elapsed() >= ASK);
        if due {
            self.asked = Some(Instant::now());
        }
        due
    }

    /// Takes in how the partitions stand.
    pub(super) fn see(&mut self, counts: &Counts) {
        self.looked = Some(Instant::now());
        let at_sec = self.since.elapsed().as_secs_f64();
        for view in &counts.per_partition {
            if let (Some(earliest), Some(high_water)) = (view.earliest, view.high_water) {
                let reach = Reach { at_sec, earliest, next: view.next_offset, high_water };
                self.lanes.entry(view.partition).or_default().see(reach);
            }
        }
    }

    /// Adds what is to be expected.
    pub(super) fn tell(&self, counts: &mut Counts) {
        for view in &mut counts.per_partition {
            let Some(movement) = self.lanes.get(&view.partition) else { continue };
            view.retention_per_sec = movement.retention_per_sec();
            view.blocked_in_sec = movement.blocked_in_sec();
        }
        counts.blocked_in_sec = soonest(counts);
    }

    /// The partition that is blocked first, and in how many seconds.
    pub(super) fn first(&self) -> Option<(i32, f64)> {
        let expected = self.lanes.iter().filter_map(|(partition, movement)| {
            movement.blocked_in_sec().map(|seconds| (*partition, seconds))
        });
        expected.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// What the reason of a state has to add.
    pub(super) fn says(&self) -> Option<String> {
        let (partition, seconds) = self.first()?;
        let about = about(seconds);
        Some(format!("retention moves on: partition {partition} is blocked in {about}"))
    }

    /// Says in the log when it begins to be expected.
    pub(super) fn warn(&mut self) {
        let says = self.says();
        if let (Some(why), false) = (&says, self.warned) {
            tracing::warn!(why, "RECOVERY_BLOCKED is to be expected");
        }
        self.warned = says.is_some();
    }
}

/// In words.
pub(super) fn about(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round();
    if minutes < 1.0 { "less than a minute".to_owned() } else { format!("about {minutes} minutes") }
}

/// What was expected some seconds ago, as it is to be expected now; a stream that nobody runs reads no more.
pub(super) fn later(counts: &mut Counts, seconds: f64, live: bool) {
    for view in &mut counts.per_partition {
        let expected = match (view.earliest, view.high_water, view.retention_per_sec) {
            _ if live => view.blocked_in_sec,
            (Some(earliest), Some(high_water), Some(rate)) if view.next_offset < high_water => {
                blocked_in_sec(earliest, view.next_offset, rate)
            }
            _ => None,
        };
        view.blocked_in_sec = expected.map(|expected| (expected - seconds).max(0.0));
    }
    counts.blocked_in_sec = soonest(counts);
}

fn soonest(counts: &Counts) -> Option<f64> {
    let all = counts.per_partition.iter().filter_map(|view| view.blocked_in_sec);
    all.min_by(f64::total_cmp)
}
