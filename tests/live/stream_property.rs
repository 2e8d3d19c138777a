//! Random snapshots, random faults, random kills, on the real servers: what comes out is what a batch computes, to the bit.
//!
//! `STREAM_CASES` says how many; `make nightly` runs 200 and, without servers, 20,000 (`src/stream/tests.rs`). A lease that a
//! killed owner has left is let run out by its row: what comes then is the same, sooner.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use finaz::config::{Given, Origin};
use finaz::control::admit::AdmitRequest;
use finaz::control::replay::{Faults, ReplayRequest, Replayed, Speed};
use finaz::control::stream::{MAX_JUMP, Pauses, Split, StreamReport, StreamRequest};
use finaz::control::worker::Stop;
use finaz::control::{Control, Error, dry_run, replay, stream};
use tokio::sync::watch;

use crate::dice::Dice;
use crate::process::poll;
use crate::stage::Stage;
use crate::topics::{BASE, Log};

/// Cases that run beside each other; most of a case is waiting.
const LANES: usize = 3;
/// Cases in `make test`.
const CASES: usize = 40;
const PARTITIONS: u32 = 4;
const SIGTERM: i32 = 15;
const SOON: Duration = Duration::from_secs(30);

/// What one that was dropped had sent may be carried out after its lease had run out, and give it the lease again.
fn is_held(done: &Result<StreamReport, Error>) -> bool {
    matches!(done, Err(Error::StreamHeld { .. }))
}

/// How a run was cut short, how often; a campaign that showed nothing must not pass for one.
#[derive(Debug, Default)]
struct Shown {
    killed: AtomicUsize,
    dropped: AtomicUsize,
    drained: AtomicUsize,
    pieces: AtomicUsize,
    split: AtomicUsize,
    faults: AtomicUsize,
    /// Ends of either kind that came behind a commit and before the last record.
    within: AtomicUsize,
}

/// Servers, folder and topic of one lane, used again for each of its cases.
struct Lane {
    log: Log,
    stage: Stage,
    control: Arc<Control>,
}

/// One run of one case.
struct Case {
    name: String,
    snapshot: String,
    flow: String,
    total: u64,
    split: bool,
}

impl Lane {
    fn new() -> Option<Self> {
        let log = Log::new(PARTITIONS)?;
        let mut stage = Stage::for_log(&log)?;
        stage.set("FINAZ_LEASE_TTL_SEC", "20");
        let mut given = Given::default();
        let artifacts = stage.artifacts().display().to_string();
        for (key, value) in [
            ("pg_url", stage.pg_url()),
            ("brokers", &log.brokers),
            ("artifacts", &artifacts),
            ("lease_ttl_sec", "20"),
        ] {
            given.set(key, value.to_owned(), Origin::Environment);
        }
        let (settings, _) = given.resolve(None).expect("settings");
        Some(Self { log, stage, control: Arc::new(Control::new(settings)) })
    }

