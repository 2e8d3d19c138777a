//! The operations of the model carried out on a store, by processes that hold what they were given.

use std::collections::BTreeMap;
use std::time::Duration;

use finaz::ids::{Hash, Owner, StreamIdentity};
use finaz::rules::admission::Request;
use finaz::rules::lease::{Grant, Refusal};
use finaz::store::{
    Claim, Ended, Published, RunResult, StreamBarred, StreamLease, StreamMove, StreamStatus,
    StreamVerdict, StreamView, Swept, Verdict,
};

use super::{Deed, How, Op, Step, TTL_MS};

/// What a store does, as both of them do it.
pub(crate) trait Control {
    fn tick(&mut self, ms: i64);
    fn restart(&mut self);
    fn admit(&mut self, request: &Request) -> Verdict;
    fn cancel(&mut self, run_id: &str) -> Option<String>;
    fn claim(&mut self, owner: &Owner, batch: i64) -> Option<Claim>;
    fn claim_suspect(&mut self, owner: &Owner) -> Option<Claim>;
    fn claim_one(&mut self, owner: &Owner, run_no: i64) -> Option<Claim>;
    fn publish(&mut self, claim: &Claim, results: &[RunResult]) -> Published;
    fn finish(
        &mut self,
        claim: &Claim,
        runs: &[(i64, i64, Option<String>)],
        how: Ended,
    ) -> Vec<i64>;
    fn close(&mut self, claim: &Claim);
    fn disown(&mut self, claim: &Claim);
    fn renew_many(&mut self, owner: &Owner, lease_nos: &[i64]) -> Vec<i64>;
    fn sweep(&mut self, owner: &Owner) -> Swept;
    fn give_back_own(&mut self, owner: &Owner, known: &[i64]) -> u64;
    fn mend(&mut self) -> u64;
    fn has_work(&mut self) -> bool;
    /// The grant, and epoch and fence as they stand then.
    fn acquire(&mut self, name: &str, owner: &Owner) -> (Grant, (i64, i64));
    fn renew(&mut self, name: &str, owner: &Owner) -> Result<(i64, i64), Refusal>;
    fn release(&mut self, name: &str, owner: &Owner) -> Result<(i64, i64), Refusal>;
    fn new_epoch(&mut self, name: &str) -> i64;
    fn open(
        &mut self,
        lease: &StreamLease,
        identity: &StreamIdentity,
    ) -> Result<StreamView, StreamBarred>;
    fn commit(&mut self, lease: &StreamLease, next: &StreamMove) -> StreamVerdict;
    /// The fence of who has it instead, where it is refused.
    fn mark(&mut self, lease: &StreamLease, status: &StreamStatus) -> Result<(), Option<i64>>;
    fn stream(&mut self, name: &str) -> Option<StreamView>;
}

/// The life of every lease.
pub(crate) const TTL: Duration = Duration::from_millis(TTL_MS.unsigned_abs());

/// A store, and what the processes of the model hold of it.
pub(crate) struct Hands<S> {
    pub(crate) store: S,
    claims: BTreeMap<usize, Claim>,
    grants: BTreeMap<(usize, usize), StreamLease>,
    runs: BTreeMap<String, usize>,
    numbers: BTreeMap<usize, i64>,
}

fn owner(who: usize) -> Owner {
    Owner::from_token(&format!("model/{who}"))
}

fn body(body: usize) -> (Hash, Hash) {
    (Hash::of(&[1, u8::try_from(body).expect("few")]), Hash::of(b"snapshot"))
}

fn name(stream: usize) -> String {
    format!("stream/model-{stream}")
}

fn identity(stream: usize) -> StreamIdentity {
    StreamIdentity {
        run_id: format!("model-{stream}"),
        cluster: "c".to_owned(),
        topic_id: "i".to_owned(),
        topic: "t".to_owned(),
        group: "g".to_owned(),
        flow: Hash::of(b"flow"),
        flow_name: "f".to_owned(),
        partitions: None,
    }
}

fn status() -> StreamStatus {
    StreamStatus { state: "FLOWING".to_owned(), reason: None, report: None }
}

