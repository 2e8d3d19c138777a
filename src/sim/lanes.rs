//! The stream of a seed: a snapshot, a schedule of faults, a topic, the lanes that read it, and what must come of it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use super::broker::{Broker, Got};
use super::nemesis::Crew;
use super::owner::{self, Lane, decided, feed};
use super::seen::Seen;
use super::source::{self, Arrival};
use super::world::{Fault, Proc, Sim};
use crate::flow::{self, Flow, unite};
use crate::ids::{Hash, StreamIdentity};
use crate::journal::Head;
use crate::replay::{self, Arrivals, Wanted, generate, partition};
use crate::stream::{Engine, Plan};

const LATENESS: i64 = 3_000_000_000;
const DAY: i64 = 86_400_000_000_000;

/// What is read, and what it must come to.
pub(super) struct Stream {
    pub(super) lanes: Rc<Vec<Rc<Lane>>>,
    flow: Arc<Flow>,
    /// What a batch over the same events comes to.
    golden: Hash,
    partitions: Vec<i32>,
    /// A partition has lost something.
    pub(super) cut: Rc<Cell<bool>>,
    /// Producers wait.
    pub(super) held: Rc<Cell<bool>>,
}

/// Sets the scene: producers and owners at work.
pub(super) fn furnish(sim: &Rc<Sim>, crew: &Crew) -> Stream {
    let count = sim.options.partitions;
    let partitions: Vec<i32> = (0..count).filter_map(|n| i32::try_from(n).ok()).collect();
    *sim.broker.borrow_mut() = Broker::new(partitions.len());
    let body = snapshot(sim);
    let reads = [&["i0"][..], &["i1", "i3"], &["i0", "i1", "i2"]];
    let reads = reads[usize::try_from(sim.between(0, 2)).unwrap_or(0)];
    let text = format!(
        "kind: Flow\nname: stream\ninstruments: [{}]\nclock: {{allowed_lateness: 3s}}\nnodes:\n  \
         - {{id: e, type: ema, period: 3, input: close}}\n  - {{id: r, type: rsi, period: 2, input: e}}\nsink: {{dataset: d}}\n",
        reads.join(", ")
    );
    let flow = Arc::new(Flow::parse(text.as_bytes(), "flow").expect("a flow of ours"));
    let projection = flow::project(&flow, &mut body.as_slice(), "snapshot").expect("a snapshot");
    let golden = flow::compute(&flow, Hash::of(&body), &projection).expect("a flow over it");
    let (cut, held) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let lanes: Vec<Rc<Lane>> = lanes(sim, &flow, &partitions, &cut);
    let lanes = Rc::new(lanes);
    produce(sim, &body, (&flow, reads), &held);
    for number in 1..=sim.options.owners {
        let lanes = Rc::clone(&lanes);
        // One name for all of them: it is the rest of the token that tells them apart.
        crew.seat(sim, ("owner/", number), move |me, token, drains| {
            owner::own(me, token, drains, Rc::clone(&lanes))
        });
    }
    Stream { lanes, flow, golden: golden.values_hash, partitions, cut, held }
}

fn home_of(sim: &Sim, instrument: &str) -> i32 {
    let count = u32::try_from(sim.options.partitions).unwrap_or(1);
    i32::try_from(partition(instrument.as_bytes(), count)).unwrap_or(0)
}

