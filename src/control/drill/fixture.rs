//! What a drill feeds its streams: the fixture, whose every result is known beforehand.

use std::path::{Path, PathBuf};

use super::wait::unable;
use crate::drill::Broke;

const SNAPSHOT: &str = include_str!("../../../fixtures/fixture.snapshot.01.jsonl");
const FAULTS: &str = include_str!("../../../fixtures/fixture.faults.01.yaml");
const FLOW: &str = include_str!("../../../manifests/fixture.01_A_feature.yaml");
const LOG_HASH: &str = include_str!("../../../fixtures/fixture.log_hash");

/// The name of the snapshot, which the flow and the faults know it by.
pub(super) const NAME: &str = "fixture.snapshot.01";
/// What one replay writes into a topic, in all and into the two partitions that get anything.
pub(super) const ARRIVALS: u64 = 23;
pub(super) const HOMES: [(i32, i64); 2] = [(0, 6), (3, 17)];
/// Replays that make the topic of a phase, and what it holds then.
pub(super) const REPLAYS: u64 = 13;
pub(super) const TOTAL: u64 = REPLAYS * ARRIVALS;
/// Consumed, filtered, duplicates, late, omitted of the whole topic.
pub(super) const COUNTS: [u64; 5] = [6, 195, 85, 0, 13];
/// The first event time and the values that an owner emits, a second apart.
const FIRST: i64 = 1_767_225_600_000_000_000;
const VALUES: [&str; 6] = ["null", "null", "2.0", "3.0", "4.0", "5.0"];

/// The files that processes are given.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) snapshot: PathBuf,
    pub(super) faults: String,
    pub(super) flow: String,
}

impl Files {
    pub(super) fn write(folder: &Path) -> Result<Self, Broke> {
        let write = |name: &str, text: &str| -> Result<PathBuf, Broke> {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|error| unable(&path.display(), &error))?;
            Ok(path)
        };
        let text = |path: PathBuf| path.display().to_string();
        Ok(Self {
            snapshot: write("snapshot.jsonl", SNAPSHOT)?,
            faults: text(write("faults.yaml", FAULTS)?),
            flow: text(write("flow.yaml", FLOW)?),
        })
    }
}

/// The hash that every replay of the fixture has.
pub(super) fn log_hash() -> &'static str {
    LOG_HASH.trim()
}

/// The hash that every mode must come to.
pub(super) fn golden() -> &'static str {
    let line = FLOW.lines().find_map(|line| line.strip_prefix("golden: "));
    line.expect("the fixture's flow names its golden").trim()
}

/// The flow under another name, which is then another flow of the same values.
pub(super) fn flow_named(name: &str) -> String {
    let lines = FLOW.lines().map(|line| match line.strip_prefix("name: ") {
        Some(_) => format!("name: {name}\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// What an owner that has read everything emits.
pub(super) fn emitted() -> String {
    (FIRST..)
        .step_by(1_000_000_000)
        .zip(VALUES)
        .map(|(at, value)| {
            format!("{{\"event_time\":{at},\"instrument\":\"sim.alpha\",\"values\":{{\"ema3\":{value}}}}}\n")
        })
        .collect()
}