impl<S: Control> Hands<S> {
    pub(crate) fn new(store: S) -> Self {
        Self {
            store,
            claims: BTreeMap::new(),
            grants: BTreeMap::new(),
            runs: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// What the store answers, in the words of the model.
    pub(crate) fn answer(&mut self, op: &Op) -> String {
        match op {
            Op::Tick(ms) => self.store.tick(*ms),
            Op::Restart => self.store.restart(),
            Op::Admit { key, body } => return self.admit(*key, *body),
            Op::Cancel(key) => {
                let run_id = self.runs.iter().find(|(_, known)| *known == key);
                let run_id = run_id.map(|(run_id, _)| run_id.clone()).unwrap_or_default();
                return self.store.cancel(&run_id).unwrap_or_else(|| "none".to_owned());
            }
            Op::Claim(who, batch) => {
                let claim = self.store.claim(&owner(*who), *batch);
                return self.claimed(*who, claim);
            }
            Op::ClaimSuspect(who) => {
                let claim = self.store.claim_suspect(&owner(*who));
                return self.claimed(*who, claim);
            }
            Op::ClaimOne(who, key) => {
                let number = self.numbers.get(key).copied().unwrap_or(-1);
                let claim = self.store.claim_one(&owner(*who), number);
                return self.claimed(*who, claim);
            }
            Op::OnClaim(who, deed) => {
                let Some(claim) = self.claims.get(who).cloned() else {
                    return "no claim".to_owned();
                };
                return self.on_claim(*deed, *who, &claim);
            }
            Op::Sweep(who) => {
                let Swept { requeued, poisoned, .. } = self.store.sweep(&owner(*who));
                return format!("{requeued} {poisoned}");
            }
            Op::GiveBackOwn(who, knows) => {
                let known = self.claims.get(who).filter(|_| *knows).map(|claim| claim.lease_no);
                let known: Vec<i64> = known.into_iter().collect();
                return self.store.give_back_own(&owner(*who), &known).to_string();
            }
            Op::Mend => return self.store.mend().to_string(),
            Op::HasWork => return self.store.has_work().to_string(),
            Op::Acquire(who, stream) => return self.acquire(*who, *stream),
            Op::Renew(who, stream) => {
                return by_name(self.store.renew(&name(*stream), &owner(*who)));
            }
            Op::Release(who, stream) => {
                return by_name(self.store.release(&name(*stream), &owner(*who)));
            }
            Op::NewEpoch(stream) => return self.store.new_epoch(&name(*stream)).to_string(),
            Op::OnStream(who, stream, step) => {
                let Some(lease) = self.grants.get(&(*who, *stream)).cloned() else {
                    return "no grant".to_owned();
                };
                return self.on_stream(*step, *stream, &lease);
            }
        }
        "done".to_owned()
    }

    fn admit(&mut self, key: usize, of: usize) -> String {
        let (flow, snapshot) = body(of);
        let request = Request::new("model", "flow.run", Some(&format!("k{key}")), flow, snapshot);
        let request = request.expect("legal parts");
        match self.store.admit(&request) {
            Verdict::Conflict { held } => {
                assert_ne!(held, request.body_hash, "it conflicts with itself");
                "conflict".to_owned()
            }
            Verdict::Admitted(admitted) => {
                assert_eq!(admitted.run_id, request.run_id);
                self.runs.insert(admitted.run_id, key);
                self.numbers.insert(key, admitted.run_no);
                let created = if admitted.created { "created " } else { "" };
                format!("{created}run {key} {}", admitted.state)
            }
        }
    }

    fn claimed(&mut self, who: usize, claim: Option<Claim>) -> String {
        let Some(claim) = claim else { return "none".to_owned() };
        let run = |run: &finaz::store::ClaimedRun| {
            let key = self.runs[&run.run_id];
            format!("{key}:{}:{}:{}", run.fence, run.attempts, run.cancel_requested)
        };
        let runs: Vec<String> = claim.runs.iter().map(run).collect();
        let said = format!("fence {}, {}", claim.fence, runs.join(" "));
        self.claims.insert(who, claim);
        said
    }

    fn keys(&self, run_nos: &[i64]) -> Vec<usize> {
        let known = self.numbers.iter().filter(|(_, number)| run_nos.contains(number));
        known.map(|(key, _)| *key).collect()
    }

    fn on_claim(&mut self, deed: Deed, who: usize, claim: &Claim) -> String {
        match deed {
            Deed::Publish => {
                let result = |run: &finaz::store::ClaimedRun| RunResult {
                    run_no: run.run_no,
                    run_id: run.run_id.clone(),
                    fence: run.fence,
                    blob: Hash::of(run.run_id.as_bytes()),
                    values_hash: Hash::of(b"values"),
                    rows: 6,
                };
                let results: Vec<RunResult> = claim.runs.iter().map(result).collect();
                let Published { published, cancelled, left } = self.store.publish(claim, &results);
                let keys = [published, cancelled, left].map(|runs| self.keys(&runs));
                format!("{:?} {:?} {:?}", keys[0], keys[1], keys[2])
            }
            Deed::Finish(how) => {
                let how = match how {
                    How::Failed => Ended::Failed,
                    How::Cancelled => Ended::Cancelled,
                    How::GivenBack => Ended::GivenBack,
                };
                let runs: Vec<_> =
                    claim.runs.iter().map(|run| (run.run_no, run.fence, None)).collect();
                let ended = self.store.finish(claim, &runs, how);
                format!("{:?}", self.keys(&ended))
            }
            Deed::Close => {
                self.store.close(claim);
                "done".to_owned()
            }
            Deed::Disown => {
                self.store.disown(claim);
                "done".to_owned()
            }
            Deed::Renew => {
                let renewed = self.store.renew_many(&owner(who), &[claim.lease_no]);
                (renewed == [claim.lease_no]).to_string()
            }
        }
    }

    fn acquire(&mut self, who: usize, stream: usize) -> String {
        let (grant, (epoch, fence)) = self.store.acquire(&name(stream), &owner(who));
        let said = match grant {
            Grant::Claim { .. } => "claimed",
            Grant::Renew => "renewed",
            Grant::Held => return "held".to_owned(),
            Grant::Regression { .. } | Grant::Exhausted => return format!("{grant:?}"),
        };
        let lease = StreamLease { name: name(stream), owner: owner(who), epoch, fence };
        self.grants.insert((who, stream), lease);
        format!("{said} {epoch} {fence}")
    }

    fn on_stream(&mut self, step: Step, stream: usize, lease: &StreamLease) -> String {
        let refused = match step {
            Step::Open => match self.store.open(lease, &identity(stream)) {
                Ok(_view) => None,
                Err(StreamBarred::By(_)) => return "barred".to_owned(),
                Err(StreamBarred::Lease(refusal)) => Some(refusal.fence),
            },
            Step::Mark => self.store.mark(lease, &status()).err(),
            Step::Commit | Step::CommitBehind => match self.commit(step, stream, lease) {
                StreamVerdict::Committed => None,
                StreamVerdict::Moved(_) => return "moved".to_owned(),
                StreamVerdict::Refused(refusal) => Some(refusal.fence),
            },
        };
        if let Some(fence) = refused {
            return format!("refused, fence {}", fence.unwrap_or_default());
        }
        let row = self.store.stream(&name(stream)).map(|view| view.row);
        let (fence, seq) = row.map_or((0, 0), |row| (row.fence, row.seq));
        format!("{fence} {seq}")
    }

    fn commit(&mut self, step: Step, stream: usize, lease: &StreamLease) -> StreamVerdict {
        let behind = matches!(step, Step::CommitBehind);
        let row = self.store.stream(&name(stream)).map(|view| view.row);
        let (fence, seq) = row.map_or((0, 0), |row| (row.fence, row.seq));
        // From where somebody else would have left it.
        let from_seq = if behind { seq + 5 } else { seq };
        let head = Hash::of(format!("{stream} {from_seq} {fence} {}", lease.fence).as_bytes());
        let next = StreamMove {
            from_fence: fence,
            from_seq,
            seq: from_seq + 1,
            head,
            blobs: vec![head],
            status: status(),
            restored: None,
        };
        self.store.commit(lease, &next)
    }
}

fn by_name(renewed: Result<(i64, i64), Refusal>) -> String {
    match renewed {
        Ok((epoch, fence)) => format!("{epoch} {fence}"),
        Err(refusal) => format!("{refusal:?}"),
    }
}