    /// A snapshot, a flow, and the arrivals of a fault schedule in the topic, where nothing else is left.
    fn begin(&self, dice: &mut Dice, number: usize) -> (Case, Replayed) {
        let (name, count) = (format!("case{number}"), dice.pick(8..90));
        let (mut time, mut lines) = (BASE, String::new());
        for at in 0..count {
            time += i64::try_from(dice.pick(0..4)).expect("small") * 500_000_000;
            // A batch refuses a flow over an instrument that is not there.
            let instrument = if at < 5 { at } else { dice.pick(0..5) };
            let close = match dice.pick(0..10) {
                0 => "null".to_owned(),
                draw => format!("{draw}.{}", dice.pick(1..1000)),
            };
            writeln!(lines, r#"{{"event_id":"e{at}","instrument":"i{instrument}","seq":0,"event_time":{time},"close":{close}}}"#).expect("a string takes all");
        }
        let snapshot = self.stage.file(&format!("{name}.jsonl"), lines);
        let reads = ["[i0]", "[i1, i3]", "[i0, i1, i2]", ""][dice.pick(0..4)];
        let reads =
            if reads.is_empty() { String::new() } else { format!("instruments: {reads}\n") };
        let flow = format!(
            "kind: Flow\nname: {name}\n{reads}clock: {{allowed_lateness: 3s}}\n\
             nodes:\n  - {{id: e, type: ema, period: 3, input: close}}\n  - {{id: r, type: rsi, period: 2, input: e}}\n\
             sink: {{dataset: d}}\n"
        );
        let flow = self.stage.file(&format!("{name}.yaml"), flow);
        let faults = dice.pick(0..12).min(count / 2);
        let request = ReplayRequest {
            snapshot: Some(snapshot.clone()),
            faults: Faults::Generated {
                count: faults.try_into().expect("few"),
                flow: Some(flow.clone()),
            },
            seed: Some(dice.pick(0..1_000_000).try_into().expect("small")),
            out: None,
            faults_out: None,
            dry_run: false,
            topic: Some(self.log.topic.clone()),
            create_topic: false,
            speed: Speed::Max,
            metrics_file: None,
        };
        let control = Arc::clone(&self.control);
        let replayed = self.stage.runtime.block_on(async {
            let work =
                tokio::task::spawn_blocking(move || replay::replay(&control, &request, &|_| ()));
            work.await.expect("no panic")
        });
        let replayed = replayed.expect("a replay");
        let (total, split) = (replayed.published, dice.pick(0..4) == 0);
        (Case { name, snapshot, flow, total, split }, replayed)
    }

    fn request(&self, case: &Case, once_n: Option<u64>) -> StreamRequest {
        let all = || Split::Partitions((0..PARTITIONS).collect());
        StreamRequest {
            topic: self.log.topic.clone(),
            group: "g".to_owned(),
            flow: case.flow.clone(),
            run_id: Some(case.name.clone()),
            split: if case.split { all() } else { Split::Whole },
            once_n,
            emit: None,
            commit_every: 0.01,
            max_jump: MAX_JUMP.to_owned(),
            pauses: Pauses::DEFAULT,
            checkpoints: None,
            stages: false,
        }
    }

    fn committed(&self, case: &Case) -> u64 {
        let read = format!(
            "SELECT coalesce(sum((report::json->>'read')::bigint), 0) FROM finaz.streams WHERE run_id = '{}'",
            case.name
        );
        self.stage.value(&read).parse().expect("a count")
    }

    /// Ends a run somewhere, in one of four ways.
    fn cut(&self, dice: &mut Dice, case: &Case, shown: &Shown) {
        let request = self.request(case, None);
        let (tell, told) = watch::channel(Stop::No);
        let way = dice.pick(0..8);
        match way {
            // A process, and kill -9.
            0 => {
                let args =
                    ["stream", "--topic", &request.topic, "--group", "g", "--flow", &case.flow];
                let more = ["--run-id", &case.name, "--commit-every", "0.01"];
                let partitions: &[&str] =
                    if case.split { &["--partitions", "0,1,2,3"] } else { &[] };
                let mut process = self.stage.start(&[&args[..], &more, partitions].concat());
                let _nothing: Option<()> = poll(dice.instant(Duration::from_millis(250)), || None);
                process.kill();
                shown.killed.fetch_add(1, Ordering::Relaxed);
            }
            // In order, by a signal.
            1 | 2 => {
                let instant = dice.instant(Duration::from_millis(120));
                let (ended, ()) = self.stage.runtime.block_on(async {
                    tokio::join!(stream::stream(&self.control, request, told), async {
                        tokio::time::sleep(instant).await;
                        tell.send_replace(Stop::Drain(SIGTERM));
                    })
                });
                let (name, is_held) = (&case.name, is_held(&ended));
                let drained = matches!(ended, Ok(_) | Err(Error::Interrupted { .. }));
                assert!(drained || is_held, "{name}: {ended:?}");
                shown.drained.fetch_add(usize::from(drained), Ordering::Relaxed);
            }
            // After so many records; of a split run nobody knows which.
            3 | 4 if !case.split => {
                let least = usize::try_from(self.committed(case).max(1)).expect("few");
                let most = usize::try_from(case.total).expect("few");
                let n = u64::try_from(dice.pick(least..most + 1)).expect("few");
                let report = self.run(case, n);
                assert_eq!(report.counts.ledger.read, n);
                shown.pieces.fetch_add(1, Ordering::Relaxed);
            }
            // Dropped where it stands, whatever it is doing: nothing more of it is done.
            _ => {
                let instant = dice.instant(Duration::from_millis(120));
                let work = stream::stream(&self.control, request, told);
                let ended = self
                    .stage
                    .runtime
                    .block_on(async { tokio::time::timeout(instant, Box::pin(work)).await });
                let dropped = ended.is_err();
                assert!(dropped || ended.as_ref().is_ok_and(is_held), "{}: {ended:?}", case.name);
                shown.dropped.fetch_add(usize::from(dropped), Ordering::Relaxed);
            }
        }
        let read = self.committed(case);
        shown.within.fetch_add(usize::from(read > 0 && read < case.total), Ordering::Relaxed);
        self.expire();
    }

    /// The lease of whoever was cut off runs out.
    fn expire(&self) {
        self.stage.sql("UPDATE finaz.leases SET expires_at = clock_timestamp() WHERE expires_at > clock_timestamp()");
    }

    fn run(&self, case: &Case, n: u64) -> StreamReport {
        let done = poll(SOON, || {
            let (_tell, told) = watch::channel(Stop::No);
            let request = self.request(case, Some(n));
            let done = self.stage.runtime.block_on(stream::stream(&self.control, request, told));
            if is_held(&done) {
                self.expire();
                return None;
            }
            Some(done)
        });
        let done = done.unwrap_or_else(|| panic!("{}: its lease is never free", case.name));
        done.unwrap_or_else(|error| panic!("{}: {error}", case.name))
    }

    fn case(&self, dice: &mut Dice, number: usize, shown: &Shown) {
        let (case, replayed) = self.begin(dice, number);
        for _ in 0..dice.pick(0..4) {
            self.cut(dice, &case, shown);
        }
        let report = self.run(&case, case.total);
        let batch = AdmitRequest {
            flow: case.flow.clone(),
            snapshot: Some(case.snapshot.clone()),
            principal: "local".to_owned(),
            operation: "flow.run".to_owned(),
            key: None,
        };
        let batch = dry_run::dry_run(&self.control, &batch).expect("a batch");
        let ledger = report.counts.ledger;
        let said = format!("{}: {report:?} of {replayed:?}", case.name);
        assert_eq!(report.values_hash, batch.result.values_hash, "{said}");
        assert!(report.counts.ledger_ok && ledger.read == case.total && ledger.late == 0, "{said}");
        assert_eq!(report.rows, batch.result.rows, "{said}");
        shown.split.fetch_add(usize::from(case.split), Ordering::Relaxed);
        let faults = usize::try_from(replayed.faults_applied).expect("few");
        shown.faults.fetch_add(faults, Ordering::Relaxed);
        for (partition, next) in &report.counts.next_offsets {
            self.log.delete_before(*partition, *next);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has no config.rs")]
fn cases() -> usize {
    let asked = std::env::var("STREAM_CASES").ok();
    asked.map_or(CASES, |cases| cases.parse().expect("STREAM_CASES is a number"))
}

#[test]
fn any_snapshot_under_any_faults_killed_anywhere_ends_equal_to_its_batch_on_real_servers() {
    let Some(first) = Lane::new() else { return };
    let (shown, next, all) = (Shown::default(), AtomicUsize::new(0), cases());
    let dice = Mutex::new(Dice::new("stream property"));
    let lane = |lane: &Lane| {
        loop {
            // Drawn in the order of the cases: a seed gives the same ones, whoever takes them.
            let mut drawn = dice.lock().expect("no lane has failed");
            let number = next.fetch_add(1, Ordering::Relaxed);
            let mut dice = drawn.fork();
            drop(drawn);
            if number >= all {
                return;
            }
            lane.case(&mut dice, number, &shown);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..LANES {
            scope.spawn(|| lane(&Lane::new().expect("there was one")));
        }
        lane(&first);
    });
    println!("{all} cases: {shown:?}");
    let least = all / 20;
    for count in [&shown.dropped, &shown.drained, &shown.pieces, &shown.split, &shown.within] {
        assert!(count.load(Ordering::Relaxed) >= least, "{shown:?} shows little");
    }
    assert!(shown.killed.load(Ordering::Relaxed) > 0 && shown.faults.load(Ordering::Relaxed) > all);
}
