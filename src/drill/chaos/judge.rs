//! The invariants, each a judge over the history. None of them knows what was done to whom.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{History, RunEnd, StreamEnd};
use crate::drill::{Check, Moment, Planned, QueueNumbers};

/// How long one that was refused may take to end.
const EXIT_MAX_US: i64 = 15_000_000;
/// Owners that die with a run before it is given up (SPEC part 5).
const DEAD_OWNERS: usize = 3;
/// Refusals that the faults of a campaign explain. It restores no backup, damages no file and belongs to one journal.
const REFUSALS: [&str; 3] = ["STREAM_LEASE_OCUPADO", "STREAM_FENCE_OBSOLETO", "RECOVERY_BLOCKED"];
/// Of what is wrong, so many are told.
const TOLD: usize = 5;

/// What a judge found.
struct Finding {
    /// How many it looked at: none, and it has shown nothing.
    looked: u64,
    of: &'static str,
    wrong: Vec<String>,
}

impl Finding {
    fn of(of: &'static str) -> Self {
        Self { looked: 0, of, wrong: Vec::new() }
    }

    fn looks(&mut self, wrong: Option<String>) {
        self.looked += 1;
        self.wrong.extend(wrong);
    }
}

type Judge = fn(&History) -> Finding;

/// I1 to I12 of the design, and how processes end.
const JUDGES: &[(Planned, Judge)] = &[
    (
        said(
            "I1",
            "at most one effect has an epoch, a fence and a number; no fence has two owners",
        ),
        once,
    ),
    (said("I2", "the fences of effects never go back, in the order of their commits"), forward),
    (said("I3", "the numbers and the offsets of a journal never go back"), offsets),
    (
        said("I4", "a run has at most one publication, and all of one body have one hash"),
        one_publication,
    ),
    (said("I5", "what was acknowledged is there: nothing is lost"), nothing_lost),
    (said("I6", "what is there was asked for: nothing is unexpected"), nothing_unexpected),
    (said("I7", "nothing is there twice"), nothing_twice),
    (said("I8", "every result is that of an undisturbed run, to the bit"), golden),
    (said("I9", "one that was refused by its fence makes no further effect, and ends"), fenced_out),
    (said("I10", "no secret is in any output, file or evidence"), no_secret),
    (said("I11", "every file under a final name has the hash that it is named by"), whole_files),
    (
        said("I12", "when the faults stop, all that was admitted comes to its end in bounded time"),
        comes_to_rest,
    ),
    (
        said(
            "E1",
            "no process ends in a panic, an internal error, or a way that no fault explains",
        ),
        orderly_endings,
    ),
];

const fn said(id: &'static str, what: &'static str) -> Planned {
    Planned { id, what }
}

/// All of them. A judge that had nothing to look at did not run.
#[must_use]
pub fn judge(history: &History) -> Vec<Check> {
    let check = |(planned, judge): &(Planned, Judge)| {
        let Finding { looked, of, wrong } = judge(history);
        let told: Vec<&str> = wrong.iter().take(TOLD).map(String::as_str).collect();
        let more = wrong.len().saturating_sub(TOLD);
        let seen = match (wrong.is_empty(), more) {
            (true, _) => format!("{looked} {of}, none against it"),
            (false, 0) => format!("{looked} {of}; {}", told.join("; ")),
            (false, more) => format!("{looked} {of}; {}; and {more} more", told.join("; ")),
        };
        Check {
            id: planned.id,
            pass: looked > 0 && wrong.is_empty(),
            ran: looked > 0 || !wrong.is_empty(),
            scenario: "chaos",
            what: planned.what,
            expected: format!("{of}, none against it"),
            seen,
        }
    };
    JUDGES.iter().map(check).collect()
}

/// What became of what was admitted and of what arrived, added up.
#[must_use]
pub fn numbers(history: &History) -> QueueNumbers {
    let keys = history.keys();
    let visible = ended(history);
    let count = |n: usize| n as u64;
    let lost = keys.acked.iter().filter(|key| !visible.contains_key(*key)).count();
    let runs = QueueNumbers {
        attempted: count(keys.attempted.len()),
        acked: count(keys.acked.len()),
        lost: count(lost),
        unexpected: count(unasked(history).count()),
        duplicated: history.end.runs.iter().map(doubled).sum(),
        recovered: count(keys.unknown.iter().filter(|key| visible.contains_key(*key)).count()),
    };
    history.end.streams.iter().map(stream_numbers).fold(runs, QueueNumbers::plus)
}

