//! One seed: the scene is set, played until everything has come to its end or should have, and judged.

use std::cell::Cell;
use std::fmt::Write as _;
use std::rc::Rc;

use super::Mistake;
use super::client::{self, Catalogue};
use super::judge::{Golden, Violation};
use super::lanes::{self, Stream};
use super::nemesis::{self, Crew};
use super::options::Options;
use super::seen::Sights;
use super::worker;
use super::world::{Proc, Sim};
use crate::flow::{self, Flow};
use crate::ids::Hash;

/// Virtual time that everything has to come to its end once the faults have stopped.
const CALM: u64 = 180_000_000;
const EVENTS_MAX: u64 = 14;

/// What a seed came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub options: Options,
    /// Over every step, in order.
    pub trace_hash: Hash,
    pub steps: u64,
    /// Virtual microseconds.
    pub micros: u64,
    /// Comparisons that the judge made.
    pub judged: u64,
    /// Rule and what broke it.
    pub violations: Vec<(&'static str, String)>,
    /// The last lines, or all of them.
    pub trace: Vec<String>,
    pub(super) sights: Sights,
}

/// Plays one seed. `keeps_trace`: all lines of it, not only the last.
#[must_use]
pub fn play(seed: u64, mistake: Option<Mistake>, keeps_trace: bool) -> Outcome {
    let sim = Sim::new(seed, mistake, keeps_trace);
    let catalogue = Rc::new(furnish(&sim));
    let crew = Rc::new(Crew::default());
    for number in 1..=sim.options.workers {
        crew.seat(&sim, ("worker", number), worker::work);
    }
    let stream = Rc::new(lanes::furnish(&sim, &crew));
    let asking = Rc::new(Cell::new(0_u64));
    for number in 1..=2 {
        let id = sim.kernel.process(1_000);
        let me = Proc { sim: Rc::clone(&sim), id, name: format!("client{number}").into() };
        asking.set(asking.get() + 1);
        let (left, runs) = (Rc::clone(&asking), sim.options.runs / 2 + 1);
        let done = move || left.set(left.get() - 1);
        sim.kernel.spawn(id, client::ask(me, Rc::clone(&catalogue), runs, done));
    }
    let storm = sim.kernel.process(1_000);
    sim.kernel.spawn(storm, nemesis::rage(Rc::clone(&sim), Rc::clone(&crew)));
    if sim.options.truncated || sim.options.retention {
        let fate = sim.kernel.process(1_000);
        sim.kernel
            .spawn(fate, nemesis::shorten(Rc::clone(&sim), Rc::clone(&crew), Rc::clone(&stream)));
    }
    let end = sim.options.seconds * 1_000_000 + CALM;
    let over = || {
        let broken = !sim.judge.borrow().violations.is_empty();
        let idle = asking.get() == 0 && !sim.stormy.get();
        broken || idle && stream.is_over() && is_done(&sim)
    };
    sim.kernel.run(end, over);
    conclude(&sim, &stream, seed)
}

fn is_done(sim: &Sim) -> bool {
    let store = sim.store.borrow();
    store.runs.values().all(|run| run.state.is_final())
}

fn conclude(sim: &Rc<Sim>, stream: &Stream, seed: u64) -> Outcome {
    if sim.judge.borrow().violations.is_empty() {
        let seen = sim.judge.borrow_mut().end(&sim.store.borrow());
        seen.into_iter().for_each(|seen| sim.saw(seen));
        stream.judge(sim);
    }
    let violations = std::mem::take(&mut sim.judge.borrow_mut().violations);
    for Violation { rule, what } in &violations {
        sim.note(&format!("VIOLATION of {rule}: {what}"));
    }
    sim.kernel.clear();
    let trace = sim.trace.replace(super::trace::Trace::new(false));
    let steps = trace.steps;
    let (trace_hash, trace) = trace.end();
    let judged = sim.judge.borrow().judged;
    Outcome {
        seed,
        options: sim.options.clone(),
        trace_hash,
        steps,
        micros: sim.kernel.now(),
        judged,
        violations: violations.into_iter().map(|v| (v.rule, v.what)).collect(),
        trace,
        sights: sim.sights(),
    }
}

/// Snapshots and flows, and what they come to.
fn furnish(sim: &Sim) -> Catalogue {
    let mut bodies = Vec::new();
    let snapshots: Vec<Vec<u8>> = (0..2).map(|_| snapshot(sim)).collect();
    for (number, period) in [(0, 2), (1, 3)] {
        let text = format!(
            "kind: Flow\nname: sim{number}\ninstruments: [a, b]\nclock: {{allowed_lateness: 3s}}\n\
             nodes:\n  - {{id: e, type: ema, period: {period}, input: close}}\n  - {{id: m, type: mom, period: 2, input: e}}\n\
             sink: {{dataset: d}}\n"
        );
        let flow = Flow::parse(text.as_bytes(), "flow").expect("a flow of ours");
        let hash = sim.disk.borrow_mut().place(text.into_bytes());
        for body in &snapshots {
            let projection = flow::project(&flow, &mut body.as_slice(), "snapshot");
            let projection = projection.expect("a snapshot of ours");
            let snapshot = sim.disk.borrow_mut().place(body.clone());
            let batch = flow::compute(&flow, snapshot, &projection).expect("a flow over it");
            let golden =
                Golden { blob: Hash::of(&batch.to_blob()), values_hash: batch.values_hash };
            sim.judge.borrow_mut().goldens.insert((hash, snapshot), golden);
            bodies.push((hash, snapshot));
        }
        if number == 1 {
            bodies.push((hash, Hash::of(b"a snapshot that is not there")));
        }
    }
    if sim.between(1, 4) == 1 {
        let killer = Hash::of(b"a flow that kills");
        sim.killer.set(Some(killer));
        bodies.insert(bodies.len() - 1, (killer, Hash::of(&snapshots[0])));
    }
    Catalogue { bodies }
}

fn snapshot(sim: &Sim) -> Vec<u8> {
    let mut body = String::new();
    let mut seqs = [0; 2];
    for event in 0..sim.between(4, EVENTS_MAX) {
        // A flow over an instrument that is not there is refused.
        let instrument = if event < 2 { event } else { sim.between(0, 1) };
        let instrument = usize::try_from(instrument).unwrap_or(0);
        let (time, seq) = (event * 1_000_000_000, seqs[instrument]);
        seqs[instrument] += 1;
        let close = sim.between(1, 1_000);
        writeln!(
            body,
            r#"{{"close":{close}.5,"event_id":"e{event}","event_time":{time},"instrument":"{}","seq":{seq}}}"#,
            ["a", "b"][instrument]
        )
        .expect("a String takes all");
    }
    body.into_bytes()
}
