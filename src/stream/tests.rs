//! The engine against the batch: the same values from any log that schedules make, however it is cut and resumed.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::canonical::{self, Value};
use crate::flow::{self, Flow};
use crate::ids::Hash;
use crate::replay::{Arrivals, Schedule, Wanted, generate, partition};

const SCHEDULE: &str = include_str!("../../fixtures/fixture.faults.01.yaml");
const SNAPSHOT: &str = include_str!("../../fixtures/fixture.snapshot.01.jsonl");
const FLOW: &str = include_str!("../../manifests/fixture.01_A_feature.yaml");
const GOLDEN: &str = "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877";
const DAY: i64 = 86_400_000_000_000;

/// A record of a log in memory.
#[derive(Clone, Debug)]
struct Line {
    partition: i32,
    offset: i64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Line {
    fn record(&self) -> Record<'_> {
        let (partition, offset) = (self.partition, self.offset);
        Record { partition, offset, key: Some(&self.key), value: self.value.as_deref() }
    }
}

fn fixture_body() -> Vec<u8> {
    let mut body = Vec::new();
    for line in SNAPSHOT.lines() {
        canonical::parse(line.as_bytes(), "fixture").unwrap().write(&mut body).unwrap();
        body.push(b'\n');
    }
    body
}

/// The log of a body under a schedule, in four partitions, in the order of arrival.
fn topic(body: &[u8], schedule: &Schedule, times: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut ends = [0_i64; 4];
    for _ in 0..times {
        let mut arrivals = Arrivals::new(body, "s", schedule);
        while let Some(arrival) = arrivals.pull().unwrap() {
            let at = partition(arrival.key.as_bytes(), 4);
            let end = &mut ends[usize::try_from(at).unwrap()];
            lines.push(Line {
                partition: i32::try_from(at).unwrap(),
                offset: *end,
                key: arrival.key.as_bytes().to_vec(),
                value: arrival.event.map(<[u8]>::to_vec),
            });
            *end += 1;
        }
    }
    lines
}

fn plan(flow: &Arc<Flow>) -> Plan {
    let all = vec![0, 1, 2, 3];
    let home = |name: &String| i32::try_from(partition(name.as_bytes(), 4)).unwrap();
    let active = if flow.instruments.is_empty() {
        all.clone()
    } else {
        flow.instruments.iter().map(home).collect()
    };
    Plan {
        flow: Arc::clone(flow),
        partitions: all,
        active,
        home: None,
        topic_partitions: 4,
        max_jump_ns: 400 * DAY,
    }
}

/// Of one partition of a split run.
fn plan_of(flow: &Arc<Flow>, own: i32) -> Plan {
    let (partitions, active) = (vec![own], vec![own]);
    Plan { partitions, active, home: Some(partition), ..plan(flow) }
}

fn parsed(text: &str) -> Arc<Flow> {
    Arc::new(Flow::parse(text.as_bytes(), "f.yaml").unwrap())
}

/// All that a journal would hold.
#[derive(Default)]
struct Journal {
    delta: Delta,
    state: Option<Value>,
}

impl Journal {
    fn commit(&mut self, engine: &mut Engine) {
        let (new, state, watermark) = engine.cut();
        let all = &mut self.delta;
        all.fates.extend(new.fates);
        all.identities.extend(new.identities);
        all.accepted.extend(new.accepted);
        all.accepted.retain(|event| event.event_time >= watermark);
        all.applied.extend(new.applied);
        all.quarantined.extend(new.quarantined);
        // As it is kept: canonical bytes.
        let bytes = state.to_bytes().unwrap();
        self.state = Some(canonical::parse(&bytes, "state").unwrap());
    }

    fn resume(&self, plan: Plan) -> Engine {
        let kept = Kept {
            identities: vec![self.delta.identities.clone()],
            accepted: self.delta.accepted.clone(),
        };
        match &self.state {
            Some(state) => Engine::restore(plan, state, kept).unwrap(),
            None => Engine::new(plan),
        }
    }

    fn values(&self, engine: &Engine) -> Hash {
        let mut gathering = engine.gather();
        self.delta.applied.iter().for_each(|event| gathering.add(event));
        gathering.finish(Hash::of(b"log")).values_hash
    }
}

fn batch(flow: &Flow, body: &[u8]) -> Hash {
    let projection = flow::project(flow, &mut &body[..], "s").unwrap();
    flow::compute(flow, Hash::of(body), &projection).unwrap().values_hash
}