fn stream_numbers(stream: &StreamEnd) -> QueueNumbers {
    let attempted: u64 = stream.ends.iter().map(|(_, end)| u64::try_from(*end).unwrap_or(0)).sum();
    let acked = stream.fates.keys().filter(|place| is_there(stream, place)).count() as u64;
    QueueNumbers {
        attempted,
        acked,
        lost: attempted.saturating_sub(acked),
        unexpected: (stream.fates.len() as u64).saturating_sub(acked),
        duplicated: stream.fates.values().map(|times| times.saturating_sub(1)).sum(),
        recovered: stream.recovered,
    }
}

fn is_there(stream: &StreamEnd, (partition, offset): &(i32, i64)) -> bool {
    stream.ends.iter().any(|(at, end)| at == partition && (0..*end).contains(offset))
}

/// Runs whose end readers find, by key: published; or given up for the one reason that there is, with the dead to show.
fn ended(history: &History) -> BTreeMap<&str, &RunEnd> {
    let dead = |run: &RunEnd| {
        let orphaned = history.moments.iter().filter(|moment| {
            moment.what == "orphan" && moment.detail.as_deref() == Some(run.run_id.as_str())
        });
        orphaned.count()
    };
    let is_ended = |run: &&RunEnd| match run.state.as_str() {
        "SUCCEEDED" => !run.published.is_empty(),
        "FAILED" => {
            run.error.as_deref().is_some_and(|error| error.starts_with("POISON_RUN"))
                && dead(run) >= DEAD_OWNERS
        }
        _ => false,
    };
    history.end.runs.iter().filter(is_ended).map(|run| (run.key.as_str(), run)).collect()
}

fn unasked(history: &History) -> impl Iterator<Item = &RunEnd> {
    let asked: BTreeSet<String> = history.keys().attempted.into_iter().map(str::to_owned).collect();
    history.end.runs.iter().filter(move |run| !asked.contains(&run.key))
}

fn doubled(run: &RunEnd) -> u64 {
    (run.published.len() as u64).saturating_sub(1)
}

fn is_stream(moment: &Moment) -> bool {
    moment.lease.as_deref().is_some_and(|lease| lease.starts_with("stream/"))
}

/// A lease or a run, and what it is under.
fn under(moment: &Moment) -> String {
    let of = match moment.what.as_str() {
        "published" | "claimed" => moment.detail.as_deref().and_then(|d| d.split(' ').next()),
        _ => moment.lease.as_deref(),
    };
    of.unwrap_or_default().to_owned()
}

/// I1.
fn once(history: &History) -> Finding {
    let mut finding = Finding::of("effects and grants");
    let mut seen = BTreeMap::new();
    for moment in &history.moments {
        let kind = match moment.what.as_str() {
            "committed" | "published" => 0,
            "granted" => 1,
            _ => continue,
        };
        let at = (kind, under(moment), moment.epoch, moment.fence, moment.seq);
        let before = seen.insert(at, moment.owner.clone());
        // The fence of a batch's lease is its own: its name is never used again.
        let wrong = before.map(|before| {
            format!(
                "{} {} under fence {} by {} and by {}",
                under(moment),
                moment.what,
                moment.fence.unwrap_or_default(),
                before.unwrap_or_default(),
                moment.owner.as_deref().unwrap_or_default()
            )
        });
        finding.looks(wrong);
    }
    finding
}

/// I2.
fn forward(history: &History) -> Finding {
    let mut finding = Finding::of("effects");
    let mut last: BTreeMap<String, (Option<i64>, Option<i64>)> = BTreeMap::new();
    for moment in &history.moments {
        let (of, is_effect) = match moment.what.as_str() {
            "committed" | "published" => (under(moment), true),
            // Who claims a run, or gets a stream's lease, ends the time of all lower fences.
            "claimed" => (under(moment), false),
            "granted" if is_stream(moment) => (under(moment), false),
            _ => continue,
        };
        let now = (moment.epoch, moment.fence);
        let before = last.insert(of.clone(), now);
        let wrong = before
            .filter(|before| now < *before)
            .map(|before| format!("{of} {} under {now:?} after {before:?}", moment.what));
        if is_effect || wrong.is_some() {
            finding.looks(wrong);
        }
    }
    finding
}

