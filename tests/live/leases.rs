//! Leases as an operator takes them: one owner at a time, fences that only rise, time by the database.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::process::{Process, until};
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(20);

/// The lease in a report.
fn lease(document: &Value) -> (String, i64) {
    let lease = &document["leases"][0];
    let owner = lease["owner"].as_str().expect("an owner").to_owned();
    (owner, lease["fence"].as_i64().expect("a fence"))
}

fn acquire(stage: &Stage, args: &[&str]) -> (String, i64) {
    lease(&stage.json(&[&["lease", "acquire"], args].concat()))
}

/// Lets time pass for this lease, by the only clock that counts.
fn expire(stage: &Stage, name: &str) {
    let sql = "UPDATE finaz.leases SET expires_at = clock_timestamp() - interval '1 ms' WHERE name";
    stage.sql(&format!("{sql} = '{name}'"));
}

#[test]
fn a_lease_has_one_owner_and_a_fence_that_rises_when_it_changes_hands() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let name = "job/nightly";
    let (first, fence) = acquire(&stage, &[name]);
    assert_eq!(fence, 1, "nobody had it");
    // Live and another's.
    let refused = stage.finaz(&["lease", "acquire", name]).refuses(1, "LEASE_HELD");
    assert_eq!((&refused["owner"], &refused["fence"]), (&first.as_str().into(), &1.into()));
    // Live and mine.
    assert_eq!(acquire(&stage, &[name, "--owner", &first]), (first.clone(), 1));
    stage.finaz(&["lease", "renew", name, "--owner", &first]).exits(0);
    // Expired, and whoever asks: another, and then the one who had it.
    expire(&stage, name);
    let (second, fence) = acquire(&stage, &[name]);
    assert!(second != first && fence == 2, "{second} {fence}");
    let stale = stage.finaz(&["lease", "renew", name, "--owner", &first]);
    let stale = stale.refuses(1, "STALE_FENCE");
    assert_eq!(stale["current_owner"], second.as_str());
    assert_eq!(stale["current_fence"], 2);
    expire(&stage, name);
    assert_eq!(acquire(&stage, &[name, "--owner", &second]), (second.clone(), 3));
    // A release expires it and leaves the fence.
    stage.finaz(&["lease", "release", name, "--owner", &first]).refuses(1, "STALE_FENCE");
    let released = stage.json(&["lease", "release", name, "--owner", &second]);
    assert_eq!((lease(&released).1, &released["leases"][0]["live"]), (3, &false.into()));
    assert_eq!(acquire(&stage, &[name]).1, 4);
}

#[test]
fn an_expired_lease_is_not_renewed_though_nobody_has_claimed_it() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let name = "job/late";
    let (owner, _) = acquire(&stage, &[name]);
    expire(&stage, name);
    for verb in ["renew", "release"] {
        stage.finaz(&["lease", verb, name, "--owner", &owner]).refuses(1, "LEASE_EXPIRED");
    }
    assert_eq!(acquire(&stage, &[name, "--owner", &owner]).1, 2, "revived under the old fence");
}

#[test]
fn two_processes_of_one_name_are_two_owners() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let name = "job/twins";
    let (first, _) = acquire(&stage, &[name, "--owner", "twin"]);
    assert!(first.starts_with("twin/"), "{first}");
    let refused = stage.finaz(&["lease", "acquire", name, "--owner", "twin"]);
    assert_eq!(refused.refuses(1, "LEASE_HELD")["owner"], first.as_str());
}