#[test]
fn the_fixture_with_its_faults_gives_the_golden_and_the_counts_of_the_seed() {
    let schedule = Schedule::parse(SCHEDULE.as_bytes(), "f.yaml").unwrap();
    let flow = parsed(FLOW);
    for (times, sums) in [(1, [23, 6, 15, 1, 0, 1]), (13, [299, 6, 195, 85, 0, 13])] {
        let mut engine = Engine::new(plan(&flow));
        for line in topic(&fixture_body(), &schedule, times) {
            engine.take(line.record());
        }
        let ledger = engine.ledger();
        let Ledger { read, consumed, filtered, duplicates_skipped, late, omitted, .. } = ledger;
        assert_eq!([read, consumed, filtered, duplicates_skipped, late, omitted], sums);
        assert!(ledger.holds());
        let mut journal = Journal::default();
        journal.commit(&mut engine);
        assert_eq!(journal.values(&engine).to_string(), GOLDEN);
    }
}

#[test]
fn a_time_far_ahead_moves_nothing_and_what_follows_is_not_late() {
    let flow = parsed(FLOW);
    let mut engine = Engine::new(plan(&flow));
    let year_2262 = 9_223_000_000_000_000_000_i64;
    let cases = [
        ("a", 1_000, Treatment::Consumed),
        ("far", year_2262, Treatment::Omitted),
        ("b", 2_000, Treatment::Consumed),
        ("far", year_2262, Treatment::Omitted),
        ("a", year_2262, Treatment::Duplicate),
        ("c", 3_000, Treatment::Consumed),
    ];
    for (offset, (id, time, expected)) in (0..).zip(cases) {
        let value = event(id, "sim.alpha", time, "1.0");
        let record = Record { partition: 3, offset, key: None, value: Some(value.as_bytes()) };
        assert_eq!(engine.take(record), Some(expected), "{id} at {time}");
    }
    assert_eq!(engine.standings()[3].watermark, Some(3_000 - 5_000_000_000));
}

#[test]
fn what_cannot_be_read_is_omitted_with_its_bytes_and_the_stream_goes_on() {
    let flow = parsed(FLOW);
    let mut engine = Engine::new(plan(&flow));
    let good = event("good", "sim.alpha", 5, "1e-400");
    let mut bad: Vec<Vec<u8>> =
        vec![b"".to_vec(), b"\xff\xfe".to_vec(), b"[1]".to_vec(), good.as_bytes()[..20].to_vec()];
    for close in ["NaN", "Infinity", "-Infinity", "1e400", "01", "\"1.0\"", "true", "[1.0]"] {
        bad.push(event("bad", "sim.alpha", 5, close).into_bytes());
    }
    bad.push(good.replace("\"seq\":0", "\"seq\":-1").into_bytes());
    bad.push(good.replace("\"event_time\":5", "\"event_time\":5.0").into_bytes());
    bad.push(good.replace("\"event_id\":\"good\"", "\"event_id\":7").into_bytes());
    for (value, offset) in bad.iter().zip(0..) {
        let record = Record { partition: 3, offset, key: None, value: Some(value) };
        let text = String::from_utf8_lossy(value);
        assert_eq!(engine.take(record), Some(Treatment::Omitted), "{text}");
    }
    let end = i64::try_from(bad.len()).unwrap();
    let spaced = good.replace(',', " , ");
    let record = Record { partition: 3, offset: end, key: None, value: Some(spaced.as_bytes()) };
    assert_eq!(engine.take(record), Some(Treatment::Consumed));
    let (delta, ..) = engine.cut();
    assert_eq!(delta.quarantined.len(), bad.len());
    for (kept, value) in delta.quarantined.iter().zip(&bad) {
        assert_eq!(kept.value.as_ref(), Some(value));
        assert_eq!(kept.hash, Hash::of(value));
        assert_eq!(kept.reason, Reason::Unreadable);
    }
}

