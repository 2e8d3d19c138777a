//! What a control store has to answer, as a small model: runs, leases and pointers of streams in plain lists, and no table,
//! no queue, no statement. The simulated store and the real one are held to it, one operation after the other.

pub(crate) mod hands;

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

/// Processes, keys and streams that operations are about.
const WHO: std::ops::Range<usize> = 0..3;
const KEYS: std::ops::Range<usize> = 0..5;
const STREAMS: std::ops::Range<usize> = 0..2;
/// Life of a lease, in milliseconds.
pub(crate) const TTL_MS: i64 = 1_000;
/// A run that lost so many owners fails.
const DEAD_MAX: i64 = 3;

/// What is asked of a store. Processes, keys and streams by number; a process acts with what it holds, if anything.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Time passes, in milliseconds.
    Tick(i64),
    /// The server restarts: leases that ran out meanwhile say nothing of their owners.
    Restart,
    Admit {
        key: usize,
        body: usize,
    },
    Cancel(usize),
    Claim(usize, i64),
    ClaimSuspect(usize),
    ClaimOne(usize, usize),
    /// With what it claimed last.
    OnClaim(usize, Deed),
    Sweep(usize),
    /// Gives back what is on record as its own; whether it still knows of what it holds.
    GiveBackOwn(usize, bool),
    Mend,
    HasWork,
    Acquire(usize, usize),
    Renew(usize, usize),
    Release(usize, usize),
    NewEpoch(usize),
    /// Under the lease of a stream, as it was granted last.
    OnStream(usize, usize, Step),
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Publish,
    Finish(How),
    Close,
    Disown,
    Renew,
}

/// What is done with a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Open,
    /// Moves the pointer from where it stands.
    Commit,
    /// Moves it from where it does not stand.
    CommitBehind,
    Mark,
}

/// How runs are finished.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Failed,
    Cancelled,
    GivenBack,
}

#[derive(Clone, Debug)]
struct Run {
    key: usize,
    body: usize,
    state: &'static str,
    fence: i64,
    attempts: i64,
    cancel: bool,
    /// The lease it runs under, by its place in the list.
    lease: usize,
}

#[derive(Clone, Debug)]
struct Lease {
    owner: Option<usize>,
    epoch: i64,
    fence: i64,
    until: i64,
    closed: bool,
    /// Runs by their place; none for a lease by name.
    runs: Vec<usize>,
    /// It is of this run alone, and is used again.
    of_run: Option<usize>,
    stream: Option<usize>,
}

/// What a process holds: a lease with its fence, and the runs of it with theirs.
#[derive(Clone, Debug)]
struct Claim {
    lease: usize,
    fence: i64,
    runs: Vec<(usize, i64)>,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    opened: bool,
    fence: i64,
    seq: i64,
    epoch: i64,
}

/// The model.
#[derive(Clone, Debug)]
pub(crate) struct Ref {
    now: i64,
    started: i64,
    runs: Vec<Run>,
    leases: Vec<Lease>,
    claims: Vec<Option<Claim>>,
    /// By process and stream: epoch and fence that it was granted last.
    grants: Vec<Vec<Option<(i64, i64)>>>,
    streams: Vec<Stream>,
    /// What the last operation answered.
    pub(crate) answer: String,
}

impl Ref {
    fn live(&self, lease: &Lease) -> bool {
        !lease.closed && lease.until > self.now
    }

    /// The claim of a process, if its lease is its own still.
    fn valid(&self, who: usize) -> Option<Claim> {
        let claim = self.claims[who].clone()?;
        let lease = &self.leases[claim.lease];
        let mine = lease.owner == Some(who) && lease.fence == claim.fence;
        (mine && self.live(lease)).then_some(claim)
    }

    /// Of a claim, the runs that still run under it.
    fn running(&self, claim: &Claim) -> Vec<usize> {
        let mine = |(run, fence): &&(usize, i64)| {
            let run = &self.runs[*run];
            (run.state, run.fence, run.lease) == ("RUNNING", *fence, claim.lease)
        };
        claim.runs.iter().filter(mine).map(|(run, _)| *run).collect()
    }

