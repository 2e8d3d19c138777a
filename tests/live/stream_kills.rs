//! `kill -9` of a stream at any instant: it ends where an undisturbed one does, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use finaz::artifacts::Artifacts;
use finaz::journal::{Head, Kind, Segment};
use krafka::Record;
use serde_json::Value;

use crate::dice::Dice;
use crate::process::{Run, elapsed, poll, until};
use crate::stage::Stage;
use crate::topics::{Log, lasting};

const SOON: Duration = Duration::from_secs(90);
const KILLS: usize = 50;
/// Records that come for each of them.
const CHUNK: usize = 80;
const INSTRUMENTS: [&str; 5] = ["a", "b", "c", "d", "not.read"];

/// Records as a bad day has them: doubles, late ones, tombstones, rubbish, a conflict, those of another instrument.
fn chunk(log: &Log, dice: &mut Dice, from: usize) -> Vec<Record> {
    let mut records = Vec::new();
    for at in from..from + CHUNK {
        let instrument = INSTRUMENTS[dice.pick(0..INSTRUMENTS.len())];
        let second = i64::try_from(at).expect("small");
        let id = format!("{instrument}.{at}");
        let record =
            log.record(&id, instrument, second - i64::try_from(dice.pick(0..9)).expect("small"));
        let written = match dice.pick(0..20) {
            0 => log.record(&format!("{id}.late"), instrument, second - 40),
            1 => Record::tombstone(&log.topic, id).partition(log.home(instrument)),
            2 => log.valued(instrument, *b"\xff no event"),
            3 => log.record(&format!("{instrument}.0"), instrument, second),
            4 => {
                records.push(record.clone());
                record
            }
            _ => record,
        };
        records.push(written);
    }
    records
}

/// What became of each record, by place; from the journal itself, so that each is seen once and none twice.
fn fates(stage: &Stage, run: &str) -> BTreeMap<(i32, i64), String> {
    let head = stage.value(&format!(
        "SELECT encode(head, 'hex') FROM finaz.streams WHERE name = 'stream/{run}'"
    ));
    let head = format!("sha256:{head}").parse().expect("a hash");
    let artifacts = Artifacts::open(&stage.artifacts()).expect("the store");
    let head = Head::parse(&artifacts.get(&head).expect("the head"), "head").expect("a head");
    let mut found = BTreeMap::new();
    for segment in head.segments.of(Kind::Fates) {
        let bytes = artifacts.get(&segment.hash).expect("a segment");
        let segment = Segment::parse(&bytes, Kind::Fates, "segment").expect("a segment");
        for (_, fate) in segment.fates() {
            let what = format!("{:02x?} {} {}", fate.id, fate.treatment.word(), fate.reason.word());
            let place = (fate.partition, fate.offset);
            assert_eq!(found.insert(place, what), None, "{place:?} was decided twice");
        }
    }
    found
}

/// Starts it until the lease of the one that was killed has run out.
#[track_caller]
fn succeed(stage: &Stage, args: &[&str]) -> Run {
    until("the lease runs out", SOON, || {
        let run = stage.finaz(args);
        if run.exit == Some(0) {
            return Some(run);
        }
        run.refuses(1, "STREAM_LEASE_OCUPADO");
        None
    })
}

/// The records that a run did not take, without the time of their commits.
fn quarantine(stage: &Stage, run: &str) -> Vec<Value> {
    let list = stage.json(&["stream", "quarantine", "list", "--run-id", run]);
    let mut rows = list["quarantined"].as_array().expect("a list").clone();
    for row in &mut rows {
        row.as_object_mut().expect("a row").remove("at");
    }
    rows.sort_by_key(|row| (row["partition"].as_i64(), row["offset"].as_i64()));
    rows
}

/// Waits for the instant of the next kill: every other one anywhere, the rest behind a commit. On a busy machine few come
/// so far within a time that was taken on a calm one.
fn wait_to_kill(
    dice: &mut Dice,
    round: usize,
    lasts: Duration,
    commits: impl FnMut() -> Option<()>,
) {
    let mut limit = lasts.min(Duration::from_secs(1));
    if round.is_multiple_of(2) {
        until("it commits or is gone", SOON, commits);
        limit /= 4;
    }
    // Nothing to see: this is the wait.
    let _nothing: Option<()> = poll(dice.instant(limit), || None);
}