fn lanes(sim: &Sim, flow: &Arc<Flow>, partitions: &[i32], cut: &Rc<Cell<bool>>) -> Vec<Rc<Lane>> {
    let homes: BTreeSet<i32> = flow.instruments.iter().map(|name| home_of(sim, name)).collect();
    let lane = |own: Option<i32>| {
        let identity = StreamIdentity {
            run_id: "sim".to_owned(),
            cluster: "c".to_owned(),
            topic_id: "t1".to_owned(),
            topic: "t".to_owned(),
            group: "g".to_owned(),
            flow: flow.hash,
            flow_name: flow.name.clone(),
            partitions: own.map(|own| vec![own]),
        };
        let plan = Plan {
            flow: Arc::clone(flow),
            partitions: own.map_or_else(|| partitions.to_vec(), |own| vec![own]),
            active: own.map_or_else(|| homes.iter().copied().collect(), |own| vec![own]),
            home: own.map(|_| partition as fn(&[u8], u32) -> u32),
            topic_partitions: u32::try_from(partitions.len()).unwrap_or(1),
            max_jump_ns: 400 * DAY,
        };
        Rc::new(Lane {
            identity,
            plan,
            flow: Arc::clone(flow),
            ended: RefCell::new(None),
            halted: RefCell::new(None),
            begun: RefCell::default(),
            cut: Rc::clone(cut),
        })
    };
    if sim.options.split {
        homes.iter().map(|own| lane(Some(*own))).collect()
    } else {
        vec![lane(None)]
    }
}

fn produce(sim: &Rc<Sim>, body: &[u8], (flow, reads): (&Flow, &[&str]), held: &Rc<Cell<bool>>) {
    let wanted = Wanted {
        faults: sim.options.events / 5,
        seed: sim.between(0, 1 << 40),
        flow: Some((
            reads.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>(),
            flow.allowed_lateness_ns,
        )),
    };
    let schedule = generate(|| Ok::<_, replay::Error>(body), &Hash::of(body), &wanted);
    let schedule = schedule.expect("a schedule for it");
    let mut queues = vec![Vec::new(); usize::try_from(sim.options.partitions).unwrap_or(1)];
    let mut arrivals = Arrivals::new(body, "snapshot", &schedule);
    while let Some(arrival) = arrivals.pull().expect("a snapshot of ours") {
        let home = usize::try_from(home_of(sim, arrival.key)).unwrap_or(0);
        let read = reads.contains(&arrival.key) && arrival.event.is_some();
        queues[home].push(Arrival {
            key: arrival.key.as_bytes().to_vec(),
            value: arrival.event.map(<[u8]>::to_vec),
            time: read.then(|| time_of(arrival.event.unwrap_or_default())),
        });
    }
    for (partition, queue) in (0..).zip(queues) {
        let id = sim.kernel.process(1_000);
        let me = Proc { sim: Rc::clone(sim), id, name: format!("source{partition}").into() };
        sim.kernel.spawn(id, source::write(me, partition, queue, LATENESS, Rc::clone(held)));
    }
}