/// I3.
fn offsets(history: &History) -> Finding {
    let mut finding = Finding::of("commits");
    for stream in &history.end.streams {
        for (at, commit) in stream.commits.iter().enumerate() {
            let Some(before) = at.checked_sub(1).map(|at| &stream.commits[at]) else {
                finding.looks(None);
                continue;
            };
            let back = before.next_offsets.iter().find(|(partition, offset)| {
                commit.next_offsets.get(partition).is_none_or(|next| next < offset)
            });
            let wrong = match back {
                Some((partition, offset)) => Some(format!(
                    "{} commit {} goes back behind {offset} in partition {partition}",
                    stream.lease, commit.seq
                )),
                None if commit.seq != before.seq + 1 => {
                    Some(format!("{} commit {} after {}", stream.lease, commit.seq, before.seq))
                }
                None => None,
            };
            finding.looks(wrong);
        }
        let made = history
            .moments
            .iter()
            .filter(|moment| moment.what == "committed" && moment.is_of(&stream.lease));
        let noted: Vec<i64> = made.filter_map(|moment| moment.seq).collect();
        let kept: Vec<i64> = stream.commits.iter().map(|commit| commit.seq).collect();
        if noted != kept {
            finding.wrong.push(format!(
                "{} has {} commits, the database saw {}",
                stream.lease,
                kept.len(),
                noted.len()
            ));
        }
    }
    finding
}

/// I4.
fn one_publication(history: &History) -> Finding {
    let mut finding = Finding::of("runs");
    let mut hashes = BTreeSet::new();
    for run in &history.end.runs {
        hashes.extend(run.published.iter().map(String::as_str));
        let wrong = (run.published.len() > 1)
            .then(|| format!("{} has {} publications", run.run_id, run.published.len()));
        finding.looks(wrong);
    }
    // All runs of a campaign have one body.
    if hashes.len() > 1 {
        finding.wrong.push(format!("{} hashes for one body", hashes.len()));
    }
    finding
}

/// I5.
fn nothing_lost(history: &History) -> Finding {
    let mut finding = Finding::of("acknowledged runs and records");
    let visible = ended(history);
    let runs: BTreeMap<&str, &RunEnd> =
        history.end.runs.iter().map(|run| (run.key.as_str(), run)).collect();
    for key in history.keys().acked {
        let wrong = (!visible.contains_key(key)).then(|| match runs.get(key) {
            Some(run) => {
                format!("{key} is {} with {} publications", run.state, run.published.len())
            }
            None => format!("{key} is not there"),
        });
        finding.looks(wrong);
    }
    for stream in &history.end.streams {
        let numbers = stream_numbers(stream);
        finding.looked += numbers.attempted;
        if numbers.lost > 0 {
            finding.wrong.push(format!("{} lacks {} records", stream.lease, numbers.lost));
        }
    }
    finding
}

/// I6.
fn nothing_unexpected(history: &History) -> Finding {
    let mut finding = Finding::of("runs and decisions");
    finding.looked = history.end.runs.len() as u64;
    finding.wrong.extend(unasked(history).map(|run| format!("nobody asked for {}", run.key)));
    for stream in &history.end.streams {
        finding.looked += stream.fates.len() as u64;
        let other = stream.fates.keys().find(|place| !is_there(stream, place));
        finding.wrong.extend(other.map(|(partition, offset)| {
            format!("{} decided {partition}/{offset}, which is not in its topic", stream.lease)
        }));
    }
    finding
}

/// I7.
fn nothing_twice(history: &History) -> Finding {
    let mut finding = Finding::of("keys and decisions");
    let mut keys = BTreeSet::new();
    for run in &history.end.runs {
        let wrong = (!keys.insert(&run.key)).then(|| format!("{} made two runs", run.key));
        finding.looks(wrong);
        if doubled(run) > 0 {
            finding.wrong.push(format!("{} is published twice", run.run_id));
        }
    }
    for stream in &history.end.streams {
        for ((partition, offset), times) in &stream.fates {
            let wrong = (*times > 1)
                .then(|| format!("{} decided {partition}/{offset} {times} times", stream.lease));
            finding.looks(wrong);
        }
    }
    finding
}

