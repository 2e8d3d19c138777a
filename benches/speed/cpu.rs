//! Who used the processor: read from /proc, in seconds; zero for what is not there.

use std::fs;

/// Clock ticks a second, as Linux tells them to user space on every architecture that we build for.
const TICKS: f64 = 100.0;

/// Processor time of PostgreSQL, ClickHouse and this program's ended children.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) postgres: f64,
    pub(crate) clickhouse: f64,
    /// Children that were waited for: `finaz`.
    pub(crate) children: f64,
}

impl Used {
    /// What was used since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            postgres: self.postgres - before.postgres,
            clickhouse: self.clickhouse - before.clickhouse,
            children: self.children - before.children,
        }
    }
}

/// The numbers of /proc/PID/stat behind the name, which may hold anything: 0 is the state, 1 the parent.
fn stat(pid: &str) -> Option<Vec<f64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(|word| word.trim().parse().unwrap_or(0.0)).collect())
}

/// User and system time of this process itself.
pub(crate) fn of(pid: u32) -> f64 {
    stat(&pid.to_string()).map_or(0.0, |stat| (stat[11] + stat[12]) / TICKS)
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Children of this process that have ended and were waited for.
pub(crate) fn waited() -> f64 {
    stat("self").map_or(0.0, |stat| (stat[13] + stat[14]) / TICKS)
}

/// A server and its children, those that have ended included.
pub(crate) fn tree(root: u32) -> f64 {
    let ended =
        stat(&root.to_string()).map_or(0.0, |stat| (stat[11..15].iter().sum::<f64>()) / TICKS);
    let mut living = 0.0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        let Some(stat) = stat(pid) else { continue };
        if (stat[1] - f64::from(root)).abs() < 0.5 {
            living += stat[11] + stat[12];
        }
    }
    ended + living / TICKS
}

/// The most memory that a living process ever had resident, in bytes.
pub(crate) fn peak_memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok().map(|kb| kb * 1024)
}
