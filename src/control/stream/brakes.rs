//! What a session holds back of its log, and why: looked at between two batches, never for a record.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Pauses;
use super::report::Counts;
use crate::artifacts::Artifacts;
use crate::broker::{Edge, Follower};
use crate::stream::{Engine, Limits, Load, Pressure, enough};

/// Events that wait for the watermark: beyond, the partitions that run ahead are paused, until half of them are applied.
const WAITING_MAX: u64 = 2_000_000;
/// Between two looks at the disk and at the lag.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Brakes {
    limits: Limits,
    pressure: Pressure,
    load: Load,
    /// Of the bytes in flight: those that a commit would take.
    uncommitted: u64,
    /// Partitions that run ahead of the watermark and wait for the others.
    ahead: HashSet<i32>,
    looked: Option<Instant>,
    /// Since when there is too little space.
    short_since: Option<Instant>,
}

impl Brakes {
    pub(super) fn new(pauses: Pauses) -> Self {
        Self {
            limits: Limits {
                lag: pauses.lag,
                in_flight: pauses.in_flight_mib << 20,
                free_disk: pauses.free_disk_mib << 20,
                waiting: WAITING_MAX,
            },
            pressure: Pressure::default(),
            load: Load::default(),
            uncommitted: 0,
            ahead: HashSet::new(),
            looked: None,
            short_since: None,
        }
    }

    /// Looks, and holds back or lets go.
    pub(super) fn look(
        &mut self,
        engine: &Engine,
        follower: &mut Follower,
        edges: &[Edge],
        artifacts: &Artifacts,
    ) {
        self.uncommitted = engine.uncommitted_bytes() as u64;
        self.load.in_flight = follower.held() as u64 + self.uncommitted;
        self.load.waiting = engine.waiting() as u64;
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.load.lag = Counts::of(engine, &follower.positions(), edges).lag;
            self.load.free_disk = artifacts.free_bytes();
        }
        let before = self.pressure;
        self.pressure = before.after(&self.load, &self.limits);
        if self.pressure == before {
            return;
        }
        if !self.pressure.process {
            self.ahead.clear();
        } else if !before.process {
            let slowest = engine.watermark();
            let lanes = engine.standings().into_iter();
            let ahead = lanes.filter(|lane| lane.active && lane.watermark > slowest);
            self.ahead = ahead.map(|lane| lane.partition).collect();
        }
        for lane in engine.standings() {
            if self.pressure.disk || self.ahead.contains(&lane.partition) {
                follower.pause(lane.partition);
            } else {
                follower.resume(lane.partition);
            }
        }
        follower.withhold(self.pressure.in_flight);
        self.short_since =
            self.pressure.disk.then(|| self.short_since.unwrap_or_else(Instant::now));
        match self.says() {
            Some((state, why)) => tracing::warn!(state, why, "held back"),
            None => tracing::info!("nothing is held back any more"),
        }
    }

    /// What was read is to be committed without delay, so that it is in flight no more, or while there is space for it.
    pub(super) fn hurries(&self) -> bool {
        self.pressure.disk
            || self.pressure.in_flight && self.uncommitted > self.limits.in_flight / 4
    }

    /// Nothing is taken from the log.
    pub(super) fn stands(&self) -> bool {
        self.pressure.disk
    }

    /// Of some partitions nothing is fetched: the follower hears nothing of their logs.
    pub(super) fn is_deaf(&self) -> bool {
        self.pressure.disk || self.pressure.in_flight || !self.ahead.is_empty()
    }

    /// There is too little space, for so long.
    pub(super) fn short_for(&self) -> Option<Duration> {
        self.short_since.map(|since| since.elapsed())
    }

    /// State and reason, of several the one that holds back most.
    pub(super) fn says(&self) -> Option<(&'static str, String)> {
        let (load, limits) = (&self.load, &self.limits);
        let mib = |bytes: u64| bytes >> 20;
        if self.pressure.disk {
            let free = mib(load.free_disk.unwrap_or_default());
            let (least, enough) = (mib(limits.free_disk), mib(enough(limits.free_disk)));
            return Some((
                "SOURCE_PAUSED",
                format!(
                    "free disk: {free} MiB are left for artifacts, fewer than {least}; it goes on \
                     by itself at {enough}"
                ),
            ));
        }
        if self.pressure.process {
            let waiting = load.waiting;
            return Some(("PROCESS_PAUSED", format!("{waiting} events wait for the watermark")));
        }
        if self.pressure.in_flight {
            let (held, most) = (mib(load.in_flight), mib(limits.in_flight));
            return Some((
                "SOURCE_PAUSED",
                format!("bytes in flight: {held} MiB are in no commit yet, {most} may be"),
            ));
        }
        let lag = load.lag.filter(|_lag| self.pressure.lag)?;
        let most = limits.lag;
        Some((
            "SOURCE_PAUSED",
            format!("lag: {lag} records behind, over {most}; it reads on, the source should wait"),
        ))
    }
}
