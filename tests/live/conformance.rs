//! The real store against the model that the simulated one is held to (`tests/conformance.rs`), on a real PostgreSQL whose
//! clock is the model's: a function of the same name that its sessions find first.

use std::cell::RefCell;
use std::rc::Rc;

use finaz::ids::{Owner, StreamIdentity};
use finaz::rules::admission::Request;
use finaz::rules::lease::{Grant, Refusal};
use finaz::store::{
    Claim, Connect, Ended, Limits, Published, RunResult, Store, StreamBarred, StreamLease,
    StreamMove, StreamStatus, StreamVerdict, StreamView, Swept, Verdict,
};
use proptest::test_runner::{Config, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use crate::stage::Stage;
use crate::store_model::hands::{Control, Hands, TTL};
use crate::store_model::{Op, Ref};

/// Sequences on the real store; `CONFORMANCE_CASES` says otherwise.
const CASES: u32 = 100;

/// Time of the model, which begins when the server does.
const CLOCK: &str = "
    CREATE SCHEMA model;
    CREATE TABLE model.time (now timestamptz NOT NULL, started timestamptz NOT NULL);
    INSERT INTO model.time VALUES ('2026-01-01Z', '2026-01-01Z');
    CREATE FUNCTION model.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
        AS 'SELECT now FROM model.time';
    CREATE FUNCTION model.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql VOLATILE
        AS 'SELECT started FROM model.time'";

const ANEW: &str = "
    DELETE FROM finaz.admission; DELETE FROM finaz.api_runs; DELETE FROM finaz.outbox; DELETE FROM finaz.leases;
    DELETE FROM finaz.publications; DELETE FROM finaz.streams; DELETE FROM finaz.epochs;
    UPDATE model.time SET now = '2026-01-01Z', started = '2026-01-01Z'";

/// The real store.
struct Real {
    stage: Rc<Stage>,
    store: Store,
}

impl Real {
    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.stage.runtime.block_on(work)
    }
}