#[test]
fn a_silent_partition_holds_the_watermark_until_it_says_that_it_is_idle() {
    let flow =
        parsed(&FLOW.replace("[sim.alpha]", "[sim.alpha, sim.beta]").replace("golden", "# golden"));
    let mut engine = Engine::new(plan(&flow));
    let mut at = [0_i64; 4];
    let mut take = |engine: &mut Engine, id: &str, instrument: &str, seconds: i64| {
        let home = partition(instrument.as_bytes(), 4);
        let value = event(id, instrument, seconds * 1_000_000_000, "1.0");
        let offset = &mut at[usize::try_from(home).unwrap()];
        *offset += 1;
        let partition = i32::try_from(home).unwrap();
        engine
            .take(Record { partition, offset: *offset, key: None, value: Some(value.as_bytes()) })
            .unwrap()
    };
    for second in 0..100 {
        assert_eq!(
            take(&mut engine, &format!("a{second}"), "sim.alpha", second),
            Treatment::Consumed
        );
    }
    assert_eq!(engine.watermark(), None, "sim.beta has not said anything");
    assert_eq!(engine.silent(), [0], "so it is named");
    engine.mark(0, 0, Marker::IdleConfirmed);
    assert_eq!(engine.silent(), [0; 0]);
    assert_eq!(engine.watermark(), Some(94 * 1_000_000_000));
    // Its own watermark would take it; what was decided stays decided.
    assert_eq!(take(&mut engine, "b0", "sim.beta", 93), Treatment::Late);
    assert_eq!(take(&mut engine, "b1", "sim.beta", 94), Treatment::Consumed);
    assert_eq!(take(&mut engine, "a100", "sim.alpha", 500), Treatment::Consumed);
    assert_eq!(engine.watermark(), Some(94 * 1_000_000_000), "sim.beta holds it again");
    engine.mark(0, 90, Marker::EndOfBoundedSource);
    assert!(!engine.has_ended());
    engine.mark(3, 900, Marker::EndOfBoundedSource);
    assert!(engine.has_ended());
    assert_eq!((engine.waiting(), engine.watermark()), (0, Some(i64::MAX)));
}

#[test]
fn in_a_split_run_a_record_that_lies_elsewhere_is_omitted() {
    let flow = parsed(FLOW);
    let mut plan = plan(&flow);
    plan.home = Some(partition);
    let mut engine = Engine::new(plan);
    let value = event("x", "sim.alpha", 5, "1.0");
    for (partition, key, expected) in [
        (0, Some("sim.alpha"), Treatment::Omitted),
        (3, Some("sim.gamma"), Treatment::Omitted),
        (3, None, Treatment::Omitted),
        (3, Some("sim.alpha"), Treatment::Consumed),
    ] {
        let offset = i64::try_from(engine.uncommitted()).unwrap();
        let key = key.map(str::as_bytes);
        let record = Record { partition, offset, key, value: Some(value.as_bytes()) };
        assert_eq!(engine.take(record), Some(expected));
    }
}

#[test]
fn a_state_of_another_flow_or_another_layout_is_refused() {
    let flow = parsed(FLOW);
    let mut engine = Engine::new(plan(&flow));
    let (_, state, _) = engine.cut();
    assert!(Engine::restore(plan(&flow), &state, Kept::default()).is_ok());
    let other = parsed(&FLOW.replace("period: 3", "period: 4"));
    assert_eq!(
        Engine::restore(plan(&other), &state, Kept::default()).unwrap_err().code,
        "STREAM_STATE"
    );
    let Value::Map(fields) = &state else { panic!("an object") };
    for name in fields.keys() {
        let mut less = fields.clone();
        less.remove(name);
        assert!(
            Engine::restore(plan(&flow), &Value::Map(less), Kept::default()).is_err(),
            "{name}"
        );
    }
}

fn event(id: &str, instrument: &str, time: i64, close: &str) -> String {
    format!(
        r#"{{"close":{close},"event_id":"{id}","event_time":{time},"instrument":"{instrument}","seq":0}}"#
    )
}

/// A body: for each event the step of time to it, its instrument and its close.
fn body_of(events: &[(i64, u8, Option<i16>)]) -> Vec<u8> {
    let mut lines: Vec<(i64, String, u64, String)> = Vec::new();
    let (mut time, mut seqs) = (0, [0_u64; 4]);
    for (at, (step, instrument, close)) in events.iter().enumerate() {
        time += step * 500_000_000;
        let name = format!("i{instrument}");
        let seq = &mut seqs[usize::from(*instrument)];
        let close =
            close.map_or("null".to_owned(), |close| format!("{:?}", f64::from(close) / 7.0));
        let line = format!(
            r#"{{"close":{close},"event_id":"e{at}","event_time":{time},"instrument":"{name}","seq":{seq}}}"#
        );
        lines.push((time, name, *seq, line));
        *seq += 1;
    }
    lines.sort();
    lines.into_iter().flat_map(|line| [line.3.into_bytes(), vec![b'\n']].concat()).collect()
}

