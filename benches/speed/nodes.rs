//! `ema(20)` and `rsi(14)` over a million generated prices, one thread, against TA-Lib's C loop on the same array.

use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use finaz::ids::Hash;
use finaz::nodes::{self, Definition};
use serde_json::Value;

use crate::figures::{Table, float};
use crate::number;
use crate::servers::Servers;
use crate::stage::{folder, project};

const PRICES: usize = 1_000_000;

pub(crate) fn run(servers: &Servers, table: &mut Table) {
    let times = number("BENCH_TIMES", 40);
    println!("nodes: {PRICES} prices, the fastest of {times} calls");
    let prices = walk(PRICES);
    let peer = talib(servers, &prices, times);
    for (name, period) in [("ema", 20), ("rsi", 14)] {
        let node = nodes::find(name).expect("a node");
        let (seconds, hash) = fastest(node, period, &prices, times);
        let what = format!("{name}({period}), values");
        let ours = per_value(seconds);
        let Some(peer) = &peer else {
            table.alone(&what, ours);
            continue;
        };
        let theirs = peer[name]["seconds"].as_f64().expect("seconds");
        let same = peer[name]["sha256"].as_str() == Some(hash.hex().as_str());
        let bits = if same { "the same bits" } else { "OTHER VALUES" };
        let peer = format!("TA-Lib C {} ({bits})", per_value(theirs));
        table.add(&what, ours, peer, Some(theirs / seconds));
    }
}

fn per_value(seconds: f64) -> String {
    format!("{:.2} ns each", seconds * 1e9 / float(PRICES))
}

/// A random walk from a fixed seed, in cents.
pub(crate) fn walk(len: usize) -> Vec<f64> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut cents: i32 = 1_000_000;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            cents += i32::try_from(state % 201).expect("small") - 100;
            cents = cents.clamp(1_000, 100_000_000);
            f64::from(cents) / 100.0
        })
        .collect()
}

/// Seconds of the fastest pass of a new node over all prices, and the hash of what it gave, warm-up as 0.0.
fn fastest(node: &Definition, period: u32, prices: &[f64], times: usize) -> (f64, Hash) {
    let mut best = f64::INFINITY;
    let mut values = Vec::new();
    for _ in 0..times {
        let started = Instant::now();
        let mut out = Vec::with_capacity(prices.len());
        (node.make)(period).extend(black_box(prices), &mut out);
        best = best.min(started.elapsed().as_secs_f64());
        values = black_box(out);
    }
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| if value.is_nan() { 0.0 } else { *value }.to_le_bytes())
        .collect();
    (best, Hash::of(&bytes))
}

/// What TA-Lib needs for the same array; `None` where it is not installed.
fn talib(servers: &Servers, prices: &[f64], times: usize) -> Option<Value> {
    let python = std::env::var_os("BENCH_PYTHON")?;
    let folder = folder(servers);
    let file = folder.path().join("prices.f64");
    let bytes: Vec<u8> = prices.iter().flat_map(|price| price.to_le_bytes()).collect();
    fs::write(&file, bytes).expect("a written file");
    let output = Command::new(python)
        .arg(project("scripts/bench/indicators.py"))
        .arg(&file)
        .arg(times.to_string())
        .output()
        .expect("python can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("a document"))
}