    fn admit(&mut self, key: usize, body: usize) -> String {
        let known = self.runs.iter().position(|run| run.key == key);
        match known {
            Some(at) if self.runs[at].body != body => "conflict".to_owned(),
            Some(at) => format!("run {key} {}", self.runs[at].state),
            None => {
                let state = "QUEUED";
                self.runs.push(Run {
                    key,
                    body,
                    state,
                    fence: 0,
                    attempts: 0,
                    cancel: false,
                    lease: usize::MAX,
                });
                format!("created run {key} {state}")
            }
        }
    }

    fn cancel(&mut self, key: usize) -> String {
        let Some(run) = self.runs.iter_mut().find(|run| run.key == key) else {
            return "none".to_owned();
        };
        let was = run.state;
        if matches!(was, "QUEUED" | "RUNNING") {
            run.cancel = true;
        }
        if was == "QUEUED" {
            run.state = "CANCELLED";
        }
        was.to_owned()
    }

    fn take(&mut self, who: usize, runs: Vec<usize>, lease: usize) -> String {
        let mut said = Vec::new();
        let mut held = Vec::new();
        for at in runs {
            let run = &mut self.runs[at];
            (run.state, run.fence, run.lease) = ("RUNNING", run.fence + 1, lease);
            held.push((at, run.fence));
            said.push(format!("{}:{}:{}:{}", run.key, run.fence, run.attempts, run.cancel));
        }
        let fence = self.leases[lease].fence;
        self.claims[who] = Some(Claim { lease, fence, runs: held });
        format!("fence {fence}, {}", said.join(" "))
    }

    fn claim(&mut self, who: usize, batch: i64) -> String {
        let free = self.runs.iter().enumerate();
        let free = free.filter(|(_, run)| run.state == "QUEUED" && run.attempts == 0);
        let runs: Vec<usize> =
            free.map(|(at, _)| at).take(usize::try_from(batch).unwrap_or(0)).collect();
        if runs.is_empty() {
            return "none".to_owned();
        }
        self.leases.push(Lease {
            owner: Some(who),
            epoch: 1,
            fence: 1,
            until: self.now + TTL_MS,
            closed: false,
            runs: runs.clone(),
            of_run: None,
            stream: None,
        });
        self.take(who, runs, self.leases.len() - 1)
    }

    fn claim_alone(&mut self, who: usize, run: Option<usize>) -> String {
        let Some(run) = run else { return "none".to_owned() };
        let known = self.leases.iter().position(|lease| lease.of_run == Some(run));
        let at = known.unwrap_or(self.leases.len());
        match known {
            Some(at) if self.leases[at].until > self.now => return "none".to_owned(),
            Some(at) => {
                let lease = &mut self.leases[at];
                (lease.owner, lease.fence, lease.closed) = (Some(who), lease.fence + 1, false);
                lease.until = self.now + TTL_MS;
            }
            None => self.leases.push(Lease {
                owner: Some(who),
                epoch: 1,
                fence: 1,
                until: self.now + TTL_MS,
                closed: false,
                runs: vec![run],
                of_run: Some(run),
                stream: None,
            }),
        }
        self.take(who, vec![run], at)
    }

    fn publish(&mut self, who: usize) -> String {
        let Some(all) = self.claims[who].clone() else { return "no claim".to_owned() };
        let ours = self.valid(who).map(|claim| self.running(&claim)).unwrap_or_default();
        let (mut published, mut cancelled) = (Vec::new(), Vec::new());
        for at in &ours {
            let run = &mut self.runs[*at];
            run.state = if run.cancel { "CANCELLED" } else { "SUCCEEDED" };
            if run.cancel { &mut cancelled } else { &mut published }.push(run.key);
        }
        if self.valid(who).is_some() {
            let lease = &mut self.leases[all.lease];
            (lease.closed, lease.until) = (true, self.now);
        }
        let left = all.runs.iter().filter(|(run, _)| !ours.contains(run));
        let left = left.map(|(run, _)| self.runs[*run].key).collect();
        format!("{:?} {:?} {:?}", sorted(published), sorted(cancelled), sorted(left))
    }

