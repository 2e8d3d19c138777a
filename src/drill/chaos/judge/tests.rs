//! Each judge passes a sound history, and finds the one thing that is planted in it.

use std::collections::BTreeMap;

use super::*;
use crate::drill::chaos::history::{
    CommitEnd, End, Ending, FilesEnd, Op, Outcome, Rest, SecretsEnd,
};

const GOLDEN: &str = "sha256:golden";
const LEASE: &str = "stream/alpha";

fn op(no: u64, outcome: Outcome, keys: &[&str]) -> Op {
    Op {
        at_us: i64::try_from(no).expect("small"),
        op: no,
        outcome,
        process: "client".to_owned(),
        call: "admit",
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        detail: None,
    }
}

fn moment(what: &str, lease: &str, owner: &str, fence: i64, seq: Option<i64>) -> Moment {
    Moment {
        what: what.to_owned(),
        lease: Some(lease.to_owned()),
        owner: Some(format!("{owner}/1")),
        epoch: Some(1),
        fence: Some(fence),
        seq,
        ..Moment::default()
    }
}

fn of_run(what: &str, run: &str, lease: &str, fence: i64) -> Moment {
    let detail = Some(format!("{run} {GOLDEN}"));
    Moment { detail, ..moment(what, lease, "worker-1", fence, None) }
}

fn run(key: &str) -> RunEnd {
    RunEnd {
        run_id: format!("run_{key}"),
        key: key.to_owned(),
        state: "SUCCEEDED".to_owned(),
        published: vec![GOLDEN.to_owned()],
        ..RunEnd::default()
    }
}

fn commit(seq: i64, fence: i64, next: i64) -> CommitEnd {
    CommitEnd { epoch: 1, fence, seq, next_offsets: BTreeMap::from([(0, next)]) }
}

/// Two keys acknowledged, a third of which nobody knows; a stream that changed hands, its first owner refused.
fn sound() -> History {
    let ops = vec![
        op(1, Outcome::Invoke, &["a", "b"]),
        op(1, Outcome::Ok, &["a", "b"]),
        op(2, Outcome::Invoke, &["c"]),
        op(2, Outcome::Unknown, &["c"]),
    ];
    let mut moments = vec![
        moment("granted", LEASE, "alpha-1", 1, None),
        moment("committed", LEASE, "alpha-1", 1, Some(1)),
        moment("granted", LEASE, "alpha-2", 2, None),
        moment("refused", LEASE, "alpha-1", 1, None),
        moment("committed", LEASE, "alpha-2", 2, Some(2)),
        moment("granted", "batch/1", "worker-1", 1, None),
        of_run("claimed", "run_a", "batch/1", 1),
        of_run("claimed", "run_a", "batch/2", 2),
        of_run("published", "run_a", "batch/2", 2),
        of_run("claimed", "run_b", "batch/2", 1),
        of_run("published", "run_b", "batch/2", 1),
    ];
    for (no, moment) in (1..).zip(&mut moments) {
        (moment.no, moment.at_us) = (no, no * 1_000_000);
    }
    let ending = |process: &str, ending: &str, at| Ending {
        at_us: at,
        process: process.to_owned(),
        ending: ending.to_owned(),
        ..Ending::default()
    };
    let end = End {
        golden: GOLDEN.to_owned(),
        runs: vec![run("a"), run("b")],
        streams: vec![StreamEnd {
            lease: LEASE.to_owned(),
            ends: vec![(0, 2)],
            commits: vec![commit(1, 1, 1), commit(2, 2, 2)],
            fates: BTreeMap::from([((0, 0), 1), ((0, 1), 1)]),
            decided: 2,
            recovered: 1,
            values_hash: GOLDEN.to_owned(),
            verdict: "EQUAL_TO_BATCH_GOLDEN".to_owned(),
            ledger_ok: true,
        }],
        endings: vec![
            ending("alpha-1", "exit 1 STREAM_FENCE_OBSOLETO", 5_000_000),
            ending("alpha-2", "exit 0", 30_000_000),
        ],
        files: FilesEnd { looked: 9, damaged: Vec::new() },
        secrets: SecretsEnd { looked: 9, found: Vec::new() },
        rest: Rest { bound_ms: 30_000, took_ms: Some(400), open: Vec::new() },
    };
    History { ops, moments, end }
}

