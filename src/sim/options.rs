//! What a seed is like: how many of what, and how often which fault. Drawn, so that no two campaigns look at the same
//! corner only; one seed in ten has few faults and runs long.

use serde::Serialize;

use crate::drill::Draw;

/// Drawn for one seed. Rates are in a thousand calls, or in a minute of virtual time.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// Few faults, a long run.
    pub calm: bool,
    /// Virtual seconds with faults.
    pub seconds: u64,
    pub ttl_ms: u64,
    pub workers: u64,
    pub batch: u64,
    pub in_flight: u64,
    pub poll_ms: u64,
    pub runs: u64,
    /// In a thousand calls of the store: it never comes, its answer never comes, it takes long.
    pub request_lost: u64,
    pub reply_lost: u64,
    pub slow: u64,
    /// In a thousand batches.
    pub panics: u64,
    /// In a minute.
    pub kills: u64,
    pub pauses: u64,
    pub drains: u64,
    pub outages: u64,
    pub warehouse_outages: u64,
    pub power_cuts: u64,
    pub full_disks: u64,
    /// In a thousand.
    pub fsync_failed: u64,
    /// Of the stream: owners that want it, events of its snapshot, and whether each partition is a lease of its own.
    pub owners: u64,
    pub partitions: u64,
    pub events: u64,
    pub split: bool,
    pub commit_ms: u64,
    pub broker_outages: u64,
    /// In a thousand batches: written twice, in a transaction, first in one that is aborted.
    pub repeated: u64,
    pub transactions: u64,
    pub aborted: u64,
    /// In a thousand: rubbish or a hole, an event that comes too late.
    pub rubbish: u64,
    pub late: u64,
    /// The tail of a partition is cut off once, or its beginning is taken by retention.
    pub truncated: bool,
    pub retention: bool,
    /// Percent by which the clock of a process may be fast or slow.
    pub clock_percent: u64,
}

impl Options {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let calm = draw.between(1, 10) == 1;
        // Each fault is there in three seeds of four only: two that always come together hide each other.
        let mut often = |most: u64| match (calm, draw.between(1, 4)) {
            (true, _) => draw.between(0, most / 8),
            (false, 1) => 0,
            (false, _) => draw.between(1, most),
        };
        let (request_lost, reply_lost, slow) = (often(60), often(120), often(60));
        let (panics, kills, pauses, drains) = (often(60), often(16), often(16), often(4));
        let (outages, warehouse_outages) = (often(4), often(4));
        let (power_cuts, full_disks, fsync_failed) = (often(3), often(4), often(8));
        let (broker_outages, repeated, transactions) = (often(4), often(200), often(150));
        let (aborted, rubbish, late) = (often(150), often(150), often(100));
        let cut = draw.between(1, 20);
        Self {
            owners: draw.between(1, 3),
            partitions: draw.between(1, 4),
            events: draw.between(20, 120),
            split: draw.between(1, 4) == 1,
            commit_ms: draw.between(100, 1_500),
            broker_outages,
            repeated,
            transactions,
            aborted,
            rubbish,
            late,
            truncated: cut <= 2,
            retention: cut == 3,
            calm,
            seconds: if calm { draw.between(120, 240) } else { draw.between(30, 90) },
            ttl_ms: draw.between(800, 6_000),
            workers: draw.between(1, 4),
            batch: draw.between(1, 12),
            in_flight: draw.between(1, 4),
            poll_ms: draw.between(200, 2_000),
            runs: draw.between(5, 40),
            request_lost,
            reply_lost,
            slow,
            panics,
            kills,
            pauses,
            drains,
            outages,
            warehouse_outages,
            power_cuts,
            full_disks,
            fsync_failed,
            clock_percent: draw.between(0, 20),
        }
    }
}
