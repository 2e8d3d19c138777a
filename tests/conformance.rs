//! The simulated store against the model of what a control store answers. The real one is held to the same in
//! `tests/live/conformance.rs`: so what holds in the simulation is not a fiction.

#[path = "store_model/mod.rs"]
mod store_model;

use finaz::ids::{Owner, StreamIdentity};
use finaz::rules::admission::Request;
use finaz::rules::lease::{Grant, Refusal};
use finaz::sim::SimStore;
use finaz::store::{
    Claim, Ended, Published, RunResult, StreamBarred, StreamLease, StreamMove, StreamStatus,
    StreamVerdict, StreamView, Swept, Verdict,
};
use proptest::test_runner::Config;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use crate::store_model::hands::{Control, Hands, TTL};
use crate::store_model::{Op, Ref};

/// The simulated store with its time.
struct Simulated {
    store: SimStore,
    now: i64,
    calls: u64,
}

impl Control for Simulated {
    fn tick(&mut self, ms: i64) {
        self.now += ms * 1_000;
    }
    fn restart(&mut self) {
        self.store.restart(self.now);
    }
    fn admit(&mut self, request: &Request) -> Verdict {
        self.calls += 1;
        let numbers = self.store.draw_numbers(1);
        let verdicts = self.store.admit(self.calls, std::slice::from_ref(request), &numbers);
        verdicts.into_iter().next().expect("one for each")
    }
    fn cancel(&mut self, run_id: &str) -> Option<String> {
        self.store.request_cancel(run_id).map(|state| state.to_string())
    }
    fn claim(&mut self, owner: &Owner, batch: i64) -> Option<Claim> {
        self.store.claim(self.now, owner, (TTL, batch), 0)
    }
    fn claim_suspect(&mut self, owner: &Owner) -> Option<Claim> {
        self.store.claim_suspect(self.now, owner, TTL)
    }
    fn claim_one(&mut self, owner: &Owner, run_no: i64) -> Option<Claim> {
        self.store.claim_one(self.now, owner, TTL, run_no)
    }
    fn publish(&mut self, claim: &Claim, results: &[RunResult]) -> Published {
        let ended = self.store.publish(self.now, claim, results, false).expect("no conflict");
        Published::of(results, &ended)
    }
    fn finish(
        &mut self,
        claim: &Claim,
        runs: &[(i64, i64, Option<String>)],
        how: Ended,
    ) -> Vec<i64> {
        self.store.finish(self.now, claim, runs, how)
    }
    fn close(&mut self, claim: &Claim) {
        self.store.close(self.now, claim);
    }
    fn disown(&mut self, claim: &Claim) {
        self.store.disown(self.now, claim);
    }
    fn renew_many(&mut self, owner: &Owner, lease_nos: &[i64]) -> Vec<i64> {
        self.store.renew_many(self.now, owner, lease_nos, TTL)
    }
    fn sweep(&mut self, owner: &Owner) -> Swept {
        let mut all = Swept::default();
        loop {
            let (leases, swept) = self.store.sweep_page(self.now, owner, TTL);
            all.requeued += swept.requeued;
            all.poisoned += swept.poisoned;
            if leases < 20 {
                return all;
            }
        }
    }
    fn give_back_own(&mut self, owner: &Owner, known: &[i64]) -> u64 {
        self.store.give_back_own(self.now, owner, known)
    }
    fn mend(&mut self) -> u64 {
        self.store.mend_events(self.now, 0).0
    }
    fn has_work(&mut self) -> bool {
        self.store.has_work()
    }
    fn acquire(&mut self, name: &str, owner: &Owner) -> (Grant, (i64, i64)) {
        let (grant, held) = self.store.acquire(self.now, name, (owner, TTL), None);
        (grant, held.map_or((0, 0), |held| (held.epoch, held.fence)))
    }
    fn renew(&mut self, name: &str, owner: &Owner) -> Result<(i64, i64), Refusal> {
        self.store.renew(self.now, name, owner, TTL).map(|held| (held.epoch, held.fence))
    }
    fn release(&mut self, name: &str, owner: &Owner) -> Result<(i64, i64), Refusal> {
        self.store.release(self.now, name, owner).map(|held| (held.epoch, held.fence))
    }
    fn new_epoch(&mut self, name: &str) -> i64 {
        self.store.new_epoch(self.now, Some(name), "model", None)
    }
    fn open(
        &mut self,
        lease: &StreamLease,
        identity: &StreamIdentity,
    ) -> Result<StreamView, StreamBarred> {
        self.store.open_stream(self.now, lease, identity, "OPENED")
    }
    fn commit(&mut self, lease: &StreamLease, next: &StreamMove) -> StreamVerdict {
        self.store.move_stream(self.now, lease, next)
    }
    fn mark(&mut self, lease: &StreamLease, status: &StreamStatus) -> Result<(), Option<i64>> {
        self.store.mark_stream(self.now, lease, status).map_err(|refusal| refusal.fence)
    }
    fn stream(&mut self, name: &str) -> Option<StreamView> {
        self.store.stream(self.now, name)
    }
}

struct Conformance;

impl StateMachineTest for Conformance {
    type SystemUnderTest = Hands<Simulated>;
    type Reference = Ref;

    fn init_test(_model: &<Ref as ReferenceStateMachine>::State) -> Hands<Simulated> {
        Hands::new(Simulated { store: SimStore::new(), now: 0, calls: 0 })
    }

    fn apply(mut hands: Hands<Simulated>, model: &Ref, op: Op) -> Hands<Simulated> {
        assert_eq!(hands.answer(&op), model.answer, "{op:?}");
        hands
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 2_000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_simulated_store_answers_as_the_model_in_two_thousand_sequences(
        sequential 30..60 => Conformance
    );
}