/// The ids of the checks that do not pass.
fn failing(history: &History) -> Vec<&'static str> {
    judge(history).into_iter().filter(|check| !check.pass).map(|check| check.id).collect()
}

#[track_caller]
fn only(plant: impl FnOnce(&mut History), ids: &[&str]) {
    let mut history = sound();
    plant(&mut history);
    assert_eq!(failing(&history), ids, "{:#?}", judge(&history));
}

#[test]
fn a_sound_history_passes_every_judge_and_its_numbers_add_up() {
    assert_eq!(failing(&sound()), [""; 0], "{:#?}", judge(&sound()));
    let numbers = numbers(&sound());
    let seen = (numbers.attempted, numbers.acked, numbers.recovered);
    assert_eq!(seen, (3 + 2, 2 + 2, 1), "{numbers:?}");
    assert_eq!((numbers.lost, numbers.unexpected, numbers.duplicated), (0, 0, 0));
}

#[test]
fn a_judge_that_had_nothing_to_look_at_has_not_passed() {
    let checks = judge(&History::default());
    assert!(checks.iter().all(|check| !check.pass), "{checks:#?}");
}

#[test]
fn two_effects_under_one_fence_and_number_are_found() {
    only(|history| history.moments.push(history.moments[4].clone()), &["I1", "I3"]);
}

#[test]
fn a_fence_given_to_two_owners_is_found() {
    only(
        |history| history.moments.insert(3, moment("granted", LEASE, "alpha-3", 2, None)),
        &["I1"],
    );
}

#[test]
fn an_effect_under_a_lower_fence_is_found() {
    // The commit of the first owner comes after that of the second.
    only(
        |history| {
            history.moments[4].fence = Some(1);
            history.moments[4].owner = Some("alpha-9/1".to_owned());
        },
        &["I2"],
    );
    // A publication by one who had the run before.
    only(|history| history.moments[8].fence = Some(1), &["I2"]);
}

#[test]
fn offsets_and_numbers_that_go_back_are_found() {
    only(
        |history| history.end.streams[0].commits[1].next_offsets = BTreeMap::from([(0, 0)]),
        &["I3"],
    );
    only(|history| history.end.streams[0].commits[1].seq = 4, &["I3"]);
    // A commit that the database saw and the journal does not have.
    only(
        |history| {
            history.end.streams[0].commits.remove(0);
        },
        &["I3"],
    );
}

#[test]
fn two_publications_of_a_run_are_found() {
    only(|history| history.end.runs[0].published.push(GOLDEN.to_owned()), &["I4", "I7"]);
    only(|history| history.end.runs[0].published[0] = "sha256:other".to_owned(), &["I4", "I8"]);
}

#[test]
fn an_acknowledged_run_that_is_not_there_is_lost() {
    only(
        |history| {
            history.end.runs.remove(1);
        },
        &["I5"],
    );
    only(|history| history.end.runs[1].state = "QUEUED".to_owned(), &["I5"]);
    only(|history| history.end.runs[1].published.clear(), &["I5"]);
    let mut history = sound();
    history.end.runs.clear();
    assert_eq!(numbers(&history).lost, 2);
}

#[test]
fn a_run_that_failed_is_lost_unless_three_died_with_it() {
    let fail = |history: &mut History| {
        let run = &mut history.end.runs[1];
        run.state = "FAILED".to_owned();
        run.published.clear();
        run.error = Some("POISON_RUN: its owner died with it 3 times".to_owned());
    };
    only(fail, &["I5"]);
    only(
        |history| {
            fail(history);
            for _ in 0..3 {
                let detail = Some("run_b".to_owned());
                let orphan = moment("orphan", "batch/2", "worker-1", 1, None);
                history.moments.push(Moment { detail, ..orphan });
            }
        },
        &[],
    );
}