/// I8.
fn golden(history: &History) -> Finding {
    let mut finding = Finding::of("results");
    let end = &history.end;
    for run in &end.runs {
        for hash in &run.published {
            let wrong =
                (*hash != end.golden).then(|| format!("{} is published as {hash}", run.run_id));
            finding.looks(wrong);
        }
    }
    for stream in &end.streams {
        let is_so = stream.values_hash == end.golden
            && stream.verdict == "EQUAL_TO_BATCH_GOLDEN"
            && stream.ledger_ok;
        let wrong = (!is_so).then(|| {
            format!(
                "{} ends {} with {}, ledger {}",
                stream.lease, stream.verdict, stream.values_hash, stream.ledger_ok
            )
        });
        finding.looks(wrong);
    }
    finding
}

/// I9. That there was none to refuse is no fault of the judge: it says so by the situations of the campaign.
fn fenced_out(history: &History) -> Finding {
    let mut finding = Finding::of("effects and refusals");
    let mut refused: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for moment in &history.moments {
        let who = (
            moment.lease.as_deref().unwrap_or_default(),
            moment.owner.as_deref().unwrap_or_default(),
        );
        match moment.what.as_str() {
            "refused" => {
                finding.looks(None);
                refused.entry(who).or_insert(moment.at_us);
            }
            "committed" | "published" => {
                let wrong = refused.contains_key(&who).then(|| {
                    format!("{} {} {} after it was refused", who.1, moment.what, under(moment))
                });
                finding.looks(wrong);
            }
            _ => {}
        }
    }
    for ((lease, owner), at) in
        refused.iter().filter(|((lease, _), _)| lease.starts_with("stream/"))
    {
        let name = owner.split('/').next().unwrap_or(owner);
        let end = history.end.endings.iter().find(|ending| ending.process == name);
        let late = match end {
            None => Some(format!("{owner} was refused at {lease} and has not ended")),
            Some(ending) if ending.at_us - at > EXIT_MAX_US => Some(format!(
                "{owner} was refused at {lease} and ended {:.1} s later",
                (ending.at_us - at) as f64 / 1e6
            )),
            Some(_) => None,
        };
        finding.wrong.extend(late);
    }
    finding
}

/// I10.
fn no_secret(history: &History) -> Finding {
    let secrets = &history.end.secrets;
    let mut finding = Finding::of("files");
    finding.looked = secrets.looked;
    finding.wrong.extend(secrets.found.iter().map(|place| format!("a secret is in {place}")));
    finding
}

/// I11.
fn whole_files(history: &History) -> Finding {
    let files = &history.end.files;
    let mut finding = Finding::of("files");
    finding.looked = files.looked;
    finding.wrong.extend(files.damaged.iter().map(|place| format!("damaged: {place}")));
    finding
}

/// I12.
fn comes_to_rest(history: &History) -> Finding {
    let mut finding = Finding::of("runs and streams");
    finding.looked = (history.end.runs.len() + history.end.streams.len()) as u64;
    let rest = &history.end.rest;
    match rest.took_ms {
        Some(took) if took <= rest.bound_ms => {}
        Some(took) => {
            finding.wrong.push(format!("after {took} ms, the bound is {} ms", rest.bound_ms));
        }
        None => {
            finding.wrong.push(format!(
                "not within {} ms: {}",
                rest.bound_ms,
                rest.open.join(", ")
            ));
        }
    }
    finding
}

fn had_a_lease(history: &History, process: &str) -> bool {
    history.moments.iter().any(|moment| moment.what == "granted" && moment.who() == process)
}

/// Endings that mean something is wrong with the program, whatever was done to it.
fn orderly_endings(history: &History) -> Finding {
    let mut finding = Finding::of("processes");
    for ending in &history.end.endings {
        let has_name = match ending.ending.split(' ').collect::<Vec<_>>()[..] {
            ["exit", "0"] => true,
            ["exit", "1", code] => REFUSALS.contains(&code),
            ["exit", "75" | "130" | "143", code] => code != "INTERNAL",
            ["signal", "9"] => ending.killed,
            // Told to end before it had ears for that, and so before it had anything.
            ["signal", "15"] => ending.told_us.is_some() && !had_a_lease(history, &ending.process),
            _ => false,
        };
        let wrong = (!has_name || ending.panic.is_some()).then(|| {
            let why = ending.panic.as_deref().unwrap_or("nobody killed it");
            format!("{}: {} ({why})", ending.process, ending.ending)
        });
        finding.looks(wrong);
    }
    finding
}

#[cfg(test)]
mod tests;