    fn finish(&mut self, who: usize, how: How) -> String {
        if self.claims[who].is_none() {
            return "no claim".to_owned();
        }
        let ours = self.valid(who).map(|claim| self.running(&claim)).unwrap_or_default();
        for at in &ours {
            self.runs[*at].state = match how {
                How::Failed => "FAILED",
                How::Cancelled => "CANCELLED",
                How::GivenBack => "QUEUED",
            };
        }
        format!("{:?}", sorted(ours.iter().map(|at| self.runs[*at].key).collect()))
    }

    /// Closes the lease of a claim, or lets go of it as nobody's.
    fn let_go(&mut self, who: usize, disowns: bool) -> String {
        let Some(claim) = self.claims[who].clone() else { return "no claim".to_owned() };
        let runs = self.leases[claim.lease].runs.iter();
        let runs = runs.map(|at| &self.runs[*at]);
        let busy =
            runs.filter(|run| run.state == "RUNNING" && run.lease == claim.lease).count() > 0;
        let now = self.now;
        let lease = &mut self.leases[claim.lease];
        if lease.owner == Some(who) && lease.fence == claim.fence && !lease.closed {
            lease.until = lease.until.min(now);
            if disowns {
                lease.owner = None;
            } else {
                lease.closed = !busy;
            }
        }
        "done".to_owned()
    }

    fn sweep(&mut self, who: usize) -> String {
        let (mut requeued, mut poisoned) = (0, 0);
        for at in 0..self.leases.len() {
            let lease = &self.leases[at];
            let mine = lease.owner == Some(who) || lease.stream.is_some();
            if mine || lease.closed || lease.until > self.now {
                continue;
            }
            self.leases[at].closed = true;
            let excused = self.leases[at].until < self.started + TTL_MS;
            for run in self.leases[at].runs.clone() {
                let run = &mut self.runs[run];
                if (run.state, run.lease) != ("RUNNING", at) {
                    continue;
                }
                run.attempts += i64::from(!excused);
                run.state = if !excused && run.attempts >= DEAD_MAX { "FAILED" } else { "QUEUED" };
                poisoned += i64::from(run.state == "FAILED");
                requeued += i64::from(run.state == "QUEUED");
            }
        }
        format!("{requeued} {poisoned}")
    }

    fn give_back(&mut self, who: usize, knows: bool) -> String {
        let known = self.claims[who].as_ref().map(|claim| claim.lease).filter(|_| knows);
        let (mut given, now) = (0, self.now);
        for at in 0..self.leases.len() {
            let lease = &mut self.leases[at];
            if lease.owner != Some(who) || lease.closed || known == Some(at) {
                continue;
            }
            (lease.closed, lease.until) = (true, lease.until.min(now));
            for run in self.leases[at].runs.clone() {
                let run = &mut self.runs[run];
                if (run.state, run.lease) == ("RUNNING", at) {
                    run.state = "QUEUED";
                    given += 1;
                }
            }
        }
        format!("{given}")
    }

    fn has_work(&self) -> bool {
        let queued = self.runs.iter().any(|run| run.state == "QUEUED");
        queued || self.leases.iter().any(|lease| !lease.closed && !lease.runs.is_empty())
    }

    fn renew_many(&mut self, who: usize) -> String {
        let Some(claim) = self.claims[who].clone() else { return "no claim".to_owned() };
        let now = self.now;
        let live = self.live(&self.leases[claim.lease]);
        let lease = &mut self.leases[claim.lease];
        let renewed = live && lease.owner == Some(who);
        if renewed {
            lease.until = now + TTL_MS;
        }
        format!("{renewed}")
    }

    fn lease_of(&self, stream: usize) -> Option<usize> {
        self.leases.iter().position(|lease| lease.stream == Some(stream))
    }