#[test]
fn a_record_that_was_never_decided_is_lost() {
    only(
        |history| {
            history.end.streams[0].fates.remove(&(0, 1));
        },
        &["I5"],
    );
}

#[test]
fn what_nobody_asked_for_is_found() {
    only(|history| history.end.runs.push(run("x")), &["I6"]);
    only(
        |history| {
            history.end.streams[0].fates.insert((0, 7), 1);
        },
        &["I6"],
    );
    // One of which nobody knows is none of these.
    only(|history| history.end.runs.push(run("c")), &[]);
}

#[test]
fn what_is_there_twice_is_found() {
    only(
        |history| {
            history.end.streams[0].fates.insert((0, 1), 2);
        },
        &["I7"],
    );
    only(|history| history.end.runs.push(run("a")), &["I7"]);
}

#[test]
fn another_result_than_that_of_an_undisturbed_run_is_found() {
    only(|history| history.end.streams[0].values_hash = "sha256:other".to_owned(), &["I8"]);
    only(
        |history| history.end.streams[0].verdict = "DIFFERS_FROM_BATCH_GOLDEN".to_owned(),
        &["I8"],
    );
    only(|history| history.end.streams[0].ledger_ok = false, &["I8"]);
}

#[test]
fn an_effect_after_a_refusal_and_one_that_stays_are_found() {
    only(
        |history| {
            let late = moment("committed", LEASE, "alpha-1", 2, Some(3));
            history.moments.push(late);
            history.end.streams[0].commits.push(commit(3, 2, 2));
        },
        &["I9"],
    );
    only(
        |history| {
            history.end.endings.remove(0);
        },
        &["I9"],
    );
    only(|history| history.end.endings[0].at_us = 60_000_000, &["I9"]);
}

#[test]
fn a_secret_a_damaged_file_and_a_campaign_that_does_not_come_to_rest_are_found() {
    only(|history| history.end.secrets.found.push("worker-1.err".to_owned()), &["I10"]);
    only(|history| history.end.files.damaged.push("cas/ab".to_owned()), &["I11"]);
    only(|history| history.end.rest.took_ms = None, &["I12"]);
    only(|history| history.end.rest.took_ms = Some(30_001), &["I12"]);
}

#[test]
fn an_ending_that_nothing_explains_is_found() {
    for ending in [
        "exit 101",
        "exit 1 INTERNAL",
        "exit 1 FENCE_REGRESSION",
        "exit 1",
        "signal 11",
        "signal 9",
        "exit 2 X",
    ] {
        only(|history| history.end.endings[1].ending = ending.to_owned(), &["E1"]);
    }
    only(|history| history.end.endings[1].panic = Some("panicked at".to_owned()), &["E1"]);
    only(
        |history| {
            history.end.endings[1].ending = "signal 9".to_owned();
            history.end.endings[1].killed = true;
        },
        &[],
    );
}

#[test]
fn one_that_was_told_to_end_before_it_had_anything_may_end_by_the_signal() {
    let told = |process: &str| {
        let process = process.to_owned();
        move |history: &mut History| {
            let ending = "signal 15".to_owned();
            let told_us = Some(1);
            history.end.endings.push(Ending { process, ending, told_us, ..Ending::default() });
        }
    };
    only(told("alpha-3"), &[]);
    only(told("worker-1"), &["E1"]);
    only(
        |history| {
            told("alpha-3")(history);
            history.end.endings[2].told_us = None;
        },
        &["E1"],
    );
}

#[test]
fn the_file_of_a_history_has_a_line_for_each_thing_in_the_order_of_time() {
    let lines = sound().lines();
    let lines = String::from_utf8(lines).expect("text");
    let all: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds = |kind: &str| all.iter().filter(|line| line["line"] == kind).count();
    assert_eq!([kinds("op"), kinds("moment"), kinds("run"), kinds("rest")], [4, 11, 2, 1]);
    let times: Vec<i64> = all.iter().take(15).filter_map(|line| line["at_us"].as_i64()).collect();
    assert!(times.is_sorted() && times.len() == 15, "{times:?}");
}