#[test]
fn killed_fifty_times_it_ends_byte_for_byte_as_if_it_never_was() {
    let Some(log) = Log::new(4) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "0.4");
    let mut dice = Dice::new("stream kills");
    let flow = stage.live_flow("f", &INSTRUMENTS[..4]);
    let start = |every: &str, owner: &str| {
        let more = ["--run-id", "killed", "--commit-every", every, "--owner", owner];
        stage.start(&log.stream(&flow, &more))
    };
    let (seq, read) = (
        "SELECT coalesce(max(seq), 0) FROM finaz.streams",
        "SELECT coalesce(max((report::json->>'read')::int), 0) FROM finaz.streams",
    );
    let mut written = 0;
    let mut write = |dice: &mut Dice, at: usize| {
        let records = chunk(&log, dice, at);
        written += records.len();
        log.write(records);
        written
    };
    // How long it takes from its start to the commit of a chunk.
    let all = write(&mut dice, 0);
    let mut calm = start("0.01", "calm");
    let lasts = elapsed(|| until("it commits", SOON, || (stage.count(read) >= all).then_some(())));
    calm.kill();
    let (mut cut_off, mut progressed, mut total) = (0, 0, 0);
    for round in 1..=KILLS {
        let (before, all) = (stage.count(seq), write(&mut dice, round * CHUNK));
        let every = ["0.01", "0.02", "0.05", "0.5"][dice.pick(0..4)];
        let name = format!("victim{round}");
        let owns = format!("SELECT count(*) FROM finaz.leases WHERE owner LIKE '{name}/%'");
        let mut victim = until("the lease runs out", SOON, || {
            let mut victim = start(every, &name);
            // The one killed before holds it for a while.
            let owner = until("it owns the stream or is refused", SOON, || {
                let owner = stage.count(&owns) > 0;
                (owner || !victim.is_running()).then_some(owner)
            });
            owner.then_some(victim)
        });
        let had = || stage.count(seq) > before;
        wait_to_kill(&mut dice, round, lasts, || (had() || !victim.is_running()).then_some(()));
        victim.kill();
        cut_off += usize::from(stage.count(read) < all);
        progressed += usize::from(stage.count(seq) > before);
        total = all;
    }
    let total = total.to_string();
    let run = |run: &str| {
        let emit = stage.path(&format!("{run}.jsonl"));
        let more = ["--run-id", run, "--once-n", &total, "--emit", emit.to_str().expect("a path")];
        let report = succeed(&stage, &log.stream(&flow, &more)).json();
        (report, fs::read(emit).expect("the values"))
    };
    let (killed, killed_values) = run("killed");
    let (calm, calm_values) = run("calm");
    assert_eq!(lasting(&killed), lasting(&calm));
    assert_eq!(killed["ledger_ok"], true);
    assert!(killed_values == calm_values, "other values");
    for name in ["consumed", "filtered", "duplicates_skipped", "late", "omitted", "conflicts"] {
        assert!(killed[name].as_u64() > Some(10), "a log without {name} shows little: {killed}");
    }
    let (found, expected) = (fates(&stage, "killed"), fates(&stage, "calm"));
    assert_eq!(found, expected);
    assert_eq!(found.len().to_string(), total);
    for (run, id) in [("killed", "a.0"), ("calm", "a.0")] {
        assert_eq!(stage.explain(run, id), stage.explain("calm", id));
    }
    assert_eq!(quarantine(&stage, "killed"), quarantine(&stage, "calm"));
    assert_eq!(stage.json(&["refused", "list"])["refused"], serde_json::json!([]));
    assert!(progressed >= KILLS / 5, "only {progressed} of {KILLS} committed anything");
    assert!(cut_off >= KILLS / 10, "only {cut_off} of {KILLS} were cut off: nothing was shown");
}