/// The time of an event as it is written.
fn time_of(event: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(event);
    let digits = text.split("\"event_time\":").nth(1).unwrap_or_default();
    digits.split(',').next().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

fn snapshot(sim: &Sim) -> Vec<u8> {
    let (mut body, mut seqs, mut time) = (String::new(), [0; 4], 1_000_000_000_000_i64);
    for event in 0..sim.options.events {
        let instrument = usize::try_from(if event < 4 { event } else { sim.between(0, 3) });
        let instrument = instrument.unwrap_or(0);
        time += i64::try_from(sim.between(1, 2_000)).unwrap_or(1) * 1_000_000;
        let seq = seqs[instrument];
        seqs[instrument] += 1;
        let close = match sim.between(0, 9) {
            0 => "null".to_owned(),
            some => format!("{some}{}.25", sim.between(0, 99)),
        };
        writeln!(
            body,
            r#"{{"close":{close},"event_id":"e{event}","event_time":{time},"instrument":"i{instrument}","seq":{seq}}}"#
        )
        .expect("a String takes all");
    }
    body.into_bytes()
}

impl Stream {
    pub(super) fn is_over(&self) -> bool {
        self.lanes.iter().all(|lane| lane.is_over())
    }

    /// What must be so at the end.
    pub(super) fn judge(&self, sim: &Sim) {
        for lane in self.lanes.iter() {
            let name = lane.identity.lease_name();
            let breaks = |rule, what| sim.judge.borrow_mut().breaks(rule, what);
            if !lane.is_over() {
                breaks("I12", format!("{name} has not come to its end"));
            } else if let Some(why) = lane.halted.borrow().as_ref()
                && !lane.cut.get()
            {
                breaks("I12", format!("{name} halts for {why}, and its log is whole"));
            }
            if let Err((rule, what)) = self.judge_journal(sim, lane) {
                breaks(rule, format!("{name}: {what}"));
            }
        }
        let batches: Option<Vec<_>> =
            self.lanes.iter().map(|lane| lane.ended.borrow().clone()).collect();
        let Some(batches) = batches else { return };
        let values = unite(&self.flow, self.flow.hash, batches).values_hash;
        let golden = if self.cut.get() { self.undisturbed(sim) } else { self.golden };
        if values == golden {
            sim.saw(Seen::StreamGolden);
        } else {
            let what = format!("the stream comes to {values} and should come to {golden}");
            sim.judge.borrow_mut().breaks("I8", what);
        }
    }

    /// What one owner would come to that reads the log as it is now, undisturbed.
    fn undisturbed(&self, sim: &Sim) -> Hash {
        let broker = sim.broker.borrow();
        let parts = self.lanes.iter().map(|lane| {
            let mut engine = Engine::new(lane.plan.clone());
            let began =
                sim.judge.borrow().streams.get(&lane.identity.lease_name()).map(|s| s.began);
            let begun = lane.begun.borrow();
            let begun = began.and_then(|fence| begun.get(&fence));
            for partition in lane.plan.partitions.iter().copied() {
                // What was gone before the first commit belongs to nobody.
                let from = begun.and_then(|begun| begun.get(&partition)).copied().unwrap_or(0);
                engine.begin(partition, from);
                for got in broker.read(partition, from, usize::MAX) {
                    feed(&mut engine, partition, got);
                }
            }
            let (delta, ..) = engine.cut();
            let mut gathering = engine.gather();
            delta.applied.iter().for_each(|event| gathering.add(event));
            gathering.finish(self.flow.hash)
        });
        unite(&self.flow, self.flow.hash, parts.collect()).values_hash
    }

    /// Every record before the next offset was decided, once, and nothing else was.
    fn judge_journal(&self, sim: &Sim, lane: &Lane) -> Result<(), (&'static str, String)> {
        let name = lane.identity.lease_name();
        let last = sim.judge.borrow().streams.get(&name).map(|stream| stream.head);
        let Some(hash) = last else { return Ok(()) };
        let disk = sim.disk.borrow();
        let get = |hash: &Hash| disk.get(hash);
        let torn = |fault: Fault| ("I11", fault.to_string());
        let head = Head::parse(&get(&hash).map_err(torn)?, "head");
        let head = head.map_err(|error| ("I11", error.to_string()))?;
        let decided = decided(&head, &get).map_err(torn)?;
        if let Some((at, times)) = decided.iter().find(|(_, times)| **times > 1) {
            return Err(("I7", format!("{at:?} was decided {times} times")));
        }
        if self.cut.get() {
            return Ok(());
        }
        let position = crate::stream::Position::of(&head.state);
        let position = position.ok_or(("I11", "its state is none".to_owned()))?;
        let broker = sim.broker.borrow();
        let mut there = BTreeSet::new();
        for partition in self.partitions.iter().copied() {
            let Some(next) = position.next_offsets.get(&partition) else { continue };
            let got = broker.read(partition, 0, usize::try_from(*next).unwrap_or(0));
            there.extend(got.into_iter().filter_map(|got| match got {
                Got::Record { offset, .. } => Some((partition, offset)),
                Got::Marker { .. } | Got::Hole { .. } => None,
            }));
        }
        let known: BTreeSet<(i32, i64)> = decided.into_keys().collect();
        if let Some(lost) = there.difference(&known).next() {
            return Err(("I5", format!("{lost:?} was passed and not decided")));
        }
        match known.difference(&there).next() {
            Some(more) => Err(("I6", format!("{more:?} was decided and is no record"))),
            None => Ok(()),
        }
    }
}
