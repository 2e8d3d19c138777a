//! A schedule drawn from a seed for any snapshot.

use std::collections::{BTreeMap, HashSet};
use std::io::BufRead;

use super::draw::Draw;
use super::schedule::FAULTS_MAX;
use super::{Arrivals, Error, Fault, Kind, Schedule};
use crate::canonical::{self, Value};
use crate::ids::Hash;
use crate::invalid::Invalid;

/// How late an event may be when no flow says how late is too late.
const LATENESS_MS: u64 = 5_000;
const REVISION_MS_MAX: u64 = 300_000;
/// Wall-clock faults are felt, and a schedule of hundreds of them still ends.
const WALL_MS_MAX: u64 = 20;
const BURST_MAX: u64 = 5;

/// What a schedule is to be like.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub faults: u64,
    pub seed: u64,
    /// Whose values the faults must not change: no GAP and no REVISION at these instruments (empty:
    /// all of them), and no DELAY of more than the lateness that is allowed, in nanoseconds.
    pub flow: Option<(HashSet<String>, i64)>,
}

impl Wanted {
    /// Whether the flow reads this instrument.
    fn is_read(&self, instrument: &str) -> bool {
        self.flow.as_ref().is_some_and(|(instruments, _)| {
            instruments.is_empty() || instruments.contains(instrument)
        })
    }

    fn lateness_ms(&self, instrument: &str) -> u64 {
        match &self.flow {
            Some((_, ns)) if self.is_read(instrument) => {
                u64::try_from(ns / 1_000_000).unwrap_or(0).min(LATENESS_MS)
            }
            Some(_) | None => LATENESS_MS,
        }
    }
}

/// Draws a schedule for the snapshot, which `body` opens; it is read twice.
///
/// # Errors
/// `FAULTS_MANY` when there are not as many events, or the snapshot's own.
pub fn generate<R: BufRead, E: From<Error>>(
    mut body: impl FnMut() -> Result<R, E>,
    snapshot: &Hash,
    wanted: &Wanted,
) -> Result<Schedule, E> {
    let place = snapshot.to_string();
    let none = Schedule::of(snapshot, 0, &[]).map_err(Error::from)?;
    let mut arrivals = Arrivals::new(body()?, &place, &none);
    let mut events = 0;
    while arrivals.pull()?.is_some() {
        events += 1;
    }
    if wanted.faults > events || wanted.faults > FAULTS_MAX as u64 {
        let message = format!("{} faults for {events} events", wanted.faults);
        let hint = format!("an event has one fault at most, a schedule {FAULTS_MAX}");
        return Err(Error::from(Invalid::new("FAULTS_MANY", "--generate", message, hint)).into());
    }
    let mut draw = Draw::new(wanted.seed);
    let chosen = choose(&mut draw, events, wanted.faults);
    let mut faults = Vec::with_capacity(chosen.len());
    let mut arrivals = Arrivals::new(body()?, &place, &none);
    while let Some(arrival) = arrivals.pull()? {
        let Some(turn) = chosen.get(&arrival.number) else { continue };
        let event = arrival.event.expect("without a fault there is no tombstone");
        let value =
            canonical::parse_line(event, &place, arrival.number + 1).map_err(Error::from)?;
        let (event_id, close) = parts(&value);
        // An event draws from its own numbers: what one gets does not move what the others get.
        let mut draw = Draw::new(wanted.seed ^ Draw::new(arrival.number).next());
        let kind = kind(&mut draw, *turn, (arrival.key, close), wanted);
        faults.push(Fault { event_id, kind });
    }
    Ok(Schedule::of(snapshot, wanted.seed, &faults).map_err(Error::from)?)
}

/// `count` of the numbers below `events`, each with its turn (Floyd's sampling: no number is drawn twice).
fn choose(draw: &mut Draw, events: u64, count: u64) -> BTreeMap<u64, u64> {
    let mut chosen = BTreeMap::new();
    for (top, turn) in (events - count..events).zip(0..) {
        let drawn = draw.below(top + 1);
        let free = if chosen.contains_key(&drawn) { top } else { drawn };
        chosen.insert(free, turn);
    }
    chosen
}

fn parts(value: &Value) -> (String, Option<f64>) {
    let Value::Map(fields) = value else { return (String::new(), None) };
    let event_id = match fields.get("event_id") {
        Some(Value::Text(id)) => id.clone(),
        _ => String::new(),
    };
    let close = match fields.get("close") {
        Some(Value::Float(close)) => Some(*close),
        _ => None,
    };
    (event_id, close)
}

/// The types take turns, so that each comes; one that is not allowed here leaves its turn to chance.
fn kind(
    draw: &mut Draw,
    turn: u64,
    (instrument, close): (&str, Option<f64>),
    wanted: &Wanted,
) -> Kind {
    let lateness_ms = wanted.lateness_ms(instrument);
    let is_read = wanted.is_read(instrument);
    let mut choice = turn % 7;
    while is_read && choice < 2 || lateness_ms == 0 && choice == 2 {
        choice = draw.below(7);
    }
    let up_to = |draw: &mut Draw, most: u64| 1 + draw.below(most);
    match choice {
        0 => Kind::Gap,
        1 => {
            let after_ms = up_to(draw, REVISION_MS_MAX);
            // Up to two per mille off: whole numbers below 2^53 and one multiplication are exact enough
            // to be the same everywhere.
            let mille = 1000 + u32::try_from(draw.below(3)).expect("below 3");
            let close = Some(close.map_or(1.0, |close| close * f64::from(mille) / 1000.0));
            Kind::Revision { after_ms, close: close.filter(|close| close.is_finite()) }
        }
        2 => Kind::Delay { delay_ms: up_to(draw, lateness_ms) },
        3 => Kind::Duplicate,
        4 => Kind::Burst { count: up_to(draw, BURST_MAX) },
        5 => Kind::Pause { pause_ms: up_to(draw, WALL_MS_MAX) },
        _ => Kind::SourceFailure { down_ms: up_to(draw, WALL_MS_MAX) },
    }
}
