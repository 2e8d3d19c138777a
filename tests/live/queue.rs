//! The queue: what was committed is done, in whatever order it became visible and whoever mishandled its rows.

use std::time::Duration;

use crate::process::{Process, until};
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);

/// A worker that looks often and sweeps often.
fn worker(stage: &mut Stage, more: &[&str]) -> Process {
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.start(&[&["worker"], more].concat())
}

#[track_caller]
fn succeeds(stage: &Stage, run: &str) {
    let state = format!("SELECT state FROM finaz.api_runs WHERE run_id = '{run}'");
    until("it succeeds", SOON, || (stage.value(&state) == "SUCCEEDED").then_some(()));
}

/// A copy of a run and its event, under the next numbers: what another session would have inserted.
const COPY: &str = "
    WITH n AS (SELECT nextval('finaz.run_no') AS run_no, nextval('finaz.event_id') AS id),
    r AS (INSERT INTO finaz.api_runs (run_no, event_id, flow, snapshot, run_id)
          SELECT n.run_no, n.id, flow, snapshot, 'run_' || repeat('0', 63) || '{name}'
          FROM finaz.api_runs, n ORDER BY api_runs.run_no LIMIT 1 RETURNING run_no, event_id, run_id)
    INSERT INTO finaz.outbox (id, run_no, type, run_id)
    SELECT event_id, run_no, 'run.requested', run_id FROM r RETURNING run_id";

#[test]
fn an_event_that_was_committed_after_later_ones_is_delivered_all_the_same() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.snapshot("load", 10);
    stage.admit("a", 1, "load");
    let worker = worker(&mut stage, &["--batch", "1"]);
    until("it works", SOON, || (stage.runs("SUCCEEDED") == 1).then_some(()));
    // Once with nothing else to do, once in the middle of much.
    for (name, others) in [("1", 1), ("2", 300)] {
        let late = stage.session();
        let early = late.sql(&format!("BEGIN; {}", COPY.replace("{name}", name)));
        let early = &early[0][0];
        let before = stage.runs("SUCCEEDED");
        stage.admit(&format!("b{name}"), others, "load");
        let passed = before + others.div_ceil(4);
        until("later ones are done", SOON, || (stage.runs("SUCCEEDED") >= passed).then_some(()));
        late.sql("COMMIT");
        succeeds(&stage, early);
        until("the rest is done", SOON, || {
            (stage.runs("SUCCEEDED") == before + others + 1).then_some(())
        });
    }
    drop(worker);
    let pending = "SELECT count(*) FROM finaz.outbox WHERE delivered_at IS NULL";
    assert_eq!(stage.count(pending), 0);
}

/// Leaves a run as its worker's death does, and then mutilates it further: each must come back by itself.
const ORPHANS: &[(&str, &str)] = &[
    ("its lease ran out", "UPDATE finaz.leases SET expires_at = clock_timestamp(), closed = false"),
    ("its lease was closed by hand", "UPDATE finaz.leases SET closed = true"),
    ("its lease was deleted by hand", "DELETE FROM finaz.leases"),
];

/// RUNNING under a live lease of somebody who does nothing.
fn running(stage: &Stage, prefix: &str) -> String {
    let run = stage.admit(prefix, 1, "load").remove(0);
    stage.sql(&format!(
        "WITH r AS (SELECT run_no, event_id, run_id FROM finaz.api_runs WHERE run_id = '{run}'),
         l AS (INSERT INTO finaz.leases (lease_no, name, owner, fence, expires_at, run_nos)
               SELECT n, 'batch/' || n, 'idle/0', 1, clock_timestamp() + interval '1 hour', ARRAY[run_no]
               FROM r, nextval('finaz.lease_no') AS n RETURNING lease_no),
         o AS (UPDATE finaz.outbox SET claimed = true, lease_no = l.lease_no FROM r, l WHERE id = r.event_id)
         UPDATE finaz.api_runs AS u SET state = 'RUNNING', fence = u.fence + 1, lease_no = l.lease_no
         FROM r, l WHERE u.run_no = r.run_no"
    ));
    run
}

#[test]
fn an_orphan_is_found_at_the_start_of_a_worker_and_while_it_lives() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.snapshot("load", 10);
    // Each is made while nobody works, so that it stays as it is made.
    for (index, (what, statement)) in ORPHANS.iter().enumerate() {
        let at_start = running(&stage, &format!("s{index}"));
        stage.sql(statement);
        let worker = worker(&mut stage, &[]);
        until(&format!("at the start: {what}"), SOON, || {
            let state = format!("SELECT state FROM finaz.api_runs WHERE run_id = '{at_start}'");
            (stage.value(&state) == "SUCCEEDED").then_some(())
        });
        drop(worker);
    }
    let attempts = "SELECT DISTINCT attempts FROM finaz.api_runs";
    assert_eq!(stage.column(attempts), ["1"], "an owner died with each");
    for (index, (what, statement)) in ORPHANS.iter().enumerate() {
        let later = running(&stage, &format!("l{index}"));
        let worker = worker(&mut stage, &[]);
        // It sweeps, and leaves alone what has a live lease.
        let other = stage.admit(&format!("o{index}"), 1, "load").remove(0);
        succeeds(&stage, &other);
        let state = format!("SELECT state, fence FROM finaz.api_runs WHERE run_id = '{later}'");
        assert_eq!(stage.sql(&state), [["RUNNING", "1"]], "taken from a live owner");
        stage.sql(&format!("{statement} WHERE owner = 'idle/0'"));
        until(&format!("while it lives: {what}"), SOON, || {
            (stage.sql(&state)[0][0] == "SUCCEEDED").then_some(())
        });
        drop(worker);
    }
}

#[test]
fn a_queued_run_whose_event_looks_taken_is_done_all_the_same() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.snapshot("load", 10);
    let taken = [
        "claimed = true, delivered_at = clock_timestamp()",
        "claimed = false, delivered_at = clock_timestamp()",
        "claimed = true",
    ];
    let spoil = |stage: &Stage, run: &str, how: &str| {
        stage.sql(&format!("UPDATE finaz.outbox SET {how} WHERE run_id = '{run}'"));
    };
    let runs = stage.admit("s", taken.len(), "load");
    for (run, how) in runs.iter().zip(taken) {
        spoil(&stage, run, how);
    }
    let _worker = worker(&mut stage, &[]);
    for run in &runs {
        succeeds(&stage, run);
    }
    // The same while it lives: spoiled in the transaction that makes it visible.
    for (name, how) in ["1", "2", "3"].into_iter().zip(taken) {
        let session = stage.session();
        let run = session.sql(&format!("BEGIN; {}", COPY.replace("{name}", name)));
        let run = &run[0][0];
        session.sql(&format!("UPDATE finaz.outbox SET {how} WHERE run_id = '{run}'; COMMIT"));
        succeeds(&stage, run);
    }
    let attempts = "SELECT DISTINCT attempts FROM finaz.api_runs";
    assert_eq!(stage.column(attempts), ["0"], "nobody died");
}