    fn acquire(&mut self, who: usize, stream: usize) -> String {
        let (now, known) = (self.now, self.lease_of(stream));
        let live = known.is_some_and(|at| self.live(&self.leases[at]));
        let said = match known {
            Some(at) if live && self.leases[at].owner == Some(who) => "renewed",
            Some(_) if live => return "held".to_owned(),
            Some(at) => {
                let lease = &mut self.leases[at];
                (lease.owner, lease.fence, lease.closed) = (Some(who), lease.fence + 1, false);
                "claimed"
            }
            None => {
                self.leases.push(Lease {
                    owner: Some(who),
                    epoch: 1,
                    fence: 1,
                    until: 0,
                    closed: false,
                    runs: Vec::new(),
                    of_run: None,
                    stream: Some(stream),
                });
                "claimed"
            }
        };
        let at = known.unwrap_or(self.leases.len() - 1);
        let lease = &mut self.leases[at];
        lease.until = now + TTL_MS;
        self.grants[who][stream] = Some((lease.epoch, lease.fence));
        format!("{said} {} {}", lease.epoch, lease.fence)
    }

    /// Renews or releases a lease by name: by owner alone, as it stands.
    fn by_name(&mut self, who: usize, stream: usize, until: i64) -> String {
        let Some(at) = self.lease_of(stream) else { return "Missing".to_owned() };
        let live = self.live(&self.leases[at]);
        let lease = &mut self.leases[at];
        if lease.owner != Some(who) {
            return "Stale".to_owned();
        }
        if !live {
            return "Expired".to_owned();
        }
        lease.until = until;
        format!("{} {}", lease.epoch, lease.fence)
    }

    fn new_epoch(&mut self, stream: usize) -> String {
        let now = self.now;
        let at = self.lease_of(stream).unwrap_or_else(|| {
            self.leases.push(Lease {
                owner: None,
                epoch: 1,
                fence: 1,
                until: 0,
                closed: false,
                runs: Vec::new(),
                of_run: None,
                stream: Some(stream),
            });
            self.leases.len() - 1
        });
        let lease = &mut self.leases[at];
        (lease.epoch, lease.until) = (lease.epoch + 1, now);
        format!("{}", lease.epoch)
    }

    /// What an asker under its last grant is told who has not the lease.
    fn under(&self, who: usize, stream: usize) -> Result<(i64, i64), String> {
        let grant = self.grants[who][stream].ok_or("no grant")?;
        let lease = &self.leases[self.lease_of(stream).expect("it was granted")];
        let mine = lease.owner == Some(who) && (lease.epoch, lease.fence) == grant;
        if mine && self.live(lease) {
            return Ok(grant);
        }
        Err(format!("refused, fence {}", lease.fence))
    }

    fn on_stream(&mut self, who: usize, stream: usize, step: Step) -> Result<String, String> {
        let (epoch, fence) = self.under(who, stream)?;
        // They read the same, and one at most is let in.
        let other = 1 - stream;
        let barred = self.streams[other].opened
            && self.lease_of(other).is_some_and(|at| self.live(&self.leases[at]));
        let row = &mut self.streams[stream];
        match step {
            Step::Open if barred => return Err("barred".to_owned()),
            Step::Open => row.opened = true,
            Step::Mark => {}
            Step::CommitBehind => return Err("moved".to_owned()),
            Step::Commit if !row.opened => return Err("moved".to_owned()),
            Step::Commit if (row.epoch, row.fence) > (epoch, fence) => {
                return Err("moved".to_owned());
            }
            Step::Commit => (row.epoch, row.fence, row.seq) = (epoch, fence, row.seq + 1),
        }
        Ok(format!("{} {}", row.fence, row.seq))
    }
}

fn sorted(mut keys: Vec<usize>) -> Vec<usize> {
    keys.sort_unstable();
    keys
}