/// Interleaves the partitions as the draws say, each in its own order.
fn interleaved(lines: &[Line], draws: &[u8]) -> Vec<Line> {
    let mut queues = [0, 1, 2, 3]
        .map(|at| lines.iter().filter(move |line| line.partition == at).cloned().peekable());
    let mut all = Vec::new();
    let mut draws = draws.iter().cycle();
    while all.len() < lines.len() {
        let from = usize::from(*draws.next().unwrap() % 4);
        let run = usize::from(*draws.next().unwrap() % 9);
        all.extend(queues[from].by_ref().take(run));
        // Draws of zeros alone would never end.
        all.extend(queues.iter_mut().find_map(Iterator::next));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Any snapshot, any faults that leave the flow's values alone, any order in which partitions are read, and kills
    /// anywhere between commits: the values of the batch, to the bit, and a ledger that holds.
    #[test]
    fn any_log_cut_anywhere_ends_equal_to_its_batch(
        events in prop::collection::vec((0_i64..4, 0_u8..4, prop::option::weighted(0.9, any::<i16>())), 8..80),
        faults in 0_u64..20,
        seed in any::<u64>(),
        draws in prop::collection::vec(any::<u8>(), 2..64),
        kills in prop::collection::vec((1_usize..40, any::<bool>()), 0..8),
        every in any::<bool>(),
    ) {
        let body = body_of(&events);
        let names: std::collections::BTreeSet<String> = events.iter().map(|event| format!("i{}", event.1)).collect();
        let first = names.first().unwrap();
        let instruments = if every { String::new() } else { format!("instruments: [{first}]\n") };
        let flow = parsed(&format!(
            "kind: Flow\nname: p\n{instruments}clock: {{allowed_lateness: 3s}}\nnodes:\n  - {{id: e, type: ema, period: 3, input: close}}\n  - {{id: r, type: rsi, period: 2, input: e}}\nsink: {{dataset: d}}\n"
        ));
        let read = if every { names.clone() } else { [first.clone()].into() };
        let wanted = Wanted { faults: faults.min(events.len() as u64 / 2), seed, flow: Some((read.into_iter().collect(), flow.allowed_lateness_ns)) };
        let schedule = generate(|| Ok::<_, crate::replay::Error>(&body[..]), &Hash::of(&body), &wanted);
        let Ok(schedule) = schedule else { return Ok(()) };
        let lines = interleaved(&topic(&body, &schedule, 1), &draws);

        let mut journal = Journal::default();
        let mut engine = journal.resume(plan(&flow));
        let mut kills = kills.into_iter();
        let mut next = kills.next();
        let (mut at, mut since) = (0, 0);
        while at < lines.len() {
            engine.take(lines[at].record());
            at += 1;
            since += 1;
            if next.is_some_and(|(after, _)| since >= after) {
                if next.is_some_and(|(_, commit)| commit) {
                    journal.commit(&mut engine);
                }
                // Killed: what was not committed is read again, and nothing of it was counted.
                engine = journal.resume(plan(&flow));
                let standings = engine.standings();
                at = lines.iter().position(|line| {
                    standings.iter().any(|lane| lane.partition == line.partition && line.offset >= lane.next_offset)
                }).unwrap_or(lines.len());
                since = 0;
                next = kills.next();
            }
        }
        journal.commit(&mut engine);
        let ledger = engine.ledger();
        prop_assert!(ledger.holds());
        prop_assert_eq!(ledger.read, lines.len() as u64);
        prop_assert_eq!(ledger.late, 0, "what lies within the lateness is not late");
        prop_assert_eq!(journal.delta.fates.len(), lines.len());
        prop_assert_eq!(journal.values(&engine), batch(&flow, &body));

        // Undisturbed, in the same order: the same state, byte for byte.
        let (mut clean, mut kept) = (Engine::new(plan(&flow)), Journal::default());
        for line in &lines {
            clean.take(line.record());
        }
        kept.commit(&mut clean);
        prop_assert_eq!(kept.state, journal.state);
        prop_assert_eq!(kept.delta.fates, journal.delta.fates);
        // In words: a null is not equal to itself.
        prop_assert_eq!(format!("{:?}", kept.delta.applied), format!("{:?}", journal.delta.applied));

        // Split by partition, an engine each: the same ledger, and together the same values.
        let (mut sum, mut batches) = (Ledger::default(), Vec::new());
        for own in 0..4 {
            let (mut part, mut kept) = (Engine::new(plan_of(&flow, own)), Journal::default());
            for line in lines.iter().filter(|line| line.partition == own) {
                part.take(line.record());
            }
            kept.commit(&mut part);
            sum = sum.plus(&part.ledger());
            let mut gathering = part.gather();
            kept.delta.applied.iter().for_each(|event| gathering.add(event));
            batches.push(gathering.finish(Hash::of(b"log")));
        }
        prop_assert_eq!(sum, ledger);
        prop_assert_eq!(flow::unite(&flow, Hash::of(b"log"), batches).values_hash, batch(&flow, &body));
    }

    /// The first events of a snapshot as the past of a stream, and a log of all of them opened at the first record of each
    /// partition that the past lacks: nothing is lost, nothing is applied twice, whatever the log repeats.
    #[test]
    fn a_past_and_the_log_behind_it_end_equal_to_the_batch_of_both(
        events in prop::collection::vec((0_i64..4, 0_u8..4, prop::option::weighted(0.9, any::<i16>())), 8..80),
        cut in 0.0_f64..=1.0,
        seed in any::<u64>(),
        draws in prop::collection::vec(any::<u8>(), 2..64),
        early in any::<bool>(),
        every in any::<bool>(),
    ) {
        let body = body_of(&events);
        let first = format!("i{}", events[0].1);
        let instruments = if every { String::new() } else { format!("instruments: [{first}]\n") };
        let flow = parsed(&format!(
            "kind: Flow\nname: p\n{instruments}clock: {{allowed_lateness: 3s}}\nnodes:\n  - {{id: e, type: ema, period: 3, input: close}}\nsink: {{dataset: d}}\n"
        ));
        let names: std::collections::BTreeSet<String> = events.iter().map(|event| format!("i{}", event.1)).collect();
        let read = if every { names } else { [first].into() };
        let wanted = Wanted { faults: events.len() as u64 / 4, seed, flow: Some((read.into_iter().collect(), flow.allowed_lateness_ns)) };
        let schedule = generate(|| Ok::<_, crate::replay::Error>(&body[..]), &Hash::of(&body), &wanted);
        let Ok(schedule) = schedule else { return Ok(()) };
        let lines = interleaved(&topic(&body, &schedule, 1), &draws);

        // The past, committed and taken up again halfway; what is offered twice is known.
        let snapshot: Vec<&[u8]> = body.split_inclusive(|byte| *byte == b'\n').map(|line| &line[..line.len() - 1]).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a few lines")]
        let past = &snapshot[..(snapshot.len() as f64 * cut) as usize];
        let (mut journal, mut engine) = (Journal::default(), Engine::new(plan(&flow)));
        let mut history = 0;
        for round in 1..=2 {
            for (line, at) in past.iter().take(past.len() * round / 2).zip(1..) {
                let seeded = engine.seed(line, ("s", at)).unwrap();
                history += u64::from(seeded == Seeded::New);
            }
            journal.commit(&mut engine);
            engine = journal.resume(plan(&flow));
        }
        prop_assert_eq!(engine.history(), history);

        // Where each partition opens; earlier changes nothing.
        for partition in 0..4 {
            let mine: Vec<&Line> = lines.iter().filter(|line| line.partition == partition).collect();
            let missing = mine.iter().find(|line| match engine.foresee(line.record()) {
                Foreseen::Missing { late } => { assert!(!late); true }
                Foreseen::Unreadable | Foreseen::Filtered | Foreseen::Known | Foreseen::Differs => false,
            });
            let opens = missing.map_or(i64::try_from(mine.len()).unwrap(), |line| line.offset);
            engine.begin(partition, if early { opens / 2 } else { opens });
        }
        for line in &lines {
            engine.take(line.record());
        }
        journal.commit(&mut engine);
        let ledger = engine.ledger();
        prop_assert!(ledger.holds());
        prop_assert_eq!((ledger.late, ledger.conflicts), (0, 0));
        prop_assert_eq!(engine.history(), history);
        prop_assert_eq!(journal.values(&engine), batch(&flow, &body));
    }
}

/// Cases of the property: as many as `PROPTEST_CASES` says, else enough to be quick.
fn cases() -> u32 {
    ProptestConfig::default().cases.max(1_000)
}

/// A journal in which one record of the flow was omitted for its time, and more came behind it.
fn jumped(more: &[i64]) -> (Arc<Flow>, Journal, Vec<u8>) {
    let flow = parsed(FLOW);
    let event = |id: &str, second: i64| {
        let time = 1_767_225_600_000_000_000 + second * 1_000_000_000;
        format!(
            r#"{{"event_id":"{id}","instrument":"sim.alpha","seq":{second},"event_time":{time},"close":{second}}}"#
        )
        .into_bytes()
    };
    let far = event("far", 7_200);
    let near = Plan { max_jump_ns: 3_600_000_000_000, ..plan(&flow) };
    let (mut engine, mut journal) = (Engine::new(near), Journal::default());
    let mut offset = 0;
    let mut take = |engine: &mut Engine, value: &[u8]| {
        let record = Record { partition: 3, offset, key: None, value: Some(value) };
        offset += 1;
        engine.take(record).unwrap()
    };
    assert_eq!(take(&mut engine, &event("e0", 0)), Treatment::Consumed);
    assert_eq!(take(&mut engine, &far), Treatment::Omitted);
    for second in more {
        assert_eq!(take(&mut engine, &event(&format!("e{second}"), *second)), Treatment::Consumed);
    }
    journal.commit(&mut engine);
    (flow, journal, far)
}

#[test]
fn what_was_omitted_is_taken_once_and_the_ledger_stays_whole() {
    let (flow, mut journal, far) = jumped(&[10]);
    let record = Record { partition: 3, offset: 1, key: None, value: Some(&far) };
    let mut near = journal.resume(Plan { max_jump_ns: 3_600_000_000_000, ..plan(&flow) });
    let still = near.retry(record, "");
    assert_eq!((still.treatment, still.reason), (Treatment::Omitted, Reason::TimeJump));
    assert_eq!((near.uncommitted(), near.cut().0), (0, Delta::default()), "it changed something");
    let mut engine = journal.resume(plan(&flow));
    let before = engine.ledger();
    assert_eq!(engine.retry(record, "because").treatment, Treatment::Consumed);
    journal.commit(&mut engine);
    let after = engine.ledger();
    assert_eq!((after.consumed, after.omitted), (before.consumed + 1, before.omitted - 1));
    assert!(after.holds() && after.read == before.read);
    // It moved the watermark as any other: what is far behind it was applied.
    assert_eq!((engine.waiting(), journal.delta.applied.len()), (1, 2));
    let mut engine = journal.resume(plan(&flow));
    let again = engine.retry(record, "because");
    assert_eq!(engine.ledger(), after);
    assert_eq!(again.treatment, Treatment::Omitted, "nothing is omitted any more");
    let fates: Vec<_> =
        journal.delta.fates.iter().filter(|fate| fate.offset == 1).map(|f| f.reason).collect();
    assert_eq!(fates, [Reason::TimeJump, Reason::Retried]);
}

#[test]
fn what_is_late_by_now_stays_omitted_and_so_does_what_says_nothing() {
    let (flow, journal, far) = jumped(&[3_000, 6_000, 9_000]);
    let mut engine = journal.resume(plan(&flow));
    let before = engine.ledger();
    let record = |value| Record { partition: 3, offset: 1, key: None, value };
    let late = engine.retry(record(Some(&far)), "");
    assert_eq!((late.treatment, late.event_id.as_deref()), (Treatment::Late, Some("far")));
    assert_eq!(engine.retry(record(None), "").reason, Reason::Tombstone);
    assert_eq!(engine.retry(record(Some(b"poison")), "").reason, Reason::Unreadable);
    let other = Record { partition: 0, ..record(Some(&far)) };
    assert_eq!(engine.retry(other, "").treatment, Treatment::Omitted);
    assert_eq!((engine.ledger(), engine.cut().0), (before, Delta::default()));
}

#[test]
fn a_record_that_is_taken_later_does_not_take_back_what_its_partition_said_of_its_end() {
    let (flow, journal, far) = jumped(&[]);
    let mut engine = journal.resume(plan(&flow));
    engine.mark(3, 2, Marker::IdleConfirmed);
    assert_eq!(
        engine
            .retry(Record { partition: 3, offset: 1, key: None, value: Some(&far) }, "")
            .treatment,
        Treatment::Consumed
    );
    assert!(engine.standings().iter().any(|lane| lane.partition == 3 && lane.idle));
}
