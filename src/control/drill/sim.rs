//! The simulation: seeds, on as many threads as there are processors, each seed in one of them. No server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use serde::Serialize;

use super::Verdict;
use crate::sim::{Campaign, Checked, Coverage, Failure, Options, play};

/// Seeds that one thread plays before it says so.
const AT_ONCE: u64 = 20;

/// Which seeds to play.
#[derive(Clone, Copy, Debug)]
pub struct SimRequest {
    pub seed: u64,
    /// As many as these, from `seed` on.
    pub seeds: u64,
    /// All steps of the first seed are wanted.
    pub trace: bool,
}

/// What the seeds came to.
#[derive(Debug, Serialize)]
pub struct SimReport {
    pub verdict: Verdict,
    pub passed: usize,
    pub failed: usize,
    pub seed: u64,
    pub seeds: u64,
    /// Of a seed its own; of many, over theirs in order.
    pub trace_hash: String,
    pub checks: Vec<Checked>,
    /// Interesting states, and how often they were met; 2,000 seeds must have met them all.
    pub sometimes: Vec<Coverage>,
    pub virtual_hours: f64,
    pub steps: u64,
    /// Comparisons made.
    pub judged: u64,
    pub seconds: f64,
    /// What one seed has drawn; absent for many.
    pub options: Option<Options>,
    pub failures: Vec<Failure>,
    /// Of the first seed, where it was asked for.
    pub trace: Option<Vec<String>>,
}

/// Plays the seeds; `progress` is told how many are done, of how many.
pub fn simulate(request: &SimRequest, progress: &dyn Fn(u64, u64)) -> SimReport {
    let began = Instant::now();
    let SimRequest { seed, seeds, trace } = *request;
    let campaign = campaign(seed, seeds, progress);
    let one = (seeds == 1 || trace).then(|| play(seed, None, trace));
    let checks = campaign.checks();
    let passed = checks.iter().filter(|check| check.pass).count();
    let (steps, judged) = campaign.work();
    SimReport {
        verdict: campaign.verdict(),
        passed,
        failed: checks.len() - passed,
        seed,
        seeds: campaign.seeds(),
        trace_hash: campaign.trace_hash().to_string(),
        checks,
        sometimes: campaign.coverage(),
        virtual_hours: campaign.hours(),
        steps,
        judged,
        seconds: began.elapsed().as_secs_f64(),
        options: one.as_ref().filter(|_| seeds == 1).map(|one| one.options.clone()),
        failures: campaign.failures().to_vec(),
        trace: one.filter(|_| trace).map(|one| one.trace),
    }
}

/// Tells the threads to stop when whoever waits for them is cut short.
struct Cut<'a>(&'a AtomicBool);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn campaign(seed: u64, seeds: u64, progress: &dyn Fn(u64, u64)) -> Campaign {
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64).min(seeds.max(1));
    let cut = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let _cut = Cut(&cut);
        let part = seeds.div_ceil(threads.max(1));
        let parts: Vec<_> = (0..threads)
            .map(|n| (seed.saturating_add(n * part), part.min(seeds.saturating_sub(n * part))))
            .map(|(first, count)| {
                let (tell, cut) = (tell.clone(), &cut);
                scope.spawn(move || part_of((first, count), cut, &tell))
            })
            .collect();
        drop(tell);
        let mut done = 0;
        progress(done, seeds);
        for more in told {
            done += more;
            progress(done, seeds);
        }
        let mut all = Campaign::default();
        for part in parts {
            all.join(part.join().expect("a simulation does not panic"));
        }
        all
    })
}

/// So many seeds from the first one on, unless it is cut short.
fn part_of((first, count): (u64, u64), cut: &AtomicBool, tell: &mpsc::Sender<u64>) -> Campaign {
    let mut campaign = Campaign::default();
    for n in 0..count {
        if cut.load(Ordering::Relaxed) {
            break;
        }
        campaign.play(first.saturating_add(n));
        if (n + 1) % AT_ONCE == 0 {
            // Nobody listens any more when it is cut short.
            if tell.send(AT_ONCE).is_err() {
                break;
            }
        }
    }
    campaign
}