#[test]
fn of_eight_that_claim_an_expired_lease_at_once_one_gets_it_and_the_fence_rises_by_one() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let name = "job/stampede";
    for round in 1..=5 {
        let before = if round == 1 { 0 } else { acquire(&stage, &[name]).1 };
        expire(&stage, name);
        // All of them wait for the same row, or for the right to make it.
        let gate = stage.session();
        gate.sql("BEGIN; LOCK TABLE finaz.leases IN SHARE ROW EXCLUSIVE MODE");
        let claims: Vec<Process> =
            (0..8).map(|_| stage.start(&["lease", "acquire", name])).collect();
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until("eight wait", SOON, || (stage.count(waiting) == 8).then_some(()));
        gate.sql("COMMIT");
        let ended: Vec<_> = claims.into_iter().map(|claim| claim.wait(SOON)).collect();
        let (won, lost): (Vec<_>, Vec<_>) = ended.into_iter().partition(|run| run.exit == Some(0));
        let [won] = &won[..] else { panic!("{} have it: {won:?}", won.len()) };
        let (owner, fence) = lease(&won.json());
        assert_eq!(fence, before + 1, "round {round}");
        for loser in lost {
            assert_eq!(loser.refuses(1, "LEASE_HELD")["owner"], owner.as_str());
        }
        expire(&stage, name);
    }
}

#[test]
fn a_fence_that_went_back_with_a_restored_backup_is_refused_until_a_new_epoch() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let name = "stream/prices";
    for fence in 1..=3 {
        assert_eq!(acquire(&stage, &[name]).1, fence);
        expire(&stage, name);
    }
    // A backup from before the last two, and one from before all of them.
    for restored in [
        format!("UPDATE finaz.leases SET fence = 1 WHERE name = '{name}'"),
        format!("DELETE FROM finaz.leases WHERE name = '{name}'"),
    ] {
        stage.sql(&restored);
        let refused = stage.finaz(&["lease", "acquire", name]).refuses(1, "FENCE_REGRESSION");
        assert_eq!((&refused["known_epoch"], &refused["known_fence"]), (&1.into(), &3.into()));
    }
    stage.finaz(&["lease", "new-epoch", name, "--reason", " "]).refuses(2, "REASON_EMPTY");
    let begun = stage.json(&["lease", "new-epoch", name, "--reason", "restored on purpose"]);
    assert_eq!(begun["epoch"], 2);
    let granted = stage.json(&["lease", "acquire", name]);
    assert_eq!(granted["leases"][0]["epoch"], 2);
    assert!(lease(&granted).1 > 3, "a fence handed out before: {granted}");
    // The new epoch is known outside of the database as well.
    expire(&stage, name);
    stage.sql(&format!("UPDATE finaz.leases SET epoch = 1, fence = 9 WHERE name = '{name}'"));
    stage.finaz(&["lease", "acquire", name]).refuses(1, "FENCE_REGRESSION");
}

#[test]
fn an_epoch_of_all_batch_and_run_leases_holds_for_one_taken_by_hand() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let names = ["run/by-hand", "batch/by-hand", "stream/by-hand", "job/by-hand"];
    let epochs = || {
        names.map(|name| {
            let epoch = stage.json(&["lease", "acquire", name])["leases"][0]["epoch"].clone();
            expire(&stage, name);
            epoch.as_i64().expect("a number")
        })
    };
    assert_eq!(epochs(), [1, 1, 1, 1]);
    let begun = stage.json(&["lease", "new-epoch", "--reason", "restored on purpose"]);
    assert_eq!(begun["epoch"], 2);
    assert_eq!(epochs(), [2, 2, 1, 1], "a stream's epoch is its own");
    // One that is ahead already does not go back.
    stage.sql("UPDATE finaz.leases SET epoch = 7 WHERE name = 'run/by-hand'");
    assert_eq!(epochs()[0], 7);
}

#[test]
fn a_fence_at_its_end_does_not_wrap() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let name = "job/old";
    acquire(&stage, &[name]);
    expire(&stage, name);
    stage.sql(&format!("UPDATE finaz.leases SET fence = {} WHERE name = '{name}'", i64::MAX));
    stage.finaz(&["lease", "acquire", name]).refuses(1, "FENCE_EXHAUSTED");
}