impl Control for Real {
    fn tick(&mut self, ms: i64) {
        self.stage.sql(&format!("UPDATE model.time SET now = now + {ms} * interval '1 ms'"));
    }
    fn restart(&mut self) {
        self.stage.sql("UPDATE model.time SET started = now");
    }
    fn admit(&mut self, request: &Request) -> Verdict {
        let verdicts = self.wait(self.store.admit(std::slice::from_ref(request), false));
        verdicts.expect("an answer").into_iter().next().expect("one for each")
    }
    fn cancel(&mut self, run_id: &str) -> Option<String> {
        self.wait(self.store.request_cancel(run_id)).expect("an answer")
    }
    fn claim(&mut self, owner: &Owner, batch: i64) -> Option<Claim> {
        self.wait(self.store.claim(owner, TTL, batch, 0)).expect("an answer")
    }
    fn claim_suspect(&mut self, owner: &Owner) -> Option<Claim> {
        self.wait(self.store.claim_suspect(owner, TTL)).expect("an answer")
    }
    fn claim_one(&mut self, owner: &Owner, run_no: i64) -> Option<Claim> {
        self.wait(self.store.claim_one(owner, TTL, run_no)).expect("an answer")
    }
    fn publish(&mut self, claim: &Claim, results: &[RunResult]) -> Published {
        self.wait(self.store.publish(claim, results, (0.0, true), None)).expect("no conflict")
    }
    fn finish(
        &mut self,
        claim: &Claim,
        runs: &[(i64, i64, Option<String>)],
        how: Ended,
    ) -> Vec<i64> {
        self.wait(self.store.finish(claim, runs, how)).expect("an answer")
    }
    fn close(&mut self, claim: &Claim) {
        self.wait(self.store.close(claim)).expect("an answer");
    }
    fn disown(&mut self, claim: &Claim) {
        self.wait(self.store.disown(claim)).expect("an answer");
    }
    fn renew_many(&mut self, owner: &Owner, lease_nos: &[i64]) -> Vec<i64> {
        self.wait(self.store.renew_many(owner, lease_nos, TTL)).expect("an answer")
    }
    fn sweep(&mut self, owner: &Owner) -> Swept {
        self.wait(self.store.sweep_orphans(owner, TTL)).expect("an answer")
    }
    fn give_back_own(&mut self, owner: &Owner, known: &[i64]) -> u64 {
        self.wait(self.store.give_back_own(owner, known)).expect("an answer")
    }
    fn mend(&mut self) -> u64 {
        self.wait(self.store.mend_events(0)).expect("an answer").0
    }
    fn has_work(&mut self) -> bool {
        self.wait(self.store.has_work()).expect("an answer")
    }
    fn acquire(&mut self, name: &str, owner: &Owner) -> (Grant, (i64, i64)) {
        let asked = self.wait(self.store.acquire(name, owner, TTL, None));
        let (grant, row) = asked.expect("an answer");
        (grant, (row.epoch, row.fence))
    }
    fn renew(&mut self, name: &str, owner: &Owner) -> Result<(i64, i64), Refusal> {
        let renewed = self.wait(self.store.renew(name, owner, TTL)).expect("an answer");
        renewed.map(|row| (row.epoch, row.fence)).map_err(|(refusal, _row)| refusal)
    }
    fn release(&mut self, name: &str, owner: &Owner) -> Result<(i64, i64), Refusal> {
        let released = self.wait(self.store.release(name, owner)).expect("an answer");
        released.map(|row| (row.epoch, row.fence)).map_err(|(refusal, _row)| refusal)
    }
    fn new_epoch(&mut self, name: &str) -> i64 {
        let begun = self.store.new_epoch(Some(name), "model", "a test", None);
        self.wait(begun).expect("an answer")
    }
    fn open(
        &mut self,
        lease: &StreamLease,
        identity: &StreamIdentity,
    ) -> Result<StreamView, StreamBarred> {
        self.wait(self.store.open_stream(lease, identity, "OPENED")).expect("an answer")
    }
    fn commit(&mut self, lease: &StreamLease, next: &StreamMove) -> StreamVerdict {
        let run_id = lease.name.trim_start_matches("stream/");
        self.wait(self.store.commit_stream(lease, run_id, next)).expect("an answer")
    }
    fn mark(&mut self, lease: &StreamLease, status: &StreamStatus) -> Result<(), Option<i64>> {
        let run_id = lease.name.trim_start_matches("stream/");
        let marked = self.wait(self.store.mark_stream(lease, run_id, status)).expect("an answer");
        marked.map_err(|refusal| refusal.fence)
    }
    fn stream(&mut self, name: &str) -> Option<StreamView> {
        self.wait(self.store.stream(name)).expect("an answer")
    }
}

thread_local! {
    /// Where the sequences of this thread play.
    static PLACE: RefCell<Option<(Rc<Stage>, Store)>> = const { RefCell::new(None) };
}

struct Conformance;

impl StateMachineTest for Conformance {
    type SystemUnderTest = Hands<Real>;
    type Reference = Ref;

    fn init_test(_model: &<Ref as ReferenceStateMachine>::State) -> Hands<Real> {
        let (stage, store) = PLACE.with_borrow(|place| place.clone().expect("a stage"));
        stage.sql(ANEW);
        Hands::new(Real { stage, store })
    }

    fn apply(mut hands: Hands<Real>, model: &Ref, op: Op) -> Hands<Real> {
        assert_eq!(hands.answer(&op), model.answer, "{op:?}");
        hands
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has no config.rs")]
fn cases() -> u32 {
    let asked = std::env::var("CONFORMANCE_CASES").ok();
    asked.map_or(CASES, |cases| cases.parse().expect("CONFORMANCE_CASES is a number"))
}

#[test]
fn the_real_store_answers_as_the_model_in_a_hundred_sequences() {
    let Some(stage) = Stage::without_warehouse() else { return };
    stage.sql(CLOCK);
    let url = format!("{}?options=-c%20search_path%3Dmodel%2Cpg_catalog", stage.pg_url());
    let connect = Connect::new(&url, Limits { ttl: TTL }, false).expect("a URL");
    let store = Store::new(connect).expect("a store");
    PLACE.set(Some((Rc::new(stage), store)));
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let ran = TestRunner::new(config.clone()).run(
        &Ref::sequential_strategy(40..60),
        |(model, ops, seen)| {
            Conformance::test_sequential(config.clone(), model, ops, seen);
            Ok(())
        },
    );
    PLACE.set(None);
    ran.expect("the model's answers");
}
