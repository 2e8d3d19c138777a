//! From a schedule and a snapshot to the log.

mod arrivals;
mod generated;
mod schedules;

use std::io::Write as _;

use super::*;
use crate::canonical;
use crate::ids::Hash;

const SCHEDULE: &str = include_str!("../../../fixtures/fixture.faults.01.yaml");
const SNAPSHOT: &str = include_str!("../../../fixtures/fixture.snapshot.01.jsonl");

fn fixture() -> Schedule {
    Schedule::parse(SCHEDULE.as_bytes(), "f.yaml").expect("the fixture")
}

/// The body of the fixture's snapshot, as the import writes it.
fn body() -> Vec<u8> {
    let mut body = Vec::new();
    for line in SNAPSHOT.lines() {
        canonical::parse(line.as_bytes(), "fixture").unwrap().write(&mut body).unwrap();
        body.push(b'\n');
    }
    body
}

/// A body of `count` events a second apart, taking turns over `instruments`.
fn long(count: u64, instruments: u64) -> Vec<u8> {
    let mut body = Vec::new();
    for at in 0..count {
        let (instrument, seq) = (at % instruments, at / instruments);
        let time = seq + 1;
        writeln!(
            body,
            r#"{{"close":{at}.5,"event_id":"e{at}","event_time":{time}000000000,"instrument":"i{instrument:02}","seq":{seq}}}"#
        )
        .unwrap();
    }
    body
}

/// The log of a body under a schedule, its hash, and what each fault did.
fn log(body: &[u8], schedule: &Schedule) -> Result<(String, Hash, Vec<Applied>), Error> {
    let mut arrivals = Arrivals::new(body, "s", schedule);
    let mut log = Log::new(Vec::new());
    while let Some(arrival) = arrivals.pull()? {
        log.add(&arrival).unwrap();
    }
    let applied = arrivals.applied();
    let (hash, text) = log.finish().unwrap();
    Ok((String::from_utf8(text).unwrap(), hash, applied))
}

/// A schedule of these faults, in YAML of one line each.
fn schedule(faults: &[&str]) -> Schedule {
    let faults: String = faults.iter().map(|fault| format!("  - {{{fault}}}\n")).collect();
    let none = if faults.is_empty() { " []" } else { "" };
    let text = format!("kind: FaultSchedule\nfaults:{none}\n{faults}");
    Schedule::parse(text.as_bytes(), "f.yaml").expect("a good schedule")
}

fn refusal(body: &[u8], schedule: &Schedule) -> Invalid {
    match log(body, schedule) {
        Err(Error::Invalid(invalid)) => invalid,
        other => panic!("{other:?}"),
    }
}