#[test]
fn a_row_that_another_session_locks_is_a_bounded_refusal_that_names_the_session() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let name = "job/locked";
    let (owner, _) = acquire(&stage, &[name]);
    let gate = stage.session();
    let lock =
        format!("SELECT pg_backend_pid() FROM finaz.leases WHERE name = '{name}' FOR UPDATE");
    let pid = gate.sql(&format!("BEGIN; {lock}")).remove(0).remove(0);
    for args in [
        vec!["lease", "acquire", name],
        vec!["lease", "renew", name, "--owner", &owner],
        vec!["lease", "release", name, "--owner", &owner],
    ] {
        let refused = stage.start_with(&[("FINAZ_LEASE_TTL_SEC", "2")], &args).wait(SOON);
        let refused = refused.refuses(75, "LEASE_BUSY");
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains(&format!("pid {pid}")), "{args:?}: {message}");
    }
    gate.sql("COMMIT");
    stage.finaz(&["lease", "renew", name, "--owner", &owner]).exits(0);
}

#[test]
fn a_renewal_that_waited_for_the_row_until_the_lease_was_over_is_refused() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let name = "job/waits";
    let (owner, fence) = acquire(&stage, &[name]);
    let gate = stage.session();
    gate.sql(&format!("BEGIN; SELECT 1 FROM finaz.leases WHERE name = '{name}' FOR UPDATE"));
    let waiting = stage.start(&["lease", "renew", name, "--owner", &owner]);
    until("a renewal that waits for the row", SOON, || {
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (stage.count(waits) > 0).then_some(())
    });
    // It began while the lease was live, and gets the row when it is not any more.
    gate.sql(&format!(
        "UPDATE finaz.leases SET expires_at = clock_timestamp() WHERE name = '{name}'; COMMIT"
    ));
    waiting.wait(SOON).refuses(1, "LEASE_EXPIRED");
    let (_, next) = acquire(&stage, &[name]);
    assert_eq!(next, fence + 1);
}

/// Every call for the time of day answers an hour and more wrong, and never twice the same way.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) { static long n; return (n++ % 2 ? -1 : 1) * 3600 - n; }
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, at);
    if (id == CLOCK_REALTIME && at) at->tv_sec += shift();
    return done;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    int done = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000;
    return done;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// A library that makes the clock of a process wrong.
fn wrong_clock(stage: &Stage) -> String {
    let source = stage.file("clock.c", WRONG_CLOCK);
    let library = stage.file("clock.so", "");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source, "-ldl"]).status();
    assert!(built.expect("a C compiler, which Rust needs as well").success());
    let date = |preload: &str| -> i64 {
        let output = Command::new("date").arg("+%s").env("LD_PRELOAD", preload).output();
        let seconds = String::from_utf8(output.expect("date").stdout).expect("text");
        seconds.trim().parse().expect("seconds")
    };
    assert!((date("") - date(&library)).abs() > 3000, "the clock is not wrong");
    library
}

#[test]
fn a_wrong_clock_of_the_process_changes_no_lease() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let clock = wrong_clock(&stage);
    let wrong = |args: &[&str]| stage.finaz_with(&[("LD_PRELOAD", &clock)], args);
    let name = "job/clock";
    let (owner, _) = lease(&wrong(&["lease", "acquire", name, "--ttl", "60"]).exits(0).json());
    let left = "SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM finaz.leases";
    let left: f64 = stage.value(left).parse().expect("seconds");
    assert!((30.0..=60.0).contains(&left), "{left} s of 60 are left");
    wrong(&["lease", "acquire", name]).refuses(1, "LEASE_HELD");
    let renewed = wrong(&["lease", "renew", name, "--owner", &owner]).exits(0);
    assert_eq!(renewed.json()["leases"][0]["live"], true);
    expire(&stage, name);
    wrong(&["lease", "renew", name, "--owner", &owner]).refuses(1, "LEASE_EXPIRED");
    let claimed = wrong(&["lease", "acquire", name]).exits(0).json();
    assert_eq!(lease(&claimed).1, 2);
    // And a whole run under it.
    let flow = stage.fixture();
    let done = wrong(&["run-once", "--flow", &flow]).exits(0).json();
    assert_eq!(done["state"], "SUCCEEDED");
}