impl ReferenceStateMachine for Ref {
    type State = Self;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self {
            now: 0,
            started: 0,
            runs: Vec::new(),
            leases: Vec::new(),
            claims: vec![None; WHO.end],
            grants: vec![vec![None; STREAMS.end]; WHO.end],
            streams: vec![Stream { epoch: 1, ..Stream::default() }; STREAMS.end],
            answer: String::new(),
        })
        .boxed()
    }

    fn transitions(_state: &Self) -> BoxedStrategy<Op> {
        let how = prop_oneof![Just(How::Failed), Just(How::Cancelled), Just(How::GivenBack)];
        let deed = prop_oneof![
            3 => Just(Deed::Publish),
            2 => how.prop_map(Deed::Finish),
            1 => Just(Deed::Close),
            1 => Just(Deed::Disown),
            2 => Just(Deed::Renew),
        ];
        let step = prop_oneof![
            3 => Just(Step::Open),
            4 => Just(Step::Commit),
            1 => Just(Step::CommitBehind),
            1 => Just(Step::Mark),
        ];
        prop_oneof![
            3 => (1..TTL_MS * 3 / 2).prop_map(Op::Tick),
            1 => Just(Op::Restart),
            5 => (KEYS, 0..2_usize).prop_map(|(key, body)| Op::Admit { key, body }),
            1 => KEYS.prop_map(Op::Cancel),
            4 => (WHO, 1..4_i64).prop_map(|(who, batch)| Op::Claim(who, batch)),
            3 => WHO.prop_map(Op::ClaimSuspect),
            2 => (WHO, KEYS).prop_map(|(who, key)| Op::ClaimOne(who, key)),
            9 => (WHO, deed).prop_map(|(who, deed)| Op::OnClaim(who, deed)),
            4 => WHO.prop_map(Op::Sweep),
            1 => (WHO, any::<bool>()).prop_map(|(who, knows)| Op::GiveBackOwn(who, knows)),
            1 => Just(Op::Mend),
            1 => Just(Op::HasWork),
            4 => (WHO, STREAMS).prop_map(|(who, stream)| Op::Acquire(who, stream)),
            2 => (WHO, STREAMS).prop_map(|(who, stream)| Op::Renew(who, stream)),
            1 => (WHO, STREAMS).prop_map(|(who, stream)| Op::Release(who, stream)),
            1 => STREAMS.prop_map(Op::NewEpoch),
            9 => (WHO, STREAMS, step)
                .prop_map(|(who, stream, step)| Op::OnStream(who, stream, step)),
        ]
        .boxed()
    }

    fn apply(mut state: Self, op: &Op) -> Self {
        let answer = match op {
            Op::Tick(ms) => {
                state.now += ms;
                "done".to_owned()
            }
            Op::Restart => {
                state.started = state.now;
                "done".to_owned()
            }
            Op::Admit { key, body } => state.admit(*key, *body),
            Op::Cancel(key) => state.cancel(*key),
            Op::Claim(who, batch) => state.claim(*who, *batch),
            Op::ClaimSuspect(who) => {
                let runs = state.runs.iter().enumerate();
                let suspects = runs.filter(|(_, run)| run.state == "QUEUED" && run.attempts > 0);
                let first = suspects.min_by_key(|(at, run)| (run.attempts, *at)).map(|run| run.0);
                state.claim_alone(*who, first)
            }
            Op::ClaimOne(who, key) => {
                let free = |run: &Run| run.key == *key && run.state == "QUEUED";
                let run = state.runs.iter().position(free);
                state.claim_alone(*who, run)
            }
            Op::OnClaim(who, Deed::Publish) => state.publish(*who),
            Op::OnClaim(who, Deed::Finish(how)) => state.finish(*who, *how),
            Op::OnClaim(who, Deed::Close) => state.let_go(*who, false),
            Op::OnClaim(who, Deed::Disown) => state.let_go(*who, true),
            Op::OnClaim(who, Deed::Renew) => state.renew_many(*who),
            Op::Sweep(who) => state.sweep(*who),
            Op::GiveBackOwn(who, knows) => state.give_back(*who, *knows),
            Op::Mend => "0".to_owned(),
            Op::HasWork => format!("{}", state.has_work()),
            Op::Acquire(who, stream) => state.acquire(*who, *stream),
            Op::Renew(who, stream) => state.by_name(*who, *stream, state.now + TTL_MS),
            Op::Release(who, stream) => state.by_name(*who, *stream, state.now),
            Op::NewEpoch(stream) => state.new_epoch(*stream),
            Op::OnStream(who, stream, step) => {
                state.on_stream(*who, *stream, *step).unwrap_or_else(|refused| refused)
            }
        };
        state.answer = answer;
        state
    }
}
